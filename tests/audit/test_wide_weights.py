"""Sample weights of many decades: told apart, or refused in one line; never lost in sums without a word."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.audit import Roles, audit, write_weights
from unskew.base.errors import DataError
from unskew.calibration import CALIBRATORS

COLUMNS = {"score": "p", "outcome": "o"}
ROLES = Roles(*COLUMNS.values(), "w")


def write(path: Path, rows: int, weight: np.ndarray | None = None, decades: float = 0.0) -> Path:
    generator = np.random.default_rng(0)
    p = generator.uniform(0.05, 0.95, rows)
    o = (generator.random(rows) < p).astype(int)
    w = 10 ** generator.uniform(-decades / 2, decades / 2, rows) if weight is None else weight
    pq.write_table(pa.table({"p": p, "o": o, "w": w}), path)
    return path


@pytest.mark.parametrize("decades", [0.0, 11.9])
def test_weights_that_sums_can_tell_apart_are_taken(tmp_path, decades):
    log = write(tmp_path / "a.parquet", 2000, decades=decades)
    assert audit(log, weight="w", **COLUMNS).rows == 2000
    for name in CALIBRATORS:
        write_weights(log, tmp_path / "w.parquet", ROLES, calibrator=name, overwrite=True)
        written = pq.read_table(tmp_path / "w.parquet")["propensity_calibrated"].to_numpy()
        assert ((written > 0) & (written < 1)).all()


def test_weights_that_would_be_lost_are_refused_in_whichever_file_they_are(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    write(parts / "a.parquet", 200, np.full(200, 1e-9))
    write(parts / "b.parquet", 200, np.append(np.full(199, 1e4), 0.0))
    match = r"b.parquet, column 'w': weights from 1e-09 to 1e\+04 are 1e\+12 times each other and more"
    for work in (
        lambda: audit(parts, weight="w", **COLUMNS),
        lambda: write_weights(parts, tmp_path / "w.parquet", ROLES),
    ):
        with pytest.raises(DataError, match=match):
            work()
    assert not (tmp_path / "w.parquet").exists()
