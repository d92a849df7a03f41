"""Requests: pydantic models with limits, and the arrays that an exported ONNX file takes."""

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

LONGEST_DIGITS = 20
"""Characters of a whole number of 64 bits."""

WHOLE = np.iinfo(np.int64)
ABSENT: Any = object()
"""Stands in a column for a field that a row leaves out."""

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

Text = Annotated[str, StringConstraints(max_length=1024)]
Integer = Annotated[int, Field(ge=int(WHOLE.min), le=int(WHOLE.max))]
Value = Text | Integer | bool | float
Values = Annotated[list[Value | None], Field(max_length=MOST_IN_LIST)]

MOST_IN_VECTOR = 4096
"""Numbers of a vector, at most."""

WANTED: dict[str, tuple[Any, str]] = {
    "id": (Text | Integer, "a whole number of 64 bits, or a text"),
    "time": (datetime | None, "a time (ISO 8601), or null"),
    "number": (float | None, "a finite number, or null"),
    "bag": (Values | None, "a list of values, or null"),
    "vector": (Annotated[list[float], Field(max_length=MOST_IN_VECTOR)] | None, "a list of numbers, or null"),
    "category": (Value | None, "one value, or null"),
}
"""By the kind of a field: its type, and what a message asks for."""


class TooLargeError(DataError):
    """A request with more rows, or a longer list, than is allowed."""


@with_config(STRICT)
class Outcome(TypedDict):
    """The outcome of one row of an answer."""

    request: Annotated[str, StringConstraints(max_length=64)]
    row: NotRequired[Annotated[int, Field(ge=0, lt=1 << 31)]]
    outcome: Annotated[int, Field(ge=0, le=1)] | bool
    weight: NotRequired[Annotated[float, Field(ge=0, le=MOST_WEIGHT)]]


class Reader:
    """Reads bodies: an object with one list of records.

    Parameters
    ----------
    name, record
        Of the list, and the type of its elements.
    most
        Its longest length.
    wanted
        What a message asks for, by field.
    """

    def __init__(self, name: str, record: Any, most: int, wanted: dict[str, str]) -> None:
        self._name, self._wanted = name, wanted
        records = Annotated[list[record], Field(max_length=most), FailFast()]
        self._body = TypeAdapter(_record({name: records}))

    def records(self, body: bytes) -> list[Any]:
        """Check a body; an error names the place and never a value, which may be a user's id."""
        try:
            records: list[Any] = self._body.validate_json(body)[self._name]
            return records
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        known = [step for step in first["loc"] if isinstance(step, int) or step in self._wanted][:2]
        where = ", ".join(f"row {step}" if isinstance(step, int) else f"field '{step}'" for step in known)
        kind, asked = first["type"], self._wanted.get(str(known[-1])) if known else None
        problem = first["msg"] if asked is None or kind in ("missing", "too_long") else f"is not {asked}"
        raise (TooLargeError if kind == "too_long" else DataError)(
            problem, where=where or None, remedy="see GET /model for the fields and limits"
        )


class OutcomeReader(Reader):
    """Reads the bodies of ``POST /outcomes``."""

    def __init__(self, most: int) -> None:
        wanted = {"request": "the request of an answer", "row": "a row of an answer, from 0 on"}
        wanted |= {"outcome": "0 or 1", "weight": f"a number from 0 to {MOST_WEIGHT:g}"}
        super().__init__("outcomes", Outcome, most, wanted)


class RowReader(Reader):
    """Reads the bodies of ``POST /score``.

    Parameters
    ----------
    described
        The inputs of an ONNX file, as its metadata describe them.
    most
        Rows of a request.
    """

    def __init__(self, described: Sequence[dict[str, Any]], most: int) -> None:
        self._inputs = described
        self.fields: dict[str, dict[str, Any]] = {}
        for item in described:
            kind = "time" if "part" in item else item.get("kind", "id")
            field = {"name": item["column"], "kind": kind, "role": item.get("role", item["name"])}
            field |= {"holds": item["holds"], "required": "absent" not in item}
            self.fields[item["column"]] = field
        types = {name: WANTED[field["kind"]][0] for name, field in self.fields.items()}
        optional = {name for name, field in self.fields.items() if not field["required"]}
        wanted = {name: WANTED[field["kind"]][1] for name, field in self.fields.items()}
        super().__init__("rows", _record(types, optional), most, wanted)

    def read(self, body: bytes) -> dict[str, NDArray[Any]]:
        """Return the inputs of the graph."""
        rows = self.records(body)
        columns = {name: [row.get(name, ABSENT) for row in rows] for name in self.fields}
        return {item["name"]: _array(item, columns[item["column"]]) for item in self._inputs}


def _record(types: dict[str, Any], optional: Container[str] = ()) -> Any:
    """Return the type of an object with these fields and no others."""
    make: Any = TypedDict
    fields = {name: NotRequired[kind] if name in optional else kind for name, kind in types.items()}
    return with_config(STRICT)(make("Record", fields))


def _array(item: dict[str, Any], column: Sequence[Any]) -> NDArray[Any]:
    """Return one input of the graph."""
    if item["holds"] == "number":
        special = {None: np.nan, ABSENT: -np.inf}
        return np.array([special[v] if v is None or v is ABSENT else v for v in column], dtype=np.float64)
    if item["holds"] == "vector":
        return _vectors(item, column)
    if item["holds"] == "codes":
        return _codes(item, column)
    dtype: Any = object if item["holds"] == "text" else np.int64
    if item.get("kind") != "bag":
        return np.array([_cell(item, value) for value in column], dtype=dtype)
    lists = [_cells(item, value) for value in column]
    width = max(map(len, lists), default=1)
    padded = [values + [item["missing"]] * (width - len(values)) for values in lists]
    return np.array(padded, dtype=dtype).reshape(len(column), width)


def _vectors(item: dict[str, Any], column: Sequence[Any]) -> NDArray[np.float64]:
    """Return vectors ``[n, width]``; those that are null or left out have special values."""
    vectors = np.empty((len(column), item["width"]))
    for row, value in enumerate(column):
        if value is not None and value is not ABSENT and len(value) != item["width"]:
            raise DataError(
                f"has {len(value)} numbers, and the model reads {item['width']}",
                where=f"row {row}, field '{item['column']}'",
                remedy="see GET /model for the fields and limits",
            )
        vectors[row] = np.nan if value is None else -np.inf if value is ABSENT else value
    return vectors


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
    if "part" in item:
        value = value.hour if item["part"] == "hour" else value.weekday()
    text = _text(value)
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


def _codes(item: dict[str, Any], column: Sequence[Any]) -> NDArray[np.int64]:
    """Return the codes of a hashed feature, of which ONNX has no operator."""
    encoder, bag = encoder_from(item["encoder"]), item["kind"] == "bag"
    texts: list[Any] = [None if value is ABSENT else value for value in column]
    if bag:
        texts = [value and [_text(element) for element in value if element is not None] for value in texts]
    else:
        texts = [value if value is None else _text(value) for value in texts]
    kind = pa.list_(pa.large_string()) if bag else pa.large_string()
    codes = encoder.encode(values_of(encoder.feature, pa.array(texts, kind))).astype(np.int64)
    absent = np.array([value is ABSENT for value in column], dtype=bool)
    codes[absent] = item["missing"]
    codes[absent, 0] = item.get("absent", 0)
    result: NDArray[np.int64] = codes if bag else codes[:, 0]
    return result
