"""Weights by a query are the weights of ``predict``: no row calibrated by itself, the fold that of its id."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unskew.audit import cells_query, weights_query
from unskew.audit.crossfit import fit_without_each, fold_of_id, folds_of_cells
from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.calibration import Platt
from unskew.metrics.cells import Cells

ROWS = 4000
COLUMNS = {"score": "p", "outcome": "clicked", "fold_by": "user"}
UNFOLDED = {"score": "p", "outcome": "clicked"}
ADDED = ["weight", "clipped", "propensity_calibrated", "fold"]


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    random = np.random.default_rng(0)
    score = 1 / (1 + np.exp(-random.normal(-2, 1.2, ROWS)))
    user = [None if number % 97 == 0 else f"user {number % 300} é" for number in range(ROWS)]
    clicked = random.random(ROWS) < score**0.7
    return pa.table({"p": score, "clicked": clicked.astype(np.int64), "user": user})


def run(query: str, rows: pa.Table) -> pa.Table:
    with pytest.importorskip("duckdb").connect() as connection:
        connection.register("logs", rows)
        return connection.sql(query).to_arrow_table()


def counted(rows: pa.Table, **options: Any) -> pa.Table:
    return run(cells_query("logs", **{**COLUMNS, **options}), rows)


def platt_of(seed: int) -> Platt:
    random = np.random.default_rng(seed)
    score = random.random(500)
    return Platt().fit(score, random.random(500) < score**2)


@pytest.mark.parametrize("name", ["platt", "isotonic", "beta", "auto"])
def test_each_row_has_what_predict_of_the_other_folds_gives(rows: pa.Table, name: str) -> None:
    cells = counted(rows)
    found = run(weights_query(cells, "logs", **COLUMNS, calibrator=name, p_min=0.05), rows)
    assert found.column_names == [*ADDED, *rows.column_names]
    fold = np.array([fold_of_id(user or "", 5) for user in rows["user"].to_pylist()])
    np.testing.assert_array_equal(found["fold"], fold)
    score, q = rows["p"].to_numpy(), np.empty(ROWS)
    for k, fitted in enumerate(fit_without_each(name, folds_of_cells(Cells.from_cells(cells)))):
        q[fold == k] = fitted.predict(score[fold == k])
    np.testing.assert_allclose(found["propensity_calibrated"], q, rtol=1e-12)
    weight = np.where(rows["clicked"].to_numpy() == 1, 1 / np.maximum(q, 0.05), 0.0)
    np.testing.assert_allclose(found["weight"], weight, rtol=1e-12)
    np.testing.assert_array_equal(found["clipped"], q < 0.05)


def test_every_row_may_have_a_weight_and_the_clip_may_be_chosen(rows: pa.Table) -> None:
    found = run(weights_query(counted(rows), "logs", **COLUMNS, weight_all=True), rows)
    q, weight = (found[name].to_numpy() for name in ("propensity_calibrated", "weight"))
    clip = 1 / weight.max()
    np.testing.assert_allclose(weight, 1 / np.maximum(q, clip), rtol=1e-12)
    assert 0 < clip < 0.5


def test_a_fold_without_rows_is_still_one_of_five(rows: pa.Table) -> None:
    fold = np.array([fold_of_id(user or "", 5) for user in rows["user"].to_pylist()])
    cells = counted(rows.filter(pa.array(fold != 4)))
    found = run(weights_query(cells, "logs", **COLUMNS, calibrator="platt", p_min=0.05), rows)
    np.testing.assert_array_equal(found["fold"], fold)
    all_others = Platt().fit(Cells.from_cells(cells).whole())
    own = fold == 4
    expected = all_others.predict(rows["p"].to_numpy()[own])
    np.testing.assert_allclose(found["propensity_calibrated"].to_numpy()[own], expected, rtol=1e-9)


@pytest.mark.parametrize("weight_all", [False, True])
def test_a_bad_score_or_outcome_has_no_weight(weight_all: bool) -> None:
    rows = pa.table({"p": [None, 1.5, 0.25, 0.25], "clicked": [1, 1, None, 1]})
    query = weights_query(platt_of(0), "logs", **UNFOLDED, p_min=0.01, weight_all=weight_all)
    found = run(query, rows).to_pydict()
    assert [value is None for value in found["propensity_calibrated"]] == [True, True, False, False]
    assert [value is None for value in found["weight"]] == [True, True, not weight_all, False]


def test_a_column_of_the_table_named_as_an_added_one_changes_no_number(rows: pa.Table) -> None:
    query = weights_query(counted(rows), "logs", **COLUMNS, calibrator="platt", p_min=0.05)
    one, zero = pa.array(np.ones(ROWS)), pa.array(np.zeros(ROWS, np.int64))
    crowded = rows.append_column("fold", zero).append_column("propensity_calibrated", one)
    plain, found = run(query, rows), run(query, crowded)
    assert all(found.column(place).equals(plain.column(place)) for place in range(len(ADDED)))
    with pytest.raises(ParameterError, match="adds a column named"):
        weights_query(platt_of(0), "logs", score="fold", outcome="clicked", p_min=0.1)


def test_a_saved_calibrator_needs_no_folds(rows: pa.Table, tmp_path: Path) -> None:
    fitted = platt_of(0)
    fitted.save(tmp_path / "saved.json")
    for source in (fitted, tmp_path / "saved.json"):
        found = run(weights_query(source, "logs", **UNFOLDED, p_min=0.01), rows)
        np.testing.assert_allclose(found["propensity_calibrated"], fitted.predict(rows["p"]), rtol=1e-12)
    with pytest.raises(ParameterError, match="the clip of least error is chosen from cells"):
        weights_query(fitted, "logs", **UNFOLDED)
    with pytest.raises(ParameterError, match="folds are those of cells"):
        weights_query(fitted, "logs", **COLUMNS, p_min=0.1)
    with pytest.raises(ParameterError, match="fitted already"):
        weights_query(fitted, "logs", **UNFOLDED, p_min=0.1, calibrator="platt")


def test_a_run_gives_the_mean_of_its_calibrators_and_its_clip(rows: pa.Table, tmp_path: Path) -> None:
    fitted = [platt_of(seed) for seed in range(3)]
    (tmp_path / "calibrator.json").write_text(json.dumps([each.to_dict() for each in fitted]))
    (tmp_path / "metrics.json").write_text('{"p_min": 0.03}')
    query = weights_query(tmp_path, "logs", **UNFOLDED)
    found = run(query, rows)
    mean = np.mean([each.predict(rows["p"]) for each in fitted], axis=0)
    np.testing.assert_allclose(found["propensity_calibrated"], mean, rtol=1e-12)
    np.testing.assert_array_equal(found["clipped"], mean < 0.03)
    assert "The mean of 3 calibrators" in query.splitlines()[1]


@pytest.mark.parametrize("text", [None, "[null, null]", "{", '[{"calibrator": "magic"}]', "3"])
def test_a_folder_that_is_no_calibrated_run_is_refused(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "calibrator.json").write_text(text)
    with pytest.raises(RunFolderError):
        weights_query(tmp_path, "logs", **UNFOLDED, p_min=0.1)


def test_cells_without_folds_make_no_weights(rows: pa.Table) -> None:
    with pytest.raises(DataError, match="the cells have no 5 folds"):
        weights_query(counted(rows, fold_by=None), "logs", **COLUMNS)
    with pytest.raises(ParameterError, match="none is named"):
        weights_query(counted(rows), "logs", **UNFOLDED)
    with pytest.raises(ParameterError, match="multicalibrated reads columns that cells do not have"):
        weights_query(counted(rows), "logs", **COLUMNS, calibrator="multicalibrated")


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "bigquery", "snowflake", "postgres"])
def test_every_engine_can_parse_its_query(rows: pa.Table, dialect: Any) -> None:
    sqlglot = pytest.importorskip("sqlglot")
    query = weights_query(counted(rows), "shop.logs", **COLUMNS, dialect=dialect, calibrator="isotonic")
    assert sqlglot.parse_one(query, dialect=dialect).named_selects[:2] == ["weight", "clipped"]


def test_postgres_gives_the_same_weights(rows: pa.Table, tmp_path: Path, psql: Callable[[str], str]) -> None:
    duckdb = pytest.importorskip("duckdb")
    cells = counted(rows)
    duckdb.sql("SELECT * FROM rows").write_csv(str(tmp_path / "rows.csv"))
    psql('CREATE TABLE logs (p double precision, clicked int, "user" text)')
    psql(f"COPY logs FROM '{tmp_path / 'rows.csv'}' WITH (FORMAT csv, HEADER)")
    query = weights_query(cells, "logs", **COLUMNS, dialect="postgres", calibrator="isotonic")
    (tmp_path / "query.sql").write_text(f"CREATE TABLE weighted AS\n{query}")
    psql((tmp_path / "query.sql").read_text())
    (tmp_path / "weighted.csv").write_text(psql("COPY weighted TO STDOUT WITH (FORMAT csv, HEADER)"))
    there = duckdb.read_csv(str(tmp_path / "weighted.csv")).to_arrow_table().sort_by("p")
    here = run(weights_query(cells, "logs", **COLUMNS, calibrator="isotonic"), rows).sort_by("p")
    for name in ADDED:
        one, other = (table[name].to_numpy(zero_copy_only=False).astype(float) for table in (here, there))
        np.testing.assert_allclose(one, other, rtol=1e-12)
