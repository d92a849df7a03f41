"""Weights beside their rows: nothing else changes, and no row has a say in its own weight."""

from __future__ import annotations

import decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.audit import Roles, write_weights
from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.data import stream as stream_module

ADDED = ["propensity_calibrated", "weight", "fold", "clipped"]


def rich_table(log: Any, rows: int) -> pa.Table:
    """Metadata on the table and on a column; the fuzz suite has columns of every type."""
    table = log.table().slice(0, rows)
    noted = pa.field("price", pa.decimal128(9, 2), metadata={"unit": "EUR"})
    table = table.append_column(noted, pa.array([decimal.Decimal(i) / 100 for i in range(rows)], noted.type))
    return table.replace_schema_metadata({"made_by": "a test"})


def test_rows_columns_types_and_metadata_stay_as_they_are(
    log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "BATCH_ROWS", 999)
    table = rich_table(log, 8000)
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=1500)
    result = write_weights(tmp_path / "log.parquet", tmp_path / "out.parquet", Roles("p", "clicked"))
    before, after = (pq.read_table(tmp_path / name) for name in ("log.parquet", "out.parquet"))
    assert after.column_names == [*before.column_names, *ADDED]
    assert after.select(before.column_names).equals(before)
    assert after.schema.metadata[b"made_by"] == b"a test"
    assert after.schema.field("price").metadata[b"unit"] == b"EUR"
    assert after.select(before.column_names).schema.equals(before.schema)
    assert result.rows == len(after) == 8000


@pytest.mark.parametrize("weight_all", [False, True])
def test_weights_are_those_of_sample_weight_or_clipped_inverses_of_all(
    log_file: Path, tmp_path: Path, weight_all: bool
) -> None:
    """Rows without a click had a weight here, and none in ``us.sample_weight``."""
    options: dict[str, Any] = {"p_min": 0.05, "weight_all": weight_all}
    write_weights(log_file, tmp_path / "out.parquet", Roles("p", "clicked"), **options)
    table = pq.read_table(tmp_path / "out.parquet")
    p, weight = table["propensity_calibrated"].to_numpy(), table["weight"].to_numpy()
    clicks = None if weight_all else table["clicked"].to_numpy()
    np.testing.assert_array_equal(weight, us.sample_weight(clicks, p, p_min=0.05))
    frame = us.weights(pq.read_table(log_file), score="p", outcome="clicked", **options)
    np.testing.assert_array_equal(frame["weight"].to_numpy(), weight)
    np.testing.assert_array_equal(table["clipped"].to_numpy(), p < 0.05)
    assert 0 < (p < 0.05).mean() < 1
    assert np.unique(table["fold"].to_numpy()).tolist() == [0, 1, 2, 3, 4]


def test_the_figures_are_those_of_the_written_column(log: Any, log_file: Path, tmp_path: Path) -> None:
    """They told the largest weight, and the effective sample size, of before the clip."""
    result = write_weights(log_file, tmp_path / "out.parquet", Roles("p", "clicked"), p_min=0.05)
    weight = pq.read_table(tmp_path / "out.parquet")["weight"].to_numpy()[log.outcome == 1]
    assert result.weights is not None
    assert result.weights.largest == pytest.approx(weight.max())
    assert result.weights.effective_sample_size == pytest.approx(
        weight.sum() ** 2 / (weight @ weight), rel=0.01
    )
    assert result.weights.largest_unclipped > 1.5 * result.weights.largest


def test_the_outcomes_of_a_fold_do_not_touch_its_own_propensities(log: Any, tmp_path: Path) -> None:
    """Flip every outcome of fold 2: its propensities stay, those of all others change."""
    table = log.table().slice(0, 10_000)
    pq.write_table(table, tmp_path / "log.parquet")
    write_weights(tmp_path / "log.parquet", tmp_path / "a.parquet", Roles("p", "clicked"))
    before = pq.read_table(tmp_path / "a.parquet")
    fold = before["fold"].to_numpy()
    flipped = np.where(fold == 2, 1 - table["clicked"].to_numpy(), table["clicked"].to_numpy())
    pq.write_table(table.set_column(2, "clicked", pa.array(flipped)), tmp_path / "log.parquet")
    write_weights(tmp_path / "log.parquet", tmp_path / "b.parquet", Roles("p", "clicked"))
    after = pq.read_table(tmp_path / "b.parquet")
    np.testing.assert_array_equal(after["fold"].to_numpy(), fold)
    p, q = (t["propensity_calibrated"].to_numpy() for t in (before, after))
    np.testing.assert_array_equal(p[fold == 2], q[fold == 2])
    assert (p[fold != 2] != q[fold != 2]).all()


def test_several_files_become_one_in_their_order(log: Any, tmp_path: Path) -> None:
    table = log.table().slice(0, 3000)
    pq.write_table(table.slice(0, 1111), tmp_path / "a.parquet")
    pq.write_table(table.slice(1111).select(["country", "clicked", "honest", "p"]), tmp_path / "b.parquet")
    out = tmp_path / "out" / "whole.parquet"
    out.parent.mkdir()
    write_weights([tmp_path / "a.parquet", tmp_path / "b.parquet"], out, Roles("p", "clicked"))
    assert pq.read_table(out).select(table.column_names).equals(table)


def test_sample_weights_restore_the_population_of_sampled_negatives(make_log: Any, tmp_path: Path) -> None:
    log = make_log(60_000, seed=9)
    kept = (log.outcome == 1) | (np.random.default_rng(0).random(60_000) < 0.1)
    table = pa.table(
        {"p": log.score[kept], "clicked": log.outcome[kept], "w": np.where(log.outcome[kept] == 1, 1.0, 10.0)}
    )
    pq.write_table(table, tmp_path / "log.parquet")
    write_weights(tmp_path / "log.parquet", tmp_path / "out.parquet", Roles("p", "clicked", "w"))
    p = pq.read_table(tmp_path / "out.parquet")["propensity_calibrated"].to_numpy()
    assert abs((p / log.honest[kept]).mean() - 1) < 0.05


def test_files_that_disagree_are_refused_by_name(log: Any, tmp_path: Path) -> None:
    table = log.table().slice(0, 100)
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.drop_columns(["country"]), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b.parquet and .*a.parquet: column 'country' is not in all files"):
        write_weights(tmp_path / "*.parquet", tmp_path / "out.parquet", Roles("p", "clicked"))
    narrow = table.set_column(0, "p", table["p"].cast(pa.string()))
    pq.write_table(narrow, tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b.parquet: a column has another type than in .*a.parquet: .*p"):
        write_weights(tmp_path / "*.parquet", tmp_path / "out.parquet", Roles("p", "clicked"))


def test_targets_that_cannot_be_written_are_refused_before_the_work(log_file: Path, tmp_path: Path) -> None:
    roles = Roles("p", "clicked")
    with pytest.raises(RunFolderError, match="its folder does not exist"):
        write_weights(log_file, tmp_path / "none" / "out.parquet", roles)
    with pytest.raises(ParameterError, match=r"must end in .parquet"):
        write_weights(log_file, tmp_path / "out.csv", roles)
    with pytest.raises(RunFolderError, match="exists already"):
        write_weights(log_file, log_file, roles)
    with pytest.raises(ParameterError, match=r"p_min must be 'auto' or a number in \(0, 1\), not 0"):
        write_weights(log_file, tmp_path / "out.parquet", roles, p_min=0)
    assert [path.name for path in tmp_path.iterdir()] == ["log.parquet"]


def test_the_input_can_be_replaced_by_the_output(log: Any, log_file: Path) -> None:
    write_weights(log_file, log_file, Roles("p", "clicked"), overwrite=True)
    assert pq.read_table(log_file).select(log.table().column_names).equals(log.table())


def test_a_column_that_parquet_cannot_hold_is_told_and_nothing_is_left(log: Any, tmp_path: Path) -> None:
    table = log.table().slice(0, 2000)
    month = pa.array([(1, 15, 0)] * 2000, pa.month_day_nano_interval())
    with pa.ipc.new_file(tmp_path / "log.arrow", table.append_column("n", month).schema) as file:
        file.write(table.append_column("n", month))
    with pytest.raises(DataError, match=r"log\.arrow: cannot be written as Parquet: .*To fix: leave out"):
        write_weights(tmp_path / "log.arrow", tmp_path / "out.parquet", Roles("p", "clicked"))
    assert [each.name for each in tmp_path.iterdir()] == ["log.arrow"]
