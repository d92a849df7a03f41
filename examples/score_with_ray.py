"""Score rows on Ray: every worker reads the run folder and adds predictions to batches of Arrow."""

import sys

import pyarrow as pa
import ray

import unskew as us

folder, rows, out = sys.argv[1:]  # a folder that every worker can read, Parquet files, and a folder to write


def scored(batch: pa.Table) -> pa.Table:
    """Add the predictions of the run."""
    return us.score(folder, batch, unseen="nan")


ray.data.read_parquet(rows).map_batches(scored, batch_format="pyarrow", batch_size=1 << 20).write_parquet(out)
