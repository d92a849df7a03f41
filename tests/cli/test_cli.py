"""The command line: one line for an error, exit codes, run folders whole or not there, and score."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.base.manifest import FOR_PEOPLE
from unskew.cli import main

QUICK = ["--method", "ips", "--learner", "mf", "--seeds", "2", "--crossfit", "2", "--propensity-epochs", "2"]
COLUMNS = ["--user", "who", "--item", "what", "--click", "seen", "--conversion", "bought"]


@pytest.fixture(scope="module", autouse=True)
def _undrawn() -> None:
    """Pages here have their drawings."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A training log and a test log as files, drawn from the synthetic world."""
    folder = tmp_path_factory.mktemp("files")
    data = us.load("synthetic", n_users=50, n_items=40, density=0.2, seed=3)
    for name, log in (("train", data.train), ("test", data.test)):
        table = pa.table(
            {"user": log.user, "item": log.item, "conversion": log.known_conversion().astype(int)}
        )
        pyarrow.csv.write_csv(table, folder / f"{name}.csv")
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


@pytest.fixture
def no_report(monkeypatch):
    monkeypatch.setattr("unskew.report.render_run_report", lambda **told: "<html></html>")


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    """A whole run through the command line, with its report."""
    folder = tmp_path_factory.mktemp("runs")
    arguments = ["--data", str(files / "train.parquet"), "--test", str(files / "test.csv")]
    arguments += ["--test-is", "random"]
    code = main(["run", *arguments, *QUICK, "--out", str(folder / "run"), "--json", str(folder / "out.json")])
    assert code == 0
    return folder / "run"


def fails(arguments, capsys, *, code: int = 2) -> str:
    """Run, and give the one line that it printed on standard error."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == code
    out, error = capsys.readouterr()
    assert all(line.startswith("· ") for line in out.splitlines()), "what was guessed, and nothing else"
    assert error.count("\n") == 1, error
    assert "Traceback" not in error
    assert error.startswith("unskew: ")
    return error


def tree(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


class TestRun:
    def test_it_writes_a_run_folder_and_the_metrics_as_json(self, run):
        assert {path.name for path in run.iterdir()} >= {
            "config.toml",
            "model.safetensors",
            "calibrator.json",
            "propensities.parquet",
            "metrics.json",
            "report.html",
        }
        assert not {path.suffix for path in run.iterdir()} & {".pkl", ".pickle", ".pt", ".pth", ".joblib"}
        assert sorted(path.name for path in run.parent.iterdir()) == ["out.json", "run"]
        told = json.loads((run / "metrics.json").read_text())
        assert json.loads((run.parent / "out.json").read_text()) == told
        assert set(told["methods"]) == {"naive", "ips_raw", "ips"}

    @pytest.mark.usefixtures("at_length")
    def test_it_prints_short_tables_and_where_the_report_is(self, files, tmp_path, capsys, no_report):
        arguments = ["--data", files / "train.csv", "--test", files / "test.parquet", *QUICK]
        arguments += ["--test-is", "random"]
        assert main([str(a) for a in ["run", *arguments, "--out", tmp_path / "run"]]) == 0
        out, error = capsys.readouterr()
        for word in ("50 users × 40 items", "ECE of pure noise", "Hits@6", "IPS, raw", "The report: "):
            assert word in out
        assert re.search(r"^[✓✗?] IPS with calibrated propensities: level .*, rank", out, re.MULTILINE)
        rows = [line for line in out.splitlines() if re.match(r"\w.*\d\.\d{4}", line)]
        assert rows
        assert max(map(len, rows)) <= 80, "tables fit a terminal of 80 columns"
        assert not re.search(r"[\r\x1b]", error), (
            "no bar where there is no terminal; a line where it takes long"
        )

    @pytest.mark.usefixtures("at_length")
    def test_a_test_file_counts_as_logged_unless_it_is_said_to_be_random(
        self, run, files, tmp_path, capsys, no_report
    ):
        arguments = ["--data", files / "train.csv", "--test", files / "test.parquet", *QUICK]
        assert main([str(a) for a in ["run", *arguments, "--out", tmp_path / "run"]]) == 0
        out = capsys.readouterr().out
        assert "taken as logged" in out
        assert "--test-is random" in out
        assert "The test set is logged, so it is as biased as the training clicks" in " ".join(out.split())
        assert "randomly shown" not in out
        told = json.loads((tmp_path / "run" / "metrics.json").read_text())
        assert told["data"]["test_is"] == "logged"
        assert json.loads((run / "metrics.json").read_text())["data"]["test_is"] == "random"
        assert 'test_is = "random"' in (run / "config.toml").read_text()

    def test_an_earlier_run_needs_overwrite(self, run, files, capsys, no_report):
        arguments = ["run", "--data", files / "train.csv", *QUICK, "--method", "naive", "--out", run]
        before = (run / "metrics.json").read_bytes()
        line = fails(arguments, capsys)
        assert "holds a run already" in line
        assert "--overwrite" in line
        assert (run / "metrics.json").read_bytes() == before

    def test_overwrite_replaces_a_run_but_nothing_else(self, files, tmp_path, capsys, no_report):
        target = tmp_path / "run"
        arguments = ["run", "--data", str(files / "train.csv"), *QUICK, "--out", str(target)]
        target.mkdir()
        (target / "letter.txt").write_text("dear")
        for further in ([], ["--overwrite"]):
            assert "a folder with other things in it" in fails([*arguments, *further], capsys)
        assert tree(tmp_path) == sorted(
            [target.relative_to(tmp_path), (target / "letter.txt").relative_to(tmp_path)]
        )
        (target / "letter.txt").unlink()
        assert main([*arguments, "--method", "naive"]) == 0, "an empty folder is in nobody's way"
        assert main([*arguments, "--method", "naive", "--overwrite"]) == 0
        assert [path.name for path in tmp_path.iterdir()] == ["run"]

    @pytest.mark.parametrize("where", ["unskew.run.job.run", "unskew.run.result.write_json"])
    def test_an_interrupt_leaves_a_message_and_nothing_else(
        self, files, tmp_path, capsys, monkeypatch, no_report, where
    ):
        def interrupt(*arguments):
            raise KeyboardInterrupt

        monkeypatch.setattr(where, interrupt)
        arguments = [
            "run",
            "--data",
            files / "train.csv",
            *QUICK,
            "--method",
            "naive",
            "--out",
            tmp_path / "run",
        ]
        line = fails(arguments, capsys, code=130)
        assert "interrupted; nothing was written" in line
        assert "Re-run to start again" in line
        assert tree(tmp_path) == []

    def test_a_failure_in_the_middle_leaves_no_folder(self, files, tmp_path, monkeypatch, no_report, capsys):
        def fail(*arguments):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("unskew.run.result.write_json", fail)
        arguments = ["run", "--data", str(files / "train.csv"), *QUICK, "--method", "naive"]
        line = fails([*arguments, "--out", tmp_path / "run"], capsys)
        assert "run: cannot be written: No space left on device. To fix:" in line
        assert tree(tmp_path) == []


HEADER = "who,what,seen,bought\n"
GOOD = "".join(
    f"{user},{item},{int(seen)},{user % 2 if seen else ''}\n"
    for user in range(12)
    for item in range(6)
    for seen in [(user + item) % 3 == 0]
)


class TestBadData:
    """Every bad log of the issue, through the command line."""

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("who,what,bought\na,b,1\n", ["column 'seen' is missing", "who, what, bought"]),
            (HEADER + ",b,1,1\n" + GOOD, ["column 'who', row 0", "id is missing"]),
            (HEADER + GOOD + ",3,1,1\n", ["who", "To fix"]),
            (HEADER + GOOD + "40,41,2,0\n", ["column 'seen', row 72", "value 2, not 0 or 1"]),
            (HEADER + GOOD + "40,41,,0\n", ["column 'seen', row 72", "missing"]),
            (HEADER + GOOD + "40,41,yes,0\n", ["column 'seen', row", "is not a number"]),
            (
                HEADER + GOOD + "40,41,1,\n",
                ["column 'bought', row 72", "conversion is missing where click is 1"],
            ),
            (HEADER + GOOD + "40,41,1,3\n", ["column 'bought', row 72", "value 3, not 0 or 1"]),
            (HEADER + GOOD + "40,41,0,1\n", ["column 'bought', row 72", "conversion is 1 where click is 0"]),
            (HEADER + GOOD + "0,0,1,1\n", ["row 72", "is listed 2 times", "--duplicates max"]),
            (HEADER, ["is empty"]),
            ("", ["empty"]),
            (HEADER + "a,b,0,0\nc,d,0,0\n", ["no row of the population is clicked: one class only"]),
            (HEADER + "a,b,1,0\nc,d,1,0\n", ["conversion is 0 on every clicked row: one class only"]),
        ],
    )
    def test_it_is_told_in_one_line_and_nothing_is_left(self, tmp_path, capsys, text, words):
        source = tmp_path / "clicks.csv"
        source.write_text(text)
        arguments = ["--data", source, *COLUMNS, "--space", "matrix", *QUICK, "--out", tmp_path / "run"]
        line = fails(["run", *arguments], capsys)
        for word in words:
            assert word in line
        assert str(source) in line
        assert tree(tmp_path) == [source.relative_to(tmp_path)]

    def test_a_log_in_which_all_is_clicked_has_no_propensity(self, tmp_path, capsys):
        source = tmp_path / "clicks.csv"
        source.write_text(HEADER + "a,b,1,0\na,d,1,1\n")
        arguments = ["run", "--data", source, *COLUMNS, *QUICK, "--out", tmp_path / "run"]
        assert main([str(word) for word in arguments]) == 2
        # A slow machine announces a long run before the propensity finds one class.
        *_, line = capsys.readouterr().err.splitlines()
        assert "every pair of the population is clicked: one class only" in line
        assert tree(tmp_path) == [source.relative_to(tmp_path)]

    def test_an_unseen_id_in_the_test_log_is_told(self, files, tmp_path, capsys):
        source = tmp_path / "test.csv"
        source.write_text("user,item,conversion\n0,0,1\n99,0,0\n")
        arguments = [
            "run",
            "--data",
            files / "train.csv",
            "--test",
            source,
            *QUICK,
            "--out",
            tmp_path / "run",
        ]
        line = fails(arguments, capsys)
        assert "user 99 was not seen in training" in line
        assert not (tmp_path / "run").exists()


class TestBadArguments:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["--data", "nowhere.csv"], ["nowhere.csv", "no such file"]),
            (["--data", "movielens"], ["unknown dataset 'movielens'", "synthetic, coat"]),
            (["--data", "coat"], ["the dataset 'coat' needs the folder of its files", "--root"]),
            (["--data", "coat", "--root", "."], ["train.ascii", "expected", "found"]),
            (["--data", "synthetic", "--root", "."], ["drawn, not read"]),
            (["--test", "x.csv"], ["--test has no effect with --data synthetic"]),
            (["--test-is", "random"], ["--test-is has no effect with --data synthetic"]),
            (["--learner", "lstm"], ["unknown learner 'lstm'", "neumf, mf"]),
            (["--calibrator", "magic"], ["unknown calibrator 'magic'", "platt"]),
            (["--method", "magic"], ["unknown method 'magic'", "ips"]),
            (
                ["--protocol", "fair"],
                ["--protocol", "must be honest or paper, not 'fair'"],
            ),
            (["--seeds", "many"], ["--seeds (evaluation.seeds) must be a whole number, not 'many'"]),
            (["--crossfit", "1"], ["crossfit must be 0 or from 2 to 100 folds, not 1"]),
            (
                ["--propensity-epochs", "0"],
                ["--propensity-epochs", "must be at least 1, not 0"],
            ),
            (["--device", "gpu7"], ["'gpu7' is not a device", "auto, cpu"]),
            (["--out", "notes.txt"], ["notes.txt", "is a file"]),
            (["--out", "notes.txt/run"], ["notes.txt", "cannot write into"]),
            (["--colour"], ["there is no option --colour", "--help"]),
        ],
    )
    def test_it_is_told_in_one_line_and_nothing_is_left(
        self, tmp_path, monkeypatch, capsys, arguments, words
    ):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "notes.txt").write_text("notes")
        line = fails(["run", *arguments], capsys)
        for word in words:
            assert word in line
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    @pytest.mark.parametrize(
        ("arguments", "remedy"),
        [
            (["fly"], "see unskew --help"),
            (["--colour"], "see --help and --help-all"),
            (["runn"], "use run"),
            (["run", "--methd", "ips"], "use --method"),
            (["score"], "give RUN"),
            (["score", "run"], "give FILE"),
        ],
    )
    def test_a_wrong_verb_or_a_missing_argument_is_told(self, capsys, arguments, remedy):
        assert f"To fix: {remedy}" in fails(arguments, capsys)

    def test_nothing_asked_is_answered_with_help(self, capsys):
        assert main([]) == 0
        out, error = capsys.readouterr()
        assert "run" in out
        assert "score" in out
        assert error == ""

    def test_the_version_is_told(self, capsys):
        assert main(["--version"]) == 0
        assert capsys.readouterr().out == f"unskew {us.__version__}\n"

    def test_methods_are_listed_with_what_they_need(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "200")
        assert main(["methods"]) == 0
        out = capsys.readouterr().out
        for name in us.METHODS:
            assert name in out
        assert "propensities" in out


class TestScore:
    @pytest.fixture
    def pairs(self, tmp_path):
        table = pa.table({"user": [0, 49, 7], "item": [39, 0, 7], "note": ["a", "b", "c"]})
        pq.write_table(table, tmp_path / "pairs.parquet")
        pyarrow.csv.write_csv(table, tmp_path / "pairs.csv")
        return tmp_path / "pairs.parquet"

    @pytest.mark.parametrize("suffix", [".parquet", ".csv"])
    def test_scores_are_those_of_the_loaded_model(self, run, pairs, suffix, capsys):
        out = pairs.with_name("scored.parquet")
        assert main(["score", str(run), str(pairs.with_suffix(suffix)), "-o", str(out)]) == 0
        assert "3 pairs scored" in capsys.readouterr().out
        table = pq.read_table(out)
        predictions = ["conversion", "conversion_std", "propensity", "click_and_conversion"]
        assert table.column_names == ["user", "item", "note", *predictions]
        each = us.load_model(run).predict_pairs_each([0, 49, 7], [39, 0, 7])
        np.testing.assert_array_equal(table["conversion"], each.mean(axis=0))
        np.testing.assert_array_equal(table["conversion_std"], each.std(axis=0, ddof=1))
        propensity = us.load_propensity(run).predict_pairs_each([0, 49, 7], [39, 0, 7]).mean(axis=0)
        np.testing.assert_array_equal(table["propensity"], propensity)
        assert table["note"].to_pylist() == ["a", "b", "c"]

    def test_another_of_the_runs_methods_can_be_asked(self, run, pairs):
        out = pairs.with_name("scored.parquet")
        assert main(["score", str(run), str(pairs), "-o", str(out), "--method", "naive"]) == 0
        naive = us.load_model(run, "naive").predict_pairs_each([0, 49, 7], [39, 0, 7]).mean(axis=0)
        np.testing.assert_array_equal(pq.read_table(out)["conversion"], naive)

    def test_unseen_ids_are_an_error_or_nan(self, run, tmp_path, capsys):
        pairs, out = tmp_path / "pairs.csv", tmp_path / "scored.parquet"
        pairs.write_text("user,item\n0,0\n50,0\n0,40\n")
        line = fails(["score", run, pairs, "-o", out], capsys)
        assert "user 50 was not seen in training" in line
        assert "--unseen nan" in line
        assert not out.exists()
        assert main(["score", str(run), str(pairs), "-o", str(out), "--unseen", "nan"]) == 0
        table = pq.read_table(out)
        for column in ("conversion", "propensity"):
            assert np.isnan(table[column].to_numpy()).tolist() == [False, True, True]

    def test_columns_may_have_other_names(self, run, tmp_path, capsys):
        pairs, out = tmp_path / "pairs.csv", tmp_path / "scored.parquet"
        pairs.write_text("who,what\n0,0\n")
        assert "column 'user' is missing" in fails(["score", run, pairs, "-o", out], capsys)
        assert main(["score", str(run), str(pairs), "-o", str(out), "--user", "who", "--item", "what"]) == 0

    def test_an_output_file_is_replaced_only_on_request(self, run, pairs, capsys):
        out = pairs.with_name("scored.parquet")
        out.write_text("mine")
        assert "exists already" in fails(["score", run, pairs, "-o", out], capsys)
        assert out.read_text() == "mine"
        assert main(["score", str(run), str(pairs), "-o", str(out), "--overwrite"]) == 0
        assert len(pq.read_table(out)) == 3

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (
                ["{run}", "{pairs}", "-o", "o.parquet", "--method", "mrdr"],
                ["no method 'mrdr'", "naive, ips_raw, ips"],
            ),
            (
                ["{run}", "{pairs}", "-o", "o.parquet", "--unseen", "zero"],
                ["--unseen must be error, nan, other or average"],
            ),
            (["{run}", "{pairs}", "-o", "nowhere/o.parquet"], ["nowhere/o.parquet", "folder does not exist"]),
            (["nowhere", "{pairs}", "-o", "o.parquet"], ["nowhere", "is not a folder"]),
            ([".", "{pairs}", "-o", "o.parquet"], ["config.toml is missing"]),
        ],
    )
    def test_what_cannot_be_scored_is_told_in_one_line(
        self, run, pairs, tmp_path, monkeypatch, capsys, arguments, words
    ):
        monkeypatch.chdir(tmp_path)
        before = tree(tmp_path)
        line = fails(["score", *(a.format(run=run, pairs=pairs) for a in arguments)], capsys)
        for word in words:
            assert word in line
        assert tree(tmp_path) == before

    def test_a_column_that_would_be_added_twice_is_told(self, run, tmp_path, capsys):
        (tmp_path / "pairs.csv").write_text("user,item,propensity,given_propensity\n0,0,0.5,0.5\n")
        line = fails(["score", run, tmp_path / "pairs.csv", "-o", tmp_path / "o.parquet"], capsys)
        assert "column 'given_propensity' is there already" in line

    def test_a_damaged_run_is_told(self, run, pairs, tmp_path, capsys):
        copy = shutil.copytree(run, tmp_path / "copy")
        names = {path.name for path in copy.iterdir()} - FOR_PEOPLE
        assert len(names) == 10
        for name in sorted(names):
            whole = (copy / name).read_bytes()
            for content in (whole[: len(whole) // 2], whole[:-2], bytes([whole[0] ^ 1]) + whole[1:], None):
                (copy / name).unlink() if content is None else (copy / name).write_bytes(content)
                line = fails(["score", copy, pairs, "-o", tmp_path / "o.parquet"], capsys)
                assert f"copy: {name} is {'missing' if content is None else 'damaged ('}" in line
                assert "To fix: " in line
            (copy / name).write_bytes(whole)
        assert not (tmp_path / "o.parquet").exists()
        assert main(["score", str(copy), str(pairs), "-o", str(tmp_path / "o.parquet")]) == 0


@pytest.mark.parametrize(
    "code",
    [
        "import unskew",
        "from unskew.cli import main; main(['--help'])",
        "from unskew.cli import main; main(['run', '--help'])",
        "from unskew.cli import main; main(['score', '--help'])",
        "import unskew.metrics, unskew.calibration, unskew.theory, unskew.data.datasets, unskew.report",
    ],
)
def test_no_torch_is_loaded_without_need(code):
    check = f"{code}\nimport sys; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr or "torch was loaded"


def test_the_help_loads_no_numpy():
    check = "from unskew.cli import main; main(['--help']); import sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True).returncode == 0


def test_the_console_script_and_the_module_run_it():
    for command in (
        [sys.executable, "-m", "unskew"],
        [sys.executable, "-c", "from unskew.cli import entry; entry()"],
    ):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True)
        assert done.stdout == f"unskew {us.__version__}\n"
    done = subprocess.run([sys.executable, "-m", "unskew", "fly"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


class TestLoaderOptions:
    @pytest.mark.parametrize(
        ("option", "words"),
        [
            ("n_users", "--option 'n_users' is not KEY=VALUE. To fix: write for example n_users=200"),
            ("=3", "--option '=3' is not KEY=VALUE"),
            ("n_users=many", "--option n_users must be a whole number, not 'many'"),
            ("n_users=2.5", "--option n_users must be a whole number, not '2.5'. To fix: write for example"),
            ("density=", "--option density must be a number, not ''"),
            ("seed=-1", "seed must be a whole number of at least 0, not -1"),
            ("colour=3", "the dataset 'synthetic' has no option colour. To fix: its options are n_users,"),
            ("root=data", "--option root has a flag of its own. To fix: give --root"),
            ("protocol=paper", "--option protocol has a flag of its own. To fix: give --protocol"),
        ],
    )
    def test_a_bad_one_is_one_line_and_leaves_no_folder(self, tmp_path, capsys, option, words):
        assert words in fails(["run", "--option", option, "--out", tmp_path / "run"], capsys)
        assert tree(tmp_path) == []

    def test_with_a_file_columns_have_flags_of_their_own(self, files, tmp_path, capsys):
        arguments = ["run", "--data", files / "train.csv", "--out", tmp_path / "run", "--option", "user=who"]
        assert "--option user has a flag of its own. To fix: give --user" in fails(arguments, capsys)
