"""The inputs of an exported file: ids and features as a log has them, or as codes, to what models read.

Texts and whole numbers are looked up by ONNX's ``LabelEncoder``; numbers are transformed as in training. A
hash of text has no operator: such a feature is given as codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from unskew.base.errors import ParameterError
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
from unskew.serve.calibrators import Pieces, interpolation

Form = Literal["raw", "codes"]
"""Ids and values as the log has them, or the codes and scaled numbers that networks read."""

WHOLE = np.iinfo(np.int64)

ROLES_OF_IDS: tuple[Role, ...] = ("user", "item")

ABSENT_CODE = PAD - 1
"""The code of a value that a request leaves out, for which the value of training stands in."""

Columns = Mapping[str, Tensor]


class Input(NamedTuple):
    """What a request holds: ``[n]`` values of a type (text is ``object``), or ``[n, columns]``.

    Where there are ``keys``, texts or whole numbers, each is read as its code, and all others as one code.
    """

    name: str
    dtype: Any
    columns: int | str | None = None
    keys: Sequence[Any] | None = None
    codes: Sequence[int] = ()
    otherwise: int = UNSEEN_CODE

    @property
    def look_up(self) -> dict[str, Any]:
        """Attributes of the ``LabelEncoder`` that reads the keys; none without any."""
        if self.keys is None:
            return {}
        keys = {"keys_strings" if self.dtype is object else "keys_int64s": list(self.keys)}
        return {**keys, "values_int64s": list(self.codes), "default_int64": self.otherwise}

    @property
    def axes(self) -> dict[int, str]:
        """The axes that may have any length."""
        return {0: "n", 1: "any"} if isinstance(self.columns, str) else {0: "n"}

    @property
    def shape(self) -> list[int | str]:
        """Lengths of its axes, as the file names them."""
        return ["n"] if self.columns is None else ["n", self.columns]

    @property
    def example(self) -> Tensor:
        """Some rows to trace with, as codes where it has keys."""
        dtype = torch.int64 if self.keys is not None else getattr(torch, np.dtype(self.dtype).name)
        return torch.zeros([size if isinstance(size, int) else 3 for size in self.shape], dtype=dtype)


class GraphInputs(nn.Module):
    """The inputs of a file, and what models read of them: codes and numbers ``[n, width]`` by field.

    ``"user"`` and ``"item"`` are codes ``[n]``, −1 for ids that are not in the vocabulary.

    Parameters
    ----------
    encoders
        Of all features that any model of the file reads; None where all read the ids alone.
    form
        With ``"raw"`` a request may leave out features of users and items, by the value that ``described``
        calls ``absent``: those of training are in the file.
    further
        Columns of numbers that are read as they are.
    """

    def __init__(
        self,
        users: Vocabulary,
        items: Vocabulary,
        encoders: Encoders | None,
        form: Form,
        further: Sequence[str],
    ) -> None:
        super().__init__()
        self.schema = Schema.of_ids(len(users), len(items)) if encoders is None else encoders.schema
        self.form, self.encoders, self.further = form, encoders, tuple(further)
        self.inputs: list[Input] = []
        self.described: list[dict[str, Any]] = []
        for role, vocabulary in zip(ROLES_OF_IDS, (users, items), strict=True):
            self._add_id(role, vocabulary)
            every = np.ones(len(vocabulary), dtype=bool)
            seen = every if encoders is None else encoders.seen.get(role, every)
            # One more, which is read for all that are not in the vocabulary.
            self.register_buffer(f"{role}_seen", torch.from_numpy(np.append(seen, False)))
        for number, encoder in enumerate(() if encoders is None else encoders.encoders):
            self._add_feature(encoder)
            self._keep_tables(number, encoder)
        for name in self.further:
            facts = {"missing": "NaN", "column": name, "kind": "number", "role": "row"}
            self._add(Input(name, np.float64), holds="number", **facts)

    def forward(self, *values: Tensor) -> dict[str, Tensor]:
        """Return what models read, by the names of fields and further columns."""
        given = dict(zip((each.name for each in self.inputs), values, strict=True))
        found = {name: given[name] for name in self.further}
        for role in ROLES_OF_IDS:
            last = len(self.get_buffer(f"{role}_seen")) - 1
            inside = (given[role] >= 0) & (given[role] < last)
            found[role] = torch.where(inside, given[role], UNSEEN_CODE)
            owner = torch.where(inside, given[role], last)
            found[f"known_{role}"] = self.get_buffer(f"{role}_seen")[owner]
            found[f"{role}_owner"] = torch.where(found[f"known_{role}"], owner, last)
        for number, encoder in enumerate(() if self.encoders is None else self.encoders.encoders):
            name = encoder.feature.name
            if isinstance(encoder, NumberEncoder):
                columns, absent = self._numbers(number, encoder, given[name])
            else:
                assert isinstance(encoder, CodeEncoder)
                columns, absent = self._codes(encoder, given[name])
            if self._may_be_absent(encoder):
                owner = found[f"{encoder.feature.role}_owner"]
                columns = torch.where(absent, self.get_buffer(f"trained_{number}")[owner], columns)
            found[name] = columns
        return found

    def _numbers(self, number: int, encoder: NumberEncoder, given: Tensor) -> tuple[Tensor, Tensor]:
        """As :meth:`NumberEncoder.encode` has it; the second column says what is missing."""
        if self.form == "codes":
            return given, given
        there = given.abs() < torch.inf
        x = torch.where(there, given, 0.0)
        if encoder.transform == "log":
            x = (x.clamp(min=0.0) + 1.0).log()
        elif encoder.transform == "quantile" and len(encoder.knots):
            x = self.get_submodule(f"quantile_{number}")(x[None])[0]
        scaled = ((x - encoder.mean) / encoder.scale).clamp(-FARTHEST, FARTHEST)
        columns = [torch.where(there, scaled, 0.0)]
        if encoder.field.width == 2:
            columns.append(1.0 - there.double())
        return torch.stack(columns, dim=1).float(), (given == -torch.inf)[:, None]

    def _codes(self, encoder: CodeEncoder, given: Tensor) -> tuple[Tensor, Tensor]:
        """Codes ``[n, width]``, and whether they are left out ``[n, 1]``."""
        field = encoder.field
        inside = torch.where((given >= 0) & (given < field.size), given, OTHER_CODE)
        if field.kind != "bag":
            return inside[:, None], (given == ABSENT_CODE)[:, None]
        padding = torch.full_like(given[:, :1], PAD).expand(-1, field.width)
        codes = torch.cat([torch.where(given < 0, PAD, inside), padding], dim=1)[:, : field.width]
        empty = torch.where(codes.amax(1) < 0, _nothing(encoder), codes[:, 0])
        absent = (torch.cat([given, padding], dim=1) == ABSENT_CODE).any(1)
        return torch.cat([empty[:, None], codes[:, 1:]], dim=1), absent[:, None]

    def _may_be_absent(self, encoder: Encoder) -> bool:
        return self.form == "raw" and encoder.feature.role in ROLES_OF_IDS

    def _keep_tables(self, number: int, encoder: Encoder) -> None:
        """Keep what was known of a feature in training, and how its numbers are transformed."""
        name, role = encoder.feature.name, encoder.feature.role
        if self._may_be_absent(encoder):
            assert self.encoders is not None
            assert role is not None
            trained = self.encoders.table_columns(role, np.arange(self.schema[role].size))[name]
            dtype = np.float32 if encoder.field.kind == "number" else np.int64
            self.register_buffer(f"trained_{number}", torch.from_numpy(trained.astype(dtype)))
        if isinstance(encoder, NumberEncoder) and encoder.transform == "quantile" and len(encoder.knots):
            self.add_module(f"quantile_{number}", Pieces([interpolation(*quantile_line(encoder.knots))]))

    def _add(self, wanted: Input, **facts: Any) -> None:
        self.inputs.append(wanted)
        self.described.append({"name": wanted.name, **facts})

    def _add_id(self, role: str, known: Vocabulary) -> None:
        if self.form == "codes":
            self._add(Input(role, np.int64), holds="codes", column=known.name)
            return
        if known.buckets:
            raise ParameterError(
                f"{known.buckets:,} codes of '{known.name}' are shared by a hash of ids, which ONNX lacks",
                remedy="export with codes (--inputs codes), and make them with the vocabulary's encode",
            )
        ids = known.ids.tolist()
        text = known.ids.dtype.kind == "T"
        facts = {"holds": "text"} if text else {"holds": "integer", "unseen": _free(int(WHOLE.max), ids)}
        dtype: Any = object if text else np.int64
        self._add(Input(role, dtype, None, ids, range(len(ids))), column=known.name, **facts)

    def _add_feature(self, encoder: Encoder) -> None:
        field, feature = encoder.field, encoder.feature
        facts: dict[str, Any] = {"column": feature.source, "kind": feature.kind, "role": feature.role}
        if isinstance(feature, TimePart):
            facts["part"] = feature.part
        if field.kind == "bag":
            facts["width"] = field.width
        columns = f"values of {field.name}" if field.kind == "bag" else None
        if self.form == "codes" or (isinstance(encoder, CodeEncoder) and encoder.buckets is not None):
            facts["encoder"] = encoder.to_dict()
        if isinstance(encoder, NumberEncoder):
            given, facts["holds"] = Input(field.name, np.float64), "number"
            if self.form == "codes":
                given, facts["holds"] = Input(field.name, np.float32, field.width), "scaled"
            facts["missing"] = "NaN"
            absent: Any = "-Infinity"
        elif "encoder" in facts:
            given = Input(field.name, np.int64, columns)
            facts |= {"holds": "codes", "missing": PAD}
            absent = ABSENT_CODE
        else:
            assert isinstance(encoder, CodeEncoder)
            given, values = _looked_up(encoder, columns)
            absent = values.pop("absent")
            facts |= values
        if self._may_be_absent(encoder):
            facts["absent"] = absent
        self._add(given, **facts)


def _looked_up(encoder: CodeEncoder, columns: str | None) -> tuple[Input, dict[str, Any]]:
    """Return an input of texts or, where all values are whole numbers, of these; and its special values."""
    texts: list[Any] = encoder.vocabulary.tolist()
    keys = _whole(texts)
    nothing = PAD if encoder.field.kind == "bag" else _nothing(encoder)
    codes = [*range(FIRST_CODE, FIRST_CODE + len(texts)), nothing, ABSENT_CODE]
    if keys is None:
        missing = _free("", texts)
        absent = _free("?", [*texts, missing])
        given = Input(encoder.field.name, object, columns, [*texts, missing, absent], codes, OTHER_CODE)
        return given, {"holds": "text", "missing": missing, "absent": absent}
    least, most = int(WHOLE.min), int(WHOLE.max)
    given = Input(encoder.field.name, np.int64, columns, [*keys, least, least + 1], codes, OTHER_CODE)
    return given, {"holds": "integer", "missing": least, "absent": least + 1, "unseen": most}


def rows_read(values: Columns, encoders: Encoders | None) -> tuple[Rows, Tensor | None]:
    """Return rows ``[1, n]`` as a model reads them, and which it knows, for one that reads the ids alone."""
    if encoders is None:
        known = (values["user"] >= 0) & (values["item"] >= 0)
        # An index of −1 would be somebody else's row.
        return Rows(**{role: torch.where(known, values[role], 0)[None] for role in ROLES_OF_IDS}), known
    rows: dict[str, Tensor] = {role: values[f"{role}_owner"][None] for role in ROLES_OF_IDS}
    for name, numbers in (("codes", False), ("numbers", True)):
        fields = [each.name for each in encoders.schema.features if (each.kind == "number") == numbers]
        if fields:
            rows[name] = torch.cat([values[each] for each in fields], dim=1)[None]
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
