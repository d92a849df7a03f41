"""The sketch in SQL is the sketch of the streamed pass: on DuckDB, bit for bit in its counts."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew import CalibrationSketch, sketch_of
from unskew.audit import audit
from unskew.audit.crossfit import fold_of_id, folds_of_cells
from unskew.audit.periods import By
from unskew.audit.reading import counted_cells
from unskew.audit.sql import cells_query, run_query
from unskew.base.errors import DataError, ParameterError
from unskew.calibration import make_calibrator
from unskew.metrics.cells import Cells
from unskew.metrics.sketch_grid import grid

DIALECTS = ("duckdb", "spark", "bigquery", "snowflake", "postgres")


def edge_scores(bins: int, mantissa_bits: int) -> np.ndarray:
    """Every edge of the grid, what lies next to it on both sides, the ends, and subnormals."""
    place = grid(bins, mantissa_bits)
    half = place.size // 2 - bins + 1
    tails = (np.arange(place.base + 1, place.base + half + 1) << place.shift).view(np.float64)
    ends = [0.0, 1.0, 5e-324, 1e-310, 1e-101, 1e-100, 2.0**-31, 2.0**-30, 0.5, 1 - 2.0**-53]
    edges = np.concatenate([tails, 1 - tails, place.edges[1:-1], ends])
    score = np.concatenate([edges, np.nextafter(edges, 2.0), np.nextafter(edges, -1.0)])
    return score[(score >= 0) & (score <= 1)]


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return str(path)


def require_equal(found: CalibrationSketch, expected: CalibrationSketch) -> None:
    np.testing.assert_array_equal(found.sums.rows, expected.sums.rows)
    np.testing.assert_allclose(found.table, expected.table, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("weighted", [False, True])
def test_cells_are_those_of_the_streamed_pass_at_every_edge(tmp_path, dtype, weighted):
    generator = np.random.default_rng(0)
    drawn = [generator.random(5000), 10.0 ** -generator.uniform(0, 12, 5000)]
    score = np.concatenate([edge_scores(100, 7), *drawn]).astype(dtype)
    outcome = (generator.random(len(score)) < score).astype(np.int8)
    weight = generator.integers(0, 5, len(score)) * 0.3
    file = write(tmp_path / "rows.parquet", p=score, o=outcome, w=weight)
    found = run_query(file, score="p", outcome="o", weight="w" if weighted else None)
    expected = CalibrationSketch.of(score=score, outcome=outcome, weight=weight if weighted else None)
    require_equal(Cells.from_cells(found).whole(), expected)


@pytest.mark.parametrize(("bins", "mantissa_bits"), [(1, 0), (7, 4), (10, 3), (997, 2)])
def test_other_grids_are_exact_too(tmp_path, bins, mantissa_bits):
    import duckdb

    score = edge_scores(bins, mantissa_bits)
    outcome = np.arange(len(score)) % 2
    file = write(tmp_path / "rows.parquet", p=score, o=outcome)
    query = cells_query(file, score="p", outcome="o", resolution=(bins, mantissa_bits))
    found = Cells.from_cells(duckdb.sql(query).to_arrow_table()).whole()
    expected = CalibrationSketch(bins=bins, mantissa_bits=mantissa_bits).update(score, outcome)
    np.testing.assert_array_equal(found.sums.rows, expected.sums.rows)


def test_segments_and_periods_have_sketches_of_their_own(tmp_path):
    generator = np.random.default_rng(1)
    rows = 3000
    score = generator.random(rows)
    outcome = generator.random(rows) < score
    country = np.array(["de", "fr", None], dtype=object)[generator.integers(0, 3, rows)]
    day = np.datetime64("2026-03-30") + generator.integers(0, 9, rows) * np.timedelta64(1, "D")
    device = generator.integers(0, 2, rows)
    file = write(tmp_path / "rows.parquet", p=score, o=outcome, country=country, t=day, device=device)
    columns = {"score": "p", "outcome": "o"}
    found = run_query(file, **columns, segments=["country", "device"], by=By("t", "week"))
    cells = Cells.from_cells(found)
    assert {key.period for key in cells.keys} == {"2026-03-30", "2026-04-06"}, "weeks begin on Monday"
    assert {key.value for key in cells.keys if key.segment == "country"} == {"de", "fr", "(missing)"}
    for key in cells.keys:
        column = country if key.segment == "country" else device
        here = np.array([("(missing)" if value is None else str(value)) == key.value for value in column])
        here &= (day >= np.datetime64("2026-04-06")) == (key.period == "2026-04-06")
        expected = CalibrationSketch(mantissa_bits=4).update(score[here], outcome[here])
        require_equal(cells.sketch(key), expected)
    assert Cells.from_cells(found).whole().rows == rows, "each row once, whatever segments there are"


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"p": [0.1, None, None], "o": [0, 1, 1]}, "2 null scores"),
        ({"p": [0.1, float("nan"), 1.5], "o": [0, 1, 1]}, "2 scores outside"),
        ({"p": [0.1, 0.2, 0.3], "o": [0, None, 1]}, "1 null outcomes"),
        ({"p": [0.1, 0.2, None], "o": [0, 2, 1]}, "1 null scores, 1 outcomes that are neither"),
        ({"p": [0.1, 0.2], "o": [0, 1], "w": [1.0, None]}, "1 null weights"),
        ({"p": [0.1, 0.2], "o": [0, 1], "w": [1.0, -1.0]}, "1 weights that are neither"),
        ({"p": [0.1, 0.2], "o": [0, 1], "t": [None, "2026-01-01"]}, "1 null times"),
    ],
)
def test_bad_rows_are_counted(tmp_path, columns, told):
    file = write(tmp_path / "rows.parquet", **columns)
    by = By("t") if "t" in columns else None
    found = run_query(file, score="p", outcome="o", weight="w" if "w" in columns else None, by=by)
    with pytest.raises(DataError, match=told):
        Cells.from_cells(found).whole()


@pytest.mark.parametrize(
    ("table", "columns", "told"),
    [
        ("none.parquet", {}, "No files found"),
        ("rows.parquet", {"score": "q"}, '"q" not found'),
        ("rows.parquet", {"outcome": "text"}, "Could not convert string"),
        ("no_such_table", {}, "no_such_table"),
    ],
)
def test_what_the_engine_does_not_have_is_one_line(tmp_path, monkeypatch, table, columns, told):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "rows.parquet", p=[0.1], o=[1], text=["yes"])
    with pytest.raises(DataError, match=told) as raised:
        run_query(table, **{"score": "p", "outcome": "o", **columns})
    assert "\n" not in str(raised.value)


def test_a_table_of_a_database_is_read(tmp_path):
    import duckdb

    place = tmp_path / "warehouse.duckdb"
    with duckdb.connect(str(place)) as connection:
        connection.execute("create table logs as select 0.25 as p, true as clicked from range(10)")
    found = run_query(f"{place}:logs", score="p", outcome="clicked")
    assert Cells.from_cells(found).whole().base_rate == 1.0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_query_is_plain_sql_of_common_functions(dialect):
    import sqlglot
    from sqlglot import exp

    query = cells_query(
        "shop.logs",
        score="p",
        outcome="o k",
        weight="w",
        segments=["c"],
        by=By("t", "week"),
        dialect=dialect,
        boolean_outcome=True,
    )
    parsed = sqlglot.parse_one(query, read=dialect)
    called = {type(node).__name__ for node in parsed.find_all(exp.Func)}
    common = {"And", "Or", "Case", "If", "Cast", "Ceil", "Coalesce", "Count", "Floor", "Greatest", "Least"}
    assert called <= common | {"Ln", "Pow", "Sum", "DateTrunc", "TimestampTrunc", "TsOrDsToDate", "TryCast"}
    assert not list(parsed.find_all(exp.Anonymous)), "no function that sqlglot does not know"


def test_cells_of_two_grids_are_refused(tmp_path):
    file = write(tmp_path / "rows.parquet", p=[0.1, 0.2], o=[0, 1])
    one = run_query(file, score="p", outcome="o")
    other = run_query(file, score="p", outcome="o", by=By("o")).drop_columns(["period"])
    with pytest.raises(DataError, match="mantissa_bits=4 and mantissa_bits=7"):
        Cells.from_cells(pa.concat_tables([one, other])).whole()


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("cell", [10**6, 1], "cells that the grid does not have"),
        ("rows", [0.5, 1.0], "column 'rows' holds something else"),
        ("score", ["a", "b"], "column 'score' holds something else"),
        ("bins", [0, 0], "no grid of 0 bins"),
    ],
)
def test_a_table_that_is_not_of_cells_is_refused(tmp_path, column, values, told):
    file = write(tmp_path / "rows.parquet", p=[0.1, 0.2], o=[0, 1])
    cells = run_query(file, score="p", outcome="o")
    place = cells.column_names.index(column)
    with pytest.raises(DataError, match=told):
        Cells.from_cells(cells.set_column(place, column, pa.array(values))).whole()
    with pytest.raises(DataError, match="column 'cell' is missing"):
        Cells.from_cells(cells.drop_columns(["cell"])).whole()


def test_a_sketch_is_had_from_relations_frames_and_files_alike(tmp_path):
    duckdb, pl = pytest.importorskip("duckdb"), pytest.importorskip("polars")

    generator = np.random.default_rng(2)
    table = pa.table({"p": generator.random(500), "o": generator.random(500) < 0.5})
    pq.write_table(table, tmp_path / "rows.parquet")
    relation = duckdb.from_arrow(table)
    for data in (relation, table, tmp_path / "rows.parquet", table.to_pandas(), pl.from_arrow(table).lazy()):
        require_equal(
            sketch_of(data, score="p", outcome="o"),
            CalibrationSketch.of(score=table["p"], outcome=table["o"]),
        )
    for counted in (audit, sketch_of):
        with pytest.raises(DataError, match="column 'q' is missing"):
            counted(relation, score="q", outcome="o")
        with pytest.raises(DataError, match="column 'q' is missing"):
            counted(pl.from_arrow(table).lazy(), score="q", outcome="o")
    columns = {"score": "p", "outcome": "o", "segments": ["s"]}
    segmented = table.append_column("s", pa.array(["a", "b"] * 250))
    kinds = (duckdb.from_arrow(segmented), pl.from_arrow(segmented).lazy(), segmented)
    told = [audit(data, **columns).to_dict() for data in kinds]
    assert told[0]["wce"] == pytest.approx(told[1]["wce"], rel=1e-9)
    assert told[1]["wce"] == told[2]["wce"]
    for one, other in zip(told[0]["segments"], told[2]["segments"], strict=True):
        assert one["wce"] == pytest.approx(other["wce"], rel=1e-9)
        assert one["p_value"] == pytest.approx(other["p_value"], rel=1e-9)


@pytest.mark.parametrize("package", ["sqlglot", "duckdb"])
def test_a_missing_package_is_one_line_that_says_how_to_install_it(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ParameterError, match=rf"{package} is not installed. To fix: pip install 'unskew\[sql\]'"
    ):
        run_query("t", score="p", outcome="o")


def test_an_unknown_dialect_is_refused_and_an_odd_table_stays_a_name():
    with pytest.raises(ParameterError, match="dialect"):
        cells_query("t", score="p", outcome="o", dialect="oracle")
    assert 'FROM "a; drop b"' in cells_query("a; drop b", score="p", outcome="o", dialect="postgres")


@pytest.mark.spark
def test_spark_gives_the_same_cells():
    pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed (make elsewhere)")
    import shutil

    if shutil.which("java") is None:
        pytest.skip("there is no Java runtime")
    generator = np.random.default_rng(3)
    score = np.concatenate([edge_scores(100, 7)[::7], generator.random(500)])
    outcome = generator.random(len(score)) < score
    weight = generator.integers(1, 4, len(score)).astype(float)
    spark = (
        pyspark.sql.SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        rows = list(zip(score.tolist(), outcome.tolist(), weight.tolist(), strict=True))
        frame = spark.createDataFrame(rows, "p double, o boolean, w double")
        for name, values in ((None, None), ("w", weight)):
            require_equal(
                sketch_of(frame, score="p", outcome="o", weight=name),
                CalibrationSketch.of(score=score, outcome=outcome, weight=values),
            )
        with pytest.raises(DataError, match="column 'q' is missing"):
            sketch_of(frame, score="q", outcome="o")
    finally:
        spark.stop()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("table", ["a'b", 'a"b', "x/*y", "a--b", "a;b", ""])
def test_what_is_no_name_of_a_table_is_one_line(dialect, table):
    if (dialect, table) in {("duckdb", "x/*y"), ("bigquery", "a--b")}:
        return  # A glob, and a name.
    with pytest.raises(ParameterError, match="is not the name of a table") as caught:
        cells_query(table, score="p", outcome="o", dialect=dialect)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("weighted", [False, True])
def test_products_of_tiny_scores_are_none(tmp_path, weighted):
    """Postgres ends a query in which a product underflows: it is not asked for one."""
    score = np.array([1e-140, 1e-163, 1e-200, 1e-300, 5e-324, 0.0, 0.25, 1.0])
    rows = {"p": np.tile(score, 2), "o": np.repeat([0, 1], len(score)), "w": np.full(2 * len(score), 1e-12)}
    weight = "w" if weighted else None
    found = run_query(write(tmp_path / "rows.parquet", **rows), score="p", outcome="o", weight=weight)
    expected = CalibrationSketch.of(
        score=rows["p"], outcome=rows["o"], weight=rows["w"] if weighted else None
    )
    require_equal(Cells.from_cells(found).whole(), expected)
    query = cells_query("rows", score="p", outcome="o", weight=weight, dialect="postgres")
    assert "WHEN p > CAST('1e-150' AS DOUBLE PRECISION)" in query.replace('"', "")


def test_folds_are_those_of_the_ids_and_calibrators_are_judged_on_them(tmp_path):
    import duckdb

    random = np.random.default_rng(0)
    score = 1 / (1 + np.exp(-random.normal(-2, 1.2, 4000)))
    user = [None if number % 97 == 0 else f"user {number % 300} é" for number in range(4000)]
    clicked = (random.random(4000) < score**0.7).astype(int)
    file = write(tmp_path / "rows.parquet", p=score, clicked=clicked, user=user)
    query = cells_query(file, score="p", outcome="clicked", fold_by="user")
    found = duckdb.sql(query).to_arrow_table()
    fold, q = np.array([fold_of_id(name or "", 5) for name in user]), np.empty(4000)
    for k, sketch in enumerate(folds_of_cells(Cells.from_cells(found))):
        own = fold == k
        require_equal(sketch, CalibrationSketch.of(score=score[own], outcome=clicked[own]))
        others = CalibrationSketch.of(score=score[~own], outcome=clicked[~own])
        q[own] = make_calibrator("platt").fit(others).predict(score[own])
    result = audit(Cells.from_cells(found), score="p", outcome="clicked")
    loss = -np.log(np.where(clicked == 1, q, 1 - q)).mean()
    platt = next(each for each in result.calibrators if each.name == "platt")
    assert platt.nll == pytest.approx(loss, rel=1e-4)


def test_postgres_gives_the_same_cells_and_maps(tmp_path, psql):
    import duckdb

    score = np.concatenate([edge_scores(100, 7)[::5], [1e-200, 1e-300, 5e-324]])
    clicked = np.arange(len(score)) % 2
    isotonic = make_calibrator("isotonic").fit(score, np.random.default_rng(0).random(len(score)) < score)
    (tmp_path / "rows.csv").write_text(
        "".join(f"{p!r},{o},user {p!r}\n" for p, o in zip(score.tolist(), clicked, strict=True))
    )
    columns = {"score": "p", "outcome": "clicked", "fold_by": "user"}
    psql('CREATE TABLE rows (p double precision, clicked int, "user" text)')
    psql(f"COPY rows FROM '{tmp_path / 'rows.csv'}' WITH (FORMAT csv)")
    queries = {
        "cells": cells_query("rows", **columns, dialect="postgres"),
        "maps": f"SELECT p, {isotonic.to_sql('p', 'postgres')} AS q FROM rows",
    }
    for name, query in queries.items():
        psql(f"CREATE TABLE {name} AS {query}")
        copied = psql(f"COPY {name} TO STDOUT WITH (FORMAT csv, HEADER)")
        (tmp_path / f"{name}.csv").write_text(copied)
    there = counted_cells(tmp_path / "cells.csv")
    file = write(
        tmp_path / "rows.parquet", p=score, clicked=clicked, user=[f"user {p!r}" for p in score.tolist()]
    )
    here = Cells.from_cells(duckdb.sql(cells_query(file, **columns)).to_arrow_table())
    assert here.keys == there.keys
    for key in here.keys:
        require_equal(there.sketch(key), here.sketch(key))
    maps = duckdb.read_csv(str(tmp_path / "maps.csv")).fetchnumpy()
    np.testing.assert_allclose(maps["q"], isotonic.predict(maps["p"]), rtol=1e-12)
