"""What a benchmark needs besides its data, checked before it starts."""

from __future__ import annotations

from importlib.util import find_spec

from anyloss._core.install import install_command
from anyloss.baselines.boosted import BOOSTED
from anyloss.benchmark.protocol import Benchmark, units

OF_FAMILY = {  # the modules that a family of methods imports, and their packages
    "smote": ("imblearn", "imbalanced-learn"),
    "undersampling": ("imblearn", "imbalanced-learn"),
    "surrogate_fbeta": ("torch", "torch"),
}
PICTURE, PARQUET = ("matplotlib", "matplotlib"), ("pyarrow", "pyarrow")


def check_packages(benchmark: Benchmark, suffix: str = ".csv") -> None:
    """Raise an error with the command that installs what is missing, before hours of work.

    `suffix` is that of the results.
    """
    used = {(unit.model, unit.family) for unit in units(benchmark)}
    wanted = {PICTURE, *([PARQUET] if suffix == ".parquet" else [])}
    wanted |= {OF_FAMILY[family] for _, family in used if family in OF_FAMILY}
    trees = {(model, model) for model, _ in used if model in BOOSTED}
    for extra, needed in (("benchmark", wanted), ("boosting", trees)):
        missing = sorted({package for module, package in needed if find_spec(module) is None})
        if missing:
            raise ModuleNotFoundError(
                f"this benchmark needs {' and '.join(missing)}: choose other models or methods, "
                f"or install with: {install_command(extra)}"
            )
