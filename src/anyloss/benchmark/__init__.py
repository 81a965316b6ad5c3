"""Our measurements against the baselines, on real data: `anyloss bench`."""

from anyloss.benchmark.datasets import Dataset, bundled, from_folder, from_openml
from anyloss.benchmark.protocol import Benchmark, read_results, run, usable

__all__ = [
    "Benchmark",
    "Dataset",
    "bundled",
    "from_folder",
    "from_openml",
    "read_results",
    "run",
    "usable",
]
