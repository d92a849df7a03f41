"""``unskew study`` from the command line: files, names, renderings, one line for a mistake."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest

from cli.conftest import fails
from unskew.cli import main

TINY = """
[base]
data = { source = "synthetic", options = { n_users = 50, n_items = 40, density = 0.2 } }
evaluation.seeds = 5
propensity = { kind = "mf", crossfit = 2 }
model = { learner = "mf", parameters = { "learner.dim" = 4, "training.epochs" = 2 } }
[grid]
method = ["naive", "ips"]
calibrator = ["none", "platt"]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


def test_a_file_gives_the_long_table_and_every_rendering_of_it(file, tmp_path, capsys):
    out, numbers = tmp_path / "out", tmp_path / "numbers.json"
    arguments = [
        "study",
        str(file),
        "--out",
        str(out),
        "--seeds",
        "2",
        "--device",
        "cpu",
        "--json",
        str(numbers),
    ]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    table = pq.read_table(out / "table.parquet")
    assert set(table["seed"].drop_null().to_pylist()) == {0, 1}
    told = json.loads(numbers.read_text(encoding="utf-8"))
    assert told["name"] == "tiny"
    auc = next(row for row in told["methods"] if row["calibrator"] == "platt" and row["metric"] == "auc")
    mean, spread = f"{auc['mean']:.4f}", f"± {auc['std']:.4f}"
    for text in (
        printed,
        *((out / name).read_text(encoding="utf-8") for name in ("tables.md", "tables.html")),
    ):
        assert mean in text
        assert spread in text
    assert "test pairs that were clicked in training are dropped" in printed
    before = (out / "table.csv").read_bytes()
    assert main(arguments) == 0
    assert (out / "table.csv").read_bytes() == before


def test_the_list_names_every_study(capsys):
    from unskew.study.grid import NAMED

    assert main(["study", "--list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in NAMED)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["study"], "study needs a TOML file or a name. To fix: see unskew study --list."),
        (["study", "nothing"], "no study is called 'nothing'"),
        (["study", "nothing.toml"], "nothing.toml: there is no such file"),
        (["study", "methods", "--data", "coat"], "the dataset 'coat' needs the folder of its files"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert line in fails(arguments, capsys)


@pytest.mark.parametrize("option", ["--data", "--root"])
def test_data_beside_a_file_that_names_its_own_is_refused(option, tmp_path, capsys):
    (tmp_path / "grid.toml").write_text('[grid]\nmethod = ["naive"]\n', encoding="utf-8")
    assert main(["study", str(tmp_path / "grid.toml"), option, "coat", "--out", str(tmp_path / "out")]) == 2
    assert "which names its datasets" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
