"""What a backbone is: a description that builds a network of R replicas. It knows nothing of bias."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unskew.backbones.noise import Noise
from unskew.estimator import Estimator
from unskew.seeds import stream


class Network(nn.Module):
    """R copies of a network: ``(user [R, B], item [R, B]) → logit [R, B]``.

    ``noise`` feeds its dropout; every parameter has the leading dimension R.
    """

    noise: Noise
    replicas: int

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        """Logits of pairs of codes."""
        raise NotImplementedError

    def to_device(self, device: torch.device) -> Network:
        """Move parameters and noise."""
        self.to(device)
        self.noise.to(device)
        return self


@dataclass(kw_only=True)
class Backbone(Estimator):
    """Parameters of a network; :meth:`build` makes R replicas of it."""

    name: ClassVar[str]

    def build(self, n_users: int, n_items: int, seeds: Sequence[int]) -> Network:
        """A network of ``len(seeds)`` replicas; the weights of replica k depend on ``seeds[k]`` alone."""
        generators = [torch.Generator().manual_seed(stream(seed, "weights")) for seed in seeds]
        network = self._network(n_users, n_items, generators, Noise([stream(s, "dropout") for s in seeds]))
        network.replicas = len(seeds)
        return network

    def _network(
        self, n_users: int, n_items: int, generators: Sequence[torch.Generator], noise: Noise
    ) -> Network:
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters, for a run's ``config.toml``."""
        return {"name": self.name, **dataclasses.asdict(self)}
