"""A user's own ``nn.Module`` as a learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from unskew.base.estimator import require
from unskew.base.tensors import Tensor, nn, torch
from unskew.data import Rows
from unskew.learners.network import Blueprint, Embedded, Network, NetworkLearner
from unskew.learners.noise import Noise

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass(kw_only=True)
class Custom(NetworkLearner):
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
    replica's seed on a CPU; a dropout module whose name begins with ``embedding`` counts as one on
    embeddings (:class:`unskew.MCDropout`). A model with such a learner saves its weights; to load it,
    make it a learner with a name of its own (:func:`unskew.register`).

    Examples
    --------
    >>> class Dot(torch.nn.Module):
    ...     def __init__(self, n_users, n_items):
    ...         super().__init__()
    ...         self.user, self.item = torch.nn.Embedding(n_users, 8), torch.nn.Embedding(n_items, 8)
    ...     def forward(self, user, item):
    ...         return (self.user(user) * self.item(item)).sum(-1)
    >>> from unskew.data import Rows, Schema
    >>> network = Custom(module=Dot).build(Schema.of_ids(5, 4), seeds=[0, 1])
    >>> network(Rows(user=torch.zeros(2, 3).long(), item=torch.ones(2, 3).long())).shape
    torch.Size([2, 3])
    """

    name: ClassVar[str] = "custom"
    module: Callable[[int, int], nn.Module]

    def _network(self, plan: Blueprint) -> Network:
        require(
            len(plan.towers) == 1, "a custom learner has one tower", "use NeuMF or MF for multi-task methods"
        )
        copies = []
        for generator in plan.generators:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(generator.initial_seed())
                copies.append(self.module(plan.schema.user.size, plan.schema.item.size))
        require(
            not list(copies[0].buffers()),
            "modules with buffers (running statistics) cannot be replicated",
            "use LayerNorm instead of BatchNorm",
        )
        shapes = [[(name, weight.shape) for name, weight in copy.named_parameters()] for copy in copies]
        require(
            all(each == shapes[0] for each in shapes),
            "modules of different shapes cannot be replicated",
            "give a function that makes the same network each time",
        )
        return CustomNetwork(copies, plan.noise)


class CustomNetwork(Network):
    """Copies of a user's module, their parameters stacked."""

    def __init__(self, copies: Sequence[nn.Module], noise: Noise):
        super().__init__()
        self.noise = noise
        self._names = [name for name, _ in copies[0].named_parameters()]
        self.stacked = nn.ParameterList(
            nn.Parameter(torch.stack([copy.get_parameter(name).detach() for copy in copies]))
            for name in self._names
        )
        # In a list, so that its own parameters, only the pattern of the stacked ones, are not trained.
        self._pattern = [copies[0].to("meta")]

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the pattern too."""
        self._pattern[0].train(mode)
        return super().train(mode)

    def embed(self, rows: Rows) -> Embedded:
        """Return the ids: a user's module looks them up itself."""
        rows = rows.expand(self.replicas)
        return rows.user, rows.item

    def read(self, embedded: Embedded, tower: str) -> Float[Tensor, "R B"]:
        """Return the logits of all copies."""
        return self.at_once(*embedded) if embedded[0].is_cuda else self.one_by_one(*embedded)

    def at_once(self, user: Tensor, item: Tensor) -> Tensor:
        """Call all copies at once: faster on a GPU."""
        logit: Tensor = torch.func.vmap(self._one, randomness="different")(tuple(self.stacked), user, item)
        return logit

    def one_by_one(self, user: Tensor, item: Tensor) -> Tensor:
        """Call one copy after another: faster on a CPU."""
        call = int(self.noise.next_calls(1))
        logits = []
        for replica, seed in enumerate(self.noise.seeds):
            parameters = tuple(weight[replica] for weight in self.stacked)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed + call)
                logits.append(self._one(parameters, user[replica], item[replica]))
        return torch.stack(logits)

    def _one(self, parameters: tuple[Tensor, ...], user: Tensor, item: Tensor) -> Tensor:
        state: dict[str, Any] = dict(zip(self._names, parameters, strict=True))
        logit: Tensor = torch.func.functional_call(self._pattern[0], state, (user, item))
        require(
            logit.shape == user.shape,
            f"a custom module must give one logit per pair, {list(user.shape)}, not {list(logit.shape)}",
            "drop the last dimension (squeeze(-1))",
        )
        return logit

    def _named_dropouts(self) -> list[tuple[str, nn.Module]]:
        return [
            (name, module)
            for name, module in self._pattern[0].named_modules()
            if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0.0
        ]
