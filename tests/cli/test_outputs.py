"""What the commands write: file modes, full disks, links, existing files; and their help."""

import argparse
import os
import re
import stat
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from anyloss._core.install import install_command
from anyloss._core.outputs import check_output, replacing
from anyloss.baselines.boosted import BOOSTED
from anyloss.benchmark import Benchmark, bundled, needs
from anyloss.cli import _parser, main
from anyloss.recipe import folder as model_folder
from anyloss.tabular import fit_table, load, save

posix = pytest.mark.skipif(os.name != "posix", reason="file modes and limits of POSIX")


def table(n=240, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(40, 10, n).round(1), "city": rng.choice(["a", "b"], n)})
    risk = frame["age"] + rng.normal(0, 6, n)
    return frame.assign(left=np.where(risk > 46, "yes", "no"))


@pytest.fixture(scope="module")
def fitted():
    return fit_table(table(), "left", "f1", model="linear")


@pytest.fixture(scope="module")
def place(fitted, tmp_path_factory):
    found = tmp_path_factory.mktemp("outputs")
    table(50, seed=1).to_csv(found / "new.csv", index=False)
    save(fitted, found / "model")
    return found


def commands():
    (action,) = (x for x in _parser()._actions if isinstance(x, argparse._SubParsersAction))
    return action.choices


@pytest.mark.parametrize("name", commands())
def test_the_help_shows_every_default(name):
    for option in commands()[name]._actions:
        if not option.option_strings or option.required or option.dest == "help":
            continue
        text = " ".join((option.help or "").split())
        assert "Default: " in text, option.option_strings
        if option.default and not isinstance(option.default, list):
            assert re.search(rf"Default: {re.escape(str(option.default))}\b", text), text


@posix
@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_the_modes_of_all_files_follow_the_umask(fitted, place, tmp_path, mask):
    before = os.umask(mask)
    try:
        save(fitted, tmp_path / "model", {"report.html": lambda path: path.write_text("page")})
        command = f"predict {place}/model {place}/new.csv --out"
        assert main([*command.split(), f"{tmp_path}/p.csv"]) == 0
        assert main([*command.split(), f"{tmp_path}/p.parquet"]) == 0
    finally:
        os.umask(before)
    found = list(tmp_path.rglob("*"))
    assert len(found) == 9
    for path in found:
        whole = 0o777 if path.is_dir() else 0o666
        assert stat.S_IMODE(path.stat().st_mode) == whole & ~mask, path


def test_predictions_and_exports_do_not_overwrite(place, tmp_path, capsys):
    out = tmp_path / "p.csv"
    out.write_text("precious\n")
    command = f"predict {place}/model {place}/new.csv --out {out}"
    assert main(command.split()) == 2
    assert f"{out} exists; choose another output, or overwrite it with --force" in (
        capsys.readouterr().err
    )
    assert out.read_text() == "precious\n"
    assert main([*command.split(), "--force"]) == 0
    assert len(pd.read_csv(out)) == 50
    (tmp_path / "m.onnx").write_text("precious")
    assert main(f"export {place}/model {tmp_path}/m.onnx".split()) == 2
    assert (tmp_path / "m.onnx").read_text() == "precious"


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit is then an error
from anyloss.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
sys.exit(main(sys.argv[1:]))
"""


@posix
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_full_disk_gives_one_line_and_leaves_no_file(place, tmp_path, suffix):
    out = tmp_path / f"p.{suffix}"
    words = ["predict", f"{place}/model", f"{place}/new.csv", "--out", str(out)]
    done = subprocess.run([sys.executable, "-c", LIMITED, *words], capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = done.stderr.split("\n")[-2:-1]
    assert line.startswith(f"anyloss predict: error: {out} cannot be written (")
    assert "File too large" in line
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@posix
@pytest.mark.parametrize("kept", [False, True])
def test_a_folder_that_cannot_be_finished_leaves_the_older_model(fitted, tmp_path, kept):
    path = tmp_path / "model"
    if kept:
        save(fitted, path)

    def full(file):
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match=r"model cannot be written \(No space left on device\)"):
        save(fitted, path, {"report.html": full})
    assert [x.name for x in tmp_path.iterdir()] == (["model"] if kept else [])
    if kept:
        assert load(path).outcome == fitted.outcome


@posix
def test_links(fitted, place, tmp_path, capsys):
    link = tmp_path / "p.csv"
    link.symlink_to("nowhere.csv")
    command = f"predict {place}/model {place}/new.csv --out {link}"
    for more in ([], ["--force"]):
        assert main([*command.split(), *more]) == 2
        assert "is a link to nowhere.csv, which does not exist" in capsys.readouterr().err
    assert link.is_symlink()
    assert not (tmp_path / "nowhere.csv").exists()
    (tmp_path / "nowhere.csv").write_text("old")
    assert main([*command.split(), "--force"]) == 0  # the file behind the link is replaced
    assert link.is_symlink()
    assert len(pd.read_csv(tmp_path / "nowhere.csv")) == 50
    folder = tmp_path / "latest"
    folder.symlink_to("version-1")
    with pytest.raises(ValueError, match="is a link to version-1, which does not exist"):
        model_folder.check_place(folder)
    save(fitted, tmp_path / "version-1")
    save(fitted, folder)
    assert folder.is_symlink()
    assert load(folder).outcome == fitted.outcome


@posix
def test_a_pipe_is_no_output(tmp_path):
    os.mkfifo(tmp_path / "p.csv")
    with pytest.raises(ValueError, match="must be a file; .*p.csv is a pipe or a device"):
        check_output(tmp_path / "p.csv")


def test_where_a_file_cannot_be_written_the_error_names_it(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ValueError, match=r"file/p.csv cannot be written \(.*\); choose another"),
        replacing(tmp_path / "file" / "p.csv") as part,
    ):
        part.write_text("x")
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "p.csv"):
        (tmp_path / "a file that is read").read_text()  # another file: its own error
    assert [x.name for x in tmp_path.iterdir()] == ["file"]


def test_bench_names_missing_packages_before_it_starts(tmp_path, capsys, monkeypatch):
    real = needs.find_spec
    monkeypatch.setattr(
        needs, "find_spec", lambda x: None if x in ("imblearn", *BOOSTED) else real(x)
    )
    for words, package, extra in (
        ("--models linear --metrics f1", "imbalanced-learn", "benchmark"),
        ("--models xgboost --metrics f1", "xgboost", "boosting"),
    ):
        command = f"bench --datasets iris_0 {words} --out {tmp_path}/b.csv"
        assert main(command.split()) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert f"this benchmark needs {package}: choose other models or methods, or" in error
        assert error.endswith(f"install with: {install_command(extra)}")
    assert list(tmp_path.iterdir()) == []
    others = Benchmark(tuple(bundled()[:1]), models=("linear",), families=("bce", "anyloss"))
    needs.check_packages(others)


def test_the_command_that_installs_keeps_the_tested_versions():
    command = install_command("benchmark")
    found = re.fullmatch(r"pip install -c (\S+constraints\.txt) -e '(\S+)\[benchmark\]'", command)
    if found is None:  # an installed package, without a clone around it
        assert command == "pip install 'anyloss[benchmark]'"
    else:
        assert os.path.isfile(found[1])
        assert os.path.isfile(f"{found[2]}/pyproject.toml")


def test_the_standard_output_may_be_full():
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "anyloss", "metrics"], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode != 0
    assert done.stderr.startswith(b"anyloss metrics: error: [Errno 28] No space left on device\n")
    assert b"Traceback" not in done.stderr


def test_messages_are_printed_with_their_levels(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(120, 3)).round(3)).add_prefix("x")
    frame.assign(c=1, y=rng.permutation([0, 1] * 60)).to_csv(tmp_path / "a.csv", index=False)
    words = f"fit {tmp_path}/a.csv --target y --model linear --folds 0 --no-rows --out {tmp_path}/m"
    assert main(words.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("stop: Do not rely on this model: it is not clearly better than a")
    levels = [x.split(":")[0] for x in lines]
    at = {x: levels.index(x) for x in ("stop", "warning", "information")}
    assert at["stop"] < at["warning"] < at["information"]
    assert "information: columns that are constant or empty are not used: 'c'" in lines
    assert 'id="errors"' not in (tmp_path / "m" / "report.html").read_text()
