"""Models of tables: the functions behind the command line.

`fit_table` fits a model to a table and evaluates it, `save` and `load` keep the model in a folder,
`predict_table` predicts the rows of a file, `estimate_prevalence` estimates their share of
positives, and `compare_table` compares the model with the usual methods. `TableEncoder` and
`for_tables` bring a data frame to any scikit-learn classifier.
"""

from anyloss.tabular.comparing import compare_table
from anyloss.tabular.effects import Effect
from anyloss.tabular.encoder import TableEncoder, for_tables
from anyloss.tabular.fitting import fit_table
from anyloss.tabular.labels import Outcome
from anyloss.tabular.messages import Message
from anyloss.tabular.model import TableModel, load, save
from anyloss.tabular.predicting import estimate_prevalence, predict_table
from anyloss.tabular.reading import read_table
from anyloss.tabular.readings import Reading
from anyloss.tabular.result import Baseline, Comparison, Importance, Result
from anyloss.tabular.slices import Slice
from anyloss.tabular.wrong_rows import WrongRow

__all__ = [
    "Baseline",
    "Comparison",
    "Effect",
    "Importance",
    "Message",
    "Outcome",
    "Reading",
    "Result",
    "Slice",
    "TableEncoder",
    "TableModel",
    "WrongRow",
    "compare_table",
    "estimate_prevalence",
    "fit_table",
    "for_tables",
    "load",
    "predict_table",
    "read_table",
    "save",
]
