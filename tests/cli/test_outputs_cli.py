"""What a command writes takes the place of nothing that it reads, of no other output, of nothing foreign."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unskew.cli import main

COLUMNS = ["--score", "p", "--outcome", "o"]
LOG = "p,o\n" + "0.5,1\n0.5,0\n" * 20
PAIRS = "user,item\n1,2\n"
RUN_CONFIG = 'unskew = "1.0"\nformat = 1\nmain = "ips"\n'


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A log, pairs, the beginning of a run folder, a folder of somebody's, and a pipe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(LOG)
    (tmp_path / "pairs.csv").write_text(PAIRS)
    (tmp_path / "pairs.parquet").write_text("read")
    (tmp_path / "link.csv").symlink_to("a.csv")
    (tmp_path / "grid.toml").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(RUN_CONFIG)
    (tmp_path / "run" / "items.parquet").write_text("read")
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "config.toml").write_text("x = 1")
    (tmp_path / "busy" / "notes.txt").write_text("precious")
    (tmp_path / "study" / "results").mkdir(parents=True)
    (tmp_path / "study" / "results" / ".lock").touch()
    (tmp_path / "study" / "grid.json").write_text("{}")
    return tmp_path


def content(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("audit a.csv {columns} --json a.csv", "--json a.csv would change a.csv, which is read"),
        ("audit a.csv {columns} --json link.csv", "--json link.csv would change a.csv"),
        ("audit . {columns} --json a.csv --no-report", "--json a.csv would change a.csv"),
        ("audit a.csv {columns} --out ok --json .", "--json .: is a folder"),
        ("audit a.csv {columns} --out ok --json no/x.json", "--json no/x.json: its folder does not exist"),
        ("audit a.csv {columns} --out busy --overwrite", "busy: is a folder with other things in it"),
        ("audit a.csv {columns} --seed -1", "--seed must be at least 0, not -1"),
        ("weights a.csv {columns} -o w.parquet --json a.csv", "--json a.csv would change a.csv"),
        ("weights a.csv {columns} -o w.parquet --json w.parquet", "overlap"),
        ("weights pairs.parquet {columns} -o pairs.parquet --overwrite", "would change pairs.parquet"),
        ("run --data a.csv --json a.csv", "--json a.csv would change a.csv, which is read"),
        ("run --data a.csv --test pairs.csv --json pairs.csv", "--json pairs.csv would change pairs.csv"),
        ("run --data a.csv --out busy --overwrite", "busy: is a folder with other things in it"),
        ("run --data a.csv --test ", "--test (data.test) must be a name, not ''"),
        ("run --data run/items.parquet --out run --overwrite", "would change run/items.parquet, which is"),
        ("score run pairs.parquet -o pairs.parquet --overwrite", "would change pairs.parquet"),
        ("score run pairs.csv -o run/scored.parquet", "run/scored.parquet would change run, which is read"),
        ("score run pairs.csv -o scored.csv", "scored.csv must end in .parquet"),
        ("score run  -o scored.parquet", "the name of a file is empty"),
        ("export run -o run/model.safetensors --overwrite", "would change run, which is read"),
        ("export run -o m.onnx --json m.onnx", "overlap"),
        ("compare run --json z --markdown ./z", "--json z and --markdown z overlap"),
        ("compare run --json run/config.toml", "would change run, which is read"),
        ("study grid.toml --json grid.toml", "--json grid.toml would change grid.toml, which is read"),
        ("reproduce table-ece --data synthetic --out busy", "busy: is a folder with other things in it"),
        ("reproduce table-ece --data synthetic --out study", "study: holds a study"),
        ("reproduce table-ece --data synthetic --out a.csv", "a.csv: is a file"),
        ("reproduce table-ece --data synthetic --out r --device cuda:99", "device cuda:99 is not there"),
        ("reproduce table-ece --data nope --out r", "To fix: use one of synthetic, coat"),
        ("audit  {columns}", "the name of a file is empty"),
    ],
)
def test_it_is_refused_in_one_line_and_nothing_is_written(here, capsys, command, told):
    before = content(here)
    arguments = [part for each in command.split(" ") for part in (COLUMNS if each == "{columns}" else [each])]
    assert main(arguments) == 2
    out, error = capsys.readouterr()
    assert told in error
    assert error.count("\n") == 1
    assert out == ""
    assert content(here) == before


@pytest.mark.parametrize(
    "command",
    ["audit a.csv {columns} --json pipe", "weights a.csv {columns} -o pipe.parquet", "export run -o pipe"],
)
def test_a_pipe_or_a_device_is_not_replaced(here, capsys, command):
    name = "pipe.parquet" if "weights" in command else "pipe"
    os.mkfifo(name)
    arguments = [part for each in command.split() for part in (COLUMNS if each == "{columns}" else [each])]
    assert main(arguments) == 2
    assert f"{name}: is a device or a pipe" in capsys.readouterr().err
    assert (here / name).is_fifo()
    assert not (here / "audits").exists()
