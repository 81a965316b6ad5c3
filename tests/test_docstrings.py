"""Every public name has a docstring of one template, and no text uses a retired word."""

import ast
import importlib
import inspect
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PUBLIC = [
    "anyloss", "anyloss.certificates", "anyloss.costs", "anyloss.plot", "anyloss.steps", "anyloss.torch", "anyloss.torchmetrics", "anyloss.keras", "anyloss.jax",
    "anyloss.boosting", "anyloss.sklearn", "anyloss.recipe", "anyloss.tabular", "anyloss.report",
    "anyloss.benchmark",
]  # fmt: skip
ARRAYS = {"input", "logits", "labels", "y_true", "y_score", "y_pred", "X", "y"}


def public_names():
    for module in PUBLIC:
        for name in importlib.import_module(module).__all__:
            yield f"{module}.{name}"


def found(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def sections(text):
    """The text of each section of a docstring; the part before the first is the one called ''."""
    parts, at = {"": []}, ""
    for line in inspect.cleandoc(text).split("\n"):
        if re.fullmatch(r"[A-Z][a-z]+:", line):
            at = line[:-1]
            parts[at] = []
        else:
            parts[at].append(line)
    return {name: "\n".join(lines) for name, lines in parts.items()}


def entries(section):
    """The names that a section describes, each as `name (type): text`."""
    return re.findall(r"^ {4}\**(\w+) \(.+", section, re.MULTILINE)


def is_plain_record(each):
    """A class that users read, and do not make: what it holds stands under `Attributes`."""
    parts = sections(each.__doc__)
    return inspect.isclass(each) and "Attributes" in parts and "Args" not in parts


def test_every_public_module_has_a_page_of_the_reference():
    parsed = ast.parse((ROOT / "docs" / "hooks.py").read_text())
    (pages,) = (
        ast.literal_eval(x.value)
        for x in parsed.body
        if isinstance(x, ast.Assign) and x.targets[0].id == "MODULES"
    )
    assert sorted(pages) == sorted(PUBLIC)


@pytest.mark.parametrize("path", list(public_names()))
def test_a_public_name_has_the_sections_of_the_template(path):
    each = found(path)
    if not callable(each):  # a constant or a module of public names, which has a test of its own
        return
    assert each.__doc__, f"{path} has no docstring"
    parts = sections(each.__doc__)
    summary = parts[""].split("\n\n")[0].rstrip()
    assert summary.endswith("."), f"the first line is no sentence: {summary!r}"
    assert len(summary.split("\n")) == 1, f"the summary takes one line; got {summary!r}"
    assert ">>>" in parts.get("Examples", ""), "no section Examples with a runnable example"
    if is_plain_record(each):
        assert entries(parts["Attributes"])
        return
    parameters = [x for x in inspect.signature(each).parameters if x != "self"]
    documented = entries(parts.get("Args", ""))
    assert sorted(documented) == sorted(parameters), "Args and signature differ"
    assert "Raises" in parts, "no section Raises"
    if inspect.isfunction(each):
        assert "Returns" in parts, "no section Returns"
    calls = (each, getattr(each, "forward", None), getattr(each, "call", None))
    taken = {x for call in calls if call for x in inspect.signature(call).parameters}
    if taken & ARRAYS:
        assert "Shape" in parts, "no section Shape"


@pytest.mark.parametrize("path", [x for x in public_names() if re.search(r"Loss$|steps\.[A-Z]", x)])
def test_a_loss_and_a_step_name_their_reference(path):
    assert "References" in sections(found(path).__doc__)


# Words of earlier versions, and the usual word instead. `say`, `note` and `tell` stood for messages
# and callbacks.
RETIRED = {
    r"t(ell|ells|elling|old)": "a callback receives, a message names, `print`",
    r"(say|says|said)": "is, names, states",
    r"notes?": "a message, a warning",
    r"rivals?": "a baseline",
    r"(votes?|voters?|voting)": "an ensemble, its members, their mean probability",
    r"tall(y|ies)": "the counts",
    r"slopes?": "a derivative, d_positive, d_negative",
    r"hits?": "a true positive",
    r"(false )?alarms?": "a false positive",
    r"(studies|study)": "a benchmark, the papers",
    r"begun": "started",
    r"aside": "except; or a temporary file",
}
PATTERN = re.compile(r"(?<![\w`./\"'-])(" + "|".join(RETIRED) + r")(?![\w`(=\"'-])", re.IGNORECASE)
FILES = [
    *sorted((ROOT / "src").rglob("*.py")),
    *sorted((ROOT / "papers").rglob("*.py")),
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")),
    *sorted((ROOT / "benchmarks").glob("*.*")),
    *sorted((ROOT / "examples").rglob("*.py")),
    *sorted((ROOT / "tools").glob("*.py")),
]


def sentences(path):
    """The texts of a file with their lines: all of a document; strings and comments of a module."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.split("\n"), 1)
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for k, line in enumerate(node.value.split("\n")):
                yield node.lineno + k, line
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_uses_a_retired_word(path):
    found = [
        f"{path.relative_to(ROOT)}:{k}: {word[0]!r} in {line.strip()!r}"
        for k, line in sentences(path)
        if (word := PATTERN.search(line))
    ]
    assert not found, "\n".join(found)


def test_retired_words_are_found_where_they_stand():
    """The check itself can fail."""
    for text in ("the callback is told", "a Rival", "one false alarm more", "Note that"):
        assert PATTERN.search(text), text
    for text in ("hit_rate", "`note`", "--note", "a storyteller", "toldness", "alarming"):
        assert not PATTERN.search(text), text
