"""A user's own ``nn.Module`` as a backbone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from unskew.backbones.base import Backbone, Blueprint, Embedded, Network
from unskew.backbones.noise import Noise
from unskew.estimator import require


@dataclass(kw_only=True)
class Custom(Backbone):
    """R copies of ``module(user [B], item [B]) → logit [B]``, whatever it does inside.

    Parameters
    ----------
    module
        Called as ``module(n_users, n_items)`` once per replica, under the replica's seed; all copies must
        have the same parameters' shapes. Buffers (batch-norm statistics) are not supported.

    Notes
    -----
    On a GPU the copies run as one by ``torch.func.vmap``; on a CPU, where vmap over embeddings is slow,
    one after the other. Dropout inside the module draws from torch's own generator on a GPU, and from the
    replica's seed on a CPU. A model with such a backbone saves its weights; to load it, register the
    backbone under a name of its own (``unskew.backbones.BACKBONES``).

    Examples
    --------
    >>> class Dot(torch.nn.Module):
    ...     def __init__(self, n_users, n_items):
    ...         super().__init__()
    ...         self.user, self.item = torch.nn.Embedding(n_users, 8), torch.nn.Embedding(n_items, 8)
    ...     def forward(self, user, item):
    ...         return (self.user(user) * self.item(item)).sum(-1)
    >>> Custom(module=Dot).build(5, 4, seeds=[0, 1])(torch.zeros(2, 3).long(), torch.ones(2, 3).long()).shape
    torch.Size([2, 3])
    """

    name: ClassVar[str] = "custom"
    module: Callable[[int, int], nn.Module]

    def _network(self, plan: Blueprint) -> Network:
        require(
            len(plan.towers) == 1, "a custom backbone has one tower", "use NeuMF or MF for multi-task methods"
        )
        copies = []
        for generator in plan.generators:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(generator.initial_seed())
                copies.append(self.module(plan.n_users, plan.n_items))
        require(not list(copies[0].buffers()), "modules with buffers cannot be replicated")
        return _CustomNetwork(copies, plan.noise)


class _CustomNetwork(Network):
    def __init__(self, copies: Sequence[nn.Module], noise: Noise):
        super().__init__()
        self.noise = noise
        names = [name for name, _ in copies[0].named_parameters()]
        self.stacked = nn.ParameterList(
            [nn.Parameter(torch.stack([copy.get_parameter(n).detach() for copy in copies])) for n in names]
        )
        self._names = names
        # In a list, so that its own parameters, only the pattern of the stacked ones, are not trained.
        self._pattern = [copies[0].to("meta")]
        self._calls = 0

    def embed(self, user: Tensor, item: Tensor) -> Embedded:
        return user, item

    def read(self, embedded: Embedded, tower: str) -> Tensor:
        user, item = embedded
        self._pattern[0].train(self.training)
        if user.is_cuda:
            logit: Tensor = vmap(self._one, randomness="different")(tuple(self.stacked), user, item)
            return logit
        self._calls += 1
        return torch.stack([self._seeded(replica, user, item) for replica in range(self.replicas)])

    def _one(self, parameters: tuple[Tensor, ...], user: Tensor, item: Tensor) -> Tensor:
        state: dict[str, Any] = dict(zip(self._names, parameters, strict=True))
        logit: Tensor = functional_call(self._pattern[0], state, (user, item))
        return logit

    def _seeded(self, replica: int, user: Tensor, item: Tensor) -> Tensor:
        parameters = tuple(weight[replica] for weight in self.stacked)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.noise.seeds[replica] + self._calls)
            return self._one(parameters, user[replica], item[replica])
