"""``--features`` from files to a run folder and to scores of users who were not there in training."""

from __future__ import annotations

import contextlib
import io
import json

import numpy as np
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import unskew as us
from contracts.feature_world import part, table
from unskew.cli import main

COLUMNS = ("--space", "impressions", "--click", "click", "--conversion", "bought")
QUICK = ("--seeds", "1", "--crossfit", "2", "--propensity-epochs", "2", "--propensity", "mlp")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rows = table().drop_columns(["match"])
    for known, name in ((True, "train"), (False, "new")):
        pq.write_table(part(rows, known=known), folder / f"{name}.parquet")
        pc.write_csv(part(rows, known=known).drop_columns(["tags"]), folder / f"{name}.csv")
    return folder


@pytest.fixture(scope="module")
def run(files):
    """A run with features, and what it printed before it trained."""
    out = files / "run"
    given = ["--features", "auto", "--ignore", "noise", "--learner", "mlp", *COLUMNS, *QUICK]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert main(["run", "--data", str(files / "train.parquet"), *given, "--out", str(out)]) == 0
    (files / "said.txt").write_text(said.getvalue())
    return out


def test_the_schema_is_shown_and_stored(files, run):
    text = (files / "said.txt").read_text()
    for word in ("country", "bag", "25 %", "position"):
        assert word in text[: text.index("protocol:")]
    fields = json.loads((run / "metrics.json").read_text())["data"]["fields"]
    stored = json.loads((run / "schema.json").read_text())
    kinds = [[(each["name"], each["kind"]) for each in found] for found in (stored["fields"], fields)]
    assert kinds[0] == kinds[1]
    assert "schema.json" in json.loads((run / "manifest.json").read_text())["files"]


def test_users_who_were_not_there_are_scored_and_marked(files, run, tmp_path):
    out = tmp_path / "scored.parquet"
    assert main(["score", str(run), str(files / "new.parquet"), "-o", str(out)]) == 0
    scored = pq.read_table(out)
    assert scored["unseen_user"].to_pylist() == [True] * len(scored)
    assert scored["unseen_item"].to_pylist() == [False] * len(scored)
    model = us.load_model(run)
    given = pq.read_table(files / "new.parquet")
    np.testing.assert_array_equal(scored["conversion"], model.predict_frame_each(given).mean(axis=0))
    np.testing.assert_array_equal(
        scored["propensity"], us.load_propensity(run).predict_frame_each(given).mean(axis=0)
    )
    assert len(set(scored["conversion"].to_pylist())) > 10
    assert main(["score", str(run), str(files / "new.parquet"), "-o", str(out), "--unseen", "error"]) == 2


def test_a_file_without_what_the_model_reads_is_refused(files, run, tmp_path, capsys):
    less = tmp_path / "less.parquet"
    pq.write_table(pq.read_table(files / "new.parquet").drop_columns(["position"]), less)
    assert main(["score", str(run), str(less), "-o", str(tmp_path / "x.parquet")]) == 2
    assert "column 'position' is missing, which the model reads" in capsys.readouterr().err


def test_csv_has_features_by_what_its_values_look_like(files, tmp_path):
    out = tmp_path / "run"
    given = ["--features", "auto", "--numeric", "position", "--learner", "mlp", *COLUMNS, *QUICK]
    assert main(["run", "--data", str(files / "train.csv"), *given, "--out", str(out)]) == 0
    fields = {each["name"]: each["kind"] for each in json.loads((out / "schema.json").read_text())["fields"]}
    expected = {"user": "id", "item": "id", "country": "category", "price": "number"}
    assert fields == expected | {"noise": "number", "position": "number"}
    scored = tmp_path / "scored.parquet"
    assert main(["score", str(out), str(files / "new.csv"), "-o", str(scored)]) == 0
    by_parquet = us.load_model(out).predict_frame_each(pq.read_table(files / "new.parquet"))
    np.testing.assert_allclose(pq.read_table(scored)["conversion"], by_parquet.mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--ignore", "noise"], "--ignore has no effect without --features auto"),
        (["--features", "country", "--ignore", "noise"], "--ignore has no effect without --features auto"),
        (["--features", "nothing"], "column 'nothing' is missing"),
        (["--features", "click"], "column 'click' is an id or an outcome"),
        (["--bag", "country"], "column 'country': holds string, not lists"),
    ],
)
def test_features_that_cannot_be_are_named(given, message, files, tmp_path, capsys):
    command = [
        "run",
        "--data",
        str(files / "train.parquet"),
        *COLUMNS,
        *given,
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(command) == 2
    assert message in capsys.readouterr().err


def test_ids_alone_answer_with_the_average_user_if_asked(files, tmp_path, capsys):
    out, scored = tmp_path / "run", tmp_path / "scored.parquet"
    given = ["--learner", "mf", *COLUMNS, *QUICK[:4], "--propensity", "popularity"]
    assert main(["run", "--data", str(files / "train.parquet"), *given, "--out", str(out)]) == 0
    command = ["score", str(out), str(files / "new.parquet"), "-o", str(scored)]
    assert main(command) == 2
    assert "was not seen in training" in capsys.readouterr().err
    assert main([*command, "--unseen", "average"]) == 0
    found = pq.read_table(scored)
    assert found["unseen_user"].to_pylist() == [True] * len(found)
    for column in ("conversion", "propensity"):
        by_item = found.group_by("item").aggregate([(column, "min"), (column, "max"), (column, "mean")])
        np.testing.assert_array_equal(by_item[f"{column}_min"], by_item[f"{column}_max"])
        assert len(by_item[f"{column}_mean"].unique()) > 10


def test_the_propensity_and_the_model_read_fields_of_their_own(files, tmp_path):
    data = ["--data", str(files / "train.parquet"), "--features", "country,position", "--learner", "mlp"]
    chosen = ["--propensity-features", "position", "--model-features", "-position"]
    out = tmp_path / "run"
    config = out / "config.toml"
    assert main(["run", *data, *chosen, *COLUMNS, *QUICK, "--method", "naive", "--out", str(out)]) == 0
    assert us.load_model(out).fields == ("-position",)
    assert us.load_propensity(out).fields == ("position",)
    rows = pq.read_table(files / "new.parquet").drop_columns(["position", "click", "bought"])
    assert np.isfinite(us.load_model(out).predict_frame_each(rows)).all()
    again = tmp_path / "again"
    assert main(["run", "--config", str(config), "--out", str(again)]) == 0
    assert us.load_propensity(again).fields == ("position",)
    assert (again / "metrics.json").read_bytes() == (out / "metrics.json").read_bytes()


def test_fields_of_a_propensity_that_reads_none_are_refused(files, tmp_path, capsys):
    given = ["--data", str(files / "train.parquet"), "--features", "country,position", *COLUMNS]
    asked = ["--propensity", "popularity", "--propensity-features", "position"]
    assert main(["run", *given, *asked, "--out", str(tmp_path / "run")]) == 2
    assert "PopularityPropensity reads no features" in capsys.readouterr().err


def test_the_report_shows_which_fields_matter_and_where_predictions_are_off(run):
    fields = json.loads((run / "metrics.json").read_text())["fields"]
    for key, outcome in (("conversion", "conversion"), ("propensity", "click")):
        importance = fields[key]["importance"]
        assert importance["outcome"] == outcome
        assert {each["field"] for each in importance["fields"]} == {
            "user", "item", "country", "price", "tags", "position",
        }  # fmt: skip
        assert fields[key]["values"] >= len(fields[key]["worst_values"]) > 0
    assert fields["conversion"]["judged_on"] == "validation clicks, weighted by 1/p"
    assert 'id="figure-fields"' in (run / "report.html").read_text()
