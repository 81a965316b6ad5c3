"""From a table to a model and what is known about it: the functions behind the command line.

`fit_table` gives a `Result`, `save` and `load` keep its model in a folder, `predict_table` and
`compare_table` do what `anyloss predict` and `anyloss compare` do.
"""

from anyloss.tabular.comparing import compare_table
from anyloss.tabular.encoder import TableEncoder, for_tables
from anyloss.tabular.fitting import fit_table
from anyloss.tabular.model import TableModel, load, save
from anyloss.tabular.predicting import predict_table
from anyloss.tabular.reading import read_table
from anyloss.tabular.result import Importance, Result, Rival

__all__ = [
    "Importance",
    "Result",
    "Rival",
    "TableEncoder",
    "TableModel",
    "compare_table",
    "fit_table",
    "for_tables",
    "load",
    "predict_table",
    "read_table",
    "save",
]
