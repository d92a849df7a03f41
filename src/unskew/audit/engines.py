"""Engines that run the query of a sketch, here DuckDB and Spark; of their rows only cells come back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from unskew.audit.periods import By
from unskew.audit.sql import cells_query
from unskew.base.errors import DataError, ParameterError
from unskew.calibration.sql import Dialect, missing_extra
from unskew.data.files import files_of
from unskew.data.stream import Roles, number_columns, stream
from unskew.metrics import CalibrationSketch
from unskew.metrics.cells import Cells

VIEW = "unskew_rows"
"""What a data frame is called within a query of it."""


def run_query(
    table: str,
    *,
    score: str,
    outcome: str,
    weight: str | None = None,
    segments: Sequence[str] = (),
    by: By | None = None,
) -> Any:
    """The cells of a table or of files, counted by DuckDB in this process: an Arrow table.

    Parameters
    ----------
    table
        Files and globs (``logs/*.parquet``), or a table of a DuckDB database: ``FILE.duckdb:TABLE``.
    score, outcome, weight, segments, by
        As in :func:`unskew.audit.sql.cells_query`.
    """
    duckdb = _duckdb()
    database, colon, name = table.partition(".duckdb:")
    place = f"{database}.duckdb" if colon else ":memory:"
    query = cells_query(
        name if colon else table,
        score=score,
        outcome=outcome,
        weight=weight,
        segments=segments,
        by=by,
        dialect="duckdb",
    )
    try:
        with duckdb.connect(place, read_only=bool(colon), config=_CONFIG) as connection:
            return connection.sql(query).to_arrow_table()
    except duckdb.Error as error:
        raise _engine_error("DuckDB", error, table) from error


def sketch_of(data: Any, *, score: str, outcome: str, weight: str | None = None) -> CalibrationSketch:
    """The sketch of a table where it lies: rows stay with their engine, and cells come back.

    Parameters
    ----------
    data
        A Spark data frame or a DuckDB relation, in which the query is run; or a data frame in memory or
        files, over which the streamed pass goes.
    score, outcome, weight
        Columns: a probability, 0 or 1, and how many rows of the population a row stands for.

    Examples
    --------
    >>> import pyarrow as pa
    >>> sketch_of(pa.table({"p": [0.1, 0.4], "clicked": [0, 1]}), score="p", outcome="clicked").rows
    2
    """
    roles = Roles(score, outcome, weight)
    counted = cells_of_engine(data, roles)
    if counted is not None:
        return counted.whole()
    sketch, names = CalibrationSketch(), (score, outcome, weight or "weight")
    for batch in stream(files_of(collected(data, roles)), columns=roles.names, numbers=roles.numbers):
        sketch.update(*number_columns(batch, roles.numbers), first_row=batch.first_row, names=names)
    return sketch


def collected(data: Any, roles: Roles) -> Any:
    """Return the columns that are read of a lazy frame of polars, and other data as they are."""
    if not (type(data).__module__.startswith("polars.") and type(data).__name__ == "LazyFrame"):
        return data
    known = data.collect_schema().names()
    return data.select([name for name in roles.names if name in known]).collect()


def cells_of_engine(data: Any, roles: Roles) -> Cells | None:
    """Return the cells of a Spark data frame or a DuckDB relation, counted by its engine; None for others."""
    home = type(data).__module__
    if home.startswith("pyspark."):
        types = [field.dataType.simpleString() for field in data.schema.fields]
        query = _query(types, data.columns, roles, "spark")
        # Spark puts the frame in the place of a name in braces; those of column names stay.
        named = query.replace("{", "{{").replace("}", "}}").replace(f"FROM {VIEW}", "FROM {rows}")
        found = data.sparkSession.sql(named, rows=data)
        rows = found.collect()
        columns = {name: [row[place] for row in rows] for place, name in enumerate(found.columns)}
        return Cells.from_cells(pa.table(columns))
    if not home.startswith(("duckdb", "_duckdb")):
        return None
    query, duckdb = _query(data.types, data.columns, roles, "duckdb"), _duckdb()
    try:
        return Cells.from_cells(data.query(VIEW, query).to_arrow_table())
    except duckdb.Error as error:
        raise _engine_error("DuckDB", error, "the relation") from error


_CONFIG = {"autoinstall_known_extensions": "false", "TimeZone": "UTC"}
"""Nothing is fetched; days are those of UTC where times have a zone."""


def _query(types: Sequence[Any], present: Sequence[str], roles: Roles, dialect: Dialect) -> str:
    """Return the query of a frame, where its columns are there."""
    kinds = dict(zip(present, (str(kind).lower() for kind in types), strict=True))
    for name in roles.names:
        if name not in kinds:
            raise DataError(
                f"column '{name}' is missing",
                where="the data frame",
                remedy=f"name one of the columns that are there: {', '.join(present)}",
            )
    is_truth = kinds[roles.outcome] == "boolean"
    return cells_query(VIEW, **asdict(roles), dialect=dialect, boolean_outcome=is_truth)


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise missing_extra("duckdb") from None
    return duckdb


def _engine_error(engine: str, error: Exception, table: str) -> DataError:
    """What the engine says of a table, a column or a value, in one line."""
    said = next(line for line in str(error).splitlines() if line.strip())
    return DataError(
        f"{engine} refused the query: {said.strip()}", where=table, remedy="check the table and its columns"
    )


def require_runnable(dialect: Dialect) -> None:
    """An error for an engine that is not run from here."""
    if dialect != "duckdb":
        raise ParameterError(
            f"--run runs DuckDB alone, not {dialect}",
            remedy="leave out --run, run the query there, and give its result by --cells FILE.parquet",
        )
