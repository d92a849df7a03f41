"""Score rows on Spark: executors read the run folder and add predictions to batches of Arrow."""

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import unskew as us

folder, rows, out = sys.argv[1:]  # a run that every executor can read, Parquet files, and a folder to write


def scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the predictions of the run."""
    for batch in batches:
        yield from us.score(folder, pa.Table.from_batches([batch]), unseen="nan").to_batches()


frame = SparkSession.builder.getOrCreate().read.parquet(rows)
added = next(scored(iter(pa.Table.from_pandas(frame.limit(1).toPandas()).to_batches()))).schema
columns = [name for name in added.names if name not in frame.columns]
kinds = {name: {"double": "double", "bool": "boolean"}[str(added.field(name).type)] for name in columns}
schema = ", ".join([f"{name} {kind}" for name, kind in [*frame.dtypes, *kinds.items()]])
frame.mapInArrow(scored, schema).write.parquet(out)
