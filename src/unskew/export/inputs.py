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

from unskew.errors import ParameterError, UnskewError
from unskew.export.calibrators import Pieces, interpolation
from unskew.io.vocabulary import UNSEEN_CODE, Vocabulary
from unskew.log import Encoders, Field, Rows, Schema
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

ROLES_OF_IDS: tuple[Role, ...] = ("user", "item")

ABSENT_CODE = PAD - 1
"""The code of a value that a request leaves out, for which the value of training stands in."""

Columns = Mapping[str, Tensor]


class LookUp(NamedTuple):
    """The code of each text or whole number, and the one of all others."""

    keys: Sequence[str] | Sequence[int]
    codes: Sequence[int]
    otherwise: int


class Input(NamedTuple):
    """What a request holds: ``[n]`` values of a type (text is ``object``), or ``[n, columns]``."""

    name: str
    dtype: Any
    columns: int | str | None
    look_up: LookUp | None


class Inputs(nn.Module):
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
        further: Sequence[str] = (),
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
            if self._may_be_absent(encoder):
                assert encoders is not None
                assert encoder.feature.role is not None
                size = self.schema[encoder.feature.role].size
                trained = encoders.table_columns(encoder.feature.role, np.arange(size))[encoder.feature.name]
                dtype = np.float32 if encoder.field.kind == "number" else np.int64
                self.register_buffer(f"trained_{number}", torch.from_numpy(trained.astype(dtype)))
            if isinstance(encoder, NumberEncoder) and encoder.transform == "quantile" and len(encoder.knots):
                self.add_module(f"quantile_{number}", Pieces([interpolation(*quantile_line(encoder.knots))]))
        for name in self.further:
            facts = {"missing": "NaN", "column": name, "kind": "number", "role": "row"}
            self._add(Input(name, np.float64, None, None), holds="number", **facts)

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

    def _add(self, wanted: Input, **facts: Any) -> None:
        self.inputs.append(wanted)
        self.described.append({"name": wanted.name, **facts})

    def _add_id(self, role: str, known: Vocabulary) -> None:
        if self.form == "codes":
            self._add(Input(role, np.int64, None, None), holds="codes", column=known.name)
            return
        if known.buckets:
            raise ParameterError(
                f"{known.buckets:,} codes of '{known.name}' are shared by a hash of ids, which ONNX lacks",
                remedy="export with codes (--inputs codes), and make them with the vocabulary's encode",
            )
        ids = known.ids.tolist()
        text = known.ids.dtype.kind == "T"
        taken = set() if text else set(ids)
        unseen = next(number for number in range(int(WHOLE.max), 0, -1) if number not in taken)
        look_up = LookUp(ids, range(len(ids)), UNSEEN_CODE)
        facts = {"holds": "text"} if text else {"holds": "integer", "unseen": unseen}
        self._add(Input(role, object if text else np.int64, None, look_up), column=known.name, **facts)

    def _add_feature(self, encoder: Encoder) -> None:
        field, name = encoder.field, encoder.field.name
        columns = f"values of {name}" if field.kind == "bag" else None
        if isinstance(encoder, NumberEncoder):
            if self.form == "codes":
                scaled = Input(name, np.float32, field.width, None)
                self._add(scaled, holds="scaled", encoder=encoder.to_dict())
                return
            number = Input(name, np.float64, None, None)
            self._add(number, holds="number", missing="NaN", **self._facts(encoder, "-Infinity"))
            return
        assert isinstance(encoder, CodeEncoder)
        if self.form == "codes" or encoder.buckets is not None:
            facts = {"encoder": encoder.to_dict(), "missing": PAD, **self._facts(encoder, ABSENT_CODE)}
            self._add(Input(name, np.int64, columns, None), holds="codes", **facts)
            return
        texts: list[Any] = encoder.vocabulary.tolist()
        whole = _whole(texts)
        missing: Any = WHOLE.min if whole else _free("", texts)
        absent: Any = WHOLE.min + 1 if whole else _free("?", [*texts, missing])
        nothing = PAD if field.kind == "bag" else _nothing(encoder)
        look_up = LookUp(
            [*(whole or texts), missing, absent],
            [*range(FIRST_CODE, FIRST_CODE + len(texts)), nothing, ABSENT_CODE],
            OTHER_CODE,
        )
        unseen = {"unseen": int(WHOLE.max)} if whole else {}
        self._add(
            Input(name, np.int64 if whole else object, columns, look_up),
            holds="integer" if whole else "text",
            missing=int(missing) if whole else missing,
            **unseen,
            **self._facts(encoder, int(absent) if whole else absent),
        )

    def _facts(self, encoder: Encoder, absent: Any) -> dict[str, Any]:
        """Return what a server must know of a feature to fill its input."""
        feature = encoder.feature
        return {
            "column": feature.source,
            "kind": feature.kind,
            "role": feature.role,
            **({"part": feature.part} if isinstance(feature, TimePart) else {}),
            **({"width": encoder.field.width} if feature.kind == "bag" else {}),
            **({"absent": absent} if self._may_be_absent(encoder) else {}),
        }


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


def require_free_names(inputs: Inputs, outputs: Sequence[str]) -> None:
    """Raise an error where a feature has the name of an output."""
    for given in inputs.inputs:
        if given.name in outputs:
            raise UnskewError(
                f"the feature '{given.name}' has the name of the output",
                remedy="rename the column and train again",
            )


def field_columns(values: Columns, field: Field) -> Tensor:
    """Return a feature as segments are read of it: codes, or scaled numbers with NaN where missing."""
    columns = values[field.name]
    if field.kind == "number" and field.width == 2:
        return torch.where(columns[:, 1] > 0, torch.nan, columns[:, 0])
    return columns[:, 0]


def _free(text: str, taken: Sequence[str]) -> str:
    """Return a text that is none of those that are taken."""
    while text in taken:
        text += "-"
    return text


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
