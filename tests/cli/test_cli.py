"""The command line, through the real commands."""

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

import anyloss
from anyloss.cli import main
from anyloss.tabular import load, read_table


def customers(n=300, seed=0):
    """Text ids, missing values and dangerous texts; old customers from Rome leave."""
    rng = np.random.default_rng(seed)
    age, city = rng.normal(40, 10, n).round(1), rng.choice(["Rome", "Oslo", "=cmd()"], n)
    left = age + 12 * (city == "Rome") + rng.normal(0, 5, n) > 52
    frame = pd.DataFrame({"key": [f"k{i:03}" for i in range(n)], "age": age, "city": city})
    frame["<script>alert(1)</script>"] = rng.choice(["<b>", "x"], n)
    frame["left"] = np.where(left, "yes", "no")
    frame.loc[::7, "age"] = np.nan
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fitted model folder, next to its data."""
    place = tmp_path_factory.mktemp("cli")
    customers().to_csv(place / "data.csv", index=False)
    words = f"fit {place}/data.csv --target left --metric f1 --model linear --out {place}/model"
    assert main(shlex.split(words)) == 0
    return place


def test_the_whole_way(folder, capsys):
    words = f"fit {folder}/data.csv --target left --model linear --out {folder}/again --id key"
    assert main([*shlex.split(words), "--metric", "tp / (tp + 0.2*fp + fn)"]) == 0
    shown = capsys.readouterr().out
    assert "positive class: left = yes (the rarer class)\n" in shown
    assert re.search(
        r"tp / \(tp \+ 0.2\*fp \+ fn\) on 300 test rows: 0\.\d{4} \(95 % interval: ", shown
    )
    assert f"Wrote the report to {folder}/again/report.html" in shown
    stored = json.loads((folder / "again" / "metrics.json").read_text())
    assert f"{stored['score']:.4f} (95 %" in shown
    assert "--metric 'tp / (tp + 0.2*fp + fn)'" in stored["settings"]["command"]
    customers(200, seed=1).to_csv(folder / "new.csv", index=False)
    command = f"predict {folder}/again {folder}/new.csv --out {folder}/predictions.csv"
    assert main(command.split()) == 0
    assert capsys.readouterr().out == f"Wrote 200 predictions to {folder}/predictions.csv\n"
    found, new = read_table(folder / "predictions.csv"), customers(200, seed=1)
    assert found["key"].tolist() == new["key"].tolist()
    assert f1_score(new["left"], found["prediction"], pos_label="yes") > 0.6
    assert main(shlex.split(words)) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "again holds an older model, which will be replaced" in printed


def test_the_report_escapes_what_the_table_holds(folder):
    page = (folder / "model" / "report.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert page.count("<script") == 2  # the planner, and its numbers
    assert "k000" not in page  # the ids are not used, and a warning names the column
    assert "hardly ever repeat" in page
    assert len(page) < 2_000_000


def test_a_named_class_is_positive(folder, capsys):
    words = f"fit {folder}/data.csv --target left --positive no --model linear --out {folder}/no"
    assert main(words.split()) == 0
    assert "positive class: left = no\n" in capsys.readouterr().out
    assert load(folder / "no").outcome.positive == "no"


def test_other_forms_of_the_same_table_give_the_same_model(folder):
    frame = read_table(folder / "data.csv")
    text = (folder / "data.csv").read_text()
    (folder / "bom.csv").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    frame.to_csv(folder / "semicolon.csv", sep=";", decimal=",", index=False)
    frame.to_parquet(folder / "data.parquet")
    expected = (folder / "model" / "classifier" / "arrays.safetensors").read_bytes()
    for name in ("bom.csv", "semicolon.csv", "data.parquet"):
        words = f"fit {folder}/{name} --target left --model linear --out {folder}/form"
        assert main(words.split()) == 0
        assert (folder / "form" / "classifier" / "arrays.safetensors").read_bytes() == expected


def test_several_classes_and_labels(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(7)
    frame = customers()
    risk = frame["age"].fillna(40) + rng.normal(0, 4, 300)
    frame["level"] = np.select([risk < 36, risk < 44], ["low", "middle"], "high")
    frame["old"], frame["rome"] = (risk > 45).astype(int), (frame["city"] == "Rome").astype(int)
    frame = frame.drop(columns=["left", "key"])
    frame.to_csv("a.csv", index=False)
    words = "fit a.csv --target level --drop old rome --model linear --average weighted --out m"
    assert main(words.split()) == 0
    shown = capsys.readouterr().out
    assert "3 classes of level: 'high', 'low', 'middle'\n" in shown
    assert re.search(r"f1 \(weighted\) on \d+ test rows: 0\.\d{4} \(95 % interval: ", shown)
    assert re.search(r"^class +precision  recall      f1  always    rows$", shown, re.MULTILINE)
    for name in ("high", "low", "middle"):
        assert re.search(
            rf"^{name} +0\.\d{{3}} +0\.\d{{3}} +0\.\d{{3}} +0\.\d{{3}} +\d+$", shown, re.MULTILINE
        )
    for name in ("cross-entropy, arg-max", "tuned decision rule", "at random, by the shares"):
        assert name in shown
    assert main(["predict", "m", "a.csv", "--out", "p.csv"]) == 0
    found = read_table(tmp_path / "p.csv")
    assert f1_score(frame["level"], found["prediction"], average="weighted") > 0.6
    assert (
        main(
            [
                "fit",
                "a.csv",
                "--target",
                "old",
                "rome",
                "--drop",
                "level",
                "--model",
                "linear",
                "--out",
                "labels",
            ]
        )
        == 0
    )
    assert "2 labels: 'old', 'rome'" in capsys.readouterr().out
    assert load("labels").outcome.task == "multilabel"
    command = "compare a.csv --target level --drop old rome --folds 2 --repeats 1 --metric mcc"
    assert main(command.split()) == 0
    shown = capsys.readouterr().out
    assert "LightGBM, tuned decision rule" in shown
    assert re.search(r"^always '\w+' +0\.0000 ", shown, re.MULTILINE)


def test_auto_weighs_the_families_by_held_out_rows(folder, capsys):
    words = f"fit {folder}/data.csv --target left --out {folder}/auto --drop key"
    assert main(words.split()) == 0
    stored = json.loads((folder / "auto" / "metrics.json").read_text())
    assert set(stored["candidates"]) == {"linear", "mlp", "lightgbm"}
    assert stored["model_name"] == "auto"
    shown = capsys.readouterr().out
    for name, weight in stored["weights"].items():
        score = stored["candidates"][name]
        assert f"candidate {name}: {score:.4f} on held-out training rows, weight {weight:.2f}" in (
            shown
        )
    assert stored["facts"]["dropped"] == ["key"]


def test_a_limit_of_time_is_an_option_of_fit(folder, capsys):
    words = f"fit {folder}/data.csv --target left --out {folder}/m --time-limit -1"
    assert main(words.split()) != 0
    assert "positive number of seconds; got -1.0" in capsys.readouterr().err


def bad_tables(tmp_path):
    """Files that cannot be used, and their errors."""
    frame = customers(100)
    tables = {
        "constant": (
            frame.assign(left="yes"),
            "must have two classes or more; got 'yes' in all rows",
        ),
        "classes": (
            frame.assign(left=["a", "b", "c"] * 33 + ["d"]),
            r"at least 10 rows of each class, .* got fewer of 'd' \(1\): merge these classes",
        ),
        "without": (frame.drop(columns="left"), "there is no column 'left'"),
        "dates": (frame.assign(on=["1/2/2020", "3/4/2020"] * 50), "'on': .* month first: .*--drop"),
        "money": (frame.assign(on=["$5", "€6"] * 50), "'on': the cells have different units"),
        "only-ids": (frame[["key", "left"]], "got only columns that identify the rows"),
        "infinite": (frame.assign(x=[np.inf, *range(99)]), "column 'x': expected finite numbers"),
    }
    for name, (table, message) in tables.items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        yield name, message
    files = {
        "empty": (b"", "is empty"),
        "header": (b"a,left\n", "no rows"),
        "garbage": (np.random.default_rng(0).bytes(9000), "is not a text file"),
        "twice": (b"a,a,left\n1,2,yes\n", "distinct column names; got 'a' more than once"),
    }
    for name, (content, message) in files.items():
        (tmp_path / f"{name}.csv").write_bytes(content)
        yield name, message
    yield "absent", "does not exist"


def test_the_error_of_a_bad_table_is_one_line(tmp_path, capsys):
    for name, message in bad_tables(tmp_path):
        words = f"fit {tmp_path}/{name}.csv --target left --model linear --out {tmp_path}/m"
        assert main(words.split()) == 2, name
        error = capsys.readouterr().err.splitlines()
        assert len([x for x in error if x != "Reading the table"]) == 1
        assert re.search(f"^anyloss fit: error: .*{message}", error[-1]), (name, error)
        assert not (tmp_path / "m").exists()


def test_the_error_of_a_bad_argument_is_one_line(folder, capsys):
    data = f"{folder}/data.csv"
    for words, message in (
        (f"fit {data} --target left --out {folder}/m --metric f1x", "unknown metric 'f1x'"),
        (f"fit {data} --target left --out {folder}/m --model forest", "model must be one of auto"),
        (f"fit {data} --target left --out {folder}/m --test-share 2", "between 0 and 1"),
        (f"fit {data} --target left --out {folder}/m --test-share 0.3 --folds 3", "name one"),
        (f"fit {data} --target left --out {folder}/m --certify-share 0.3", "name both"),
        (
            f"fit {data} --target left --out {folder}/m --drop nothing",
            "there is no column 'nothing'",
        ),
        (f"fit {data} --target left --out {folder}", "is not a model folder; choose another"),
        (f"predict {folder} {data} --out {folder}/p.csv", "it has no model.json"),
        (f"predict {folder}/model {data} --out {folder}/p.txt", "must end in .csv or .parquet"),
        (f"compare {data} --target left --folds 1", "at least 2 folds"),
        ("explain --tp -1 --fn 0 --fp 0 --tn 0", "counts must be finite numbers >= 0"),
    ):
        assert main(shlex.split(words)) == 2
        error = capsys.readouterr().err.splitlines()
        assert re.search(f"^anyloss {words.split()[0]}: error: .*{message}", error[-1]), error
        assert "Traceback" not in "".join(error)
    assert main(shlex.split("explain --metric 'tp / (tp + x)' --tp 1 --fn 0 --fp 0 --tn 0")) == 2
    error, text, place = capsys.readouterr().err.splitlines()
    assert error.startswith("anyloss explain: error: unknown name 'x'")
    assert text[place.index("^")] == "x"
    with pytest.raises(ValueError, match="counts must be"):
        main(shlex.split("explain --tp -1 --fn 0 --fp 0 --tn 0 --debug"))


def test_a_changed_model_folder_is_refused(folder, capsys):
    path = folder / "model" / "classifier" / "arrays.safetensors"
    before = path.read_bytes()
    path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    try:
        assert main(f"predict {folder}/model {folder}/data.csv --out {folder}/p.csv".split()) == 2
    finally:
        path.write_bytes(before)
    error = capsys.readouterr().err
    assert "classifier/arrays.safetensors was changed since it was saved" in error
    assert not (folder / "p.csv").exists()


def test_empty_columns_and_unique_ids_are_not_used_and_a_warning_names_them(tmp_path, capsys):
    frame = customers().assign(nothing=None, row=range(300))
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert (
        main(f"fit {tmp_path}/a.csv --target left --model linear --out {tmp_path}/m".split()) == 0
    )
    shown = capsys.readouterr().out
    assert "information: columns that only number the rows are not used: 'row'" in shown
    assert "information: text columns whose values hardly ever repeat are not used: 'key'" in shown
    assert "information: columns that are constant or empty are not used: 'nothing'" in shown
    words = f"fit {tmp_path}/a.csv --target left --model linear --out {tmp_path}/m --verbose"
    assert main(words.split()) == 0
    shown = capsys.readouterr().out
    assert re.search(r"column 'age': numbers, [\d.]+ to [\d.]+, \d+ distinct, 43 of 300 ", shown)
    assert "column 'row': numbers, 0 to 299, 300 distinct, 0 of 300 missing" in shown
    assert "such as '0'; not used: only numbers the rows" in shown


@pytest.mark.slow("a wide table")
def test_five_thousand_columns(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 5000)).round(2)).rename(columns="x{}".format)
    frame["y"] = (frame["x17"] + frame["x4000"] > 0).astype(int)
    frame.to_csv(tmp_path / "wide.csv", index=False)
    assert (
        main(
            f"fit {tmp_path}/wide.csv --target y --model linear --folds 0 --out {tmp_path}/m".split()
        )
        == 0
    )
    assert main(f"predict {tmp_path}/m {tmp_path}/wide.csv --out {tmp_path}/p.csv".split()) == 0
    assert f1_score(frame["y"], read_table(tmp_path / "p.csv")["prediction"]) > 0.8
    assert (tmp_path / "m" / "report.html").stat().st_size < 2_000_000


def test_compare_recommends_a_method(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    command = shlex.split("compare data.csv --target left --folds 2 --repeats 1 --drop key")
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "Mean f1 over 1 x 2 folds (repeats x folds) of 300 rows" in shown
    assert "\nRecommendation: " in shown
    for name in ("SMOTE, tuned threshold", "LightGBM, tuned threshold", "class-weighted"):
        assert name in shown
    (journal,) = folder.glob("data-compare-*.jsonl")
    before = journal.read_bytes()
    assert main(command) == 0  # nothing is run again
    assert capsys.readouterr().out == shown
    assert journal.read_bytes() == before
    assert main([*command, "--metric", "mcc"]) == 0  # another comparison has its own journal
    assert len(list(folder.glob("data-compare-*.jsonl"))) == 2


@pytest.mark.parametrize(
    ("command", "end"),
    [("fit", "Nothing was written."), ("compare", "Run the command again to continue.")],
)
def test_stopping(command, end, folder, capsys, monkeypatch):
    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("anyloss.tabular.reading.pd.read_csv", stop)
    out = f"--out {folder}/stopped" if command == "fit" else f"--journal {folder}/stopped"
    assert main(f"{command} {folder}/data.csv --target left {out}".split()) == 130
    error = capsys.readouterr().err
    assert f"Interrupted. {end}" in error
    assert "Traceback" not in error
    assert not (folder / "stopped").exists()


def test_a_real_interrupt_leaves_nothing_behind(folder):
    """The process receives the signal of Ctrl-C during its work."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored\n"
        "from anyloss.cli import main\n"
        "import anyloss.cli.tables as tables\n"
        "def stop(text):\n"
        "    if text.startswith('Fold 2'):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "tables._print_stage = stop\n"
        f"sys.exit(main('fit {folder}/data.csv --target left --model linear --out {folder}/sig'.split()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr.strip().splitlines()[-1] == "Interrupted. Nothing was written."
    assert not [x for x in folder.iterdir() if "sig" in x.name]


def test_explain_and_metrics(capsys):
    assert (
        main(["explain", "--metric", "f1", "--tp", "80", "--fn", "20", "--fp", "30", "--tn", "870"])
        == 0
    )
    shown = capsys.readouterr().out
    expected = anyloss.explain("f1", tp=80, fn=20, fp=30, tn=870)
    assert shown == expected.words() + "\n"
    assert main(["metrics"]) == 0
    shown = capsys.readouterr().out
    assert re.search(
        r"^f1 +F1: 2\*tp / \(2\*tp \+ fp \+ fn\) +\(also f1_score", shown, re.MULTILINE
    )
    assert len(shown.splitlines()) == len(set(anyloss.METRICS.values()))


def test_demo_prints_where_the_report_is(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    assert "Wrote the report to anyloss-demo/report.html" in capsys.readouterr().out
    assert "anyloss demo" in (tmp_path / "anyloss-demo" / "report.html").read_text()


def test_export_and_logs(folder, capsys):
    pytest.importorskip("onnx")
    pytest.importorskip("tensorboard")
    assert main(f"export {folder}/model {folder}/model.onnx".split()) == 0
    assert (folder / "model.onnx").stat().st_size > 1000
    words = f"fit {folder}/data.csv --target left --model linear --out {folder}/logged"
    assert main([*words.split(), "--log-dir", f"{folder}/logs"]) == 0
    assert len(list((folder / "logs").iterdir())) == 1


def test_help_imports_neither_torch_nor_scikit_learn():
    code = (
        "import sys\nfrom anyloss.cli import main\n"
        "for words in (['--help'], ['fit', '--help'], ['compare', '--help']):\n"
        "    try:\n        main(words)\n    except SystemExit:\n        pass\n"
        "assert not {'torch', 'sklearn', 'pandas', 'scipy', 'rich'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_closed_pipe_is_not_an_error():
    command = f"{shlex.quote(sys.executable)} -m anyloss metrics | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("accuracy")
    assert done.stderr == ""


def test_predictions_lose_nothing_without_a_warning(folder, capsys):
    source = folder / "source.csv"
    table = customers(40, seed=2).assign(decision_value="x")
    table.to_csv(source, index=False)
    before = source.read_bytes()
    assert main(f"predict {folder}/model {source} --out {source} --force".split()) == 2
    assert "would overwrite their source" in capsys.readouterr().err
    assert source.read_bytes() == before
    command = f"predict {folder}/model {source} --out {folder}/odd.csv"
    assert main(f"{command} --id decision_value".split()) == 2
    error = capsys.readouterr().err
    assert "must not have the name of an output column; got 'decision_value'" in error
    table["age"] = [f"{x} {'years' if k % 2 else 'months'}" for k, x in enumerate(table["age"])]
    table.to_csv(source, index=False)
    assert main(command.split()) == 2
    assert "cannot be read as in the training table: 'age' (100%)" in capsys.readouterr().err
    assert not (folder / "odd.csv").exists()
    assert main([*command.split(), "--allow-drift"]) == 0
    shown = capsys.readouterr().out
    expected = "warning: column 'age': cells that are not numbers are treated as missing (40: '"
    assert expected in shown


def test_the_bar_is_not_in_what_is_printed(folder, capsys):
    words = f"fit {folder}/data.csv --target left --model linear --out {folder}/third --drop key"
    assert main([*shlex.split(words), "--metric", "fn / (tp + fn)"]) == 0
    shown = capsys.readouterr()
    assert "of 300" in shown.err
    assert "of 300" not in shown.out
    assert shown.out.startswith("stop: Do not rely on this model")
    assert "stop: fn / (tp + fn) increases with mistakes" in shown.out


def test_where_nothing_can_be_written_nothing_is_fitted(folder, capsys):
    words = f"fit {folder}/data.csv --target left --out {folder}/data.csv/model"
    assert main(words.split()) == 2
    shown = capsys.readouterr()
    assert "cannot be written" in shown.err
    assert "Fitting" not in shown.err
    assert main(f"fit {folder} --target left --out {folder}/m".split()) == 2
    assert "is a folder" in capsys.readouterr().err


def test_certify_gives_the_bound_of_the_function(tmp_path, capsys):
    rng = np.random.default_rng(0)
    y = (rng.random(300) < 0.3).astype(int)
    d = np.where(rng.random(300) < 0.9, y, 1 - y)
    names = np.array(["no", "yes"])
    frame = pd.DataFrame(
        {"y": y, "d": d, "label": names[y], "said": names[d], "who": np.arange(300) // 2}
    )
    frame.to_csv(tmp_path / "predictions.csv", index=False)
    words = f"certify {tmp_path}/predictions.csv --label y --decision d --metric f1"
    assert main(words.split()) == 0
    found = anyloss.certify(y, d, "f1")
    assert capsys.readouterr().out == f"{found.words()}\nmethod: {found.method}\n"
    words = f"certify {tmp_path}/predictions.csv --label label --decision said --positive yes"
    constraints = ["recall >= 0.8", "specificity >= 0.8"]
    both = [x for text in constraints for x in ("--constraint", text)]
    assert main([*words.split(), *both, "--confidence-level", "0.9"]) == 0
    found = anyloss.certify(y, d, constraints, confidence_level=0.9)
    assert capsys.readouterr().out.startswith(found.words())
    words = f"certify {tmp_path}/predictions.csv --label y --decision d --group who"
    assert main(words.split()) == 0
    assert "150 rows" in capsys.readouterr().out
    frame.replace({"no": "None"}).to_csv(tmp_path / "predictions.csv", index=False)
    words = f"certify {tmp_path}/predictions.csv --label label --decision said --positive None"
    assert main(words.split()) == 0
    assert capsys.readouterr().out.startswith(anyloss.certify(1 - y, 1 - d, "f1").words())
    frame.replace({"no": "00", "yes": "01"}).to_csv(tmp_path / "predictions.csv", index=False)
    assert main([*words.split()[:-1], "01"]) == 0
    assert capsys.readouterr().out.startswith(anyloss.certify(y, d, "f1").words())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--label y --decision e", "no column 'e'"),
        ("--label y --decision text", "Name the positive class with --positive"),
        ("--label gap --decision d", "1 missing"),
        ("--label y --decision text --positive maybe", "no class 'maybe'"),
        ("--label y --decision d --confidence-level 95", "from 0.5 to below 1"),
    ],
)
def test_certify_refuses_bad_input(words, message, tmp_path, capsys):
    (tmp_path / "p.csv").write_text("y,d,text,gap\n1,1,yes,1\n0,0,no,\n")
    assert main(["certify", f"{tmp_path}/p.csv", *words.split()]) == 2
    assert message in capsys.readouterr().err
