"""A monitor's store: extended by merging, never counted twice; and what is read from it."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.audit.monitor import monitor
from unskew.audit.monitor_add import add
from unskew.audit.monitor_store import MARK, MonitorSettings, MonitorStore
from unskew.audit.periods import By
from unskew.audit.sql import run_query
from unskew.base.errors import DataError, ParameterError
from unskew.data.stream import Roles
from unskew.metrics import CalibrationSketch

DAY = By("shown_at", "day")
START = np.datetime64("2026-01-01", "us")
LATE = np.datetime64("2027-01-01")


def settings(**changed):
    return MonitorSettings(**{"roles": Roles("p", "clicked", None, ("country",)), "by": DAY, **changed})


def rows_of(day, *, rows=3000, seed=None, factor=1.0, country=("de", "fr"), days=1):
    """Rows of a day (or a few): honest, but for a factor on the rates of the last country."""
    generator = np.random.default_rng(day if seed is None else seed)
    score = 1 / (1 + np.exp(-generator.normal(-2, 1, rows)))
    which = generator.integers(0, len(country), rows)
    rate = np.where(which == len(country) - 1, score * factor, score)
    seconds = generator.integers(0, days * 86_400, rows).astype("timedelta64[s]")
    return pa.table(
        {
            "p": score,
            "clicked": generator.random(rows) < rate,
            "country": np.array(country)[which],
            "shown_at": START + np.timedelta64(day, "D") + seconds,
        }
    )


@pytest.mark.parametrize("rows", [200, 1500])
@pytest.mark.parametrize("draw", [lambda g, n: g.lognormal(size=n), lambda g, n: 1 / g.uniform(0.02, 1, n)])
def test_honest_scores_with_weights_that_vary_by_row_raise_no_alarm(tmp_path, rows, draw):
    days = 60
    table = rows_of(0, rows=rows * days, days=days, country=("de",))
    weights = draw(np.random.default_rng(1), len(table))
    file = write(tmp_path, "weighted.parquet", table.append_column("w", pa.array(weights)))
    weighted = settings(roles=Roles("p", "clicked", "w", ()))
    add(tmp_path / "store", [file], settings=weighted, as_of=LATE)
    assert monitor(tmp_path / "store").whole.breaks == ()


def write(folder, name, table):
    pq.write_table(table, folder / name)
    return folder / name


def counted(store):
    """Return the rows of each period, by the store."""
    by_period = MonitorStore.load(store).cells.group("period")
    return {key.period: rows for key, rows in by_period.rows().items()}


def test_sketches_of_periods_and_segments_are_those_of_their_rows(tmp_path):
    tables = [rows_of(0, days=3), rows_of(1, days=3, seed=9)]
    files = [write(tmp_path, f"{place}.parquet", table) for place, table in enumerate(tables)]
    add(tmp_path / "store", files, settings=settings(), as_of=LATE)
    store = MonitorStore.load(tmp_path / "store")
    whole = pa.concat_tables(tables)
    day = np.asarray(whole["shown_at"]).astype("datetime64[D]").astype(str)
    assert len(store.cells.keys) == 4 * 2
    for key in store.cells.keys:
        sums = store.cells.sketch(key).sums
        here = (day == key.period) & (np.asarray(whole["country"]) == key.value)
        expected = CalibrationSketch(mantissa_bits=4).update(
            np.asarray(whole["p"])[here], np.asarray(whole["clicked"])[here]
        )
        np.testing.assert_array_equal(sums.rows, expected.sums.rows)
        np.testing.assert_allclose(sums, expected.table, rtol=1e-10)


def test_cells_of_an_engine_make_the_same_store(tmp_path):
    file = write(tmp_path, "rows.parquet", rows_of(0, days=2))
    cells = run_query(str(file), score="p", outcome="clicked", segments=["country"], by=DAY)
    add(tmp_path / "streamed", file, settings=settings(), as_of=LATE)
    add(tmp_path / "counted", write(tmp_path, "cells.parquet", cells), settings=settings(), as_of=LATE)
    one, other = (MonitorStore.load(tmp_path / name).cells.to_cells() for name in ("streamed", "counted"))
    for name in ("period", "segment", "value", "cell", "outcome", "rows"):
        assert one[name].to_pylist() == other[name].to_pylist()
    for name in ("weight", "square", "score", "inverse", "brier", "log_loss"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-10)


def test_a_file_is_counted_once_whatever_its_name(tmp_path):
    file = write(tmp_path, "a.parquet", rows_of(0))
    add(tmp_path / "store", file, settings=settings(), as_of=LATE)
    before = (tmp_path / "store").read_bytes()
    again = add(tmp_path / "store", file, as_of=LATE)
    (tmp_path / "copy.parquet").write_bytes(file.read_bytes())
    copied = add(tmp_path / "store", tmp_path / "copy.parquet", as_of=LATE)
    assert (again.files, again.known, copied.files, copied.known) == (0, 1, 0, 1)
    assert counted(tmp_path / "store") == {"2026-01-01": 3000}
    after = pq.read_table(pa.BufferReader((tmp_path / "store").read_bytes()))
    assert after.equals(pq.read_table(pa.BufferReader(before)))


def test_the_latest_files_may_be_known_ones(tmp_path):
    one = write(tmp_path, "a.parquet", rows_of(0))
    other = write(tmp_path, "b.parquet", rows_of(0, rows=10, seed=1))
    add(tmp_path / "store", one, settings=settings(), as_of=LATE)
    add(tmp_path / "store", [one, other], as_of=LATE, latest=True)
    assert counted(tmp_path / "store") == {"2026-01-01": 3010}


def test_weights_are_kept(tmp_path):
    table = rows_of(0).append_column("w", pa.array(np.arange(3000) % 3 * 0.5))
    file = write(tmp_path, "a.parquet", table)
    add(tmp_path / "store", file, settings=settings(roles=Roles("p", "clicked", "w")), as_of=LATE)
    kept = MonitorStore.load(tmp_path / "store").cells.columns()
    weight, score = np.asarray(table["w"]), np.asarray(table["p"])
    expected = {"weight": weight.sum(), "square": (weight**2).sum(), "score": (weight * score).sum()}
    for name, value in expected.items():
        assert kept[name].sum() == pytest.approx(value, rel=1e-12)
    result = monitor(tmp_path / "store")
    assert result.whole.periods[0].clicks == pytest.approx(weight[np.asarray(table["clicked"])].sum())


def test_days_of_an_engine_are_those_of_utc(tmp_path):
    times = pa.array(np.full(5, START + np.timedelta64(23, "h"))).cast(pa.timestamp("us", tz="Asia/Tokyo"))
    table = pa.table({"p": [0.5] * 5, "clicked": [0, 1, 0, 1, 1], "shown_at": times})
    cells = run_query(str(write(tmp_path, "a.parquet", table)), score="p", outcome="clicked", by=DAY)
    assert {str(day) for day in cells["period"].to_pylist()} == {"2026-01-01"}


def test_an_open_period_is_replaced_and_a_closed_one_stays(tmp_path):
    young, old = START + np.timedelta64(2, "D"), START + np.timedelta64(40, "D")
    kept = settings(maturity="7d")
    file = write(tmp_path, "day.parquet", rows_of(0))
    first = add(tmp_path / "store", file, settings=kept, as_of=young)
    assert (first.periods, first.open) == (1, 1)
    with pytest.raises(DataError, match="none of its 1 periods is closed"):
        monitor(tmp_path / "store")
    # Late outcomes came in, and a row that was missing.
    write(tmp_path, "day.parquet", rows_of(0, rows=3001, factor=1.2))
    second = add(tmp_path / "store", file, as_of=old)
    assert (second.files, second.open) == (1, 0)
    assert counted(tmp_path / "store") == {"2026-01-01": 3001}
    # Now it is closed: a further version changes nothing there, and adds what is new.
    write(tmp_path, "day.parquet", rows_of(0, rows=500, days=2, seed=3))
    third = add(tmp_path / "store", file, as_of=old)
    assert third.closed == 1
    found = counted(tmp_path / "store")
    assert found["2026-01-01"] == 3001
    assert 0 < found["2026-01-02"] < 500
    # Another file adds to a closed period.
    add(tmp_path / "store", write(tmp_path, "more.parquet", rows_of(0, rows=10, seed=4)), as_of=old)
    assert counted(tmp_path / "store")["2026-01-01"] == 3011
    latest = add(
        tmp_path / "store",
        write(tmp_path, "new.parquet", rows_of(0, rows=77, seed=5)),
        as_of=old,
        latest=True,
    )
    assert latest.files == 1
    assert counted(tmp_path / "store")["2026-01-01"] == 77


def test_content_that_did_not_change_until_later_closes_its_period(tmp_path):
    file = write(tmp_path, "day.parquet", rows_of(0))
    add(tmp_path / "store", file, settings=settings(maturity="7d"), as_of=START + np.timedelta64(2, "D"))
    found = add(tmp_path / "store", file, as_of=START + np.timedelta64(9, "D"))
    assert (found.files, found.known, found.open) == (0, 1, 0)
    assert counted(tmp_path / "store") == {"2026-01-01": 3000}


def test_two_processes_that_add_at_once_lose_nothing(tmp_path):
    for day in range(6):
        write(tmp_path, f"{day}.parquet", rows_of(day, rows=400))
    add(tmp_path / "store", tmp_path / "0.parquet", settings=settings(), as_of=LATE)
    code = (
        "import sys, numpy as np; from unskew.audit.monitor_add import add\n"
        "for file in sys.argv[2:]: add(sys.argv[1], file, as_of=np.datetime64('2027-01-01'))"
    )
    names = [["1.parquet", "2.parquet", "5.parquet"], ["3.parquet", "4.parquet", "5.parquet"]]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, tmp_path / "store", *(tmp_path / name for name in each)]
        )
        for each in names
    ]
    assert [each.wait() for each in running] == [0, 0]
    assert set(counted(tmp_path / "store").values()) == {400}
    assert len(counted(tmp_path / "store")) == 6
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_broke_is_told_with_its_time_way_and_cost(tmp_path):
    for day in range(14):
        write(tmp_path, f"{day:02}.parquet", rows_of(day, rows=8000, factor=1.4 if day >= 9 else 1.0))
    add(tmp_path / "store", tmp_path, settings=settings(maturity="1d"), as_of=START + np.timedelta64(14, "D"))
    result = monitor(tmp_path / "store", value=2.0)
    assert result.healthy is False
    assert result.open == ("2026-01-14",)
    worst = result.segments[0]
    assert (worst.column, worst.value) == ("country", "fr")
    (found,) = worst.breaks
    assert (found.first, found.over, found.kind) == ("2026-01-10", False, "level")
    assert found.found in ("2026-01-10", "2026-01-11")
    assert found.low < 1.4 < found.high
    judged = pa.concat_tables([rows_of(day, rows=8000, factor=1.4) for day in range(9, 13)])
    here = np.asarray(judged["country"]) == "fr"
    score, clicked = np.asarray(judged["p"])[here], np.asarray(judged["clicked"])[here]
    assert found.rows == here.sum()
    assert found.weight_error == pytest.approx((clicked / score).sum() - here.sum(), rel=1e-9)
    assert found.click_error == pytest.approx(clicked.sum() - score.sum(), rel=1e-9)
    assert found.money == pytest.approx(2 * found.click_error)
    assert result.segments[1].judgement.reason == "honest"
    assert "country is 'fr' have been off since 2026-01-10" in result.verdict
    assert json.loads(json.dumps(result.to_dict()))["segments"][0]["breaks"][0]["first"] == "2026-01-10"


def test_few_rows_are_undecided_and_the_least_change_is_told(tmp_path):
    add(
        tmp_path / "store",
        write(tmp_path, "a.parquet", rows_of(0, rows=200)),
        settings=settings(),
        as_of=LATE,
    )
    result = monitor(tmp_path / "store")
    assert result.healthy is None
    assert result.headline == "Undecided"
    assert result.whole.smallest_so_far > 1.2
    assert all(each.judgement.reason == "too few rows" for each in result.segments)


def test_a_click_at_a_score_of_zero_breaks(tmp_path):
    table = rows_of(0)
    score = np.asarray(table["p"]).copy()
    score[np.flatnonzero(np.asarray(table["clicked"]))[0]] = 0.0
    file = write(tmp_path, "a.parquet", table.set_column(0, "p", pa.array(score)))
    add(tmp_path / "store", file, settings=settings(), as_of=LATE)
    result = monitor(tmp_path / "store")
    assert result.healthy is False
    assert "clicks came at a score of 0" in result.verdict


def test_periods_may_be_the_values_of_a_column(tmp_path):
    tables = [rows_of(0, seed=each).append_column("version", pa.array([each] * 3000)) for each in (9, 10)]
    files = [write(tmp_path, f"{place}.parquet", table) for place, table in enumerate(tables)]
    add(tmp_path / "store", files, settings=settings(by=By("version")))
    assert monitor(tmp_path / "store").periods == ("9", "10")


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("shown_at", [None, START], "time is missing on 1 rows"),
        ("shown_at", ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00"], "holds no times"),
        ("shown_at", ["yesterday", "today"], "holds no times"),
        ("p", [0.5, 1.5], "column 'p', row 1: score 1.5 is outside"),
        ("clicked", [0, 2], "outcome is 2, not 0 or 1"),
    ],
)
def test_bad_rows_are_one_line_and_leave_the_store_as_it_was(tmp_path, column, values, message):
    good = write(tmp_path, "good.parquet", rows_of(0))
    add(tmp_path / "store", good, settings=settings(), as_of=LATE)
    before = (tmp_path / "store").read_bytes()
    table = rows_of(1, rows=2)
    bad = table.set_column(table.column_names.index(column), column, pa.array(values))
    with pytest.raises(DataError, match=message) as raised:
        add(tmp_path / "store", write(tmp_path, "bad.parquet", bad), as_of=LATE)
    assert "bad.parquet" in str(raised.value)
    assert (tmp_path / "store").read_bytes() == before


def test_files_with_and_without_zones_are_refused(tmp_path):
    aware = rows_of(0)
    place = aware.column_names.index("shown_at")
    zoned = aware.set_column(place, "shown_at", aware["shown_at"].cast(pa.timestamp("us", tz="UTC")))
    files = [write(tmp_path, "a.parquet", aware), write(tmp_path, "b.parquet", zoned)]
    with pytest.raises(DataError, match="some times have a zone and some have none"):
        add(tmp_path / "store", files, settings=settings(), as_of=LATE)
    assert not (tmp_path / "store").exists()


def test_a_period_of_one_outcome_alone_is_asked_about(tmp_path):
    table = rows_of(0)
    none = write(tmp_path, "a.parquet", table.set_column(1, "clicked", pa.array(np.zeros(3000, dtype=bool))))
    with pytest.raises(DataError, match="period 2026-01-01: 'clicked' is 0 on all 3,000 rows, "):
        add(tmp_path / "store", none, settings=settings(), as_of=LATE)
    assert not (tmp_path / "store").exists()
    # While the period is open, clicks may still come.
    young = START + np.timedelta64(2, "D")
    assert add(tmp_path / "store", none, settings=settings(maturity="7d"), as_of=young).open == 1


def test_a_store_of_another_kind_is_refused(tmp_path):
    file = write(tmp_path, "a.parquet", rows_of(0))
    with pytest.raises(DataError, match="is not a store of unskew monitor"):
        add(file, write(tmp_path, "b.parquet", rows_of(1)))
    with pytest.raises(DataError, match="is not a store of unskew monitor"):
        monitor(file)
    with pytest.raises(DataError, match="there is no such store"):
        monitor(tmp_path / "none")
    add(tmp_path / "store", file, settings=settings(), as_of=LATE)
    table = pq.read_table(tmp_path / "store")
    told = {**json.loads(table.schema.metadata[MARK]), "format": 99}
    pq.write_table(table.replace_schema_metadata({MARK: json.dumps(told).encode()}), tmp_path / "other")
    with pytest.raises(DataError, match="the store has format 99"):
        monitor(tmp_path / "other")


def test_other_columns_than_the_stores_are_refused(tmp_path):
    file = write(tmp_path, "a.parquet", rows_of(0))
    add(tmp_path / "store", file, settings=settings(), as_of=LATE)
    for changed, message in (
        ({"roles": Roles("p", "clicked")}, "--segments country, not \\(none\\)"),
        ({"by": By("shown_at", "week")}, "--by day --time shown_at, not week"),
        ({"maturity": "7d"}, "--maturity \\(none\\), not 7d"),
    ):
        with pytest.raises(ParameterError, match=message):
            add(tmp_path / "store", file, settings=settings(**changed))


def test_cells_of_another_grid_or_other_segments_are_refused(tmp_path):
    import duckdb

    from unskew.audit.sql import cells_query

    file = write(tmp_path, "a.parquet", rows_of(0))
    add(tmp_path / "store", file, settings=settings(), as_of=LATE)
    query = {"score": "p", "outcome": "clicked", "by": DAY}
    for changed, message in (
        (
            {"segments": ["country"], "resolution": (100, 7)},
            "mantissa_bits=7, where the others have mantissa_bits=4",
        ),
        ({}, "holds cells of"),
    ):
        cells = duckdb.sql(cells_query(str(file), **query, **changed)).to_arrow_table()
        with pytest.raises(DataError, match=message):
            add(tmp_path / "store", write(tmp_path, "cells.parquet", cells), as_of=LATE)


def test_values_beyond_the_most_are_one_group(tmp_path, monkeypatch):
    monkeypatch.setattr("unskew.audit.monitor_add.MOST_VALUES", 3)
    names = [f"c{number}" for number in range(6)]
    for day in (0, 1):
        file = write(tmp_path, f"{day}.parquet", rows_of(day, country=names))
        add(tmp_path / "store", file, settings=settings(), as_of=LATE)
    values = MonitorStore.load(tmp_path / "store").values("country")
    assert len(values) == 4
    assert "(all others)" in values
    assert counted(tmp_path / "store") == {"2026-01-01": 3000, "2026-01-02": 3000}
