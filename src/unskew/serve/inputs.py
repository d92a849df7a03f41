"""The inputs of an exported file: ids and values as a log has them, and how models read them.

Texts and whole numbers are looked up by ONNX's ``LabelEncoder``; numbers are transformed as in training. ONNX
has no hash of a text, so that what is hashed is given as codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from unskew.base.tensors import Tensor, nn, torch
from unskew.data import Encoders, Field, Rows, Schema
from unskew.data.encoder import (
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
from unskew.data.kinds import TimePart
from unskew.data.schema import Role
from unskew.data.vocabulary import UNSEEN_CODE, Vocabulary
from unskew.serve.calibrators import Interpolation

WHOLE = np.iinfo(np.int64)

ROLES_OF_IDS: tuple[Role, ...] = ("user", "item")

ABSENT_CODE = PAD - 1
"""The code of a value that a request leaves out, for which the value of training stands in."""

Columns = Mapping[str, Tensor]


class Input(NamedTuple):
    """An input of a request: ``[n]`` values of a type (text is ``object``), ``[n, any]`` of a bag, or
    ``[n, width]`` of a vector.

    With ``keys``, texts or whole numbers, each is read as its code, and every other as one code.
    """

    name: str
    dtype: Any
    bag: bool = False
    keys: Sequence[Any] | None = None
    codes: Sequence[int] = ()
    otherwise: int = UNSEEN_CODE
    width: int = 0

    @property
    def look_up(self) -> dict[str, Any]:
        """Arguments of the ONNX node that reads it."""
        if self.keys is None:
            return {"op_type": "Identity"}
        keys = {"keys_strings" if self.dtype is object else "keys_int64s": list(self.keys)}
        codes = {"values_int64s": list(self.codes), "default_int64": self.otherwise}
        return {"op_type": "LabelEncoder", "domain": "ai.onnx.ml", **keys, **codes}

    @property
    def axes(self) -> dict[int, str]:
        """The lengths of its axes, as the file names them."""
        return {0: "n", 1: f"values of {self.name}"} if self.bag else {0: "n"}

    @property
    def shape(self) -> list[str | int]:
        """The lengths of its axes, and the width of a vector."""
        return [*self.axes.values(), *([self.width] if self.width else [])]

    @property
    def example(self) -> Tensor:
        """Some rows to trace with, as codes where it has keys."""
        dtype = torch.int64 if self.keys is not None else getattr(torch, np.dtype(self.dtype).name)
        return torch.zeros([3] * len(self.axes) + [self.width] * (self.width > 0), dtype=dtype)


class GraphInputs(nn.Module):
    """The inputs of a file, and what models read of them: codes and numbers ``[n, width]`` by field.

    ``"user"`` and ``"item"`` are codes ``[n]``, −1 for ids that are not in the vocabulary. A request may
    leave out features of users and items, by the value that ``described`` calls ``absent``: those of training
    are in the file.

    Parameters
    ----------
    encoders
        Of all features that any model of the file reads; None where all read the ids alone.
    further
        Columns of numbers that are read as they are.
    """

    def __init__(
        self, users: Vocabulary, items: Vocabulary, encoders: Encoders | None, further: Sequence[str]
    ) -> None:
        super().__init__()
        self.schema = Schema.of_ids(len(users), len(items)) if encoders is None else encoders.schema
        self.encoders = () if encoders is None else encoders.encoders
        self.further = tuple(further)
        self.inputs: list[Input] = []
        self.described: list[dict[str, Any]] = []
        for role, vocabulary in zip(ROLES_OF_IDS, (users, items), strict=True):
            self._add_id(role, vocabulary)
            every = np.ones(len(vocabulary), dtype=bool)
            seen = every if encoders is None else encoders.seen.get(role, every)
            # One more, which is read for all that are not in the vocabulary.
            self.register_buffer(f"{role}_seen", torch.from_numpy(np.append(seen, False)))
        for number, encoder in enumerate(self.encoders):
            self._add_feature(encoder)
            name, role_or_none = encoder.feature.name, encoder.feature.role
            if role_or_none in ROLES_OF_IDS:
                assert encoders is not None
                codes = np.arange(self.schema[role_or_none].size)
                trained = encoders.table_columns(role_or_none, codes)[name]
                dtype = np.float32 if encoder.field.is_number else np.int64
                self.register_buffer(f"trained_{number}", torch.from_numpy(trained.astype(dtype)))
            if isinstance(encoder, NumberEncoder) and encoder.transform == "quantile" and len(encoder.knots):
                corners, ranks = quantile_line(encoder.knots)
                self.add_module(f"quantile_{number}", Interpolation([(corners, corners, ranks)]))
        for name in self.further:
            facts = {"missing": "NaN", "column": name, "kind": "number", "role": "row", "holds": "number"}
            self._add(Input(name, np.float64), facts)

    def forward(self, *values: Tensor) -> dict[str, Tensor]:
        """Return what models read, by the names of fields and further columns."""
        asked = dict(zip((wanted.name for wanted in self.inputs), values, strict=True))
        columns = {name: asked[name] for name in self.further}
        for role in ROLES_OF_IDS:
            last = len(self.get_buffer(f"{role}_seen")) - 1
            inside = (asked[role] >= 0) & (asked[role] < last)
            columns[role] = torch.where(inside, asked[role], UNSEEN_CODE)
            owner = torch.where(inside, asked[role], last)
            columns[f"known_{role}"] = self.get_buffer(f"{role}_seen")[owner]
            columns[f"{role}_owner"] = torch.where(columns[f"known_{role}"], owner, last)
        for number, encoder in enumerate(self.encoders):
            name, role_or_none = encoder.feature.name, encoder.feature.role
            if isinstance(encoder, NumberEncoder):
                is_vector = encoder.field.kind == "vector"
                numbers = asked[name] if is_vector else asked[name][:, None]
                encoded, absent = self._numbers(number, encoder, numbers)
            else:
                assert isinstance(encoder, CodeEncoder)
                encoded, absent = _codes(encoder, asked[name])
            if role_or_none in ROLES_OF_IDS:
                trained = self.get_buffer(f"trained_{number}")[columns[f"{role_or_none}_owner"]]
                encoded = torch.where(absent, trained, encoded)
            columns[name] = encoded
        return columns

    def _numbers(self, number: int, encoder: NumberEncoder, values: Tensor) -> tuple[Tensor, Tensor]:
        """Encode numbers like :meth:`NumberEncoder.encode`, and mark those that are left out ``[n, 1]``."""
        there = (values.abs() < torch.inf).all(1, keepdim=True)
        x = torch.where(there, values, 0.0)
        if encoder.transform == "log":
            x = (x.clamp(min=0.0) + 1.0).log()
        elif encoder.transform == "quantile" and len(encoder.knots):
            x = self.get_submodule(f"quantile_{number}")(x.T, x.T).T
        mean, scale = torch.from_numpy(encoder.mean), torch.from_numpy(encoder.scale)
        scaled = ((x - mean) / scale).clamp(-FARTHEST, FARTHEST)
        columns = [torch.where(there, scaled, 0.0)]
        if encoder.missing > 0:
            columns.append(1.0 - there.double())
        return torch.cat(columns, dim=1).float(), values[:, :1] == -torch.inf

    def _add(self, wanted: Input, facts: Mapping[str, Any]) -> None:
        self.inputs.append(wanted)
        self.described.append({"name": wanted.name, **facts})

    def _add_id(self, role: str, known: Vocabulary) -> None:
        ids, facts = known.ids.tolist(), {"column": known.name}
        if known.buckets:
            self._add(
                Input(role, np.int64), {**facts, "holds": "codes", "ids": ids, "buckets": known.buckets}
            )
        elif known.ids.dtype.kind == "T":
            self._add(Input(role, object, False, ids, range(len(ids))), {**facts, "holds": "text"})
        else:
            facts |= {"holds": "integer", "unseen": _free(int(WHOLE.max), ids)}
            self._add(Input(role, np.int64, False, ids, range(len(ids))), facts)

    def _add_feature(self, encoder: Encoder) -> None:
        field, feature = encoder.field, encoder.feature
        facts: dict[str, Any] = {"column": feature.source, "kind": feature.kind, "role": feature.role}
        if isinstance(feature, TimePart):
            facts["part"] = feature.part
        if field.kind == "bag":
            facts["width"] = field.width
        if isinstance(encoder, NumberEncoder) and field.kind == "vector":
            wanted = Input(field.name, np.float64, width=len(encoder.mean))
            facts |= {"holds": "vector", "width": wanted.width, "missing": "NaN", "absent": "-Infinity"}
        elif isinstance(encoder, NumberEncoder):
            wanted = Input(field.name, np.float64)
            facts |= {"holds": "number", "missing": "NaN", "absent": "-Infinity"}
        else:
            assert isinstance(encoder, CodeEncoder)
            wanted, special = _coded_input(encoder)
            facts |= special
        if feature.role not in ROLES_OF_IDS:
            del facts["absent"]
        self._add(wanted, facts)


def _coded_input(encoder: CodeEncoder) -> tuple[Input, dict[str, Any]]:
    """Return an input of codes, texts, or whole numbers where all values are such; and its special values."""
    name, bag = encoder.field.name, encoder.field.kind == "bag"
    if encoder.buckets is not None:
        facts = {"encoder": encoder.to_dict(), "holds": "codes", "missing": PAD, "absent": ABSENT_CODE}
        return Input(name, np.int64, bag), facts
    texts: list[Any] = encoder.vocabulary.tolist()
    numbers = _whole(texts)
    codes = [*range(FIRST_CODE, FIRST_CODE + len(texts)), PAD if bag else _nothing(encoder), ABSENT_CODE]
    if numbers is None:
        missing = _free("", texts)
        absent = _free("?", [*texts, missing])
        keys = [*texts, missing, absent]
        facts = {"holds": "text", "missing": missing, "absent": absent}
        return Input(name, object, bag, keys, codes, OTHER_CODE), facts
    least, most = int(WHOLE.min), int(WHOLE.max)
    facts = {"holds": "integer", "missing": least, "absent": least + 1, "unseen": most}
    return Input(name, np.int64, bag, [*numbers, least, least + 1], codes, OTHER_CODE), facts


def _codes(encoder: CodeEncoder, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes ``[n, width]``, and whether they are left out ``[n, 1]``."""
    field = encoder.field
    inside = torch.where((values >= 0) & (values < field.size), values, OTHER_CODE)
    nothing = _nothing(encoder)
    if field.kind != "bag":
        return torch.where(values == PAD, nothing, inside)[:, None], (values == ABSENT_CODE)[:, None]
    padding = torch.full_like(values[:, :1], PAD).expand(-1, field.width)
    codes = torch.cat([torch.where(values < 0, PAD, inside), padding], dim=1)[:, : field.width]
    empty = torch.where(codes.amax(1) < 0, nothing, codes[:, 0])
    absent = (torch.cat([values, padding], dim=1) == ABSENT_CODE).any(1)
    return torch.cat([empty[:, None], codes[:, 1:]], dim=1), absent[:, None]


def rows_read(values: Columns, encoders: Encoders | None) -> tuple[Rows, Tensor | None]:
    """Return rows ``[1, n]`` as a model reads them, and which it knows, for one that reads the ids alone."""
    if encoders is None:
        known = (values["user"] >= 0) & (values["item"] >= 0)
        # An index of −1 would be somebody else's row.
        return Rows(**{role: torch.where(known, values[role], 0)[None] for role in ROLES_OF_IDS}), known
    rows: dict[str, Tensor] = {role: values[f"{role}_owner"][None] for role in ROLES_OF_IDS}
    for name, numbers in (("codes", False), ("numbers", True)):
        fields = [field.name for field in encoders.schema.features if field.is_number == numbers]
        if fields:
            rows[name] = torch.cat([values[field] for field in fields], dim=1)[None]
    return Rows(**rows), None


def field_columns(columns: Tensor, field: Field) -> Tensor:
    """Return a feature as segments are read of it: codes, or scaled numbers with NaN where missing."""
    if field.kind == "number" and field.width == 2:
        return torch.where(columns[:, 1] > 0, torch.nan, columns[:, 0])
    return columns[:, 0]


def _free(value: Any, taken: Sequence[Any]) -> Any:
    """Return a text, or a whole number, that is none of those that are taken."""
    others = set(taken)
    while value in others:
        value = value - 1 if isinstance(value, int) else f"{value}-"
    return value


def _nothing(encoder: CodeEncoder) -> int:
    return MISSING_CODE if encoder.missing > 0 else OTHER_CODE


def _whole(texts: Sequence[str]) -> list[int] | None:
    """Return texts as the whole numbers that they are the digits of; None where one is not."""
    try:
        numbers = [int(text) for text in texts]
    except ValueError:
        return None
    same = all(str(number) == text for number, text in zip(numbers, texts, strict=True))
    fits = all(WHOLE.min + 1 < number < WHOLE.max for number in numbers)
    return numbers if numbers and same and fits else None
