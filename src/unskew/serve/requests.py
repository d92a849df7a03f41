"""Requests: pydantic models with limits, and the arrays that an ONNX file with raw inputs takes."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime
from typing import Annotated, Any, NotRequired

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import ConfigDict, FailFast, Field, StringConstraints, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict  # pydantic needs it up to Python 3.11

from unskew.base.errors import DataError
from unskew.data.encoder import encoder_from
from unskew.data.values import values_of

MOST_IN_LIST = 1000
"""Values of one list in a row."""

MOST_WEIGHT = 1e6
"""The largest weight of an outcome."""

MOST_INVERSE = 1e9
"""The largest weight ÷ score; one outcome beyond would decide every sum by itself."""

LONGEST_DIGITS = 20
"""Characters of a whole number of 64 bits."""

WHOLE = np.iinfo(np.int64)
ABSENT: Any = object()
"""Stands in a column for a field that a row leaves out."""

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

Text = Annotated[str, StringConstraints(max_length=1024)]
Integer = Annotated[int, Field(ge=int(WHOLE.min), le=int(WHOLE.max))]
Value = Text | Integer | bool | float

WANTED: dict[str, tuple[Any, str]] = {
    "id": (Text | Integer, "a whole number of 64 bits, or a text"),
    "time": (datetime | None, "a time (ISO 8601), or null"),
    "number": (float | None, "a finite number, or null"),
    "bag": (
        Annotated[list[Value | None], Field(max_length=MOST_IN_LIST)] | None,
        "a list of values, or null",
    ),
    "category": (Value | None, "one value, or null"),
}
"""By the kind of a field: its type, and what a message asks for."""


class TooLargeError(DataError):
    """A request with more rows, or a longer list, than is allowed."""


@with_config(STRICT)
class Outcome(TypedDict):
    """The outcome of one row: of an answer by its request id, or with the score repeated."""

    outcome: Annotated[int, Field(ge=0, le=1)] | bool
    weight: NotRequired[Annotated[float, Field(ge=0, le=MOST_WEIGHT)]]
    request: NotRequired[Annotated[str, StringConstraints(max_length=64)]]
    row: NotRequired[Annotated[int, Field(ge=0, lt=1 << 31)]]
    score: NotRequired[Annotated[float, Field(ge=0, le=1)]]
    model: NotRequired[Annotated[str, StringConstraints(max_length=64)]]


OUTCOME = {
    "outcome": "0 or 1",
    "weight": f"a number from 0 to {MOST_WEIGHT:g}",
    "request": "the request of an answer",
    "row": "a row of an answer, from 0 on",
    "score": "a probability",
    "model": "the name of a model",
}
"""What a message asks for, by field."""


class OutcomeReader:
    """Reads the bodies of ``POST /outcomes``."""

    def __init__(self, most: int) -> None:
        self._adapter = TypeAdapter(_record({"outcomes": _list_of(Outcome, most)}))

    def read(self, body: bytes) -> list[Outcome]:
        """Return the outcomes of a body, all of them right."""
        outcomes: list[Outcome] = _validated(self._adapter, body, OUTCOME)["outcomes"]
        for number, outcome in enumerate(outcomes):
            if ("request" in outcome) == ("score" in outcome) or (
                outcome.keys() & ({"model"} if "request" in outcome else {"row"})
            ):
                raise DataError(
                    "is neither of a request nor of a score",
                    where=f"outcome {number}",
                    remedy='give {"request": …, "row": …} or {"score": …, "model": …}',
                )
            if "score" in outcome:
                require_bounded(number, outcome["score"], outcome)
        return outcomes


def require_bounded(number: int, score: float, outcome: Outcome) -> None:
    """Raise an error where one outcome would decide every sum: weight ÷ score has a bound."""
    if (score > 0 or outcome["outcome"]) and outcome.get("weight", 1.0) > MOST_INVERSE * score:
        raise DataError(
            f"weight ÷ score is above {MOST_INVERSE:.0e}",
            where=f"outcome {number}",
            remedy="leave it out, or give a smaller weight",
        )


class RowReader:
    """Reads the bodies of ``POST /score``.

    Parameters
    ----------
    described
        The inputs of an ONNX file with raw inputs, as its metadata describe them.
    most
        Rows of a request.
    """

    def __init__(self, described: Sequence[dict[str, Any]], most: int) -> None:
        self._inputs = described
        self.fields: dict[str, dict[str, Any]] = {}
        for item in described:
            kind = "time" if "part" in item else item.get("kind", "id")
            required = "absent" not in item
            field = {"name": item["column"], "kind": kind, "role": item.get("role", item["name"])}
            self.fields[item["column"]] = {**field, "holds": item["holds"], "required": required}
        types = {name: WANTED[facts["kind"]][0] for name, facts in self.fields.items()}
        optional = {name for name, facts in self.fields.items() if not facts["required"]}
        columns = {name: _list_of(kind, most) for name, kind in types.items()}
        rows = _list_of(_record(types, optional), most)
        body = {"rows": rows, "columns": _record(columns, optional)}
        self._adapter = TypeAdapter(_record(body, body))

    def read(self, body: bytes) -> dict[str, NDArray[Any]]:
        """Return the inputs of the graph."""
        wanted = {name: WANTED[facts["kind"]][1] for name, facts in self.fields.items()}
        asked = _validated(self._adapter, body, wanted)
        if len(asked) != 1:
            raise DataError("the body has not one of rows and columns", remedy='give {"rows": [{…}, …]}')
        if "rows" in asked:
            rows = asked["rows"]
            columns = {name: [row.get(name, ABSENT) for row in rows] for name in self.fields}
        else:
            lengths = {len(column) for column in asked["columns"].values()}
            if len(lengths) > 1:
                raise DataError("columns differ in length", remedy="give one value a row in each column")
            columns = {name: asked["columns"].get(name, [ABSENT] * max(lengths)) for name in self.fields}
        return {item["name"]: _array(item, columns[item["column"]]) for item in self._inputs}


def _record(types: dict[str, Any], optional: Container[str] = ()) -> Any:
    """Return the type of an object with these fields and no others."""
    make: Any = TypedDict
    fields = {name: NotRequired[kind] if name in optional else kind for name, kind in types.items()}
    return with_config(STRICT)(make("Record", fields))


def _list_of(kind: Any, most: int) -> Any:
    return Annotated[list[kind], Field(max_length=most), FailFast()]


def _validated(adapter: TypeAdapter[Any], body: bytes, wanted: dict[str, str]) -> Any:
    """Check a body; an error names the place and never a value, which may be a user's id."""
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = [part for part in first["loc"] if isinstance(part, int) or part in wanted][:2]
    where = ", ".join(f"row {part}" if isinstance(part, int) else f"field '{part}'" for part in place)
    kind, field = first["type"], next((part for part in place if isinstance(part, str)), None)
    problem = first["msg"] if field is None or kind in ("missing", "too_long") else f"is not {wanted[field]}"
    raise (TooLargeError if kind == "too_long" else DataError)(
        problem, where=where or None, remedy="see GET /model for the fields and limits"
    )


def _array(item: dict[str, Any], column: Sequence[Any]) -> NDArray[Any]:
    """Return one input of the graph."""
    if item["holds"] == "number":
        special = {None: np.nan, ABSENT: -np.inf}
        return np.array([special[v] if v is None or v is ABSENT else v for v in column], dtype=np.float64)
    if item["holds"] == "codes":
        return _codes(item, column)
    dtype: Any = object if item["holds"] == "text" else np.int64
    if item.get("kind") != "bag":
        return np.array([_cell(item, value) for value in column], dtype=dtype)
    lists = [_cells(item, value) for value in column]
    width = max(map(len, lists), default=1)
    padded = [values + [item["missing"]] * (width - len(values)) for values in lists]
    return np.array(padded, dtype=dtype).reshape(len(column), width)


def _cells(item: dict[str, Any], value: Any) -> list[Any]:
    """Return the values of a bag as the graph looks them up, at least one."""
    if value is None or value is ABSENT:
        return [_cell(item, value)]
    values = [_cell(item, element) for element in value if element is not None]
    return values[: item["width"]] or [item["missing"]]


def _cell(item: dict[str, Any], value: Any) -> Any:
    """Return a value as the graph looks it up."""
    if value is None or value is ABSENT:
        return item["missing" if value is None else "absent"]
    special = (item.get("missing"), item.get("absent"))
    text = _text(_part(value, item["part"]) if "part" in item else value)
    if item["holds"] == "text":
        # What stands for a missing value in the graph is a value like any other in a request.
        return f"{text}\0" if text in special else text
    try:
        whole = int(text) if len(text) <= LONGEST_DIGITS else None
    except ValueError:
        whole = None
    fits = str(whole) == text and WHOLE.min <= int(text) <= WHOLE.max and whole not in special
    return whole if fits else item["unseen"]


def _text(value: Any) -> str:
    """Return the text that training made of such a value."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2.0**53:
        return str(int(value))
    if isinstance(value, bool | float):
        return str(pa.scalar(value).cast(pa.large_string()).as_py())
    return str(value)


def _part(value: datetime, part: str) -> int:
    return value.hour if part == "hour" else value.weekday()


def _codes(item: dict[str, Any], column: Sequence[Any]) -> NDArray[np.int64]:
    """Return the codes of a hashed feature, of which ONNX has no operator."""
    encoder = encoder_from(item["encoder"])
    bag = item["kind"] == "bag"
    there = [None if value is ABSENT else value for value in column]
    texts = [
        value if value is None else [_text(v) for v in value if v is not None] if bag else _text(value)
        for value in there
    ]
    kind = pa.list_(pa.large_string()) if bag else pa.large_string()
    codes: NDArray[np.int64] = encoder.encode(values_of(encoder.feature, pa.array(texts, kind))).astype(
        np.int64
    )
    absent = np.array([value is ABSENT for value in column], dtype=bool)
    codes[absent] = item["missing"]
    codes[absent, 0] = item.get("absent", 0)
    return codes if bag else codes[:, 0]
