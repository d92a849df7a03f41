"""Networks of R replicas, and the learners that build them. They know nothing of bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from unskew.base.estimator import require_types
from unskew.base.seeds import stream
from unskew.base.tensors import Tensor, nn, require_torch, torch
from unskew.data import Rows, Schema
from unskew.learners.layers import ReplicaDropout, Undrawn
from unskew.learners.learner import TOWER, Learner
from unskew.learners.noise import Noise

if TYPE_CHECKING:
    from jaxtyping import Float

Embedded = tuple[Tensor, ...]
"""What rows are looked up as, ``[R, B, F]`` each: what all towers of a network share."""

DropoutLayers = Literal["all", "mlp", "embedding"]
"""Which dropout stays on in a stochastic pass."""


class Network(nn.Module):
    """R copies of a network: ``Rows [R, B] → logit [R, B]``; rows ``[1, B]`` are shared by all copies.

    A network may have several towers that share its embeddings, each with weights of its own; a
    multi-task method embeds a row once and reads it with each. Every parameter has the leading dimension
    R; ``noise`` feeds the dropout.
    """

    noise: Noise
    replicas: int
    towers: tuple[str, ...]
    members: int = 1
    """Members inside each replica that share its weights (:class:`BatchEnsemble`)."""
    fusible: bool = False
    """Whether a tower can be computed in one go."""
    has_shapes: bool = True
    """Whether the shapes of its weights follow from its parameters and a schema."""

    def embed(self, rows: Rows) -> Embedded:
        """Look up codes."""
        raise NotImplementedError

    def read(self, embedded: Embedded, tower: str) -> Float[Tensor, "R B"]:
        """Return logits ``[R, B]`` of embedded rows, by one tower."""
        raise NotImplementedError

    def forward(self, rows: Rows, tower: str | None = None) -> Float[Tensor, "R B"]:
        """Return the logits of one tower, by default the first; a network may compute them in one go."""
        return self.read(self.embed(rows), tower or self.towers[0])

    def start_at(self, tower: str, logit: Float[Tensor, " R"]) -> None:
        """Let the predictions of a tower start near a logit for each replica, where the network can."""

    def moments(
        self, rows: Rows, passes: int, offset: float
    ) -> tuple[Float[Tensor, "R B"], Float[Tensor, "R B"]]:
        """Return the mean and variance ``[R, B]`` of σ(logit + offset) over members and passes.

        The first tower's, in float64. Noise that is on differs from pass to pass. A network may compute all
        passes in one go.
        """
        copies = self.members * max(1, passes)
        # Members and passes side by side in one batch: a GPU is kept busy by one launch.
        logit = self(rows.repeat(copies)) + offset
        p = torch.sigmoid(logit.double()).view(self.replicas, copies, -1)
        if copies == 1:
            return p[:, 0], torch.zeros_like(p[:, 0])
        return p.mean(1), p.var(1, correction=0)

    def dropouts(self, layers: DropoutLayers) -> list[nn.Module]:
        """Return the modules of some layers that drop anything; names say which are on embeddings."""
        return [
            module
            for name, module in self._named_dropouts()
            if layers == "all" or (layers == "embedding") == name.startswith("embedding")
        ]

    def _named_dropouts(self) -> list[tuple[str, nn.Module]]:
        return [
            (name, module)
            for name, module in self.named_modules()
            if isinstance(module, ReplicaDropout) and module.rate > 0.0
        ]

    def to_device(self, device: torch.device) -> Network:
        """Move parameters and noise."""
        self.to(device)
        self.noise.to(device)
        return self


@dataclass(frozen=True)
class Blueprint:
    """The parts from which a network learner builds its network."""

    schema: Schema
    generators: Sequence[torch.Generator]
    """One per replica, for its initial weights."""
    noise: Noise
    towers: tuple[str, ...]


@dataclass(kw_only=True)
class NetworkLearner(Learner):
    """Parameters of a network; :meth:`build` makes R replicas of it."""

    def build(
        self,
        schema: Schema,
        seeds: Sequence[int],
        towers: Sequence[str] = (TOWER,),
        *,
        drawn: bool = True,
    ) -> Network:
        """Build a network of ``len(seeds)`` replicas; the weights of replica k depend on ``seeds[k]`` alone.

        A learner that reads the ids alone gets no more of the schema than these.

        Parameters
        ----------
        drawn
            Whether weights are drawn; not where all of them are filled in at once, for a large table takes
            seconds to draw. Those of the built-in layers are then NaN.
        """
        require_types(self)
        require_torch(f"the network {self.name}")
        schema = schema if self.reads_features else schema.ids
        make = torch.Generator if drawn else Undrawn
        generators = [make().manual_seed(stream(seed, "weights")) for seed in seeds]
        noise = Noise([stream(seed, "dropout") for seed in seeds])
        network = self._network(Blueprint(schema, generators, noise, tuple(towers)))
        network.replicas = len(seeds)
        network.towers = tuple(towers)
        return network

    def _network(self, plan: Blueprint) -> Network:
        raise NotImplementedError
