"""SQL of fitted maps: expressions in sqlglot's own dialect, rendered for an engine at the end.

Calibrators put their maps together from these parts. A decimal is always cast to a double: bare, it is a
DECIMAL in most engines and rounds otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, get_args

from unskew.base.errors import ParameterError
from unskew.base.estimator import require_choice

Dialect = Literal["duckdb", "spark", "bigquery", "snowflake", "postgres"]

_SIMPLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def require_sqlglot() -> Any:
    """Return the module, or raise an error that says how to install it."""
    try:
        import sqlglot
    except ImportError:
        raise missing_extra("sqlglot") from None
    return sqlglot


def missing_extra(package: str) -> ParameterError:
    """Return the error where a package of the extra is not installed."""
    return ParameterError(f"{package} is not installed", remedy="pip install 'unskew[sql]'")


def require_dialect(dialect: str) -> None:
    """Raise an error for an engine that no query is written for."""
    require_choice("dialect", dialect, get_args(Dialect))


def rendered(text: str, dialect: Dialect) -> str:
    """Return a query or an expression in the dialect of an engine."""
    sqlglot = require_sqlglot()
    parsed = sqlglot.parse_one(text)
    for node in parsed.find_all(sqlglot.exp.Least, sqlglot.exp.Greatest):
        # Nothing is null here: without a CASE in DuckDB, and elsewhere the function that engines share.
        node.set("ignore_nulls", dialect == "duckdb")
    return str(parsed.sql(dialect=dialect, pretty=True))


def named(column: str, dialect: Dialect) -> str:
    """Return a column's name, quoted; Snowflake knows a simple one in capitals, and only unquoted."""
    if dialect == "snowflake" and _SIMPLE_NAME.fullmatch(column):
        return column
    return '"' + column.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return a literal of text."""
    return "'" + value.replace("'", "''") + "'"


def double(value: float) -> str:
    """Return a literal that is exactly this double."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


def between(low: float, value: str, high: float) -> str:
    """Return a value moved into an interval."""
    return f"LEAST(GREATEST({value}, {double(low)}), {double(high)})"


def logit(p: str) -> str:
    """Return the logit of a probability inside (0, 1)."""
    return f"(LN({p}) - LN({double(1.0)} - {p}))"


def sigmoid(logit: str, largest: float) -> str:
    """Return 1/(1 + e^−z), z no further from 0 than ``largest``."""
    return f"({double(1.0)} / ({double(1.0)} + EXP(-({between(-largest, logit, largest)}))))"


def line(slope: float, value: str, intercept: float) -> str:
    """Return slope · value + intercept."""
    return f"({double(slope)} * {value} + {double(intercept)})"


def steps(value: str, edges: Sequence[float], pieces: Sequence[str]) -> str:
    """Return the piece whose number is the count of ascending edges at or below a value, by bisection."""
    if not len(edges):
        return pieces[0]
    middle = len(edges) // 2
    left = steps(value, edges[:middle], pieces[: middle + 1])
    right = steps(value, edges[middle + 1 :], pieces[middle + 1 :])
    return f"CASE WHEN {value} < {double(edges[middle])} THEN {left} ELSE {right} END"


def switch(cases: Sequence[tuple[str, str]], otherwise: str) -> str:
    """Return what the first condition that holds stands for."""
    if not cases:
        return otherwise
    return f"CASE {' '.join(f'WHEN {when} THEN {then}' for when, then in cases)} ELSE {otherwise} END"
