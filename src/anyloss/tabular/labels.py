"""The labels of a table: what a model predicts, and the label columns as arrays of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from anyloss._core.backend import Array
from anyloss.tabular.columns import listed

LEAST = 10  # rows of each class that a table must have
_ODD = (list, tuple, dict, set, bytes, np.ndarray)  # what Parquet may hold, and is no class
TRUTH = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0}  # the values of a column of one label


@dataclass(frozen=True)
class Outcome:
    """What a model of a table predicts.

    `Result.outcome` and `TableModel.outcome` hold it.

    Attributes:
        task (str): `"binary"` (two classes, or one class against all others), `"multiclass"` (one
            of several classes) or `"multilabel"` (several labels, each 0 or 1).
        targets (tuple of str): the label columns; one column unless there are several labels.
        classes (tuple of str): the classes; of two classes the positive one is the second. For
            several labels, the label columns.

    Examples:
        >>> churn = Outcome("binary", ("left",), ("no", "yes"))
        >>> churn.target, churn.positive, churn.negative
        ('left', 'yes', 'no')
    """

    task: str
    targets: tuple[str, ...]
    classes: tuple[str, ...]

    @property
    def target(self) -> str:
        """The label columns as one text."""
        return ", ".join(self.targets)

    @property
    def positive(self) -> str:
        """The positive one of two classes."""
        return self.classes[1]

    @property
    def negative(self) -> str:
        """The negative one of two classes; `"not A"` if it stands for several."""
        return self.classes[0]

    @property
    def no_positive(self) -> str:
        """Why there is no positive class, and what to do; "" if there is one.

        >>> Outcome("multiclass", ("plan",), ("a", "b", "c")).no_positive
        '3 classes: name the positive one when the model is fitted (--positive)'
        """
        if self.task == "multilabel":
            return f"{len(self.classes)} labels: fit a model for one of them (--target)"
        if self.task == "multiclass" and len(self.classes) == 2:
            return "two classes that count alike: fit without --average"
        several = f"{len(self.classes)} classes: name the positive one when the model is fitted"
        return f"{several} (--positive)" if self.task == "multiclass" else ""

    def decide(self, values: Array) -> Array:
        """The decisions that follow from decision values.

        Args:
            values (array): decision values from 0 to 1, of shape (n,) for two classes, else
                (n, classes).

        Returns:
            array: 1 where a value is above 0.5, otherwise 0; for several classes, 1 for the class
            with the highest value.

        Examples:
            >>> colours = Outcome("multiclass", ("colour",), ("blue", "green", "red"))
            >>> colours.decide(np.array([[0.2, 0.5, 0.3]])).tolist()
            [[0.0, 1.0, 0.0]]
        """
        if self.task == "multiclass":
            return (np.arange(values.shape[1]) == values.argmax(axis=1)[:, None]).astype(float)
        return (values > 0.5).astype(float)

    def names(self, decided: Array) -> Array:
        """The predicted classes of decisions, or 0 and 1 for several labels."""
        if self.task == "multilabel":
            return decided.astype(int)
        at = decided.argmax(axis=1) if self.task == "multiclass" else decided.astype(int)
        return np.array(self.classes, dtype=object)[at]


def read_labels(
    frame: Any, targets: Sequence[str], positive: str | float | None = None, average: str = "auto"
) -> tuple[Array, Outcome]:
    """The labels of rows that all have one, as 0 and 1, and what they mean.

    The shape is (n,) for two classes, else (n, classes).

    >>> frame = pd.DataFrame({"fruit": ["pear", "plum", "fig"] * 10})
    >>> y, outcome = read_labels(frame, ["fruit"])
    >>> y[:2].tolist(), outcome.classes
    ([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], ('fig', 'pear', 'plum'))
    """
    for target in targets:
        kinds = {type(x) for x in frame[target].iloc[:1000]}
        if odd := sorted(x.__name__ for x in kinds if issubclass(x, _ODD)):
            raise ValueError(
                f"the label column {target!r} must hold numbers or text; got values of "
                f"{listed(odd)}: convert them, or name another column (--target)"
            )
    if len(targets) > 1:
        if positive is not None:
            raise ValueError(
                "the positive class is for one label column; got several label columns, whose "
                "positive value is 1: leave out --positive, or name one column (--target)"
            )
        return _several_labels(frame, targets)
    target = targets[0]
    codes, values = pd.factorize(frame[target], sort=True)
    names, sizes = [label_text(x) for x in values], np.bincount(codes, minlength=len(values))
    if len(names) < 2:
        raise ValueError(
            f"the label column {target!r} must have two classes or more; got "
            f"{listed(names) or 'no value'} in all rows"
        )
    if positive is None and (len(names) > 2 or average not in ("auto", "binary")):
        _check_sizes(target, names, sizes, numbers=frame[target].dtype.kind == "f")
        y = (codes[:, None] == np.arange(len(names))).astype(float)
        return y, Outcome("multiclass", (target,), tuple(names))
    positive = positive if positive is None or isinstance(positive, str) else label_text(positive)
    if positive is None:
        positive = names[0] if sizes[0] < sizes[1] else names[1]
    if positive not in names:
        raise ValueError(f"the positive class must be one of {listed(names)}; got {positive!r}")
    k = names.index(positive)
    negative = f"not {positive}" if len(names) > 2 else names[1 - k]
    other = int(sizes.sum() - sizes[k])
    if min(sizes[k], other) < LEAST:
        raise ValueError(
            f"the label column {target!r} must have at least {LEAST} rows of each class, for "
            f"training and testing; got {sizes[k]} of {positive!r} and {other} of {negative!r}"
        )
    return (codes == k).astype(float), Outcome("binary", (target,), (negative, positive))


def alike_classes(frame: Any, outcome: Outcome) -> list[str]:
    """A warning about classes whose names differ only in case.

    >>> frame = pd.DataFrame({"left": ["yes", "Yes", "no"] * 10})
    >>> alike_classes(frame, read_labels(frame, ["left"])[1])
    ["the classes 'Yes' and 'yes' of 'left' differ only in case: correct them if they are the same"]
    """
    if outcome.task == "multilabel":
        return []
    names = [label_text(x) for x in pd.unique(frame[outcome.targets[0]])]
    alike: dict[str, list[str]] = {}
    for name in sorted(names):
        alike.setdefault(name.casefold().strip(), []).append(name)
    return [
        f"the classes {' and '.join(map(repr, same))} of {outcome.target!r} differ only in case: "
        "correct them if they are the same"
        for same in alike.values()
        if len(same) > 1
    ]


def label_text(value: Any) -> str:
    """A label as in the file: pandas reads 1 as 1.0 if a value of the column is missing."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value)


def _check_sizes(target: str, names: Sequence[str], sizes: Array, numbers: bool) -> None:
    few = [k for k in np.argsort(sizes, kind="stable") if sizes[k] < LEAST]
    if not few:
        return
    if len(few) > len(names) / 2:
        hint = ": it looks like a column of numbers, not of classes" if numbers else ""
        raise ValueError(
            f"the label column {target!r} must have at least {LEAST} rows of each class; got "
            f"{len(names)} classes, of which {len(few)} have fewer{hint}. Name the class to "
            "separate from all others (--positive), or another label column (--target)"
        )
    shown = ", ".join(f"{names[k]!r} ({sizes[k]})" for k in few[:10])
    raise ValueError(
        f"the label column {target!r} must have at least {LEAST} rows of each class, for training "
        f"and testing; got fewer of {shown}: merge these classes with others, or remove their rows"
    )


def _several_labels(frame: Any, targets: Sequence[str]) -> tuple[Array, Outcome]:
    columns = []
    for target in targets:
        texts = frame[target].map(lambda x: label_text(x).strip().lower())
        unknown = sorted(set(texts) - set(TRUTH))
        if unknown:
            raise ValueError(
                f"the label column {target!r} must hold 0 and 1, because {len(targets)} label "
                f"columns are named; got {listed(unknown[:5])}: convert it, or name it alone "
                "(--target) to predict its classes"
            )
        columns.append(texts.map(TRUTH).to_numpy(float))
        positives = int(columns[-1].sum())
        if min(positives, len(frame) - positives) < LEAST:
            raise ValueError(
                f"the label column {target!r} must have at least {LEAST} rows with 0 and {LEAST} "
                f"with 1, for training and testing; got {len(frame) - positives} and {positives}: "
                "leave the label out"
            )
    return np.column_stack(columns), Outcome("multilabel", tuple(targets), tuple(targets))
