"""From a table to a model and what is known about it: the functions behind the command line.

`fit_table` gives a `Result`, `save` and `load` keep its model in a folder, `predict_table` and
`compare_table` do what `anyloss predict` and `anyloss compare` do.
"""

from anyloss.workflow.comparing import compare_table
from anyloss.workflow.fitting import fit_table
from anyloss.workflow.model import TableModel, load, save
from anyloss.workflow.predicting import predict_table
from anyloss.workflow.reading import read_table
from anyloss.workflow.result import Importance, Result, Rival

__all__ = [
    "Importance",
    "Result",
    "Rival",
    "TableModel",
    "compare_table",
    "fit_table",
    "load",
    "predict_table",
    "read_table",
    "save",
]
