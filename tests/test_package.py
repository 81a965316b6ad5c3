"""The package as it is installed: what it imports, what it carries."""

import importlib
import inspect
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def test_importing_the_core_imports_no_framework():
    code = "import sys, anyloss; print(*(m for m in sys.modules if '.' not in m))"
    loaded = set(run(sys.executable, "-c", code).split())
    assert "numpy" in loaded
    assert not loaded & {
        "torch",
        "jax",
        "keras",
        "sklearn",
        "scipy",
        "pandas",
        "rich",
        "matplotlib",
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(ROOT),
    )
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_carries_types_and_templates_but_no_papers_and_no_data(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "anyloss/py.typed" in names
    assert "anyloss/torch/loss.py" in names
    others = {n for n in names if not n.endswith((".py", "py.typed")) and ".dist-info/" not in n}
    files = (
        "costs.html", "page.html", "planner.html", "planner.js", "promise.html",
        "several_classes.html", "slices.html", "style.css", "two_classes.html",
    )  # fmt: skip
    assert others == {f"anyloss/report/templates/{x}" for x in files}
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"anyloss"}


@pytest.mark.slow("builds the sdist")
@pytest.mark.skipif(
    not (shutil.which("git") and (ROOT / ".git").exists()), reason="needs a clone of the repository"
)
def test_the_sdist_holds_every_tracked_file(tmp_path):
    """`make test-sdist` runs the tests from it."""
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path),
        str(ROOT))  # fmt: skip
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {x.name.split("/", 1)[1] for x in archive.getmembers() if x.isfile()}
    tracked = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    needed = {x for x in tracked if x and (ROOT / x).is_file()}
    assert {x.split("/")[0] for x in needed - names} <= {".ci", ".github"}


def versions(path):
    """The versions that a file of constraints pins."""
    lines = (ROOT / path).read_text().splitlines()
    return dict(x.split("==") for x in lines if x and not x.startswith("#"))


def test_the_constraints_agree_with_the_lower_bounds_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    bounds = dict(x.split(">=") for group in groups for x in group if ">=" in x)
    oldest, newest = versions("constraints-oldest.txt"), versions("constraints.txt")
    assert {"numpy", "scipy", "scikit-learn", "pandas", "lightgbm"} <= bounds.keys() & oldest.keys()
    for name, bound in bounds.items():
        lowest = [int(x) for x in bound.split(".")]
        assert [int(x) for x in re.findall(r"\d+", newest[name])] >= lowest, name
        if name in oldest and name != "torch":
            pinned = [int(x) for x in oldest[name].split(".")]
            assert pinned == lowest + [0] * (len(pinned) - len(lowest)), name


@pytest.mark.slow("makes an environment")
def test_the_wheel_works_in_an_empty_environment_with_numpy_alone(wheel, tmp_path):
    """A fresh environment that sees nothing but NumPy and the wheel."""
    environment = tmp_path / "empty"
    run(sys.executable, "-m", "venv", str(environment))
    python = environment / "bin" / "python"
    run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--constraint", str(ROOT / "constraints.txt"), str(wheel))  # fmt: skip
    code = "import anyloss; print(anyloss.score([1, 0, 1], [0.9, 0.2, 0.4], 'f1'))"
    assert float(run(str(python), "-c", code, cwd=tmp_path)) == pytest.approx(2 / 3)
    listed = run(str(python), "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check")
    packages = {line.split("==")[0].lower() for line in listed.split()}
    assert packages <= {"anyloss", "numpy", "pip", "setuptools"}
    for room in ("torch", "report"):
        code = f"import anyloss.{room}"
        missing = subprocess.run([python, "-c", code], capture_output=True, text=True)
        assert f"pip install 'anyloss[{room}]'" in missing.stderr


def test_no_public_signature_hides_its_options():
    """Every option is named; only the parameters of a metric or of a library stand as `**`."""
    import anyloss
    import anyloss.jax
    import anyloss.keras
    import anyloss.torch
    from anyloss import tabular
    from anyloss.sklearn import AnyLossClassifier

    found = [AnyLossClassifier, *(getattr(anyloss, name) for name in anyloss.__all__)]
    for module in (anyloss.torch, anyloss.keras, anyloss.jax, tabular):
        found += [getattr(module, name) for name in module.__all__]
    for each in found:
        if not callable(each):
            continue
        hidden = [
            x.name
            for x in inspect.signature(each).parameters.values()
            if x.kind is x.VAR_KEYWORD and x.name not in ("params", "encoder_parameters")
        ]
        assert not hidden, (each, hidden)


def test_machinery_is_not_in_the_public_surface():
    for name in ("counts", "score", "gradient", "explain", "metric"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"anyloss.{name}")
