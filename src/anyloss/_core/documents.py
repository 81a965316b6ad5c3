"""The options that many public functions share, documented once.

`documented` completes the `Args` section of a docstring: a parameter of the signature that the
section does not describe gets its text from `OPTIONS`.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

Documented = TypeVar("Documented", bound=Callable[..., Any])

SECTIONS = ("Args", "Shape", "Returns", "Raises", "Examples", "References")  # in their usual order

OPTIONS = {
    "y_true": """(array-like): the labels: 0 and 1, or class indices.""",
    "y_score": """(array-like): the probabilities, or the logits with `from_logits=True`.""",
    "metric": """(str, callable or Metric): the name of a metric (`"f1"`, see `anyloss.METRICS`), a
        formula (`"tp / (tp + 0.3*fp + 2*fn)"`) or a function of `tp, fn, fp, tn`. Higher values
        are better: write a cost as `1 - cost`. Default: `"f1"`.""",
    "step": """(Step, optional): the smooth approximation of "is the probability above the
        threshold?", from `anyloss.steps`. The default, `Uniform()`, is the probability itself, so
        that perfect and confident predictions have loss 0.""",
    "threshold": """(float or sequence of float, optional): the threshold of the default step, or
        one threshold for each label, also of a `step`. A single number cannot be combined with
        `step`, which has a threshold of its own. Default: 0.5.""",
    "thresholds": """(sequence of float, optional): several thresholds. The score is the mean of
        the scores at each of them.""",
    "average": """(str or None): how several classes or labels are combined: `"macro"`, `"micro"`,
        `"weighted"`, `"samples"` (each row over its labels, then the mean over the rows),
        `"multiclass"` (the metric's own form for several classes), or None for one score per
        class. `"auto"`, the default, is `"binary"` for one column and for two classes; for several
        classes it is the metric's own form where there is one (accuracy, MCC, kappa, balanced
        accuracy, G-mean, H-mean), else `"macro"`; for several labels it is `"macro"`.""",
    "smooth": """(float): a number that is added to each soft count; hard scores ignore it.
        Default: 0.""",
    "cross_entropy": """(float): the factor of the mean cross-entropy that is added to the loss. A
        value of 0.1 keeps the first steps of a network from collapsing to one class.
        Default: 0.""",
    "from_logits": """(bool): whether the scores are logits (True) or probabilities (False).
        Default: {from_logits}.""",
    "activation": """(str): what makes probabilities of logits: `"sigmoid"`, or `"softmax"` over the
        classes. `"auto"`, the default, is the softmax for `task="multiclass"`, else the sigmoid.
        Probabilities (`from_logits=False`) have none.""",
    "squared": """(bool): whether the predicted positives are sums of squared soft decisions, as in
        V-Net's Dice, `2 sum(a y) / (sum(a^2) + sum(y))`. Hard decisions are their own squares, so
        that hard scores do not change. Default: False.""",
    "task": """(str): `"binary"` (every number is a decision of its own: a column, masks, tokens),
        `"multilabel"` (one label per entry of the class axis) or `"multiclass"` (class indices
        without the class axis, or one-hot labels). `"auto"`, the default, follows from the shapes
        and raises an error where the shapes have two readings.""",
    "class_axis": """(int, optional): the axis of the classes or labels in the scores, such as -1
        for channels last. None means 1 (in Keras the last axis), and raises an error where class
        indices would fit the last axis as well. Default: {class_axis}.""",
    "classes": """(sequence of int, optional): only these classes or labels count in the average,
        as with scikit-learn's `labels=`. With `average=None` the scores have their order.
        Default: all.""",
    "include_background": """(bool): whether class 0 counts in the average. It cannot be combined
        with `classes`. Default: True.""",
    "class_weights": """(sequence of float or str, optional): one weight for each class that counts.
        The averages `"macro"` and `"weighted"` are means with these weights, divided by their sum;
        `"micro"` multiplies the counts of each class before they are summed. `"inverse"` and
        `"inverse_square"` are one over the number of positives of the class, or over its square,
        with the largest weight of the others for an absent class: `average="micro",
        class_weights="inverse_square"` is the generalised Dice. With one of these three options
        `average="auto"` is `"macro"`.""",
    "per_sample": """(bool or str): whether to count within each sample of `(n, C, ...)` instead of
        over the batch. The score is the mean over the samples, with equal weights, or with
        `"weighted"` by their numbers of valid pixels. Default: False.""",
    "zero_division": """(str or float): the score of a class (with `per_sample`, of a mask) for
        which a perfect decision would give 0/0, such as a class without a positive sample under
        F1. `"skip"` leaves it out of the mean, 0 keeps the value of the formula, in which 0/0
        is 0, and 1 scores it as one minus the mean soft decision, so that false positives cost.
        `"auto"`, the default, is `"skip"` for several classes, 1 with `per_sample`, and otherwise
        0. For hard scores these are scikit-learn's nan, 0 and 1, and `"auto"` is its default.""",
    "form": """(str): `"linear"` for one minus the score, or `"log"` for `-log(score)` of each class
        and sample, for metrics between 0 and 1. Below 1e-7 the logarithm and its derivative are
        those at 1e-7, so that a score of 0 has a gradient. Scores ignore it.
        Default: `"linear"`.""",
    "reduction": """(str): with `per_sample=True`, how the losses or scores of the samples are
        combined: `"mean"` (in Keras also `"sum_over_batch_size"`), `"sum"`, or `"none"` for one
        number per sample. Weights per sample multiply the losses that are not averaged.
        Default: {reduction}.""",
    "top_k": """(int): for hard scores of several classes. A decision is right if the class of the
        label is among the `top_k` highest scores; else it is for the class of the highest score, as
        in torchmetrics. The loss ignores it. Default: 1.""",
    "soft_labels": """(bool): whether labels between 0 and 1 (such as a teacher's probabilities)
        are matched, so that the loss is smallest where the probability equals the label.
        Default: False.""",
    "ignore_index": """(int, optional): samples with this label are not counted.""",
    "validate": """(bool): whether to check values (labels, weights, NaN). They are checked in
        eager mode on the CPU only, because a check would make an accelerator wait. Types and
        shapes are always checked. Default: True.""",
    "weight": """(array, optional): one weight per sample, or weights of the labels' shape. A
        weight of 2 equals the sample twice.""",
    "sync": """(bool, optional): whether the ranks of `torch.distributed` exchange their counts, so
        that each rank computes the loss of the undivided batch, and the gradients that DDP or FSDP
        average are its gradient. By default they do so while gradients are enabled. With True they
        always do, also in `score`, and all ranks must then make the call.""",
    "group": """(ProcessGroup, optional): the process group whose ranks exchange counts. Default:
        all ranks.""",
    "memory": """(float, optional): for batches that are too small for the metric. Each batch is
        counted together with the batches before it, whose counts fade by this factor per batch,
        such as 0.98.""",
    "constraints": """(str or list of str, optional): constraints for two classes, such as
        `"recall >= 0.9"`, each a metric (a name or a formula), `>=` or `<=`, and a number. The loss
        is then one minus the Lagrangian of the soft metric and the soft constraints, whose
        multipliers follow the hard decisions while gradients are enabled. They are aimed at, and
        not certified (docs/certificates.md).""",
    "alpha": """(float): a parameter of the metric `"tversky"`.""",
    "beta": """(float): a parameter of the metrics `"fbeta"` and `"tversky"`.""",
    "fn_cost": """(float): a parameter of the metric `"cost"`: the cost of a false negative.""",
    "fp_cost": """(float): a parameter of the metric `"cost"`: the cost of a false positive.""",
    "params": """(float): the parameters of the metric, such as `beta=2` for `"fbeta"`.""",
    "amplifying_scale": """(float, optional): the scale of the step `Amplified`, 73 in the paper.
        None, the default, means the default step, which is the probability itself.""",
    "name": """(str, optional): the name in Keras' logs and history.""",
    "dtype": """(str or DTypePolicy, optional): the floating-point type, as in every Keras
        object.""",
}

LOSSES = {  # what the named losses of the front-ends compute, and the options that are theirs only
    "AccuracyLoss": """
        `loss = 1 - (tp + tn) / (tp + fn + fp + tn) + cross_entropy * CE`. With the default step it
        is the mean absolute error of the probabilities. For several classes it is one minus the
        mean soft decision for the true class.

        Args:
        """,
    "F1Loss": """
        `loss = 1 - 2 tp / (2 tp + fp + fn) + cross_entropy * CE`. It is also known as the soft Dice
        loss. For several classes or labels it is the mean over the classes (`average="macro"`).

        Args:
        """,
    "FBetaLoss": """
        `loss = 1 - (1 + beta^2) tp / ((1 + beta^2) tp + beta^2 fn + fp) + cross_entropy * CE`. For
        several classes or labels it is the mean over the classes (`average="macro"`).

        Args:
            beta (float): the weight of recall relative to precision. Default: 1.
        """,
    "GeometricMeanLoss": """
        `loss = 1 - (tp / (tp + fn) * tn / (tn + fp))^(1/2) + cross_entropy * CE`. For several
        classes it is the geometric mean of the recalls of the classes.

        Args:
        """,
    "BalancedAccuracyLoss": """
        `loss = 1 - (tp / (tp + fn) + tn / (tn + fp)) / 2 + cross_entropy * CE`. For several classes
        it is the mean of the recalls of the classes.

        Args:
        """,
    "MCCLoss": """
        `loss = 1 - (tp tn - fp fn) / ((tp + fp) (tp + fn) (tn + fp) (tn + fn))^(1/2) +
        cross_entropy * CE`. Without cross-entropy it lies between 0 (all decisions are right) and 2
        (all decisions are wrong). For several classes it is the multiclass coefficient.

        Args:
        """,
}


def describes_loss(own: Documented) -> Documented:
    """Add the formula of a named loss, from `LOSSES`, after the summary of its docstring."""
    summary, _, rest = inspect.cleandoc(own.__doc__ or "").partition("\n\n")
    if summary:  # there is none under python -OO
        formula = inspect.cleandoc(LOSSES[own.__name__])
        own.__doc__ = "\n\n".join([summary, formula, rest])
    return own


def documented(own: Documented, base: Callable[..., Any] | None = None) -> Documented:
    """Complete the `Args` section of a docstring with the options that it does not describe.

    Their texts are those of a base, if it is given, or else of `OPTIONS`. The entries get the order
    of the signature.

    >>> @documented
    ... def loss(scores, *, smooth=0.0):
    ...     '''A loss.
    ...
    ...     Args:
    ...         scores (array): the scores.
    ...     '''
    >>> print(inspect.getdoc(loss))
    A loss.
    <BLANKLINE>
    Args:
        scores (array): the scores.
        smooth (float): a number that is added to each soft count; hard scores ignore it. Default:
            0.
    """
    lines = inspect.cleandoc(own.__doc__ or "").split("\n")  # there is none under python -OO
    if "Args:" not in lines:
        return own
    first = lines.index("Args:") + 1
    entries = _entries(lines[first:])
    end = first + sum(map(len, entries.values()))
    theirs = _sections(base.__doc__ or "").get("Args", "") if base is not None else ""
    given = _entries(theirs.split("\n")[1:])
    parameters = inspect.signature(own).parameters
    for name in parameters:
        if name in given or name in OPTIONS:
            entries.setdefault(name, given.get(name) or [_entry(parameters[name])])
    known = [name for name in parameters if name in entries]
    ordered = [*known, *(name for name in entries if name not in known)]
    section = [line for name in ordered for line in entries[name]]
    own.__doc__ = "\n".join([*lines[:first], *section, *lines[end:]])
    return own


def _entries(lines: list[str]) -> dict[str, list[str]]:
    """The lines of each parameter in a section, up to the first empty line."""
    entries: dict[str, list[str]] = {}
    for line in lines:
        if not line.strip():
            break
        if found := re.match(r" {4}\**(\w+) \(", line):
            entries[found[1]] = []
        entries[next(reversed(entries))].append(line)
    return entries


def _entry(parameter: inspect.Parameter) -> str:
    """The lines of one option, indented as in a section; its default where the text names it."""
    text = " ".join(OPTIONS[parameter.name].split())
    if f"{{{parameter.name}}}" in text:
        text = text.replace(f"{{{parameter.name}}}", repr(parameter.default))
    stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    whole = f"{stars}{parameter.name} {text}"
    return textwrap.fill(
        whole, 96, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False
    )


def inherits_sections(base: Callable[..., Any]) -> Callable[[Documented], Documented]:
    """Add the sections of a base, except `Examples`, that a docstring does not have.

    >>> def loss(scores):
    ...     '''A loss.
    ...
    ...     Args:
    ...         scores (array): the scores.
    ...     '''
    >>> @inherits_sections(loss)
    ... def other_loss(scores):
    ...     '''Another loss.'''
    >>> print(inspect.getdoc(other_loss))
    Another loss.
    <BLANKLINE>
    Args:
        scores (array): the scores.
    """

    def complete(own: Documented) -> Documented:
        mine, parts = _sections(own.__doc__ or ""), _sections(base.__doc__ or "")
        parts.pop("Examples", None)
        parts |= mine
        if mine[""]:  # there is none under python -OO
            own.__doc__ = "\n\n".join(parts[name] for name in ("", *SECTIONS) if name in parts)
        return own

    return complete


def _sections(text: str) -> dict[str, str]:
    """The sections of a docstring with their headings; the part before the first one is ''."""
    starts = [f"{name}:" for name in SECTIONS]
    parts: dict[str, list[str]] = {"": []}
    for line in inspect.cleandoc(text).split("\n"):
        at = line[:-1] if line in starts else next(reversed(parts))
        parts.setdefault(at, []).append(line)
    return {name: "\n".join(lines).strip() for name, lines in parts.items()}
