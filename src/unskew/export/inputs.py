"""The inputs of an exported graph: ids and features as they come, or as codes, to what networks read.

Texts and whole numbers are looked up by ONNX's ``LabelEncoder``; numbers are transformed as in training. A
hash of text has no operator: such a feature is given as codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.errors import ParameterError, UnskewError
from unskew.export.calibrators import Steps
from unskew.export.graph import Graph, Value
from unskew.io.vocabulary import UNSEEN_CODE, Vocabulary
from unskew.log import Encoders, Field, Schema
from unskew.log.encoder import (
    FARTHEST,
    FIRST_CODE,
    MISSING_CODE,
    OTHER_CODE,
    PAD,
    CodeEncoder,
    Encoder,
    NumberEncoder,
    quantile_line,
)
from unskew.log.kinds import TimePart
from unskew.log.schema import Role

Form = Literal["raw", "codes"]
"""Ids and values as the log has them, or the codes and scaled numbers that networks read."""

WHOLE = np.iinfo(np.int64)

SIDES: tuple[Role, ...] = ("user", "item")

ABSENT_CODE = PAD - 1
"""The code of a value that a request leaves out, for which the value of training stands in."""


class GraphInputs:
    """The inputs of a graph, and what networks read of them.

    Parameters
    ----------
    users, items
        The ids that the model knows.
    encoders
        Of its features; None for a model that reads the ids alone.
    form
        How they are given. With ``"raw"`` a request may leave out features of users and items, by the value
        that ``described`` calls ``absent``: the graph holds those of training.

    Attributes
    ----------
    fields
        By the field of the schema: codes ``[n]`` of ids and categories, ``[n, any]`` of bags (−1 where there
        is no more), numbers ``[n, columns]``.
    described
        A record for each input, for the file's metadata.
    known
        Booleans ``[n]`` by ``"user"`` and ``"item"``: whether training had rows of the id.
    """

    def __init__(self, users: Vocabulary, items: Vocabulary, encoders: Encoders | None, form: Form) -> None:
        self.graph = Graph()
        self.schema = Schema.of_ids(len(users), len(items)) if encoders is None else encoders.schema
        self.form = form
        self.described: list[dict[str, Any]] = []
        vocabularies = {"user": users, "item": items}
        codes = {name: self._id(self.schema[name], each) for name, each in vocabularies.items()}
        self._known: Value | None = None
        self._owners: dict[str, Value] = {}
        self.known = {
            name: (codes[name] >= 0) & (codes[name] < len(each)) for name, each in vocabularies.items()
        }
        if encoders is None:
            self._known = reduce(and_, self.known.values())
            # ONNX would read −1 as the last row: an unknown id must not get somebody else's answer.
            codes = {name: self._known.where(each, 0, np.int64) for name, each in codes.items()}
        else:
            self._encoders = encoders
            codes = {name: _inside(each, self.schema[name]) for name, each in codes.items()}
            # An id of the vocabulary that no row of training had is as good as unknown.
            self._owners = codes
            self.known = {role: self._seen(role, codes[role]) for role in SIDES}
            codes = {
                name: self.known[name].where(each, self.schema[name].size - 1, np.int64)
                for name, each in codes.items()
            }
        self.fields: dict[str, Value] = codes
        for encoder in () if encoders is None else encoders.encoders:
            self.fields[encoder.field.name] = self._feature(encoder)

    def known_alone(self, probability: Value) -> Value:
        """Float32, with NaN where a model that reads ids alone does not know one."""
        answer = probability.cast(np.float32)
        return answer if self._known is None else self._known.where(answer, np.nan, np.float32)

    def _input(self, name: str, dtype: Any, columns: str | int | None = None, **facts: Any) -> Value:
        self.described.append({"name": name, **facts})
        return self.graph.input(name, dtype, columns)

    def _seen(self, role: Role, code: Value) -> Value:
        """Return whether training had rows of each id; the last code is of those that are not known."""
        size = self.schema[role].size
        seen = self._encoders.seen.get(role, np.ones(size - 1, dtype=bool))
        return self.graph.constant(np.append(seen, False)).take(code)

    def _id(self, field: Field, known: Vocabulary) -> Value:
        if self.form == "codes":
            return self._input(field.name, np.int64, holds="codes", column=known.name)
        if known.buckets:
            raise ParameterError(
                f"{known.buckets:,} codes of '{known.name}' are shared by a hash of ids, which ONNX lacks",
                remedy="export with codes (--inputs codes), and make them with the vocabulary's encode",
            )
        text = known.ids.dtype.kind == "T"
        unknown = len(known) if field.unknown == "other" else UNSEEN_CODE
        kind, dtype = ("text", object) if text else ("integer", np.int64)
        unseen = {} if text else {"unseen": _unused(known.ids)}
        given = self._input(field.name, dtype, holds=kind, column=known.name, **unseen)
        return given.looked_up(known.ids.tolist(), list(range(len(known))), unknown)

    def _feature(self, encoder: Encoder) -> Value:
        if isinstance(encoder, NumberEncoder):
            return self._number(encoder)
        assert isinstance(encoder, CodeEncoder)
        field = encoder.field
        codes = self._given_codes(encoder) if self._takes_codes(encoder) else self._looked_up(encoder)
        trained = self._trained(encoder)
        if field.kind != "bag":
            inside = _inside(codes, field)
            return inside if trained is None else (codes < PAD).where(trained.squeeze(1), inside)
        codes = codes.first_columns(field.width)
        given = (codes < 0).where(PAD, _inside(codes, field), np.int64)
        # One more column: a bag with nothing in it holds the code of that.
        empty = (given.largest(1) < 0).where(_nothing(encoder), PAD, np.int64).unsqueeze(-1)
        if trained is None:
            return given.concatenated(empty)
        absent = codes.smallest(1).unsqueeze(-1) < PAD
        filled = absent.where(PAD, given.concatenated(empty), np.int64)
        return filled.concatenated(absent.where(trained, PAD, np.int64))

    def _trained(self, encoder: Encoder) -> Value | None:
        """The feature's columns ``[n, width]`` in training; None where a request must give the feature."""
        role = encoder.feature.role
        if role not in self._owners or self.form == "codes":
            return None
        columns = self._encoders.table_columns(role, np.arange(self.schema[role].size))
        table = columns[encoder.feature.name]
        dtype = np.float32 if encoder.field.kind == "number" else np.int64
        return self.graph.constant(table, dtype).take(self._owners[role])

    def _facts(self, encoder: Encoder, absent: Any) -> dict[str, Any]:
        """What a server must know of a feature to fill its input."""
        feature = encoder.feature
        part = {"part": feature.part} if isinstance(feature, TimePart) else {}
        left_out = {"absent": absent} if feature.role in self._owners and self.form == "raw" else {}
        width = {"width": encoder.field.width} if feature.kind == "bag" else {}
        facts = {"column": feature.source, "kind": feature.kind, "role": feature.role}
        return {**facts, **part, **width, **left_out}

    def _takes_codes(self, encoder: CodeEncoder) -> bool:
        return self.form == "codes" or encoder.buckets is not None

    def _given_codes(self, encoder: CodeEncoder) -> Value:
        field = encoder.field
        facts = {"encoder": encoder.to_dict(), "missing": PAD, **self._facts(encoder, ABSENT_CODE)}
        return self._input(field.name, np.int64, _columns(field), holds="codes", **facts)

    def _looked_up(self, encoder: CodeEncoder) -> Value:
        """Codes of texts or, where all values of training are whole numbers, of these."""
        field, texts = encoder.field, encoder.vocabulary.tolist()
        keys: list[Any] | None = _whole(texts)
        missing: str | int = WHOLE.min
        absent: str | int = WHOLE.min + 1
        kind: str = "integer"
        dtype: Any = np.int64
        if keys is None:
            keys, kind, dtype = texts, "text", object
            missing = _free("", texts)
            absent = _free("?", [*texts, missing])
        unseen = {} if kind == "text" else {"unseen": WHOLE.max}
        facts = {"missing": missing, **unseen, **self._facts(encoder, absent)}
        given = self._input(field.name, dtype, _columns(field), holds=kind, **facts)
        nothing = PAD if field.kind == "bag" else _nothing(encoder)
        codes = [*range(FIRST_CODE, FIRST_CODE + len(keys)), nothing]
        if "absent" in facts:
            keys, codes = [*keys, missing, absent], [*codes, ABSENT_CODE]
        else:
            keys = [*keys, missing]
        return given.looked_up(keys, codes, OTHER_CODE)

    def _number(self, encoder: NumberEncoder) -> Value:
        """As :meth:`NumberEncoder.encode` has it; the second column says what is missing."""
        field = encoder.field
        if self.form == "codes":
            return self._input(field.name, np.float32, field.width, holds="scaled", encoder=encoder.to_dict())
        facts = {"missing": "NaN", **self._facts(encoder, "-Infinity")}
        given = self._input(field.name, np.float64, holds="number", **facts)
        there = (given - given) >= 0.0
        x = there.where(given, 0.0, np.float64)
        scaled = ((_transformed(x, encoder) - encoder.mean) / encoder.scale).maximum(-FARTHEST)
        value = there.where(scaled.minimum(FARTHEST), 0.0, np.float64).unsqueeze(-1)
        if field.width == 2:
            value = value.concatenated(there.where(0.0, 1.0, np.float64).unsqueeze(-1))
        trained = self._trained(encoder)
        if trained is None:
            return value.cast(np.float32)
        absent = (given <= -np.inf).unsqueeze(-1)
        return absent.where(trained, value.cast(np.float32))


def require_free_names(inputs: GraphInputs, outputs: Sequence[Value]) -> None:
    """Raise an error where a feature has the name of an output."""
    for output in outputs:
        if any(each["name"] == output.name for each in inputs.described):
            raise UnskewError(
                f"the feature '{output.name}' has the name of the output",
                remedy="rename the column and train again",
            )


def _columns(field: Field) -> str | None:
    return f"values of {field.name}" if field.kind == "bag" else None


def _inside(codes: Value, field: Field) -> Value:
    """Codes that the tables have; any other is that of values that were never seen."""
    other = field.size - 1 if field.kind == "id" else OTHER_CODE
    return ((codes >= 0) & (codes < field.size)).where(codes, other, np.int64)


def _unused(ids: NDArray[np.int64]) -> int:
    """Return a whole number that is no id."""
    number = WHOLE.max
    while number in ids:
        number -= 1
    return int(number)


def _free(text: str, taken: Sequence[str]) -> str:
    """A text that is none of those that are taken."""
    while text in taken:
        text += "-"
    return text


def _nothing(encoder: CodeEncoder) -> int:
    return MISSING_CODE if encoder.missing > 0 else OTHER_CODE


def _whole(texts: Sequence[str]) -> list[int] | None:
    """Texts as the whole numbers that they are the digits of; None where one is not."""
    try:
        numbers = [int(each) for each in texts]
    except ValueError:
        return None
    same = all(str(number) == text for number, text in zip(numbers, texts, strict=True))
    fits = all(WHOLE.min + 1 < number < WHOLE.max for number in numbers)
    return numbers if numbers and same and fits else None


def _transformed(x: Value, encoder: NumberEncoder) -> Value:
    if encoder.transform == "log":
        return (x.maximum(0.0) + 1.0).log()
    if encoder.transform == "quantile" and len(encoder.knots):
        knots, ranks = quantile_line(encoder.knots)
        if len(knots) == 1:
            return x * 0.0 + float(ranks[0])
        within = x.maximum(knots[0]).minimum(knots[-1]).unsqueeze(0)
        pieces = Steps([knots[1:-1]], within)
        slope = np.diff(ranks) / np.diff(knots)
        rise = (within - pieces.take([knots[:-1]])) * pieces.take([slope])
        return (pieces.take([ranks[:-1]]) + rise).squeeze(0)
    return x
