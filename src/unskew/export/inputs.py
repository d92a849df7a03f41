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

Form = Literal["raw", "codes"]
"""Ids and values as the log has them, or the codes and scaled numbers that networks read."""

WHOLE = np.iinfo(np.int64)


class GraphInputs:
    """The inputs of a graph, and what networks read of them.

    Parameters
    ----------
    users, items
        The ids that the model knows.
    encoders
        Of its features; None for a model that reads the ids alone.
    form
        How they are given.

    Attributes
    ----------
    fields
        By the field of the schema: codes ``[n]`` of ids and categories, ``[n, any]`` of bags (−1 where there
        is no more), numbers ``[n, columns]``.
    described
        A record for each input, for the file's metadata.
    """

    def __init__(self, users: Vocabulary, items: Vocabulary, encoders: Encoders | None, form: Form) -> None:
        self.graph = Graph()
        self.schema = Schema.of_ids(len(users), len(items)) if encoders is None else encoders.schema
        self.form = form
        self.described: list[dict[str, Any]] = []
        vocabularies = {"user": users, "item": items}
        codes = {name: self._id(self.schema[name], each) for name, each in vocabularies.items()}
        self._known: Value | None = None
        if encoders is None:
            inside = [(codes[name] >= 0) & (codes[name] < len(each)) for name, each in vocabularies.items()]
            self._known = reduce(and_, inside)
            # ONNX would read −1 as the last row: an unknown id must not get somebody else's answer.
            codes = {name: self._known.where(each, 0, np.int64) for name, each in codes.items()}
        else:
            codes = {name: _inside(each, self.schema[name]) for name, each in codes.items()}
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

    def _id(self, field: Field, known: Vocabulary) -> Value:
        if self.form == "codes":
            return self._input(field.name, np.int64, holds="codes")
        if known.buckets:
            raise ParameterError(
                f"{known.buckets:,} codes of '{known.name}' are shared by a hash of ids, which ONNX lacks",
                remedy="export with codes (--inputs codes), and make them with the vocabulary's encode",
            )
        text = known.ids.dtype.kind == "T"
        unknown = len(known) if field.unknown == "other" else UNSEEN_CODE
        given = self._input(field.name, object if text else np.int64, holds="text" if text else "integer")
        return given.looked_up(known.ids.tolist(), list(range(len(known))), unknown)

    def _feature(self, encoder: Encoder) -> Value:
        if isinstance(encoder, NumberEncoder):
            return self._number(encoder)
        assert isinstance(encoder, CodeEncoder)
        field = encoder.field
        codes = self._given_codes(encoder) if self._takes_codes(encoder) else self._looked_up(encoder)
        if field.kind != "bag":
            return _inside(codes, field)
        codes = codes.first_columns(field.width)
        codes = (codes < 0).where(codes, _inside(codes, field))
        # One more column: a bag with nothing in it holds the code of that.
        empty = (codes.largest(1) < 0).where(_nothing(encoder), PAD, np.int64)
        return codes.concatenated(empty.unsqueeze(-1))

    def _takes_codes(self, encoder: CodeEncoder) -> bool:
        return self.form == "codes" or encoder.buckets is not None

    def _given_codes(self, encoder: CodeEncoder) -> Value:
        field = encoder.field
        return self._input(
            field.name, np.int64, _columns(field), holds="codes", encoder=encoder.to_dict(), missing=PAD
        )

    def _looked_up(self, encoder: CodeEncoder) -> Value:
        """Codes of texts or, where all values of training are whole numbers, of these."""
        field, texts = encoder.field, encoder.vocabulary.tolist()
        keys: list[Any] | None = _whole(texts)
        missing: str | int = WHOLE.min
        if keys is None:
            keys, missing = texts, ""
            while missing in texts:
                missing += "-"
        kind, dtype = ("text", object) if isinstance(missing, str) else ("integer", np.int64)
        given = self._input(field.name, dtype, _columns(field), holds=kind, missing=missing)
        absent = PAD if field.kind == "bag" else _nothing(encoder)
        codes = [*range(FIRST_CODE, FIRST_CODE + len(keys)), absent]
        return given.looked_up([*keys, missing], codes, OTHER_CODE)

    def _number(self, encoder: NumberEncoder) -> Value:
        """As :meth:`NumberEncoder.encode` has it; the second column says what is missing."""
        field = encoder.field
        if self.form == "codes":
            return self._input(field.name, np.float32, field.width, holds="scaled", encoder=encoder.to_dict())
        given = self._input(field.name, np.float64, holds="number", missing="NaN")
        there = (given - given) >= 0.0
        x = there.where(given, 0.0, np.float64)
        scaled = ((_transformed(x, encoder) - encoder.mean) / encoder.scale).maximum(-FARTHEST)
        value = there.where(scaled.minimum(FARTHEST), 0.0, np.float64).unsqueeze(-1)
        if field.width == 2:
            value = value.concatenated(there.where(0.0, 1.0, np.float64).unsqueeze(-1))
        return value.cast(np.float32)


def require_free_names(inputs: GraphInputs, output: str) -> None:
    """An error where a feature is called as the output is."""
    if any(each["name"] == output for each in inputs.described):
        raise UnskewError(
            f"the feature '{output}' has the name of the output", remedy="rename the column and train again"
        )


def _columns(field: Field) -> str | None:
    return f"values of {field.name}" if field.kind == "bag" else None


def _inside(codes: Value, field: Field) -> Value:
    """Codes that the tables have; any other is that of values that were never seen."""
    other = field.size - 1 if field.kind == "id" else OTHER_CODE
    return ((codes >= 0) & (codes < field.size)).where(codes, other, np.int64)


def _nothing(encoder: CodeEncoder) -> int:
    return MISSING_CODE if encoder.missing > 0 else OTHER_CODE


def _whole(texts: Sequence[str]) -> list[int] | None:
    """Texts as the whole numbers that they are the digits of; None where one is not."""
    try:
        numbers = [int(each) for each in texts]
    except ValueError:
        return None
    same = all(str(number) == text for number, text in zip(numbers, texts, strict=True))
    fits = all(WHOLE.min < number <= WHOLE.max for number in numbers)
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
