"""Methods that change a doubly robust host: what they take from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from unskew.debias.parts.imputation_weights import bias_weight, inverse_weight, variance_weight
from unskew.debias.parts.joint_learning import Copy, JointLearning
from unskew.estimator import require


class Host(NamedTuple):
    """How a host trains its imputer."""

    weight: Callable[[Tensor], Tensor]
    copy: Copy


HOSTS = {
    "dr-jl": Host(inverse_weight, "none"),
    "mrdr": Host(variance_weight, "epoch"),
    "dr-bias": Host(bias_weight, "none"),
}


@dataclass(kw_only=True)
class Hosted(JointLearning):
    """A doubly robust method whose imputer is weighted and copied to as its host's is.

    Parameters
    ----------
    host
        A method of the class's ``hosts``.
    copy
        As the host has it (``"host"``), or as told.
    """

    hosts: ClassVar[tuple[str, ...]] = tuple(HOSTS)

    host: str = "mrdr"
    copy: Copy = "host"

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """w of the host."""
        return HOSTS[self.host].weight(propensity)

    def copying(self) -> Copy:
        """As the host, or as told."""
        return HOSTS[self.host].copy if self.copy == "host" else self.copy

    def _check(self) -> None:
        require(
            self.host in self.hosts,
            f"host must be one of {', '.join(self.hosts)}, not {self.host!r}",
            "give one of these",
        )
        super()._check()
