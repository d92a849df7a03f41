"""``unskew init`` and ``unskew run FILES…`` find out what files hold; ``unskew config`` lists settings."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.cli import main
from unskew.run.files import complete


@pytest.fixture(scope="module")
def clicks():
    """Impressions with times, a column that only clicks fill, and one that never changes."""
    random = np.random.default_rng(0)
    rows = 4000
    click = random.random(rows) < 0.3
    return pa.table(
        {
            "UID": random.integers(60, size=rows),
            "product_id": random.integers(40, size=rows),
            "clicked": click.astype(int),
            "purchase": (click & (random.random(rows) < 0.4)).astype(int),
            "country": random.choice(["fr", "de"], rows),
            "dwell": pa.array(np.where(click, random.random(rows), np.nan), from_pandas=True),
            "one": np.ones(rows, dtype=int),
            "when": np.datetime64("2026-01-01", "s") + np.sort(random.integers(10**6, size=rows)),
        }
    )


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, clicks):
    monkeypatch.chdir(tmp_path)
    pq.write_table(clicks, "clicks.parquet")
    return tmp_path


def test_init_writes_what_it_found_and_why_columns_are_left_out(here, capsys):
    assert main(["init", "clicks.parquet"]) == 0
    text = (here / "run.toml").read_text()
    found = tomllib.loads(text)
    assert found["data"] == {
        "source": "clicks.parquet",
        "user": "UID",
        "item": "product_id",
        "click": "clicked",
        "conversion": "purchase",
        "space": "impressions",
        "time": "when",
    }
    assert found["features"] == {"columns": "auto", "ignore": ["dwell"]}
    assert "column 'clicked' has zeros" in text
    assert "#   country: category, 2 values" in text
    assert "#   one: it has one value in all rows" in text
    assert "#   dwell: it may give an outcome away: it is filled in" in text
    assert text in capsys.readouterr().out
    assert us.Config(**found).data.space == "impressions", "the file is one that a run reads"
    assert main(["init", "clicks.parquet"]) == 2
    assert "run.toml is there already. To fix: give --overwrite" in capsys.readouterr().err


def test_a_run_needs_files_alone_and_says_what_it_guessed(here, capsys, undrawn, briefly):
    assert main(["run", "clicks.parquet", "--effort", "quick", "--set", "training.epochs=1"]) == 0
    said = capsys.readouterr().out
    for role, column in (("user", "UID"), ("item", "product_id"), ("conversion", "purchase")):
        assert f"· {role} is column '{column}'" in said
    folder = here / "runs" / "clicks-auto"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert set(metrics["collapsed"]) >= {"naive", "auto"}
    saved = tomllib.loads((folder / "config.toml").read_text())["run"]
    assert saved["data"]["user"] == "UID"
    assert (saved["evaluation"]["seeds"], saved["propensity"]["crossfit"]) == (1, 2)


@pytest.mark.parametrize(
    ("columns", "space"),
    [
        ({"user": [1, 1, 2], "item": [1, 2, 1]}, "matrix"),
        ({"user": [1, 1, 2], "item": [1, 1, 1]}, "impressions"),
        ({"user": [1, 1, 2], "item": [1, 2, 1], "click": [1, 1, 1]}, "matrix"),
        ({"user": [1, 1, 2], "item": [1, 2, 1], "click": [1, 0, 1]}, "impressions"),
        ({"user": [1, 1, 2], "item": [1, 2, 1], "click": [True, False, True]}, "impressions"),
        ({"user": [1, 1, 2], "item": [1, 2, 1], "click": [0.0, 1.0, 1.0]}, "impressions"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_population_follows_from_the_rows(columns, space, kind):
    table = pa.table(columns)
    pq.write_table(table, "log.parquet") if kind == "parquet" else pyarrow.csv.write_csv(table, "log.csv")
    config, sentences = complete(us.Config(data=f"log.{kind}"))
    assert config.data.space == space
    assert f"the population is {space}: " in sentences[-1]
    assert config.method == "none", "a log without conversions trains the propensity alone"
    assert complete(config) == (config, []), "nothing is left to guess"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_population_of_large_files_is_found_in_bounded_memory(kind, monkeypatch):
    monkeypatch.setattr("unskew.data.cache.HELD_BYTES", 0)
    monkeypatch.setattr("unskew.data.distinct.MOST_PAIRS", 300)
    user, item = (each.ravel() for each in np.meshgrid(np.arange(150), np.arange(40)))
    for repeated, space in ((0, "matrix"), (600, "impressions")):
        rows = np.append(np.arange(len(user)), np.arange(repeated))
        table = pa.table({"user": [f"u{code}" for code in user[rows]], "item": item[rows]})
        if kind == "parquet":
            pq.write_table(table, "log.parquet", row_group_size=500)
        else:
            pyarrow.csv.write_csv(table, "log.csv")
        assert complete(us.Config(data=f"log.{kind}"))[0].data.space == space


def test_a_gap_among_ids_is_named_by_file_and_row():
    pq.write_table(pa.table({"user": [1, None], "item": [1, 1]}), "log.parquet")
    with pytest.raises(DataError, match=r"log\.parquet, column 'user', row 1"):
        complete(us.Config(data="log.parquet"))


def test_several_files_are_one_log(clicks):
    for number in range(2):
        pq.write_table(clicks.slice(2000 * number, 2000), f"part-{number}.parquet")
    assert main(["init", "part-0.parquet", "part-1.parquet", "-o", "both.toml"]) == 0
    with open("both.toml", "rb") as file:
        assert tomllib.load(file)["data"]["source"] == ["part-0.parquet", "part-1.parquet"]


def test_every_effort_is_a_stated_number_of_seeds_and_folds():
    found = {effort: us.Config(effort=effort) for effort in ("quick", "standard", "thorough")}
    assert {effort: (len(c.seeds), c.crossfit) for effort, c in found.items()} == {
        "quick": (1, 2),
        "standard": (1, 2),
        "thorough": (10, 5),
    }
    assert us.Config(effort="thorough", seeds=3, crossfit=2).resolved().to_dict()["evaluation"]["seeds"] == 3


class TestConfig:
    def test_a_field_has_one_place_and_several_ways_to_it(self):
        config = us.Config(data={"source": "a.csv"}, model={"method": "snips"}, evaluation={"seeds": 2})
        assert us.Config(data="a.csv", method="snips", seeds=2) == config
        assert us.Config(source="a.csv", model="snips", evaluation={"seeds": 2}) == config
        assert us.Config(data="a.csv").changed({"model.method": "snips", "seeds": 2}) == config
        assert us.Config(**config.to_dict()) == config

    def test_it_cannot_be_changed_in_place(self):
        with pytest.raises(ValueError, match="frozen"):
            us.Config().model.method = "ips"

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            ({"metod": "ips"}, "there is no option 'metod'. To fix: use method"),
            ({"data": {"clik": "c"}}, "use --click (data.click)"),
            ({"space": "rows"}, "--space (data.space) must be auto, matrix or impressions, not 'rows'"),
            ({"p_min": "low"}, "--p-min (propensity.p_min) must be a number or auto, not 'low'"),
            ({"members": 2.5}, "--members (model.members) must be a whole number, not 2.5"),
        ],
    )
    def test_a_wrong_one_is_one_line_with_the_nearest_name(self, values, words):
        with pytest.raises(ParameterError) as caught:
            us.Config(**values)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_every_setting_is_listed_and_in_the_schema(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "200")
        assert main(["config"]) == 0
        said = capsys.readouterr().out
        assert main(["config", "--json-schema"]) == 0
        schema = json.loads(capsys.readouterr().out)
        for section in us.Config.model_fields:
            fields = schema["$defs"][f"{section.capitalize()}Config"]["properties"]
            for name, field in fields.items():
                assert f"{section}.{name}" in said
                assert field["description"], name

    def test_the_cache_is_cleared_and_what_was_removed_is_printed(self, here, capsys, monkeypatch):
        monkeypatch.setattr("unskew.data.cache.HELD_BYTES", 0)
        monkeypatch.setattr("unskew.data.two_passes.MAPPED_BYTES", 0)
        monkeypatch.setenv("XDG_CACHE_HOME", str(here / "home"))
        roles = {"user": "UID", "item": "product_id", "click": "clicked", "space": "impressions"}
        us.read_log("clicks.parquet", **roles)
        us.read_log("clicks.parquet", **roles, cache="mine")
        for folder, given in ((here / "home" / "unskew", []), (here / "mine", ["--cache", "mine"])):
            (log,) = [path for path in folder.iterdir() if path.is_dir()]
            assert main(["config", "--clear-cache", *given]) == 0
            said = capsys.readouterr().out
            assert f"Removed: {log.relative_to(here) if given else log} (" in said
            assert "1 encoded logs of " in said
            assert not log.exists()
            assert main(["config", "--clear-cache", *given]) == 0
            assert "0 encoded logs of 0.0 MB were removed" in capsys.readouterr().out

    def test_a_cache_without_clearing_is_refused(self, capsys):
        assert main(["config", "--cache", "mine"]) == 2
        assert "--cache has no effect without --clear-cache" in capsys.readouterr().err
