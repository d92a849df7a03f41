"""An option that would have no effect is refused before anything is read; columns have default names."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.audit import Trained, write_weights
from unskew.cli import main
from unskew.cli.app import VERBS, command
from unskew.data.datasets import load

REFUSED = {
    "run --data synthetic": [
        "--test a.csv",
        "--test-is random",
        "--user u",
        "--user user",
        "--item i",
        "--click click",
        "--conversion c",
        "--space impressions",
        "--space matrix",
        "--duplicates max",
    ],
    "run --data coat": ["--space matrix", "--click c"],
    "run --protocol paper": ["--crossfit 3", "--p-min 0.1"],
    "audit a.csv --score p --outcome o --no-report": ["--out x", "--overwrite"],
    "audit a.csv --score p --actions 8": [
        "--outcome o",
        "--weight w",
        "--segments u",
        "--no-report",
        "--seed 1",
    ],
    "weights a.csv --score p --outcome o -o out.parquet": [
        "--user u",
        "--item i",
        "--features auto",
        "--propensity trees",
        "--device nonsense",
        "--device auto",
    ],
    "weights a.csv --user u --item i -o out.parquet": ["--sample-weight w"],
    "export run -o x.onnx --what propensity": ["--method ips"],
    "compare run --metric nll": ["--slate 4"],
    "study --list": ["small", "--seeds 2", "--out x", "--json x.json", "--data coat"],
    "study grid.toml": ["--data coat", "--root x"],
    "reproduce table-ece": ["--reverse no_clip"],
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("p,o,u,i,w\n" + "0.5,1,1,1,1\n0.5,0,1,2,1\n" * 50)
    (tmp_path / "grid.toml").write_text('datasets = ["synthetic"]\nmethods = ["naive"]\n')


@pytest.mark.parametrize(
    ("command", "option"), [(command, each) for command, options in REFUSED.items() for each in options]
)
def test_an_option_without_effect_is_refused(capsys, tmp_path, command, option):
    before = sorted(tmp_path.iterdir())
    assert main([*command.split(), *option.split()]) == 2
    said = capsys.readouterr().err
    flag = option.split()[0]
    assert (flag if flag.startswith("--") else "FILE.toml") in said or "reverse" in said
    assert "To fix: " in said
    assert said.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before, "nothing was read, trained or written"


@pytest.mark.parametrize(
    "command",
    [
        "run --data synthetic --seeds {n}",
        "run --data synthetic --crossfit {n}",
        "run --data synthetic --propensity-epochs {n}",
        "reproduce table-ece --data synthetic --seeds {n}",
        "study small --seeds {n}",
    ],
)
@pytest.mark.parametrize("number", [10**7, 2**31 - 1, 10**30])
def test_numbers_that_nothing_could_be_done_with_are_refused(capsys, command, number):
    assert main(command.format(n=number).split()) == 2
    said = capsys.readouterr().err
    assert "To fix: " in said
    assert said.count("\n") == 1


def test_a_column_called_click_is_the_click(tmp_path):
    rows = "".join(
        f"{u},{i},{(u + i) % 2},{(u * i) % 3 % 2 * ((u + i) % 2)}\n" for u in range(6) for i in range(5)
    )
    (tmp_path / "log.csv").write_text("user,item,click,conversion\n" + rows)
    data = load("files", train="log.csv", conversion="conversion")
    assert data.train.n_clicks == 15
    assert us.read_log("log.csv").n_clicks == 15
    log = us.read_log("log.csv", click="conversion")
    assert log.n_clicks < 15, "one that is named counts"


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.dictionary(pa.int8(), pa.string()), "csv"])
def test_outcomes_of_any_type_make_the_rows_the_population(tmp_path, kind):
    user, item = (axis.ravel() for axis in np.mgrid[:12, :10])
    click = ((user + item) % 3 == 0).astype(int)
    if kind == "csv":
        rows = "".join(f"{u},{i},{c}\n" for u, i, c in zip(user, item, click, strict=True) if u != i)
        (tmp_path / "log.csv").write_text("u,i,o\n" + rows)
    else:
        text = pa.array(click.astype(str))
        outcome = text.cast(kind) if kind == pa.int64() else text.dictionary_encode().cast(kind)
        table = pa.table({"u": user, "i": item, "o": outcome}).filter(pa.array(user != item))
        pq.write_table(table, tmp_path / "log.parquet")
    name = "log.csv" if kind == "csv" else "log.parquet"
    result = write_weights(name, "w.parquet", Trained("u", "i", "o"), folds=2)
    assert result.raw.rows == 110, "not all 120 pairs of a user and an item"
    written = pq.read_table(tmp_path / "w.parquet")
    assert written.schema.field("o").type == (pa.int64() if kind == "csv" else kind)


def test_a_trained_propensity_may_stay_as_it_is(tmp_path, capsys):
    rows = "".join(f"{u},{i},{int((u + i) % 3 == 0)}\n" for u in range(12) for i in range(10))
    (tmp_path / "log.csv").write_text("u,i,o\n" + rows)
    options = "--user u --item i --outcome o --folds 2 --calibrator none -o w.parquet --json w.json"
    assert main(["weights", "log.csv", *options.split()]) == 0, capsys.readouterr().err
    told = json.loads((tmp_path / "w.json").read_text())
    assert (told["calibrator"], told["chosen"], told["messages"]) == ("none", ["none", "none"], [])


@pytest.mark.parametrize(
    "option", ["--tolerance inf", "--tolerance nan", "--significance nan", "--p-min nan"]
)
def test_numbers_that_are_none_are_refused(capsys, option):
    assert main(["audit", "a.csv", "--score", "p", "--outcome", "o", "--no-report", *option.split()]) == 2
    assert "To fix: " in capsys.readouterr().err


def test_a_column_of_ids_that_is_missing_is_answered_with_its_option(tmp_path, capsys):
    (tmp_path / "log.csv").write_text("who,what,click,conversion\n1,1,1,0\n")
    assert main(["run", "--data", str(tmp_path / "log.csv"), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "column 'user' is missing" in error
    assert "with --user: who, what, click, conversion" in error


def test_help_shows_few_options_in_groups_and_the_rest_is_asked_for(capsys):
    for verb, at_most in [("run", 16), *((name, 12) for name in VERBS if name != "run")]:
        assert main([verb, "--help"]) == 0
        brief = capsys.readouterr().out
        parameters = command.get_command(None, verb).params
        options = [each for each in parameters if each.param_type_name == "option"]
        shown = [each for each in options if not each.hidden and each.name not in ("help", "help_all")]
        assert len(shown) <= at_most, verb
        assert all(each.opts[0] in brief for each in shown)
        if len(shown) < len(options) - 1:
            assert main([verb, "--help-all"]) == 0
            whole = capsys.readouterr().out
            assert all(each.opts[0] in whole for each in options)
