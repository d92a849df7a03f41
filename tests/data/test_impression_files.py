"""``unskew make-data``: files whose rows are the world's, however many; whole, resumed or refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.base.errors import ParameterError, RunFolderError
from unskew.cli import main
from unskew.data.datasets import impression_files, impression_world
from unskew.data.datasets.impression_files import write_world
from unskew.data.datasets.impression_tables import COLUMNS, TRUTH, log_table
from unskew.data.datasets.impression_world import ImpressionWorld

PARAMETERS = {"n_rows": 2_500, "n_users": 200, "n_items": 50, "seed": 1}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(impression_world, "CHUNK_SESSIONS", 32)


@pytest.fixture
def world():
    return ImpressionWorld(**PARAMETERS)


def test_rows_are_those_of_the_world_whatever_the_number_of_files(tmp_path, world):
    expected = pa.concat_tables([log_table(world, world.chunk(number)) for number in range(world.n_chunks)])
    for files in (1, 3, world.n_chunks):
        folder = tmp_path / str(files)
        done = write_world(world, folder, files=files, test_rows=100)
        assert (done.rows, done.files, done.files_kept) == (2_500, files, 0)
        assert len(list((folder / "log").glob("*.parquet"))) == files
        assert pq.read_table(folder / "log").equals(expected)
        assert pq.read_table(folder / "truth").num_rows == 2_500
        assert 98 <= pq.read_table(folder / "test.parquet").num_rows <= 100
        first = pq.ParquetFile(sorted((folder / "log").iterdir())[0])
        assert first.metadata.row_group(0).num_rows == world.chunk_rows


def test_the_truth_is_beside_the_log_and_not_in_it(tmp_path, world):
    write_world(world, tmp_path / "w", test_rows=100)
    assert pq.read_table(tmp_path / "w" / "log").column_names == list(COLUMNS)
    assert pq.read_table(tmp_path / "w" / "truth").column_names == list(TRUTH)
    assert "click" not in pq.read_table(tmp_path / "w" / "test.parquet").column_names
    write_world(world, tmp_path / "bare", test_rows=0, truth=False)
    assert sorted(path.name for path in (tmp_path / "bare").iterdir()) == ["log", "world.json"]
    told = json.loads((tmp_path / "w" / "world.json").read_text())
    assert told["parameters"]["n_rows"] == 2_500
    assert told["columns"]["log"] == dict(COLUMNS)


def test_a_second_call_writes_what_is_missing(tmp_path, world):
    write_world(world, tmp_path, files=4, test_rows=100)
    files = sorted((tmp_path / "log").iterdir())
    before = {path: path.read_bytes() for path in files}
    stamp = files[0].stat().st_mtime_ns
    files[2].unlink()
    (tmp_path / "truth" / files[1].name).unlink()
    done = write_world(world, tmp_path, files=4, test_rows=100)
    assert done.files_kept == 2
    assert {path: path.read_bytes() for path in files} == before
    assert files[0].stat().st_mtime_ns == stamp


def test_a_call_that_fails_leaves_no_part_of_a_file(tmp_path, world, monkeypatch):
    drawn = impression_files.log_table

    def fails(world, chunk):
        if chunk["session"][0] >= 64:
            raise OSError("stopped here")
        return drawn(world, chunk)

    monkeypatch.setattr(impression_files, "log_table", fails)
    with pytest.raises(OSError, match="stopped here"):
        write_world(world, tmp_path, files=5, test_rows=100)
    left = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["part-00000-of-00005.parquet"] * 2 + ["world.json"]
    monkeypatch.undo()
    monkeypatch.setattr(impression_world, "CHUNK_SESSIONS", 32)
    assert write_world(world, tmp_path, files=5, test_rows=100).files_kept == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 2}, "holds another world: seed 1 there and 2 here"),
        ({"click_rate": 0.2}, "holds another world: click_rate 0.1 there and 0.2 here"),
    ],
)
def test_another_world_in_the_folder_is_refused(tmp_path, world, change, message):
    write_world(world, tmp_path, test_rows=0)
    with pytest.raises(RunFolderError, match=message):
        write_world(ImpressionWorld(**{**PARAMETERS, **change}), tmp_path, test_rows=0)
    with pytest.raises(RunFolderError, match="files 1 there and 2 here"):
        write_world(world, tmp_path, files=2, test_rows=0)


def test_other_things_in_the_folder_are_refused(tmp_path, world):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="a folder with other things in it"):
        write_world(world, tmp_path)
    (tmp_path / "notes.txt").rename(tmp_path / "world.json")
    with pytest.raises(RunFolderError, match=r"world\.json is not what unskew wrote"):
        write_world(world, tmp_path)


@pytest.mark.parametrize("files", [0, 11, True, 1.5])
def test_an_impossible_number_of_files_is_refused(tmp_path, world, files):
    with pytest.raises(ParameterError, match=r"files must be from 1 to 10 \(chunks of 256 rows\)"):
        write_world(world, tmp_path, files=files)


def test_the_command_writes_what_can_be_read_as_a_log(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = "make-data impressions --rows 2e3 --users 150 --items 40 --out w --test-rows 200 --files 2"
    assert main([*command.split(), "--option", "click_rate=0.2", "--json", "done.json"]) == 0
    assert "2,000 rows in 2 files" in capsys.readouterr().out
    assert json.loads((tmp_path / "done.json").read_text())["rows"] == 2_000
    data = us.load(
        "files",
        "w",
        train="log",
        test="test.parquet",
        test_is="random",
        click="click",
        conversion="conversion",
        space="impressions",
        unseen="drop",
    )
    assert len(data.train) == 2_000
    assert data.train.density == pytest.approx(0.2, rel=0.2)
    assert main(command.split()) == 2
    assert "holds another world: click_rate 0.2 there and 0.1 here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("moons --out w", "unknown world 'moons'"),
        ("impressions --out w --rows many", "--rows must be a whole number, not 'many'"),
        ("impressions --out w --rows 1.5", "--rows must be a whole number"),
        ("impressions --out w --rows 1e3 --option clicks=1", "the world has no option clicks"),
        ("impressions --out w --rows 1e3 --option n_users=9", "--option n_users has a flag of its own"),
        ("impressions --out w --rows 1e3 --items 3", "a session shows 8 items, but there are only 3"),
        ("impressions --out w --rows 1e3 --seed -1", "--seed must be at least 0, not -1"),
    ],
)
def test_a_wrong_command_is_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["make-data", *arguments.split()]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert list(tmp_path.iterdir()) == []
