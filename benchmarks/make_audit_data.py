"""Parquet files of scores and clicks whose calibration is known. ``python -m benchmarks.make_audit_data``

True propensities are logit-normal around 3 %; scores are over-spread and shifted on the logit scale, so that
small ones are understated and large ones overstated, and a straight line on logits (Platt) mends them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

MEAN_LOGIT, SPREAD = -4.0, 1.2
SLOPE, SHIFT = 1.3, 1.0
ROWS_AT_A_TIME = 1_000_000
TYPES = {"narrow": (np.float32, np.uint8), "wide": (np.float64, np.int64)}


def write(path: Path, rows: int, *, seed: int = 0, types: str = "narrow") -> Path:
    """One file with the columns ``p`` and ``clicked``, in the types of most small or most careless logs."""
    score_type, outcome_type = TYPES[types]
    generator = np.random.default_rng(seed)
    kinds = {"p": pa.from_numpy_dtype(score_type), "clicked": pa.from_numpy_dtype(outcome_type)}
    with pa.parquet.ParquetWriter(path, pa.schema(kinds)) as writer:
        for start in range(0, rows, ROWS_AT_A_TIME):
            count = min(ROWS_AT_A_TIME, rows - start)
            logit = generator.normal(MEAN_LOGIT, SPREAD, count)
            clicked = generator.random(count) < 1 / (1 + np.exp(-logit))
            score = 1 / (1 + np.exp(-(SLOPE * logit + SHIFT)))
            columns = {"p": score.astype(score_type), "clicked": clicked.astype(outcome_type)}
            writer.write_table(pa.table(columns))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of each file")
    parser.add_argument("--files", type=int, default=1)
    parser.add_argument("--types", choices=list(TYPES), default="narrow")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for number in range(options.files):
        print(
            write(
                options.folder / f"part-{number:03}.parquet", options.rows, seed=number, types=options.types
            )
        )


if __name__ == "__main__":
    main()
