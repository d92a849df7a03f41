"""A small setting of a method: networks, a batch of O and a batch of D, to look at its losses one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unskew.base.seeds import stream
from unskew.data import Rows, Schema
from unskew.debias import Batch, Debiaser, Setting
from unskew.learners import MF

USERS, ITEMS, CLICKS, CELLS, REPLICAS = 7, 6, 20, 30, 2
LEAST = 1e-6
"""The clip where a method would choose one."""
WIDE = MF(dim=3, init_std=0.7)
"""A learner whose initial logits differ enough to be told apart."""


def small_setting(method: Debiaser, *, density: float = 0.3) -> Setting:
    """Untrained networks of a method that may be built with :data:`WIDE`."""
    networks = {
        name: method.learners()
        .get(name, method.learner)
        .build(Schema.of_ids(USERS, ITEMS), [stream(seed, name) for seed in range(REPLICAS)], towers)
        for name, towers in method.networks().items()
    }
    floor = torch.full((REPLICAS, 1), LEAST if method.p_min == "auto" else method.p_min)
    return Setting(networks=networks, density=density, clicks=clicked_batch(), floor=floor)


def clicked_batch(size: int = CLICKS, **given: Tensor) -> Batch:
    """A batch of O; ``given`` replaces what is drawn."""
    random = torch.Generator().manual_seed(1)
    return _batch(random, size, **{"conversion": _draw(random, size).round(), **given})


def full_batch(size: int = CELLS, **given: Tensor) -> Batch:
    """A batch of D, whose conversions nobody may look at."""
    random = torch.Generator().manual_seed(2)
    return _batch(random, size, **{"conversion": torch.full((REPLICAS, size), torch.nan), **given})


def trained_by(
    loss: Callable[..., Tensor], setting: Setting, observed: Batch, full: Batch
) -> dict[str, bool]:
    """By network, whether a loss has a gradient in it that is not zero."""
    for network in setting.networks.values():
        network.zero_grad(set_to_none=True)
    loss(setting, observed, full).sum().backward()
    return {
        name: any(p.grad is not None and bool((p.grad != 0).any()) for p in network.parameters())
        for name, network in setting.networks.items()
    }


def _batch(random: torch.Generator, size: int, **given: Any) -> Batch:
    user = torch.randint(USERS, (REPLICAS, size), generator=random)
    drawn = {
        "rows": Rows(user=user, item=torch.randint(ITEMS, (REPLICAS, size), generator=random)),
        "propensity": 0.05 + 0.9 * _draw(random, size),
    }
    return Batch(**{**drawn, **given})


def _draw(random: torch.Generator, size: int) -> Tensor:
    return torch.rand(REPLICAS, size, generator=random)
