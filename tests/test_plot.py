"""The pictures show the numbers that scikit-learn and the formulas give."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score, recall_score

import anyloss
from anyloss import plot
from anyloss.steps import Amplified, LogitSigmoid, RaisedCosine, Uniform

matplotlib.use("Agg")
RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 2, 60)
SCORES = (RNG.random(60) + LABELS * 0.5).round(2)


@pytest.fixture(autouse=True)
def _closed():
    from matplotlib import pyplot

    yield
    pyplot.close("all")


def test_a_curve_has_the_score_of_every_threshold():
    (line, point, _) = plot.threshold_curve(LABELS, SCORES, "f1").get_lines()
    x, y = line.get_data()
    assert y == pytest.approx([f1_score(LABELS, at < SCORES) for at in x])
    best = anyloss.best_threshold(LABELS, SCORES, "f1")
    assert [v[0] for v in point.get_data()] == [best.threshold, best.score]


def test_thresholds_that_violate_a_constraint_are_grey():
    ax = plot.threshold_curve(LABELS, SCORES, "precision", constraints="recall >= 0.9")
    x, recall = ax.get_lines()[1].get_data()
    assert recall == pytest.approx([recall_score(LABELS, at < SCORES) for at in x])
    grey = [(p.get_x(), p.get_x() + p.get_width()) for p in ax.patches]
    inside = [any(low <= at < high for low, high in grey) for at in x[:-1]]
    assert inside == [value < 0.9 for value in recall[:-1]]
    assert ax.get_legend_handles_labels()[1] == ["precision", "recall >= 0.9"]


def test_a_curve_is_drawn_where_it_is_asked_for():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert plot.threshold_curve(LABELS, SCORES, ax=ax) is ax


@pytest.mark.parametrize("step", [Uniform(), Amplified(10.0), RaisedCosine(0.2), LogitSigmoid(2.0)])
def test_the_area_under_a_derivative_is_the_step(step):
    p, value = plot.step(step).get_lines()[0].get_data()
    _, derivative = plot.step(step, derivative=True).get_lines()[0].get_data()
    inside = slice(40, -40)
    area = np.trapezoid(derivative[inside], p[inside])
    assert area == pytest.approx(value[inside][-1] - value[inside][0], abs=1e-4)


def test_a_surface_has_the_formula_of_f1_and_white_corners():
    ax = plot.metric_surface("f1", prevalence=0.5)
    assert ax.get_title() == "f1, 50 % positives"
    filled = ax.collections[0]
    recall = precision = 0.8  # F1 is their harmonic mean
    low = filled.levels[np.searchsorted(filled.levels, 0.8) - 1]
    index = list(filled.levels).index(low)
    assert filled.get_paths()[index].contains_point((recall, precision))
    # Recall 1 at precision 0.2 needs four false positives for each positive; there is one negative.
    assert not any(path.contains_point((0.99, 0.2)) for path in filled.get_paths())


@pytest.mark.parametrize("labels", [None, ["c", "a", "b"]])
def test_a_matrix_is_that_of_scikit_learn(labels):
    truth, decided = (RNG.choice(list("abc"), 50) for _ in range(2))
    ax = plot.confusion(truth, decided, labels=labels)
    expected = confusion_matrix(truth, decided, labels=labels)
    assert [int(text.get_text()) for text in ax.texts] == expected.ravel().tolist()
    of_row = confusion_matrix(truth, decided, labels=labels, normalize="true")
    shares = plot.confusion(truth, decided, labels=labels, shares=True)
    assert [float(text.get_text()) for text in shares.texts] == pytest.approx(
        of_row.ravel(), abs=0.0051
    )


def test_a_history_of_refine_has_a_line_per_stage():
    from anyloss.torch.refined import Epoch

    history = [Epoch("cross-entropy", 1, 0.6, np.nan), Epoch("metric", 1, 0.5, 0.7)]
    lines = {line.get_label(): line.get_ydata() for line in plot.training(history).get_lines()}
    assert list(lines) == ["value (cross-entropy)", "value (metric)", "score (metric)"]
    np.testing.assert_array_equal(lines["value (metric)"], [np.nan, 0.5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot.threshold_curve([0, 1], [0.1, 0.2, 0.3]), "columns of one length"),
        (lambda: plot.metric_surface("f1", prevalence=1.0), "strictly between 0 and 1; got 1.0"),
        (lambda: plot.metric_surface("f11"), "f1"),
        (lambda: plot.confusion([0, 1], [0, 1, 1]), "columns of one length"),
        (lambda: plot.confusion([], []), "at least one sample"),
        (lambda: plot.confusion([0, 2], [0, 1], labels=[0, 1]), "labels must name every class"),
        (lambda: plot.training({}), "at least one epoch"),
        (lambda: plot.training([]), "at least one epoch"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_name_is_no_step():
    with pytest.raises(TypeError, match="such as Amplified"):
        plot.step(["amplified"])


def test_matplotlib_is_imported_when_a_picture_is_drawn():
    code = (
        "import sys, anyloss.plot; assert 'matplotlib' not in sys.modules\n"
        "sys.modules['matplotlib'] = None\n"
        "try: anyloss.plot.training({'loss': [1.0]})\n"
        "except ImportError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "anyloss[plot]" in out.stdout
