"""Backbones as ONNX: from the fields of rows to the logits of all replicas. Knows nothing of calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.backbones import MF, Backbone, BatchEnsemble, Custom, Intercept, Network, NeuMF
from unskew.errors import UnskewError
from unskew.export.graph import Graph, Value

Weights = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Layers:
    """The trained layers of R replicas of M members: every value is ``[R, M, n, width]``.

    Members of a :class:`~unskew.backbones.BatchEnsemble` share the large weights and have vectors of their
    own; other networks have M = 1.
    """

    graph: Graph
    fields: Mapping[str, Value]
    """Codes ``[n]`` that the tables have, by the field of the schema."""
    weights: Weights
    tower: str
    place: int
    """The tower's number among those of its network."""

    def rows(self, table: str, columns: slice) -> Value:
        """Some columns of the rows of a field's table: T[code], for members times their s."""
        code, shared = self.fields[table], self.weights.get(f"{table}.shared.weight")
        if shared is None:
            return self._table(self.weights[f"{table}.weight"], columns).take(code, axis=2)
        rows = self._table(shared, columns).take(code, axis=2)
        return rows * self.weights[f"{table}.output_side"][:, :, None, columns]

    def linear(self, name: str, x: Value) -> Value:
        """x W + b; for members ((x ∘ r) W) ∘ s + b."""
        path = f"tower.{self.tower}.{name}"
        weight, bias = self.weights[f"{path}.weight"], self.weights[f"{path}.bias"]
        members = self.weights.get(f"{path}.input_side")
        if members is None:
            return x @ weight[:, None] + bias[:, None]
        output = self.weights[f"{path}.output_side"]
        return (x * members[:, :, None]) @ weight[:, None] * output[:, :, None] + bias[:, :, None]

    def vector(self, name: str) -> NDArray[np.float32] | None:
        """A tower's parameter ``[R, 1, 1, width]``; None where the network has none."""
        value = self.weights.get(f"{name}.{self.tower}")
        return None if value is None else value.reshape(len(value), 1, 1, -1)

    def _table(self, weight: NDArray[np.float32], columns: slice) -> Value:
        return self.graph.constant(np.ascontiguousarray(weight[:, None, :, columns]))


def replica_logits(
    network: Network, backbone: Backbone, graph: Graph, fields: Mapping[str, Value], tower: str
) -> Value:
    """Logits ``[R, M, n]`` of one tower of a trained network; without dropout, as in ``eval`` mode.

    Parameters
    ----------
    backbone
        What built the network.
    fields
        As in :class:`Layers`.
    """
    base = backbone.base if type(backbone) is BatchEnsemble else backbone
    form = FORMS.get(type(base))
    if form is None:
        kind = "a module of your own" if isinstance(base, Custom) else f"the backbone {base.name!r}"
        raise UnskewError(
            f"{kind} has no ONNX form here",
            remedy="train with NeuMF or MF, or write the module yourself with torch.onnx.export",
        )
    state = {name: value.detach().cpu().numpy() for name, value in network.state_dict().items()}
    return form(Layers(graph, fields, state, tower, network.towers.index(tower)), base)


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
    return (product.sum(-1, keep=True) + biases + layers.vector("offset")).squeeze(-1)


def _intercept(layers: Layers, backbone: Any) -> Value:
    """b, for every pair."""
    offset = layers.vector("offset")
    assert offset is not None
    return layers.graph.constant(offset[..., 0]).like(layers.fields["user"])


Form = Callable[[Layers, Any], Value]

FORMS: dict[type[Backbone], Form] = {NeuMF: _neumf, MF: _mf, Intercept: _intercept}
"""What each kind of backbone computes; a subclass may compute something else, so it is not looked up."""
