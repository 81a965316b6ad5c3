"""What MkDocs adds to the folder of documents: pages from other folders, notebooks, the reference.

The notebooks are stored without outputs. They are executed here, and an error in one of them, or a
warning, ends the build.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from traitlets.config import Config

ROOT = Path(__file__).parents[1]
SOURCE = "https://github.com/anyloss/anyloss/blob/main/"
PAGES = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *sorted(str(x.relative_to(ROOT)) for x in (ROOT / "benchmarks").glob("*.md")),
]
# The public modules, each with a page of the reference.
MODULES = [
    "anyloss", "anyloss.steps", "anyloss.plot", "anyloss.certificates", "anyloss.costs",
    "anyloss.torch", "anyloss.torchmetrics", "anyloss.keras", "anyloss.jax", "anyloss.sklearn",
    "anyloss.boosting", "anyloss.recipe", "anyloss.tabular", "anyloss.report", "anyloss.benchmark",
]  # fmt: skip


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the reference into the navigation."""
    for entry in config.nav:
        if entry.get("Reference") == "reference/":
            entry["Reference"] = [{name: f"reference/{name}.md"} for name in MODULES]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere, and those of the reference."""
    for path in PAGES:
        files.append(File.generated(config, path, content=(ROOT / path).read_text()))
    described: dict[str, str] = {}
    for name in MODULES:
        text = reference(name, described)
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        for name, content in executed(path):
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def executed(path: Path) -> Iterator[tuple[str, str | bytes]]:
    """The page of a notebook and its pictures, after all cells were executed."""
    notebook = nbformat.read(path, as_version=4)
    with TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}},
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/ipc"}}),
        ).execute()  # fmt: skip
    for output in (x for cell in notebook.cells for x in cell.get("outputs", ())):
        if output.get("name") == "stderr":
            raise RuntimeError(f"{path.name} prints a warning: {output.text}")
    given = {"unique_key": path.stem, "output_files_dir": f"{path.stem}_files"}
    text, found = MarkdownExporter().from_notebook_node(notebook, given)
    source = f"{SOURCE}docs/notebooks/{path.name}"
    yield f"{path.stem}.md", f"{text}\n\nThis page is [a notebook]({source}); run it yourself.\n"
    yield from found["outputs"].items()


def reference(name: str, described: dict[str, str]) -> str:
    """The page of a module: its docstring, and each public name with its docstring.

    A name that another module has as well is described once; `described` maps it to that module.
    """
    module = importlib.import_module(name)
    parts = [f"# {name}", (module.__doc__ or "").strip()]
    for each in sorted(module.__all__, key=str.lower):
        found = getattr(module, each)
        path = f"{getattr(found, '__module__', name)}.{getattr(found, '__qualname__', each)}"
        if path in described:
            parts.append(f"## {each}\n\nSee [{described[path]}]({described[path]}.md).")
        elif callable(found):
            described[path] = name
            parts.append(f"::: {path}")
        elif each == "METRICS":
            parts.append(
                f"## `{name}.METRICS`\n\nThe named metrics; [metrics](../metrics.md) lists them."
            )
    return "\n\n".join(parts) + "\n"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite links that are right in the repository: to pages of the site, else to the source."""
    folder = Path(page.file.src_uri).parent
    inside = page.file.src_uri in PAGES
    base = ROOT / folder if inside else ROOT / "docs" / folder
    up = "../" * len(folder.parts)

    def moved(match: re.Match[str]) -> str:
        target, _, anchor = match[1].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = (base / target).resolve()
        if not path.is_relative_to(ROOT):
            return match[0]
        at = str(path.relative_to(ROOT))
        if at.startswith("docs/"):
            target = up + at.removeprefix("docs/").replace(".ipynb", ".md")
        elif at in PAGES:
            target = up + at
        elif path.exists():
            target = SOURCE + at
        return f"]({target}{'#' if anchor else ''}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", moved, markdown)
