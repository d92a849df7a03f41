"""The shared part of networks with features: one look-up for all fields, and the layers above it.

The codes of all fields of one embedding width are rows of one table, a field after another; unless fields
have a ``dim`` of their own there is one width, and one look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from unskew.base.estimator import require, require_at_least, require_in
from unskew.base.tensors import Tensor, nn, torch
from unskew.data import Field, Rows, Schema
from unskew.learners.layers import (
    Initialiser,
    ReplicaDropout,
    ReplicaEmbedding,
    ReplicaLinear,
    fan_in_uniform,
)
from unskew.learners.network import Blueprint, Embedded, Network
from unskew.learners.noise import Noise

if TYPE_CHECKING:
    from jaxtyping import Float, Int

NARROWEST, WIDEST = 8, 32
ID_SHARE = 0.1
"""Standard deviation of the initial embeddings of ids, relative to that of other fields."""

DROP = 0.05
"""Share of the codes that are replaced by "other" in training, so that it stands for anybody."""


def embedding_width(schema: Schema) -> int:
    """4·n^¼ for the largest vocabulary n, as a multiple of 4 from 8 to 32: 12 for 100 ids, 32 for 10⁴.

    Examples
    --------
    >>> embedding_width(Schema.of_ids(290, 300)), embedding_width(Schema.of_ids(10**6, 10**5))
    (16, 32)
    """
    largest = max(field.size for field in schema)
    return int(min(max(4 * round(largest**0.25), NARROWEST), WIDEST))


def require_tower(layers: Sequence[int], dropout: float, dim: int | None, drop: float) -> None:
    """Raise for parameters that no such network can have."""
    require_at_least(1, dim=dim)
    require(
        bool(layers) and all(width >= 1 for width in layers),
        f"layers must be widths of at least 1, not {layers}",
        "give layers=(64, 32)",
    )
    require_in("[0, 1)", dropout=dropout, drop=drop)


class FieldEmbeddings(nn.Module):
    """Embeddings of all fields with codes, those of one width from one table ``[R, codes, width]``.

    In training a share ``drop`` of the codes is replaced by the field's "other", each on its own, by the
    replica's own noise; where the schema has no "other" nothing is.

    Parameters
    ----------
    dim
        Width of the fields that have none of their own; None for :func:`embedding_width`.
    extra
        Further columns of each code, which start at zero.
    """

    def __init__(
        self, plan: Blueprint, dim: int | None, init_std: float, drop: float, extra: int = 0
    ) -> None:
        super().__init__()
        schema = plan.schema
        self.noise: Noise = plan.noise
        self.drop = drop if schema.user.unknown == "other" else 0.0
        fields = [schema.user, schema.item, *(field for field in schema.features if not field.is_number)]
        self.dim = dim or embedding_width(schema)
        widths = {field.name: field.dim or self.dim for field in fields}
        table_of = {field.name: field.share or field.name for field in fields}
        groups = dict.fromkeys(widths[table_of[field.name]] for field in fields)
        starts = _starts(fields)
        self.tables = nn.ModuleList()
        self.groups: list[tuple[list[Field], bool]] = []
        for number, width in enumerate(groups):
            mine = [field for field in fields if widths[table_of[field.name]] == width]
            offsets: dict[str, int] = {}
            total = 0
            for field in mine:
                if table_of[field.name] == field.name:
                    offsets[field.name], total = total, total + field.size
            table = Field("fields", "category", "row", total)
            ids = [
                slice(offsets[field.name], offsets[field.name] + field.size)
                for field in mine
                if field.kind == "id"
            ]
            start = embeddings(init_std, ids, extra)
            embedding = ReplicaEmbedding(table, width + extra, start, plan.generators)
            embedding.rows_of = {
                field.name: slice(offsets[field.name], offsets[field.name] + field.size)
                for field in mine
                if field.name in offsets
            }
            self.tables.append(embedding)
            self.groups.append((mine, len(mine) == len(fields)))
            places = [starts[field.name] + slot for field in mine for slot in range(field.width)]
            self.register_buffer(f"places_{number}", torch.tensor(places), persistent=False)
            per_slot = [offsets[table_of[field.name]] for field in mine for _ in range(field.width)]
            self.register_buffer(f"offsets_{number}", torch.tensor(per_slot), persistent=False)
        others = [field.size - 1 if field.kind == "id" else 0 for field in fields for _ in range(field.width)]
        self.register_buffer("others", torch.tensor(others), persistent=False)
        self.widths = [
            (width + extra) * len(mine) for width, (mine, _) in zip(groups, self.groups, strict=True)
        ]

    def codes(self, rows: Rows) -> Int[Tensor, "_ B S"]:
        """Return the codes of all fields, ids first; in training some are replaced."""
        codes = torch.stack((rows.user, rows.item), dim=-1)
        if "codes" in rows:
            codes = torch.cat((codes, rows["codes"]), dim=-1)
        if not self.training or self.drop == 0.0:
            return codes
        replicas = len(self.noise.seeds)
        stays = self.noise.keep_mask((replicas, *codes.shape[1:]), self.drop, torch.float32) > 0
        return torch.where(stays | (codes < 0), codes, self.get_buffer("others"))

    def forward(self, rows: Rows) -> list[Tensor]:
        """``[R, B, fields, width]`` for each width, bags pooled."""
        codes = self.codes(rows)
        return [self._looked_up(codes, number) for number in range(len(self.tables))]

    def flat(self, rows: Rows, numbers: Tensor | None) -> Float[Tensor, "R B F"]:
        """Return all embeddings and the numbers of rows, side by side."""
        codes = self.codes(rows)
        parts = [self._looked_up(codes, number).flatten(2) for number in range(len(self.tables))]
        if numbers is not None:
            parts.append(numbers.to(parts[0].dtype).expand(len(parts[0]), *numbers.shape[1:]))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def _looked_up(self, codes: Tensor, number: int) -> Tensor:
        fields, everything = self.groups[number]
        if not everything:
            codes = codes.index_select(-1, self.get_buffer(f"places_{number}"))
        index = codes.clamp(min=0) + self.get_buffer(f"offsets_{number}")
        vectors = cast(Tensor, self.tables[number](index.flatten(1)))
        slots = [each.width for each in fields]
        vectors = vectors.view(len(vectors), -1, sum(slots), vectors.shape[-1])
        if max(slots) == 1:
            return vectors
        parts = [
            part if each.kind != "bag" else pooled(part, code >= 0, each.pool)
            for each, part, code in zip(
                fields, torch.split(vectors, slots, dim=2), torch.split(codes, slots, dim=-1), strict=True
            )
        ]
        return torch.cat(parts, dim=2)


def _starts(fields: Sequence[Field]) -> dict[str, int]:
    """Return the first column of each field among all codes."""
    starts, column = {}, 0
    for field in fields:
        starts[field.name] = column
        column += field.width
    return starts


def pooled(values: Float[Tensor, "R B S F"], there: Tensor, pool: str) -> Float[Tensor, "R B 1 F"]:
    """Return the mean, sum or maximum over the slots that hold something; a bag holds at least one value."""
    mask = there.unsqueeze(-1)
    if pool == "max":
        return values.masked_fill(~mask, -torch.inf).amax(2, keepdim=True)
    total = (values * mask).sum(2, keepdim=True)
    return total if pool == "sum" else total / mask.sum(2, keepdim=True)


def embeddings(init_std: float, ids: Sequence[slice], extra: int) -> Initialiser:
    """N(0, init_std²), the rows of ids at a tenth of it, and the last columns at zero.

    Values of features are seen often and soon have embeddings of their own; an id that is seen a few times
    keeps much of what it started as, which would be noise to every prediction.
    """

    def fill(weight: Tensor, generator: torch.Generator) -> None:
        width = weight.shape[1] - extra
        drawn = weight.new_empty(len(weight), width) if extra else weight
        drawn.normal_(0.0, init_std, generator=generator)
        for rows in ids:
            drawn[rows] *= ID_SHARE
        if extra:
            weight[:, :width] = drawn
            weight[:, width:] = 0.0

    return fill


class FlatFields(nn.Module):
    """x₀ = [embeddings of all fields ; numbers] ``[R, B, width]``."""

    def __init__(self, plan: Blueprint, dim: int | None, init_std: float, drop: float) -> None:
        super().__init__()
        self.fields = FieldEmbeddings(plan, dim, init_std, drop)
        self.numbers = number_columns(plan.schema)
        self.width = sum(self.fields.widths) + self.numbers

    def forward(self, rows: Rows) -> Float[Tensor, "R B F"]:
        """Look up and join."""
        return self.fields.flat(rows, rows["numbers"] if self.numbers else None)


def number_columns(schema: Schema) -> int:
    """Count the columns of numbers, with those that mark what is missing."""
    return sum(each.width for each in schema.features if each.is_number)


def numbers_of(rows: Rows, like: Tensor) -> Float[Tensor, "R B N"]:
    """Return the numbers of rows, for each replica."""
    numbers = rows["numbers"]
    return numbers.to(like.dtype).expand(len(like), *numbers.shape[1:])


class Hidden(nn.Module):
    """Dropout → Linear → ReLU, layer by layer."""

    def __init__(self, widths: Sequence[int], dropout: float, plan: Blueprint) -> None:
        super().__init__()
        self.dropouts = nn.ModuleList(ReplicaDropout(dropout, plan.noise) for _ in widths[1:])
        self.layers = nn.ModuleList(ReplicaLinear(i, o, plan.generators) for i, o in pairwise(widths))

    def forward(self, x: Float[Tensor, "R B F"]) -> Float[Tensor, "R B G"]:
        """``[R, B, in]`` → ``[R, B, out]``."""
        for dropout, linear in zip(self.dropouts, self.layers, strict=True):
            x = torch.relu(linear(dropout(x)))
        return x


class FieldNetwork(Network):
    """A network whose towers end in a ``head``.

    Its embeddings start at random and large enough to matter, so that it orders rows at random before it has
    learned anything. On the way from one half to a rare rate that order is what the level is learned through,
    and a validation loss can have its least value there; so the level is right from the start.
    """

    def start_at(self, tower: str, logit: Float[Tensor, " R"]) -> None:
        """Add the logit to the bias of the tower's head."""
        # A ReplicaLinear, or that of several members: [R, 1, 1] or [R, members, 1].
        bias = self.get_parameter(f"tower.{tower}.head.bias")
        with torch.no_grad():
            bias.add_(logit.to(bias).view(-1, 1, 1))


class FlatNetwork(FieldNetwork):
    """Towers that read x₀, all fields of a row side by side; ``tower`` makes one for the width of x₀."""

    def __init__(self, plan: Blueprint, inputs: FlatFields, tower: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.noise = plan.noise
        self.inputs = inputs
        self.tower = nn.ModuleDict({name: tower(inputs.width) for name in plan.towers})

    def embed(self, rows: Rows) -> Embedded:
        """x₀."""
        return (self.inputs(rows),)

    def read(self, embedded: Embedded, tower: str) -> Float[Tensor, "R B"]:
        """Return the logit of one tower."""
        logit: Tensor = self.tower[tower](*embedded)
        return logit


def head(fan_in: int, plan: Blueprint) -> ReplicaLinear:
    """Return the last layer, to one logit."""
    default = fan_in_uniform(fan_in)
    return ReplicaLinear(fan_in, 1, plan.generators, weight=default, bias=default)


class Tower(nn.Module):
    """An MLP, beside crosses x_{l+1} = x₀ ⊙ (x_l W_l + b_l) + x_l if there are any, and a head over both."""

    def __init__(
        self, width: int, layers: Sequence[int], dropout: float, plan: Blueprint, crosses: int = 0
    ) -> None:
        super().__init__()
        self.crosses = nn.ModuleList(ReplicaLinear(width, width, plan.generators) for _ in range(crosses))
        self.mlp = Hidden((width, *layers), dropout, plan)
        self.head = head(layers[-1] + (width if crosses else 0), plan)

    def forward(self, x: Float[Tensor, "R B F"]) -> Float[Tensor, "R B"]:
        """``[R, B, in]`` → logits ``[R, B]``."""
        crossed = x
        for layer in self.crosses:
            crossed = torch.addcmul(crossed, x, layer(crossed))
        hidden = self.mlp(x)
        logit: Tensor = self.head(torch.cat((crossed, hidden), dim=-1) if len(self.crosses) else hidden)
        return logit.squeeze(-1)
