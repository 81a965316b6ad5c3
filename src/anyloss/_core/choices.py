"""The options of how a batch is read, counted and averaged, and the checks that need no batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple

Task = Literal["auto", "binary", "multilabel", "multiclass"]
ZeroDivision = Literal["auto", "skip", 0, 1]
PerSample = bool | Literal["weighted"]
ClassWeights = Sequence[float] | Literal["inverse", "inverse_square"]
Form = Literal["linear", "log"]
Reduction = Literal["mean", "sum", "none"]
Activation = Literal["auto", "sigmoid", "softmax"]

KNOWN: dict[str, tuple[object, ...]] = {
    "task": ("auto", "binary", "multilabel", "multiclass"),
    "zero_division": ("auto", "skip", 0, 1),
    "per_sample": (False, True, "weighted"),
    "form": ("linear", "log"),
    "reduction": ("mean", "sum", "none"),
    "activation": ("auto", "sigmoid", "softmax"),
}
COMPUTED_WEIGHTS = ("inverse", "inverse_square")


class Options(NamedTuple):
    """How a batch is read; `_core/documents.py` describes each option."""

    average: str | None = "auto"
    from_logits: bool = True
    activation: Activation = "auto"
    squared: bool = False
    per_sample: PerSample = False
    task: Task = "auto"
    class_axis: int | None = None
    classes: tuple[int, ...] | None = None
    include_background: bool = True
    class_weights: tuple[float, ...] | str | None = None
    zero_division: ZeroDivision = "auto"
    form: Form = "linear"
    reduction: Reduction = "mean"
    top_k: int = 1
    soft_labels: bool = False
    ignore_index: int | None = None
    validate: bool = True

    @property
    def by_sample(self) -> bool:
        """Whether each sample has a score of its own."""
        return bool(self.per_sample) or self.average == "samples"

    @property
    def of_classes(self) -> list[str]:
        """The options that choose or weigh single classes, as they were given."""
        usual = {"classes": None, "include_background": True, "class_weights": None}
        given = ((name, getattr(self, name)) for name in usual)
        return [f"{name}={value!r}" for name, value in given if value != usual[name]]


def make_options(**given: Any) -> Options:
    """The options, each one checked."""
    options = Options(**given)
    rule = options.zero_division
    if isinstance(rule, Real) and not isinstance(rule, bool) and rule in (0, 1):
        options = options._replace(zero_division=1 if rule else 0)
    for name, known in KNOWN.items():
        value = getattr(options, name)
        if not any(type(value) is type(each) and value == each for each in known):
            nan = "; scikit-learn's nan is 'skip' here" if name == "zero_division" else ""
            raise ValueError(
                f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}{nan}"
            )
    for name in ("from_logits", "squared", "soft_labels", "include_background", "validate"):
        if getattr(options, name) not in (True, False):
            raise TypeError(f"{name} must be True or False; got {getattr(options, name)!r}")
    for name in ("class_axis", "ignore_index"):
        value = getattr(options, name)
        if value is not None and not _is_whole(value):
            raise TypeError(f"{name} must be a whole number or None; got {value!r}")
    if not _is_whole(options.top_k) or options.top_k < 1:
        raise ValueError(f"top_k must be a whole number of at least 1; got {options.top_k!r}")
    _check_reduction(options)
    _check_activation(options)
    return options._replace(
        average=None if options.average == "none" else options.average,
        classes=_read_classes(options),
        class_weights=_read_class_weights(options.class_weights),
    )


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check_reduction(options: Options) -> None:
    """Refuse a reduction over samples where there is none, or where it is the mean by its name."""
    if options.reduction == "mean" or (options.by_sample and options.per_sample != "weighted"):
        return
    raise ValueError(
        f"reduction={options.reduction!r} is over samples that weigh alike and needs "
        f"per_sample=True; got per_sample={options.per_sample!r}"
    )


def _check_activation(options: Options) -> None:
    """Refuse an activation of probabilities, and squares of decisions that match soft labels."""
    if options.activation != "auto" and not options.from_logits:
        raise ValueError(
            "probabilities (from_logits=False) have no activation; got "
            f"activation={options.activation!r}. Leave it out, or pass logits and from_logits=True"
        )
    if options.squared and options.soft_labels:
        raise ValueError(
            "squared=True and soft_labels=True are two ways to count; got both. Leave out one"
        )


def listed(name: str, given: Any) -> list[Any]:
    """The entries of a sequence, an array or a tensor of one axis."""
    found = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise TypeError(f"{name} must be a sequence; got {given!r}")
    return list(found)


def _read_classes(options: Options) -> tuple[int, ...] | None:
    """The classes that count, as numbers; `layout` checks them against the number of classes."""
    if options.classes is None:
        return None
    if not options.include_background:
        raise ValueError(
            "classes= and include_background=False both choose the classes that count; got "
            f"classes={options.classes!r} as well. Leave out one of the two"
        )
    found = listed("classes", options.classes)
    if not found or not all(map(_is_whole, found)) or min(found) < 0:
        raise ValueError(
            "classes must be a sequence of class numbers from 0 on, such as [1, 2]; got "
            f"{options.classes!r}"
        )
    if len(set(found)) < len(found):
        raise ValueError(f"classes must name each class once; got {options.classes!r}")
    return tuple(map(int, found))


def _read_class_weights(given: Any) -> tuple[float, ...] | str | None:
    """The weights of the classes as numbers; `layout` checks how many there are."""
    if given is None or (isinstance(given, str) and given in COMPUTED_WEIGHTS):
        return given
    if isinstance(given, str):
        raise ValueError(
            f"class_weights must be one number per class, 'inverse' or 'inverse_square'; got "
            f"{given!r}"
        )
    found = listed("class_weights", given)
    valid = all(isinstance(x, Real) and 0 <= float(x) < math.inf for x in found)
    if not valid or not any(found):
        raise ValueError(
            f"class_weights must be finite numbers >= 0, and not all of them 0; got {given!r}"
        )
    return tuple(map(float, found))


def resolve_average(
    average: str | None, task: str, classes: int, own_form: bool, by_class: bool = False
) -> str | None:
    """The average over the classes that `"auto"` stands for; any other is checked for the task.

    `by_class` is whether an option chooses or weighs single classes, which the binary average and
    the metric's own form do not have.

    >>> resolve_average("auto", "multiclass", classes=5, own_form=True)
    'multiclass'
    """
    if average == "none":
        return None
    binary = task == "binary" or (task == "multiclass" and classes == 2)
    if average == "auto":
        if by_class and task != "binary":
            return "macro"
        if binary:
            return "binary"
        return "multiclass" if own_form and task == "multiclass" else "macro"
    if average == "samples" and task != "multilabel":
        raise ValueError(
            "average='samples' scores each row over its labels and needs task='multilabel'; got a "
            f"{task} task"
        )
    if average == "binary" and not binary:
        raise ValueError(
            f"average='binary' needs a single column or two classes; got {classes} columns "
            f"({task}). Use 'macro', 'micro', 'weighted' or None"
        )
    if average == "multiclass" and task == "multilabel":
        raise ValueError(
            "average='multiclass' needs one class per sample: class indices, or task='multiclass' "
            f"for one-hot labels; got {classes} labels that do not exclude each other"
        )
    return average


def counted_classes(options: Options, average: str | None, number: int) -> tuple[int, ...] | None:
    """The classes that count, or None for all; the options of single classes are checked.

    >>> counted_classes(Options(include_background=False), "macro", 3)
    (1, 2)
    """
    given = options.of_classes
    if not given:
        return None
    if average == "binary":
        raise ValueError(
            f"{given[0]} is for the average over several classes; got average='binary', which "
            "scores the positive class alone. Leave it out, or use average='macro'"
        )
    if average == "multiclass":
        raise ValueError(
            f"{given[0]} is for averages of one score per class; got average='multiclass', which "
            "combines all classes in a formula of its own. Use 'macro', 'micro' or 'weighted'"
        )
    counted = options.classes if options.include_background else tuple(range(1, number))
    if counted is not None and (not counted or max(counted) >= number):
        raise ValueError(
            f"{given[0]} must leave classes from 0 to {number - 1}; got {list(counted)}"
        )
    _check_class_weights(options.class_weights, average, len(counted or range(number)))
    return counted


def _check_class_weights(
    weights: tuple[float, ...] | str | None, average: str | None, number: int
) -> None:
    if weights is None:
        return
    if average is None:
        raise ValueError(
            "class_weights= weighs the classes in their average; got average=None, which has none. "
            "Multiply the scores of the classes yourself, or use 'macro', 'micro' or 'weighted'"
        )
    if not isinstance(weights, str) and len(weights) != number:
        raise ValueError(
            f"class_weights must have one number for each class that counts, {number}; got "
            f"{len(weights)}"
        )
