"""Studies: our benchmark of the recipe against its rivals, on real data."""

from anyloss.studies.datasets import Dataset, bundled, from_folder, from_openml
from anyloss.studies.protocol import Study, read_results, run, usable

__all__ = [
    "Dataset",
    "Study",
    "bundled",
    "from_folder",
    "from_openml",
    "read_results",
    "run",
    "usable",
]
