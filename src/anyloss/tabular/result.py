"""The records that describe a model fitted to a table."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from anyloss._core.backend import Array
from anyloss._core.counts import Counts
from anyloss.certificates import CertifiedThreshold
from anyloss.costs import CostSummary
from anyloss.tabular.effects import Effect
from anyloss.tabular.labels import Outcome
from anyloss.tabular.messages import Message
from anyloss.tabular.readings import Reading
from anyloss.tabular.slices import Slice
from anyloss.tabular.wrong_rows import WrongRow


@dataclass(frozen=True)
class Baseline:
    """A usual method, trained and tested on the same rows as the model.

    `Result.baselines` and `Comparison.baselines` hold them.

    Attributes:
        name (str): the method, such as "cross-entropy, tuned threshold".
        score (float): the metric of its decisions on the test rows.
        difference (float): the score of the model minus the score of the baseline.
        interval (tuple of float): the 95 % interval of the difference.
        trivial (bool): whether the decisions do not depend on the features. Default: False.

    Examples:
        >>> found = Baseline("cross-entropy, threshold 0.5", 0.70, 0.02, (-0.01, 0.05))
        >>> found.interval[0] > 0  # whether the model is clearly better
        False
    """

    name: str
    score: float
    difference: float
    interval: tuple[float, float]
    trivial: bool = False


@dataclass(frozen=True)
class Importance:
    """The permutation importance of a column: how much the score drops when it is shuffled.

    `Result.importances` holds them, the most important column first.

    Attributes:
        column (str): the name of the column.
        drop (float): the score of the test rows minus the mean score after shuffling the column.
        deviation (float): the standard deviation of that difference over the shuffles.

    Examples:
        >>> Importance("age", drop=0.12, deviation=0.01).column
        'age'
    """

    column: str
    drop: float
    deviation: float


@dataclass(frozen=True)
class Result:
    """A model fitted to a table, its decisions on the test rows, and how good they are.

    `fit_table` returns it, `save` writes it to a folder, and `anyloss.report.write` turns it into
    an HTML page.

    Attributes:
        model (TableModel): the fitted model.
        model_name (str): "auto" for an ensemble, "linear", "mlp" or "lightgbm", or a usual method,
            such as "tuned-linear".
        metric (str): the metric that the model was trained for.
        average (str): how the metric is averaged over several classes or labels; `"binary"` for two
            classes.
        outcome (Outcome): what the model predicts: the task, the label columns and the classes.
        readings (tuple of Reading): how each column was read, and whether it is used.
        score (float): the metric of the decisions on the test rows; with cross-fitting these are
            all rows, as `facts["evaluation"]` states.
        interval (tuple of float): the 95 % interval of the score, from a bootstrap over the test
            rows.
        counts (Counts): the confusion counts of the test rows: numbers for two classes, else
            arrays with one entry per class.
        y_test (array): the labels of the test rows as 0 and 1. The shape is (n,) for two classes,
            where 1 is the positive class; else (n, classes).
        p_test (array): the decision values of the test rows, from 0 to 1, in the shape of `y_test`.
            A value above 0.5 is a positive decision; for several classes it is the highest one.
        curve (array): one row per check during the training: step, soft score, and hard score of
            held-out rows. It has no rows for LightGBM.
        baselines (tuple of Baseline): usual methods on the same rows, with intervals from a paired
            bootstrap over the test rows.
        candidates (dict): with `model="auto"`, the score of each model on held-out training rows;
            otherwise empty.
        importances (tuple of Importance): the columns, the most important first.
        facts (dict): the numbers of rows and columns, the share of missing cells, the columns that
            are not used, what the score rests on (`evaluation`, `folds`, `fits`), and the members
            that a limit of time left out (`left_out`).
        warnings (tuple of Message): what a reader should know before relying on the score, each
            text with its level.
        settings (dict): the command, the seed, the date and the versions, to repeat the fit.
        constraints (tuple of str): the constraints. Default: none.
        certificate (CertifiedThreshold or None): with a confidence level, what is certified about
            new data. Default: None.
        train_score (float): the score of the training rows, weighted to the number of test rows.
            Default: NaN.
        held_out_score (float): the score of training rows that are held out from the training of
            the members that decide about them. Default: NaN.
        slices (tuple of Slice): the scores of parts of the test rows. Default: none.
        small_slices (int): the number of parts that are too small for a score. Default: 0.
        effects (tuple of Effect): how the decision values change with the most important columns.
            Default: none.
        wrong_rows (tuple of WrongRow): the most confident errors. Default: none.
        weights (dict): the weights of the candidates in an ensemble; otherwise empty.
        costs (dict): with costs of the errors, what the test rows cost if they are decided row by
            row, for the metric, and all alike, each a `CostSummary`. Default: empty.

    Examples:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from anyloss.tabular import fit_table
        >>> frame = load_breast_cancer(as_frame=True).frame[["mean area", "mean texture", "target"]]
        >>> result = fit_table(frame, "target", "f1", model="linear")
        >>> result.interval[0] < result.score < result.interval[1]
        True
        >>> [each.column for each in result.importances]
        ['mean area', 'mean texture']
        >>> int(sum(result.counts)) == result.facts["test_rows"] == len(result.y_test)
        True
    """

    model: Any
    model_name: str
    metric: str
    average: str
    outcome: Outcome
    readings: tuple[Reading, ...]
    score: float
    interval: tuple[float, float]
    counts: Counts
    y_test: Array
    p_test: Array
    curve: Array
    baselines: tuple[Baseline, ...]
    candidates: dict[str, float]
    importances: tuple[Importance, ...]
    facts: dict[str, Any]
    warnings: tuple[Message, ...]
    settings: dict[str, Any]
    constraints: tuple[str, ...] = ()
    certificate: CertifiedThreshold | None = None
    train_score: float = math.nan
    held_out_score: float = math.nan
    slices: tuple[Slice, ...] = ()
    small_slices: int = 0
    effects: tuple[Effect, ...] = ()
    wrong_rows: tuple[WrongRow, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)
    costs: dict[str, CostSummary] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """Our recipe and the usual methods on the same folds of a table.

    `compare_table` returns it.

    Attributes:
        metric (str): the metric of the scores.
        rows (int): the number of rows that were used.
        score (float): the mean score of our recipe over the test folds.
        baselines (tuple of Baseline): the mean scores of the usual methods, the simplest first.
            Their intervals use the corrected variance for folds that share rows.
        warnings (tuple of Message): what a reader should know about the data.
        scores (dict): the score of each method on each test fold, the simplest method first and
            ours, `"anyloss"`, last; then the trivial decisions.
        folds (int): the number of folds of each repeat.
        names (dict): the name with which `fit_table(model=...)` fits each method, by its title.

    Examples:
        >>> other = Baseline("cross-entropy, tuned threshold", 0.70, 0.02, (-0.01, 0.05))
        >>> scores = {other.name: (0.71, 0.69), "anyloss": (0.74, 0.70)}
        >>> found = Comparison("f1", 300, 0.72, (other,), (), scores, 2)
        >>> [each.name for each in found.baselines if each.interval[0] <= 0]
        ['cross-entropy, tuned threshold']
    """

    metric: str
    rows: int
    score: float
    baselines: tuple[Baseline, ...]
    warnings: tuple[Message, ...]
    scores: dict[str, tuple[float, ...]]
    folds: int
    names: dict[str, str] = field(default_factory=dict)

    @property
    def trivial(self) -> tuple[str, ...]:
        """The names of the trivial decisions."""
        return tuple(x.name for x in self.baselines if x.trivial)
