"""Engines that run the query of a sketch, here DuckDB and Spark; of their rows only cells come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unskew.audit.periods import By
from unskew.audit.sql import cells_query
from unskew.base.errors import DataError, ParameterError
from unskew.base.tables import sources
from unskew.calibration.sql import Dialect, missing_extra
from unskew.data.stream import Roles, number_columns, stream
from unskew.metrics import CalibrationSketch

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
    columns = {"score": score, "outcome": outcome, "weight": weight}
    home = type(data).__module__
    if home.startswith("pyspark."):
        import pyarrow as pa

        types = [field.dataType.simpleString() for field in data.schema.fields]
        query = cells_query(VIEW, **_of(types, data.columns, columns, "spark"))
        # Spark puts the frame in the place of a name in braces; those of column names stay.
        named = query.replace("{", "{{").replace("}", "}}").replace(f"FROM {VIEW}", "FROM {rows}")
        found = data.sparkSession.sql(named, rows=data)
        rows = found.collect()
        return CalibrationSketch.from_cells(
            pa.table({name: [row[place] for row in rows] for place, name in enumerate(found.columns)})
        )
    if home.startswith(("duckdb", "_duckdb")):
        return CalibrationSketch.from_cells(_run_relation(data, columns))
    roles = Roles(score, outcome, weight)
    sketch = CalibrationSketch()
    names = (score, outcome, weight or "weight")
    for batch in stream(sources(data), columns=roles.names, numbers=roles.numbers):
        sketch.update(*number_columns(batch, roles.numbers), first_row=batch.first_row, names=names)
    return sketch


_CONFIG = {"autoinstall_known_extensions": "false", "TimeZone": "UTC"}
"""Nothing is fetched; days are those of UTC where times have a zone."""


def _run_relation(relation: Any, columns: dict[str, str | None]) -> Any:
    duckdb = _duckdb()
    query = cells_query(VIEW, **_of(relation.types, relation.columns, columns, "duckdb"))
    try:
        return relation.query(VIEW, query).to_arrow_table()
    except duckdb.Error as error:
        raise _engine_error("DuckDB", error, "the relation") from error


def _of(
    types: Sequence[Any], present: Sequence[str], columns: dict[str, str | None], dialect: Dialect
) -> Any:
    """The arguments of a query, where the columns are there."""
    kinds = dict(zip(present, (str(kind).lower() for kind in types), strict=True))
    for name in columns.values():
        if name is not None and name not in kinds:
            raise DataError(
                f"column '{name}' is missing",
                where="the data frame",
                remedy=f"name one of the columns that are there: {', '.join(present)}",
            )
    return {**columns, "dialect": dialect, "boolean_outcome": kinds[str(columns["outcome"])] == "boolean"}


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
