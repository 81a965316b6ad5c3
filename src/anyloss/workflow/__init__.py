"""From a table to a model and what is known about it.

The functions behind the command line, for Python: `read_table`, `fit_table`, `save`, `load`.
"""

from anyloss.workflow.fitting import fit_table
from anyloss.workflow.model import TableModel, load, save
from anyloss.workflow.reading import read_table
from anyloss.workflow.result import Importance, Result, Rival

__all__ = [
    "Importance",
    "Result",
    "Rival",
    "TableModel",
    "fit_table",
    "load",
    "read_table",
    "save",
]
