"""Backbones as ONNX: from the fields of rows to the logits of all replicas. Knows nothing of calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.backbones import (
    DCN,
    MF,
    MLP,
    Backbone,
    BatchEnsemble,
    Custom,
    DeepFM,
    Intercept,
    MMoE,
    Network,
    NeuMF,
)
from unskew.backbones.fields import FieldEmbeddings
from unskew.errors import UnskewError
from unskew.export.graph import Value
from unskew.export.inputs import GraphInputs
from unskew.log import Field

Weights = Mapping[str, NDArray[np.float32]]


class Table(NamedTuple):
    """One table of a network with features: where its weights are, its fields, and the row each starts at."""

    path: str
    fields: Sequence[Field]
    starts: Sequence[int]


@dataclass(frozen=True)
class Layers:
    """The trained layers of R replicas of M members: every value is ``[R, M, n, width]``.

    Members of a :class:`~unskew.backbones.BatchEnsemble` share the large weights and have vectors of their
    own; other networks have M = 1.
    """

    inputs: GraphInputs
    weights: Weights
    tables: Sequence[Table]
    """Where the codes of fields are looked up; empty for a network that reads the ids alone."""
    dim: int
    """Of the embeddings of fields that have none of their own; 0 where there are no such tables."""
    replicas: int
    members: int
    tower: str
    place: int
    """The tower's number among those of its network."""
    constants: dict[tuple[str, int | None, int | None], Value] = field(default_factory=dict)
    """Tables that are in the graph, each once."""

    def rows(self, table: str, columns: slice) -> Value:
        """Some columns of the rows of an id's table."""
        return self._taken(table, self.inputs.fields[table], columns)

    def embedded(self, columns: slice = slice(None)) -> list[Value]:
        """Some columns of the embeddings of all fields with codes, bags pooled, in the network's order."""
        found = []
        for table in self.tables:
            for each, start in zip(table.fields, table.starts, strict=True):
                codes = self.inputs.fields[each.name]
                if each.kind == "bag":
                    rows = self._taken(table.path, codes.maximum(0) + start, columns, axes=2)
                    found.append(_pooled(rows, codes >= 0, each.pool))
                else:
                    found.append(self._taken(table.path, codes + start, columns))
        return found

    def numbers(self) -> Value | None:
        """All columns of numbers ``[n, columns]``; None where there are none."""
        parts = [
            self.inputs.fields[each.name] for each in self.inputs.schema.features if each.kind == "number"
        ]
        return reduce(Value.concatenated, parts) if parts else None

    def joined(self, embedded: Sequence[Value]) -> Value:
        """x₀ = [embeddings of all fields ; numbers]."""
        parts, numbers = list(embedded), self.numbers()
        if numbers is not None:
            parts.append(numbers + np.zeros((self.replicas, self.members, 1, 1)))
        return reduce(Value.concatenated, parts)

    def linear(self, name: str, x: Value) -> Value:
        """The tower's layer of that name."""
        return self.layer(f"tower.{self.tower}.{name}", x)

    def layer(self, path: str, x: Value) -> Value:
        """x W + b; for members ((x ∘ r) W) ∘ s + b."""
        weight, bias = self.weights[f"{path}.weight"], self.weights[f"{path}.bias"]
        members = self.weights.get(f"{path}.input_side")
        if members is None:
            return x @ weight[:, None] + bias[:, None]
        output = self.weights[f"{path}.output_side"]
        return (x * members[:, :, None]) @ weight[:, None] * output[:, :, None] + bias[:, :, None]

    def hidden(self, path: str, x: Value, layers: int) -> Value:
        """Linear → ReLU, layer by layer."""
        for number in range(layers):
            x = self.layer(f"{path}.layers.{number}", x).relu()
        return x

    def tower_of(self, x: Value, layers: int) -> Value:
        """The tower's MLP."""
        return self.hidden(f"tower.{self.tower}.mlp", x, layers)

    def vector(self, name: str) -> NDArray[np.float32] | None:
        """A tower's parameter ``[R, 1, 1, width]``; None where the network has none."""
        value = self.weights.get(f"{name}.{self.tower}")
        return None if value is None else value.reshape(len(value), 1, 1, -1)

    def _taken(self, path: str, code: Value, columns: slice, axes: int = 1) -> Value:
        """T[code], for members times their s; codes have so many axes."""
        shared = self.weights.get(f"{path}.shared.weight")
        weight = self.weights[f"{path}.weight"] if shared is None else shared
        key = (path, columns.start, columns.stop)
        if key not in self.constants:
            table = np.ascontiguousarray(weight[:, None, :, columns])
            self.constants[key] = self.inputs.graph.constant(table)
        rows = self.constants[key].take(code, axis=2)
        if shared is None:
            return rows
        side = self.weights[f"{path}.output_side"][..., columns]
        return rows * side.reshape(*side.shape[:2], *(1,) * axes, -1)


def _pooled(rows: Value, there: Value, pool: str) -> Value:
    """``[R, M, n, values, width]`` → ``[R, M, n, width]`` over the values that are there."""
    mask = there.unsqueeze(-1)
    if pool == "max":
        return mask.where(rows, -np.inf, np.float32).largest(3)
    total = (rows * mask.cast(np.float32)).sum(3)
    return total if pool == "sum" else total / there.cast(np.float32).sum(1, keep=True)


def replica_logits(network: Network, backbone: Backbone, inputs: GraphInputs, tower: str) -> Value:
    """Logits ``[R, M, n]`` of one tower of a trained network; without dropout, as in ``eval`` mode.

    Parameters
    ----------
    backbone
        What built the network.
    """
    base = backbone.base if type(backbone) is BatchEnsemble else backbone
    form = FORMS.get(type(base))
    if form is None:
        kind = "a module of your own" if isinstance(base, Custom) else f"the backbone {base.name!r}"
        raise UnskewError(
            f"{kind} has no ONNX form here",
            remedy=f"train with one of {', '.join(each.__name__ for each in FORMS)}, or write the module"
            " yourself with torch.onnx.export",
        )
    state = {name: value.detach().float().cpu().numpy() for name, value in network.state_dict().items()}
    layers = Layers(
        inputs,
        state,
        *_tables(network),
        network.replicas,
        network.members,
        tower,
        network.towers.index(tower),
    )
    return form(layers, base)


def _tables(network: Network) -> tuple[list[Table], int]:
    """The tables of a network that reads features, in the order of its look-ups, and their dimension."""
    found = [
        (name, module) for name, module in network.named_modules() if isinstance(module, FieldEmbeddings)
    ]
    tables, dim = [], 0
    for name, module in found:
        dim = module.dim
        for number, (fields, _) in enumerate(module.groups):
            # One offset for each column; a bag's are all the same.
            offsets = module.get_buffer(f"offsets_{number}").tolist()
            first = np.cumsum([0, *(each.width for each in fields[:-1])])
            tables.append(Table(f"{name}.tables.{number}", fields, [offsets[place] for place in first]))
    return tables, dim


def _neumf(layers: Layers, backbone: Any) -> Value:
    """w · [x_u ⊙ y_i ; MLP([x'_u ; y'_i])] + b."""
    gmf, mlp = slice(None, backbone.dim), slice(backbone.dim, None)
    product = layers.rows("user", gmf) * layers.rows("item", gmf)
    hidden = layers.rows("user", mlp).concatenated(layers.rows("item", mlp))
    for number in range(len(backbone.layers)):
        hidden = layers.linear(f"mlp.{number}", hidden).relu()
    return layers.linear("head", product.concatenated(hidden)).squeeze(-1)


def _mf(layers: Layers, backbone: Any) -> Value:
    """Σ_d w_d x_ud y_id + b_u + b_i + b; the towers' biases are the last columns of the tables."""
    first = backbone.dim + layers.place
    embedding, bias = slice(None, backbone.dim), slice(first, first + 1)
    product = layers.rows("user", embedding) * layers.rows("item", embedding)
    scale = layers.vector("scale")
    if scale is not None:
        product = product * scale
    biases = layers.rows("user", bias) + layers.rows("item", bias)
    return (product.sum(3, keep=True) + biases + layers.vector("offset")).squeeze(-1)


def _intercept(layers: Layers, backbone: Any) -> Value:
    """b, for every pair."""
    offset = layers.vector("offset")
    assert offset is not None
    return layers.inputs.graph.constant(offset[..., 0]).like(layers.inputs.fields["user"])


def _mlp(layers: Layers, backbone: Any) -> Value:
    """w · MLP(x₀) + b."""
    hidden = layers.tower_of(layers.joined(layers.embedded()), len(backbone.layers))
    return layers.linear("head", hidden).squeeze(-1)


def _dcn(layers: Layers, backbone: Any) -> Value:
    """w · [ x_L ; MLP(x₀) ] + b, with x_{l+1} = x₀ ⊙ (x_l W_l + b_l) + x_l."""
    x = crossed = layers.joined(layers.embedded())
    for number in range(backbone.crosses):
        crossed = x * layers.linear(f"crosses.{number}", crossed) + crossed
    hidden = layers.tower_of(x, len(backbone.layers))
    return layers.linear("head", crossed.concatenated(hidden)).squeeze(-1)


def _deepfm(layers: Layers, backbone: Any) -> Value:
    """Σ_f a_f + Σ_{f < g} ⟨v_f, v_g⟩ + w · MLP([ v ; numbers ]) + b; a are the last columns of the tables."""
    dim = layers.dim
    embedding, own = slice(None, dim), slice(dim + layers.place, dim + layers.place + 1)
    v = layers.embedded(embedding)
    total, squares = reduce(add, v), reduce(add, [each * each for each in v])
    first = reduce(add, layers.embedded(own))
    numbers = layers.numbers()
    if numbers is not None:
        weight = layers.weights["numbers"][:, None]
        total = total + numbers @ weight[..., embedding]
        squares = squares + (numbers * numbers) @ (weight[..., embedding] ** 2)
        first = first + numbers @ weight[..., own]
    products = (total * total - squares) * 0.5
    scale = layers.vector("scale")
    if scale is not None:
        products = products * scale
    hidden = layers.tower_of(layers.joined(v), len(backbone.layers))
    return (layers.linear("head", hidden) + products.sum(3, keep=True) + first).squeeze(-1)


def _mmoe(layers: Layers, backbone: Any) -> Value:
    """w · MLP( Σ_e g_e(x₀) · expert_e(x₀) ) + b, with g = softmax(x₀ G)."""
    x = layers.joined(layers.embedded())
    share = layers.linear("gate", x).softmax()
    mixed = [
        layers.hidden(f"experts.{number}", x, len(backbone.expert_layers))
        * share.take(layers.inputs.graph.constant([number]), axis=3)
        for number in range(backbone.experts)
    ]
    hidden = layers.tower_of(reduce(add, mixed), len(backbone.layers))
    return layers.linear("head", hidden).squeeze(-1)


Form = Callable[[Layers, Any], Value]

FORMS: dict[type[Backbone], Form] = {
    NeuMF: _neumf,
    MF: _mf,
    Intercept: _intercept,
    DCN: _dcn,
    DeepFM: _deepfm,
    MLP: _mlp,
    MMoE: _mmoe,
}
"""What each kind of backbone computes; a subclass may compute something else, so it is not looked up."""
