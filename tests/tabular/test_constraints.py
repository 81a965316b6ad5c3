"""Constraints of a table: rows that are set apart, the promise in words, the report, the export."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer

import anyloss
from anyloss import report
from anyloss.cli import main
from anyloss.recipe.constrained import Promise
from anyloss.recipe.constrained import split_rows as split
from anyloss.tabular import fit_table, load, predict_table, promises, save
from anyloss.tabular.onnx import export
from anyloss.tabular.verdicts import advice


def customers(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    left = X[:, 0] + X[:, 1] + rng.normal(0, 0.8, n) > 1.4
    return pd.DataFrame(X, columns=list("abc")).assign(
        city=rng.choice(["Rome", "Oslo", "Bonn"], n), left=np.where(left, "yes", "no")
    )


GIVEN = {"folds": 0, "constraints": "recall >= 0.7", "confidence_level": 0.9, "model": "linear"}


@pytest.fixture(scope="module")
def result():
    return fit_table(customers(), "left", "precision", **GIVEN)


def test_the_certificate_is_that_of_rows_which_nothing_else_has_seen(result):
    frame = customers()
    rows, certifying = split(1500, Promise(confidence_level=0.9), 0)
    assert result.facts["train_rows"] + result.facts["test_rows"] == len(rows) == 1200
    found = result.certificate
    assert found.certificate.rows == 300
    decided = result.model.decide(result.model.decision_values(frame.iloc[certifying]))
    again = anyloss.certify(
        (frame.left.iloc[certifying] == "yes").to_numpy(), decided == "yes", "recall >= 0.7",
        confidence_level=0.9,
    )  # fmt: skip
    assert (again.p_value, again.score) == (found.certificate.p_value, found.certificate.score)
    assert again.holds
    assert found.certificate.lower == 0.7  # what was tested, and not what the rows alone would give
    assert again.lower >= 0.7
    frame.loc[certifying, list("abc")] += 3.0
    frame.loc[certifying, "city"] = "Paris"
    other = fit_table(frame, "left", "precision", **GIVEN)
    for one, two in zip(
        result.model.classifier.layers_, other.model.classifier.layers_, strict=True
    ):
        assert (one == two).all()


def test_the_tested_thresholds_are_decision_values_around_the_one_that_is_used(result):
    values = promises.tested_values(result.model.classifier)
    assert len(values) == len(result.certificate.tested)
    assert np.isclose(values, 0.5).any()
    assert ((values >= 0) & (values <= 1)).all()


def test_baselines_have_the_same_certificate_or_satisfy_the_constraint(result):
    names = [x.name for x in result.baselines]
    assert names[0] == "logistic regression, certified threshold"
    assert "always 'yes'" in names
    assert "always 'no'" not in names  # its recall is 0


def test_the_report_has_the_promise(result):
    page = report.render(result)
    assert "On new data of the same kind recall &gt;= 0.7 holds with 90\xa0% confidence" in page
    assert "tested on 300 rows" in page
    assert "on new data it is at least 0.700, with 90\xa0% confidence" in page
    assert f"Dots: the {len(result.certificate.tested)} threshold" in page
    assert page.count('class="dot second"') == len(result.certificate.tested)
    free = fit_table(customers(), "left", "precision", model="linear")
    assert 'id="promise"' not in report.render(free)


@pytest.mark.parametrize("model", ["linear", "lightgbm"])
def test_what_is_not_certified_is_said(model, tmp_path, capsys):
    if model == "lightgbm":
        pytest.importorskip("lightgbm")
    frame = customers(400)
    given = {"constraints": ["recall >= 0.97", "specificity >= 0.1"], "model": model}
    strict = fit_table(frame, "left", "precision", confidence_level=0.99, **given)
    assert strict.certificate.threshold is None
    assert promises.promise_in_words(strict.model.classifier).startswith(
        "not certified: no threshold"
    )
    page = report.render(strict)
    assert "The model is not certified: 80 rows" in page
    assert advice(strict).level == "stop"
    assert advice(strict).startswith("Do not rely on recall >= ")
    aimed = fit_table(frame, "left", "precision", **given)
    assert aimed.certificate is None
    assert "Nothing is promised about new data" in report.render(aimed)
    assert [text for text, _, _ in promises.constraint_scores(aimed)] == given["constraints"]
    for each, words in ((strict, "no threshold is certified"), (aimed, "nothing is promised")):
        save(each, tmp_path / "model")
        frame.to_csv(tmp_path / "new.csv", index=False)
        main(["predict", str(tmp_path / "model"), str(tmp_path / "new.csv"), "--out",
              str(tmp_path / "out.csv"), "--force"])  # fmt: skip
        printed = capsys.readouterr().out
        assert "the model is not certified" in printed
        assert words in printed


def test_predict_repeats_that_certifying_rows_were_copies(tmp_path, capsys):
    frame = pd.concat([customers().iloc[:300]] * 5, ignore_index=True)
    result = fit_table(frame, "left", "precision", **GIVEN | {"constraints": "recall >= 0.4"})
    text = "300 of 300 certifying rows are copies of other rows. The certificate holds if these"
    assert result.certificate.threshold is not None
    assert any(x.startswith(text) for x in result.warnings)
    save(result, tmp_path / "model")
    frame.to_csv(tmp_path / "new.csv", index=False)
    files = [str(tmp_path / x) for x in ("model", "new.csv", "out.csv")]
    main(["predict", *files[:2], "--out", files[2]])
    assert f"warning: {text}" in capsys.readouterr().out


def test_the_command_line(tmp_path, capsys):
    customers().to_csv(tmp_path / "data.csv", index=False)
    main(["fit", str(tmp_path / "data.csv"), "--target", "left", "--metric", "precision",
          "--constraint", "recall >= 0.7", "--constraint", "specificity >= 0.3",
          "--confidence-level", "0.9", "--certify-share", "0.3", "--model", "linear",
          "--out", str(tmp_path / "model")])  # fmt: skip
    printed = capsys.readouterr().out
    assert "certified: recall >= 0.7 and specificity >= 0.3 holds on new data" in printed
    assert "(450 rows, p = " in printed
    assert "specificity >= 0.3 on the test rows: " in printed
    stored = json.loads((tmp_path / "model" / "metrics.json").read_text())
    assert stored["constraints"] == ["recall >= 0.7", "specificity >= 0.3"]
    assert stored["certificate"]["certificate"]["rows"] == 450
    loaded = load(tmp_path / "model")
    assert loaded.classifier.certificate_.threshold is not None
    rows = predict_table(loaded, tmp_path / "data.csv", tmp_path / "out.csv")
    decided = pd.read_csv(tmp_path / "out.csv")
    assert rows == 1500
    assert ((decided.decision_value > 0.5) == (decided.prediction == "yes")).all()


def test_the_export_moves_the_threshold_too(result, tmp_path):
    reference = pytest.importorskip("onnx.reference")
    assert result.model.classifier.threshold_ != 0
    export(result.model, tmp_path / "model.onnx")
    frame = customers(200, seed=5)
    given = {
        x: frame[[x]].to_numpy(object if x == "city" else float) for x in result.model.columns()
    }
    graph = reference.ReferenceEvaluator(str(tmp_path / "model.onnx"))
    labels, values = graph.run(["label", "decision_value"], given)
    expected = result.model.decision_values(frame)
    np.testing.assert_allclose(values, expected, atol=1e-9)
    assert (labels == result.model.decide(expected)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence_level": 0.9}, "certifies constraints; got none"),
        ({"constraints": "recall > 0.9"}, "got '>'"),
        ({"constraints": "precision >= 2", "model": "linear"}, "no threshold satisfies"),
        ({"constraints": "recall >= 0.9", "certify_share": 2}, "between 0 and 1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        fit_table(customers(300), "left", "f1", **options)


def test_several_classes_and_an_undecided_positive_class_are_refused():
    with pytest.raises(ValueError, match="constraints are for two classes"):
        fit_table(customers(300), "city", "f1", constraints="recall >= 0.5")
    frame = customers(200)
    frame["left"] = np.where(np.arange(200) % 2, "yes", "no")
    given = {"constraints": "recall >= 0.5", "confidence_level": 0.9, "model": "linear"}
    messages = set()
    for seed in range(6):
        try:
            fit_table(frame, "left", "f1", seed=seed, **given)
        except ValueError as error:
            messages.add(str(error).partition("; ")[2])
    assert messages == {"name the positive class (--positive)"}
    assert fit_table(frame, "left", "f1", positive="yes", **given).certificate is not None


@pytest.mark.parametrize("which", ["group", "time"])
def test_a_certificate_needs_independent_rows(which):
    """A group may have several rows, and later rows may be of another population."""
    frame = load_breast_cancer(as_frame=True).frame
    frame["which"] = np.arange(len(frame)) // 2
    with pytest.raises(ValueError, match="a certificate needs independent rows"):
        fit_table(
            frame, "target", "precision", model="linear", constraints="recall >= 0.8",
            confidence_level=0.95, **{which: "which"},
        )  # fmt: skip
