"""Our measurements against the baselines, on real data: `anyloss bench`."""

from anyloss.benchmark.datasets import Dataset, bundled, from_folder, from_openml
from anyloss.benchmark.protocol import Benchmark, read_results, run, usable
from anyloss.benchmark.several import labels_from_folder, several_classes

__all__ = [
    "Benchmark",
    "Dataset",
    "bundled",
    "from_folder",
    "from_openml",
    "labels_from_folder",
    "read_results",
    "run",
    "several_classes",
    "usable",
]
