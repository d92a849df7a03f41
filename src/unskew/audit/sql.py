"""The sketch in SQL: one query that any engine runs where the rows are, and that returns cells.

The query is a plain ``GROUP BY`` of common functions, written once and rendered for each dialect by sqlglot.
What the cells mean is in ``unskew.metrics.cells``; engines are run in ``unskew.audit.sql``.

The cell of a score is found exactly, though no engine shows the bits of a double. With t = min(p, 1 − p),
e = floor(log2 t) and m mantissa bits,

    cell = (e + 30)·2^m + floor((t / 2^e − 1)·2^m) + 1.

A logarithm may round to the wrong side of a whole number, where t is next to a power of two. That does no
harm: with e one too high, t/2^e is just below 1 and the floor is −1; with e one too low it is just above 2
and the floor is 2^m: the cell is the same. All else is exact in binary arithmetic: multiplying by powers of
two, 1 − p as the streamed pass has it, t/2^e − 1 near 1 (Sterbenz), and comparisons. Edges of the equal-width
bins are i·(1/bins), as in ``numpy.linspace``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from unskew.audit.crossfit import FOLDS, HASH_DIGITS
from unskew.audit.periods import By
from unskew.audit.segments import MISSING
from unskew.base.errors import DataError, ParameterError
from unskew.calibration.sql import (
    Dialect,
    double,
    missing_extra,
    named,
    rendered,
    require_dialect,
    require_sqlglot,
    text,
)
from unskew.data.files import files_of
from unskew.data.stream import Roles, number_columns, stream
from unskew.metrics import CalibrationSketch
from unskew.metrics.cells import Cells
from unskew.metrics.sketch import DEFAULT_BINS, DEFAULT_MANTISSA_BITS
from unskew.metrics.sketch_grid import LIKELIHOOD_FLOOR, LOWEST_EXPONENT, SMALLEST, grid, half_cell

PERIOD_GRID = {"bins": DEFAULT_BINS, "mantissa_bits": 4}
"""Of sketches of periods and segments, of which there are thousands: cells 3 to 6 % wide, an eighth as many.
Their sums are as exact."""

LEAST_WEIGHT, MOST_WEIGHT = 1e-12, 1e12
_LOG2_E = 1.4426950408889634


def cells_query(
    table: str,
    *,
    score: str,
    outcome: str,
    weight: str | None = None,
    segments: Sequence[str] = (),
    by: By | None = None,
    dialect: Dialect = "duckdb",
    boolean_outcome: bool = False,
    fold_by: str | None = None,
    resolution: tuple[int, int] | None = None,
) -> str:
    """Return the query that returns the cells of a table's sketch, in an engine's dialect.

    Parameters
    ----------
    table
        Its name, as the engine knows it; for DuckDB also files and globs (``logs/*.parquet``).
    score, outcome, weight
        Columns: a probability, 0 or 1, and how many rows of the population a row stands for.
    segments
        Columns whose every value has a sketch of its own; each column is one more ``GROUP BY``.
    by
        Periods that have sketches of their own.
    boolean_outcome
        Whether the outcome is true and false, which Postgres and BigQuery do not take for a number.
    fold_by
        The column of ids whose rows share one of five folds, on which calibrators are judged.
    resolution
        ``bins`` and ``mantissa_bits`` of the grid (:class:`unskew.metrics.CalibrationSketch`); with periods
        coarser by default, as ``unskew monitor`` keeps them.

    Examples
    --------
    >>> query = cells_query("logs", score="p", outcome="clicked")
    >>> "GROUP BY" in query and "COUNT(*)" in query
    True
    """
    require_dialect(dialect)
    roles = Roles(score, outcome, weight, tuple(dict.fromkeys(segments)))
    usual = {"bins": DEFAULT_BINS, "mantissa_bits": DEFAULT_MANTISSA_BITS} if by is None else PERIOD_GRID
    cell_grid = grid(*(usual.values() if resolution is None else resolution))
    fold = None if fold_by is None else fold_of(fold_by, FOLDS, dialect)
    query = _template(table, roles, by, boolean_outcome, cell_grid, dialect, fold)
    return _week_of_monday(rendered(query, dialect), dialect)


def fold_of(column: str, folds: int, dialect: Dialect) -> str:
    """Return the fold of an id in SQL, as :func:`unskew.audit.crossfit.fold_of_id` computes it."""
    digest = f"MD5(COALESCE(CAST({named(column, dialect)} AS VARCHAR), ''))"
    digits = (
        f"(STRPOS('0123456789abcdef', SUBSTRING({digest}, {place}, 1)) - 1) * {16 ** (HASH_DIGITS - place)}"
        for place in range(1, HASH_DIGITS + 1)
    )
    return f"MOD({' + '.join(digits)}, {folds})"


def _template(
    table: str, roles: Roles, by: By | None, boolean: bool, cell_grid: Any, dialect: Dialect, fold: str | None
) -> str:
    """Return the query in sqlglot's own dialect; within it p, o and w are score, outcome and weight."""
    columns = {
        "p": _number(roles.score, dialect),
        "o": truth(roles.outcome, dialect) if boolean else _number(roles.outcome, dialect),
        "w": None if roles.weight is None else _number(roles.weight, dialect),
        "cut": None if by is None else _period(by, dialect),
        "fold": fold,
        **{
            f"s{number}": f"COALESCE(CAST({named(column, dialect)} AS VARCHAR), {text(MISSING)})"
            for number, column in enumerate(roles.segments)
        },
    }
    selected = {name: value for name, value in columns.items() if value is not None}
    taken = ", ".join(f'{value} AS "{name}"' for name, value in selected.items())
    carried = "".join(f', "{name}"' for name in selected if name not in ("p", "o"))
    scale, last_bin = 2**cell_grid.mantissa_bits, cell_grid.bins - 1
    first = -LOWEST_EXPONENT * scale + 1
    last = 2 * half_cell(cell_grid.shift, cell_grid.base)
    step = f"(CAST(1 AS DOUBLE) / CAST({cell_grid.bins} AS DOUBLE))"
    selects = "\nUNION ALL\n".join(
        _select(roles.segments, number, selected, cell_grid) for number in range(max(len(roles.segments), 1))
    )
    return f"""
WITH "given" AS (SELECT {taken} FROM {table_name(table, dialect)}),
"judged" AS (SELECT *, {_bad("w" in selected, "cut" in selected)} AS "bad" FROM "given"),
"cleaned" AS (
  SELECT "bad", CASE WHEN "bad" = 0 THEN "p" ELSE {double(0.5)} END AS "p",
    CASE WHEN "bad" = 0 THEN "o" ELSE 0 END AS "o"{carried} FROM "judged"),
"tails" AS (
  SELECT *, LEAST("p", 1 - "p") AS "tail",
    LEAST(FLOOR("p" * {cell_grid.bins}), {last_bin}) AS "bin" FROM "cleaned"),
"octaves" AS (
  SELECT *, FLOOR(LN(GREATEST("tail", {double(2.0 ** (LOWEST_EXPONENT - 1))})) * {double(_LOG2_E)})
    AS "octave", "bin" * {step} AS "low", ("bin" + 1) * {step} AS "high" FROM "tails"),
"placed" AS (
  SELECT *, CASE WHEN "tail" > 0 THEN GREATEST("octave" * {scale} + {first}
      + FLOOR(("tail" * POWER(CAST(2 AS DOUBLE), -"octave") - 1) * {scale}), 1) ELSE 0 END AS "fine"
    FROM "octaves"),
"cells" AS (
  SELECT "p", CAST("o" AS INT) AS "o"{carried},
    CAST(CASE WHEN "bad" > 0 THEN -"bad" ELSE
      CASE WHEN "p" > {double(0.5)} THEN {last} - "fine" ELSE "fine" END + 2 * "bin"
      + CASE WHEN "p" > "low" AND "p" < "high" THEN 0 ELSE
        CASE WHEN "bin" < {last_bin} AND "p" >= "high" THEN 1 ELSE 0 END
      + CASE WHEN "bin" < {last_bin} AND "p" > "high" THEN 1 ELSE 0 END
      - CASE WHEN "bin" > 0 AND "p" < "low" THEN 1 ELSE 0 END
      - CASE WHEN "bin" > 0 AND "p" <= "low" THEN 1 ELSE 0 END END END AS BIGINT) AS "id" FROM "placed")
{selects}
"""


def _select(segments: Sequence[str], number: int, selected: Collection[str], cell_grid: Any) -> str:
    """Return the cells of one column of segments, or of all rows."""
    w = '"w" * ' if "w" in selected else ""
    fit = 'CASE WHEN "o" = 1 THEN "p" ELSE 1 - "p" END'
    inverse = f'CASE WHEN "p" > 0 THEN 1 / GREATEST("p", {double(SMALLEST)})'
    square = _unless_tiny(w + '"p" * "p"', 1e-150)
    score = _unless_tiny(w + '"p"', 1e-290) if w else '"p"'
    keys = {
        **({"period": '"cut"'} if "cut" in selected else {}),
        **({"value": f'"s{number}"'} if segments else {}),
        **({"fold": '"fold"'} if "fold" in selected else {}),
        "cell": '"id"',
        "outcome": '"o"',
    }
    columns = {
        **({"segment": text(segments[number])} if segments else {}),
        **keys,
        "rows": "COUNT(*)",
        **({"weight": 'SUM("w")', "square": 'SUM("w" * "w")'} if "w" in selected else {}),
        "score": f"SUM({score})",
        "inverse": f"SUM({w}{inverse} ELSE {double(0)} END)",
        "brier": f'SUM(CASE WHEN "o" = 1 THEN {w}(1 - "p") * (1 - "p") ELSE {square} END)',
        "log_loss": f"SUM({w}-LN(GREATEST({fit}, {double(LIKELIHOOD_FLOOR)})))",
        "bins": str(cell_grid.bins),
        "mantissa_bits": str(cell_grid.mantissa_bits),
    }
    listed = ", ".join(f'{value} AS "{name}"' for name, value in columns.items())
    return f'SELECT {listed} FROM "cells" GROUP BY {", ".join(keys.values())}'


def _unless_tiny(product: str, least: float) -> str:
    """Return 0 for a product of so small a score: Postgres ends a query where a product underflows."""
    return f'CASE WHEN "p" > {double(least)} THEN {product} ELSE {double(0)} END'


def _bad(weighted: bool, periods: bool) -> str:
    """Return SQL for what is wrong with a row: the number of a cell of its own, below 0; else 0."""
    weight = f'("w" = 0 OR "w" >= {double(LEAST_WEIGHT)} AND "w" <= {double(MOST_WEIGHT)})'
    good = [
        '"p" >= 0 AND "p" <= 1',
        '("o" = 0 OR "o" = 1)',
        *([weight] if weighted else []),
        *(['NOT "cut" IS NULL'] if periods else []),
    ]
    wrong = [
        ('"p" IS NULL', 1),
        ('NOT ("p" >= 0 AND "p" <= 1)', 2),
        ('"o" IS NULL', 3),
        ('NOT ("o" = 0 OR "o" = 1)', 4),
        *([('"w" IS NULL', 5), (f"NOT {weight}", 6)] if weighted else []),
    ]
    cases = " ".join(f"WHEN {when} THEN {code}" for when, code in wrong)
    return f"CASE WHEN {' AND '.join(good)} THEN 0 {cases} ELSE 7 END"


def _number(column: str, dialect: Dialect) -> str:
    return f"CAST({named(column, dialect)} AS DOUBLE)"


def truth(column: str, dialect: Dialect) -> str:
    """Return a column of true and false as 1 and 0."""
    name = named(column, dialect)
    return f"CAST(CASE WHEN {name} THEN 1 WHEN NOT {name} THEN 0 END AS DOUBLE)"


def _period(by: By, dialect: Dialect) -> str:
    name = named(by.column, dialect)
    if by.unit is None:
        return name
    if by.unit == "hour":
        # Spark's own truncation of dates, which sqlglot would take, knows no hours.
        return f"TIMESTAMP_TRUNC({name}, HOUR)" if dialect == "spark" else f"DATE_TRUNC('HOUR', {name})"
    day = f"CAST({name} AS DATE)"
    return day if by.unit == "day" else f"CAST(DATE_TRUNC('WEEK', {day}) AS DATE)"


def _week_of_monday(query: str, dialect: Dialect) -> str:
    """Replace BigQuery's week, which begins on Sunday, by the one that begins on Monday."""
    return query.replace(", WEEK)", ", ISOWEEK)") if dialect == "bigquery" else query


def table_name(table: str, dialect: Dialect) -> str:
    """Return the table as the engine knows it."""
    if dialect == "duckdb" and re.search(r"[*?/]|\.(parquet|pq|csv|tsv)(\.|$)", table, re.IGNORECASE):
        reader = "READ_CSV" if re.search(r"\.[ct]sv", table, re.IGNORECASE) else "READ_PARQUET"
        return f"{reader}({text(table)})"
    sqlglot = require_sqlglot()
    try:
        node = sqlglot.exp.to_table(table, dialect=dialect)
        name = str(node.sql())
        sqlglot.parse_one(f"WITH t AS (SELECT 1 FROM {name}) SELECT 1 FROM t")
        is_name = not any(part.comments for part in node.walk())
    except sqlglot.errors.SqlglotError:
        is_name = False
    if not is_name:
        raise ParameterError(
            f"{table!r} is not the name of a table",
            remedy="give one that the engine knows, with odd names in quotes ('schema.\"odd name\"')",
        )
    return name


VIEW = "unskew_rows"
"""What a data frame is called within a query of it."""


def run_query(table: str, **columns: Any) -> Any:
    """Return the cells of a table or of files, counted by DuckDB in this process, as an Arrow table.

    ``table`` is files and globs (``logs/*.parquet``), or a table of a DuckDB database: ``FILE.duckdb:TABLE``.
    ``columns`` are those of :func:`cells_query`.
    """
    duckdb = _duckdb()
    database, colon, name = table.partition(".duckdb:")
    query = cells_query(name if colon else table, **columns, dialect="duckdb")
    database_file = f"{database}.duckdb" if colon else ":memory:"
    try:
        with duckdb.connect(database_file, read_only=bool(colon), config=_CONFIG) as connection:
            return connection.sql(query).to_arrow_table()
    except duckdb.Error as error:
        raise _engine_error("DuckDB", error, table) from error


def sketch_of(data: Any, *, score: str, outcome: str, weight: str | None = None) -> CalibrationSketch:
    """Return the sketch of a table where it lies: rows stay with their engine, and cells come back.

    Parameters
    ----------
    data
        A Spark data frame or a DuckDB relation, in which the query is run; or what :func:`unskew.audit` takes
        beside these, over which the streamed pass goes.
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
    """Return the columns that are read of a lazy frame, or of a Ray or Daft dataset, in memory.

    Other data stay as they are.
    """
    home, _, _ = type(data).__module__.partition(".")
    if home == "ray":
        blocks = data.select_columns(roles.names).iter_batches(batch_size=None, batch_format="pyarrow")
        return pa.concat_tables(blocks)
    if home == "daft":
        return data.select(*roles.names).to_arrow()
    if not (home == "polars" and type(data).__name__ == "LazyFrame"):
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
        result = data.sparkSession.sql(named, rows=data)
        rows = result.collect()
        columns = {name: [row[place] for row in rows] for place, name in enumerate(result.columns)}
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
    """Return what the engine says of a table, a column or a value, in one line."""
    said = next(line for line in str(error).splitlines() if line.strip())
    return DataError(
        f"{engine} refused the query: {said.strip()}", where=table, remedy="check the table and its columns"
    )


def require_runnable(dialect: Dialect) -> None:
    """Raise an error for an engine that is not run from here."""
    if dialect != "duckdb":
        raise ParameterError(
            f"--run runs DuckDB alone, not {dialect}",
            remedy="leave out --run, run the query there, and give its result by --cells FILE.parquet",
        )
