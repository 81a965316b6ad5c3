import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anyloss
from anyloss._core.formula import Formula

CELLS = {"tp": 6.0, "fn": 2.0, "fp": 3.0, "tn": 9.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tp / (tp + 0.3*fp + 2*fn)", 6 / (6 + 0.9 + 4)),
        ("2*tp/(2*tp+fp+fn)", 12 / 17),
        ("sqrt(tp/(tp+fn) * tn/(tn+fp))", (6 / 8 * 9 / 12) ** 0.5),
        ("-tp + tn ** 2 - +fn", -6 + 81 - 2),
        ("tp ** -1", 1 / 6),
        ("  tp*1e-3 + sqrt(4) + 2**3 ", 6e-3 + 2 + 8),
        ("tp", 6.0),
        ("tp - fp", 3.0),
        ("tn-fp-fn", 4.0),
        ("TP / (TP + Fn)", 0.75),
        ("\ttn / (tn + fp)", 0.75),
    ],
)
def test_values(text, value):
    assert anyloss.metric(text)(**CELLS) == pytest.approx(value, rel=1e-15)


def test_named_metrics_as_formulas():
    rng = np.random.default_rng(0)
    cells = dict(zip(CELLS, rng.random((4, 50)) * 100, strict=True))
    mcc = "(tp*tn - fp*fn) / sqrt((tp+fp)*(tp+fn)*(tn+fp)*(tn+fn))"
    np.testing.assert_allclose(anyloss.metric(mcc)(**cells), anyloss.METRICS["mcc"](**cells))


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("tp / (tp + precision)", "unknown name 'precision'", 11),
        ("tp / (tp + ", "not well formed", None),
        ("tp ** tp", "exponent", 6),
        ("tp ** 9", "exponent", 6),
        ("tp ** -9", "exponent", 6),
        ("tp / 0", "must not divide by zero", 5),
        ("tp / (2 - 2)", "must not divide by zero", None),
        ("tp + 1e400", "finite", 5),
        ("tp + " + "9" * 200, "finite", 5),
        ("tp + (-8) ** 0.5", "finite", None),
        ("tp + sqrt(-1)", "finite", 5),
        ("1 + 1", "none of tp, fn, fp, tn", 0),
        ("max(tp, fn)", "sqrt", 0),
        ("sqrt(tp, fn)", "one argument", 0),
        ("tp if fn else fp", "only", 0),
        ("tp.real + 1", "only", 0),
        ("tp[0] + 1", "only", 0),
        ("tp < fn + 1", "only", 0),
        ("tp + 'x'", "number", 5),
        ("tp + True", "number", 5),
        ("tp + 1j", "number", 5),
        ("~tp + 1", "only", 0),
        ("tp ^ 2", "a power is written", 3),
        ("fbeta(beta=2)", "takes its parameters by name", 0),
        ("tp // fn", "operators", 3),
        ("(tp) % fn", "operators", 5),
        ("(lambda: tp)()", "sqrt", 0),
        ("__import__('os').system('true')", "sqrt", 0),
        ("ｔｐ + fn", "ASCII", 0),
        ("tp +\nfn", "ASCII", 4),
        ("", "empty", None),
        ("   ", "empty", None),
        ("tp" + "+tp" * 200, "500 characters", None),
        ("+".join(["tp"] * 150), "200 parts", None),
        ("(" * 240 + "tp" + ")" * 240, "nested|well formed", None),
        ("-" * 450 + "tp", "200 parts|nested", None),
        ("tp + \0", "ASCII", 5),
        ("1e99 ** 8 + tp", "finite", None),
    ],
)  # fmt: skip
def test_faults_are_shown(text, message, column):
    with pytest.raises(ValueError, match=message) as caught:
        Formula(text)
    if column is not None:
        assert str(caught.value).splitlines()[-1] == "    " + " " * column + "^"


def test_infinite_for_usual_counts_is_refused():
    with pytest.raises(ValueError, match="finite"):
        anyloss.metric("(tp * 1e90) ** 8")


@given(st.text(alphabet="tpfn0123456789.+-*/() e_sqrt'\"[]:,<>=%@\\\n#é", max_size=40))
@settings(max_examples=3000, deadline=None)
def test_any_text_is_a_metric_or_a_value_error(text):
    try:
        result = anyloss.metric(text)(**CELLS)
    except ValueError:
        return
    assert np.isfinite(result)
