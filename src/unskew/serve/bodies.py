"""Bodies of requests: JSON or an Arrow stream to what they ask for; what is wrong is one line."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import orjson

from unskew.errors import DataError
from unskew.plain_text import listed, plain
from unskew.serve.arrow_bodies import read_columns
from unskew.serve.fields import shown
from unskew.serve.served_model import Parts, ServedModel

ARROW = b"application/vnd.apache.arrow.stream"
JSON = b"application/json"

OUTCOME_FIELDS = frozenset({"request", "row", "score", "model", "outcome", "weight"})


class TooManyRowsError(DataError):
    """More rows than a request may have."""


class Outcome(NamedTuple):
    """What came of one row: of a request by its id, or of a score that is repeated."""

    request: str | None
    row: int
    score: float
    model: str | None
    outcome: int
    weight: float


def read_rows(model: ServedModel, body: bytes, *, arrow: bool, most: int) -> Parts:
    """The rows of a request for scores."""
    if arrow:
        columns = read_columns(body)
        _refuse_many(max(map(len, columns.values()), default=0), most)
        return model.read(columns)
    asked = _object(body, '{"rows": [{"user": …, "item": …}, …]}')
    if len(asked) == 1 and "rows" in asked:
        rows = asked["rows"]
        if type(rows) is not list:
            raise DataError("rows is not a list", remedy='give {"rows": [{…}, …]}')
        _refuse_many(len(rows), most)
        return model.read_rows(rows)
    if len(asked) == 1 and "columns" in asked:
        columns = asked["columns"]
        if type(columns) is not dict or not set(map(type, columns.values())) <= {list}:
            raise DataError("columns is not an object of lists", remedy='give {"columns": {"user": […], …}}')
        lengths = {name: len(each) for name, each in columns.items()}
        if len(set(lengths.values())) > 1:
            shown = listed(f"{name} {length}" for name, length in lengths.items())
            raise DataError(f"columns differ in length ({shown})", remedy="give one value a row in each")
        _refuse_many(max(lengths.values(), default=0), most)
        return model.read(columns)
    raise DataError(
        f"the body has {listed(map(repr, asked)) or 'nothing'}", remedy='give "rows" or "columns" alone'
    )


def read_outcomes(body: bytes, *, most: int) -> list[Outcome]:
    """The outcomes of a request, all of them right."""
    asked = _object(body, '{"outcomes": [{"request": …, "row": 0, "outcome": 1}, …]}')
    rows = asked.get("outcomes")
    if asked.keys() != {"outcomes"} or type(rows) is not list:
        raise DataError("the body is not a list of outcomes", remedy='give {"outcomes": [{…}, …]} alone')
    _refuse_many(len(rows), most)
    return [_outcome(place, each) for place, each in enumerate(rows)]


def _outcome(place: int, given: Any) -> Outcome:
    where = f"outcome {place}"
    if type(given) is not dict:
        raise DataError("is not an object", where=where, remedy='give {"request": …, "outcome": 0 or 1}')
    if not given.keys() <= OUTCOME_FIELDS:
        unknown = sorted(given.keys() - OUTCOME_FIELDS)
        raise DataError(
            f"there is no field {listed(map(repr, unknown))}",
            where=where,
            remedy=f"give {listed(sorted(OUTCOME_FIELDS))}",
        )
    if ("request" in given) == ("score" in given):
        raise DataError("has not one of request and score", where=where, remedy="give one of them")
    outcome, weight, row = given.get("outcome"), given.get("weight", 1.0), given.get("row", 0)
    if outcome not in (0, 1) or isinstance(outcome, float):
        raise DataError(f"outcome {shown(outcome)} is not 0 or 1", where=where, remedy="give 0 or 1")
    if not _is_number(weight) or not 0 <= weight < math.inf:
        raise DataError(f"weight {shown(weight)} is none", where=where, remedy="give a number from 0 on")
    request, score, model = given.get("request"), given.get("score", math.nan), given.get("model")
    if "request" in given:
        if type(request) is not str or model is not None:
            raise DataError(
                f"{shown(request)} is no request id", where=where, remedy="give what /score answered with"
            )
        if type(row) is not int or not 0 <= row < 1 << 32:
            raise DataError(f"row {shown(row)} is none", where=where, remedy="give its number, from 0 on")
    elif not _is_number(score) or not 0 <= score <= 1:
        raise DataError(f"score {shown(score)} is no probability", where=where, remedy="give what was served")
    elif "row" in given or not isinstance(model, str | None):
        raise DataError("a score needs no row", where=where, remedy="give score, outcome and model alone")
    return Outcome(request, row, float(score), model, int(outcome), float(weight))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _object(body: bytes, example: str) -> dict[str, Any]:
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        reason = plain(str(error), longest=120)
        raise DataError(f"the body is not JSON ({reason})", remedy=f"give {example}") from error
    if type(asked) is not dict:
        raise DataError("the body is not a JSON object", remedy=f"give {example}")
    return asked


def _refuse_many(rows: int, most: int) -> None:
    if rows > most:
        raise TooManyRowsError(
            f"the request has {rows:,} rows, and {most:,} are taken", remedy="send it in several parts"
        )
