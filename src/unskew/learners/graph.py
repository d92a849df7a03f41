"""Fitted learners of tables as modules that torch can trace: the graph that an export to ONNX writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unskew.base.errors import UnskewError
from unskew.base.tensors import Tensor, nn, torch
from unskew.data import Rows, Schema
from unskew.learners.blend import Blend
from unskew.learners.encoded import BOTH, COUNTED, FIRST, Pair
from unskew.learners.learner import LEAST, TableLearner
from unskew.learners.linear import Linear
from unskew.learners.target_encoding import LEAST as LEAST_RATE
from unskew.learners.target_encoding import Encoding
from unskew.learners.trees import Trees


class LearnersGraph(nn.Module):
    """R fitted models: ``Rows [1, n] → logits [R, n]`` in float64, by operations that a graph has."""

    members = 1

    def __init__(self, models: Sequence[TableLearner], schema: Schema) -> None:
        super().__init__()
        fields = [schema.user, schema.item, *(each for each in schema.features if not each.is_number)]
        ends = np.cumsum([field.width for field in fields]).tolist()
        places = [(end - field.width, end, field.size) for end, field in zip(ends, fields, strict=True)]
        self.replicas = len(models)
        self.models = nn.ModuleList(_graph_of(model, places) for model in models)

    def embed(self, rows: Rows) -> tuple[Tensor, ...]:
        """Return the logits of all models."""
        codes = torch.stack((rows.user[0], rows.item[0]), dim=-1)
        if "codes" in rows:
            codes = torch.cat((codes, rows["codes"][0]), dim=-1)
        numbers = rows["numbers"][0].double() if "numbers" in rows else codes[:, :0].double()
        p = torch.stack([model(codes, numbers) for model in self.models]).clamp(LEAST, 1.0 - LEAST)
        return (_logit(p),)

    def read(self, embedded: tuple[Tensor, ...], tower: str) -> Tensor:
        """Return the logits."""
        return embedded[0]


Places = list[tuple[int, int, int]]
"""First and last column of the codes of each field, and how many codes it has."""


def _graph_of(model: TableLearner, places: Places) -> nn.Module:
    graph: nn.Module
    if isinstance(model, Blend):
        graph = _BlendGraph(model, places)
    elif isinstance(model, Linear):
        graph = _LinearGraph(model, places)
    elif isinstance(model, Trees):
        graph = _TreesGraph(model, places)
    else:
        raise UnskewError(
            f"{type(model).__name__} has no ONNX form here", remedy="use Trees(), Linear() or their Blend()"
        )
    return graph


class _Graph(nn.Module):
    """The probability of rows from codes ``[n, S]`` and numbers ``[n, k]``."""

    def __init__(self, model: TableLearner, places: Places) -> None:
        super().__init__()
        self.logits, self.places = model.errors_ == "ce", places

    def _hold(self, **arrays: Any) -> None:
        for name, values in arrays.items():
            self.register_buffer(name, torch.tensor(np.asarray(values)))

    def _mean(self, codes: Tensor, bounds: tuple[int, int, int], values: Tensor) -> Tensor:
        """Return the mean of a field's values, one for each code."""
        start, end, size = bounds
        own = codes[:, start:end]
        known = (own >= 0) & (own < size)
        shares = known.double() / known.sum(dim=1, keepdim=True).clamp(min=1)
        return (values[torch.where(known, own, 0)] * shares).sum(dim=1)

    def _answer(self, margin: Tensor) -> Tensor:
        return torch.sigmoid(margin) if self.logits else margin


class _BlendGraph(_Graph):
    def __init__(self, model: Blend, places: Places) -> None:
        super().__init__(model, places)
        self.learners = nn.ModuleList(_graph_of(learner, places) for learner in model.fitted_)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        predicted = [learner(codes, numbers).clamp(LEAST, 1.0 - LEAST) for learner in self.learners]
        margins = [_logit(p) if self.logits else p for p in predicted]
        return self._answer(torch.stack(margins).mean(dim=0))


class _LinearGraph(_Graph):
    def __init__(self, model: Linear, places: Places) -> None:
        super().__init__(model, places)
        effects = model.theta_[1:]
        codes, numbers = int(model.sizes_.sum()), len(model.mean_)
        ends = np.cumsum(model.sizes_)
        self.fields = len(ends)
        for at, (end, size) in enumerate(zip(ends, model.sizes_, strict=True)):
            self._hold(**{f"field_{at}": effects[end - size : end]})
        self._hold(
            intercept=model.theta_[0],
            mean=model.mean_,
            scale=model.scale_,
            slopes=effects[codes : codes + numbers],
            products=model.products_,
            of_products=effects[codes + numbers : codes + numbers + model.products_.shape[1]],
            edges=model.edges_,
            bins=effects[codes + numbers + model.products_.shape[1] :].reshape(-1, model.edges_.shape[1] + 1),
        )

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        intercept, mean, scale, slopes = map(self.get_buffer, ("intercept", "mean", "scale", "slopes"))
        scaled, (first, second) = (numbers - mean) / scale, self.get_buffer("products")
        both = scaled[:, first] * scaled[:, second] * self.get_buffer("of_products")
        margin = intercept + (scaled * slopes).sum(dim=1) + both.sum(dim=1)
        for at, bounds in enumerate(self.places):
            margin = margin + self._mean(codes, bounds, self.get_buffer(f"field_{at}"))
        bins = self.get_buffer("bins")
        for at in range(len(bins)):
            number_of_bin = (numbers[:, at : at + 1] > self.get_buffer("edges")[at]).sum(dim=1)
            margin = margin + bins[at][number_of_bin]
        return self._answer(margin)


class _TreesGraph(_Graph):
    def __init__(self, model: Trees, places: Places) -> None:
        super().__init__(model, places)
        self.prior, self.baseline = model.prior_, model.baseline_
        for at, (encoding, (_, _, size)) in enumerate(zip(model.encodings_, places, strict=True)):
            every = np.arange(size)
            self._hold(**{f"rate_{at}": encoding.known(every, model.prior_)})
            if size > COUNTED:
                self._hold(**{f"count_{at}": encoding.count(every)})
        self.pairs = nn.ModuleList(
            _PairGraph(pair, encoding, places[pair.second][2], model.prior_, logits=self.logits)
            for pair, encoding in zip(model.pairs_, model.pair_encodings_, strict=True)
        )
        self.paired = [(pair.first, pair.second) for pair in model.pairs_]
        starts = np.concatenate([[0], np.cumsum(model.tree_sizes_)[:-1]])
        start_of = np.repeat(starts, model.tree_sizes_)
        nodes, itself = model.nodes_, np.arange(len(start_of))
        leaf = nodes["is_leaf"].astype(bool)
        self._hold(
            roots=starts,
            feature=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int64),
            threshold=nodes["num_threshold"],
            left=np.where(leaf, itself, nodes["left"].astype(np.int64) + start_of),
            right=np.where(leaf, itself, nodes["right"].astype(np.int64) + start_of),
            value=nodes["value"],
        )
        self.depth = model.depth()

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        rates = [
            self._mean(codes, bounds, self.get_buffer(f"rate_{at}")) for at, bounds in enumerate(self.places)
        ]
        columns = []
        for at, bounds in enumerate(self.places):
            columns.append(rates[at])
            if bounds[2] > COUNTED:
                columns.append(self._mean(codes, bounds, self.get_buffer(f"count_{at}")))
        for (first, second), pair in zip(self.paired, self.pairs, strict=True):
            own = [codes[:, self.places[number][0]] for number in (first, second)]
            columns.append(pair(*own, rates[first], rates[second]))
        inputs = torch.cat((numbers, torch.stack(columns, dim=1)), dim=1)
        # Not by expand: a graph would keep the number of rows that it was traced with.
        node = self.get_buffer("roots") + torch.zeros_like(codes[:, :1])
        threshold, feature = self.get_buffer("threshold"), self.get_buffer("feature")
        for _ in range(self.depth):
            below = inputs.gather(1, feature[node]) <= threshold[node]
            node = torch.where(below, self.get_buffer("left")[node], self.get_buffer("right")[node])
        return self._answer(self.get_buffer("value")[node].sum(dim=1) + self.baseline)


class _PairGraph(nn.Module):
    """The encoding of two fields together, whose keys are found by bisection."""

    def __init__(self, pair: Pair, encoding: Encoding, size: int, prior: float, *, logits: bool) -> None:
        super().__init__()
        self.kind, self.size = pair.prior, size
        self.logits, self.base, self.smoothing = logits, prior, encoding.smoothing
        for name, values in (("key", pair.key), *zip(("sums", "weights"), encoding.merged(), strict=False)):
            self.register_buffer(name, torch.tensor(values))
        self.steps = len(pair.key).bit_length()

    def forward(self, first: Tensor, second: Tensor, rate: Tensor, other: Tensor) -> Tensor:
        code = first.long() * self.size + second.long()
        key = self.get_buffer("key")
        low, high = torch.zeros_like(code), torch.zeros_like(code) + (len(key) - 1)
        for _ in range(self.steps):
            middle = torch.div(low + high, 2, rounding_mode="floor")
            less = key[middle] < code
            low = torch.where(less, torch.minimum(middle + 1, high), low)
            high = torch.where(less, high, middle)
        known = (key[low] == code).double()
        prior = self._prior(rate, other)
        top = known * self.get_buffer("sums")[low] + self.smoothing * prior
        return top / (known * self.get_buffer("weights")[low] + self.smoothing)

    def _prior(self, rate: Tensor, other: Tensor) -> Tensor:
        if self.kind != BOTH:
            return rate if self.kind == FIRST else other
        if not self.logits:
            return rate + other - self.base
        base = float(np.clip(self.base, LEAST_RATE, 1.0 - LEAST_RATE))
        margins = [_logit(values.clamp(LEAST_RATE, 1.0 - LEAST_RATE)) for values in (rate, other)]
        return torch.sigmoid(margins[0] + margins[1] - float(np.log(base / (1.0 - base))))


def _logit(p: Tensor) -> Tensor:
    return (p / (1.0 - p)).log()
