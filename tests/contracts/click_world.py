"""A small world with every pair known, to hold methods with a click tower to their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.special import expit, logit

import unskew as us
from unskew.data import Schema
from unskew.data.vocabulary import Vocabulary
from unskew.debias import Setting
from unskew.debias.setting import Observed
from unskew.propensity.given import given_propensities
from unskew.training.held_out import HeldOut

USERS, ITEMS, SEEDS = 12, 15, (3, 4)
LEAST = 1e-6
"""The clip where a method would choose one."""
CELLS = np.arange(USERS * ITEMS)
JOINT = (us.MultiIPW, us.MultiDR, us.ESCM2IPS, us.ESCM2DR, us.DDPO, us.DCMT, us.IPSV2, us.DRV2)
"""Methods whose p is a weight in the step that also trains it."""


class World:
    """Every pair with its click, conversion and given propensity, and a method's networks in float64."""

    def __init__(self, method: Any, *, given: bool = True) -> None:
        random = np.random.default_rng(0)
        self.method = method
        self.click = random.random(len(CELLS)) < 0.4
        self.clicked = random.permutation(CELLS[self.click])
        self.r = (random.random(len(self.clicked)) < 0.3).astype(float)
        self.p = random.uniform(0.1, 0.9, (USERS, ITEMS)).astype(np.float32).astype(float)
        self.log = us.Log.from_arrays(
            user=self.clicked // ITEMS,
            item=self.clicked % ITEMS,
            conversion=self.r,
            users=Vocabulary.range(USERS, name="user"),
            items=Vocabulary.range(ITEMS, name="item"),
        )
        propensities = given_propensities(self.log, self.p, SEEDS, LEAST, everywhere=True) if given else None
        self.data = Observed(self.log, propensities, SEEDS, torch.device("cpu"))
        self.networks = {
            name: method.learners()
            .get(name, method.learner)
            .build(Schema.of_ids(USERS, ITEMS), [7 * s + len(name) for s in SEEDS], towers)
            .double()
            for name, towers in method.networks().items()
        }
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for network in self.networks.values():
                for parameter in network.parameters():
                    parameter.add_(0.4 * torch.randn(parameter.shape, generator=generator))
        self.observed = self.data.observed(self.positions(np.arange(len(self.clicked))))
        self.full = self.data.full(self.positions(CELLS))
        least = LEAST if method.p_min == "auto" else method.p_min
        self.setting = Setting(
            networks=self.networks,
            density=self.log.density,
            clicks=self.observed,
            floor=torch.full((len(SEEDS), 1), least, dtype=torch.float64),
            given=given,
            held_out=HeldOut(self.data.population, SEEDS),
        )

    @staticmethod
    def positions(numbers: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(numbers).expand(len(SEEDS), -1)

    def read(self, tower: str) -> np.ndarray:
        """Probabilities ``[R, cells]`` of every pair by a tower."""
        offset = logit(self.log.density) if tower == "click" else 0.0
        return expit(self.setting.predicted(self.full, tower).numpy() + offset)

    def on_clicks(self, values: np.ndarray) -> np.ndarray:
        return np.broadcast_to(values.reshape(-1, len(CELLS)), (len(SEEDS), len(CELLS)))[:, self.clicked]

    def everywhere(self, on_clicks: Any) -> np.ndarray:
        """Values of clicks put into D, with 0 elsewhere."""
        result = np.zeros((len(SEEDS), len(CELLS)))
        result[:, self.clicked] = on_clicks
        return result

    def loss(self) -> np.ndarray:
        return self.method.loss(self.setting, self.observed, self.full).detach().numpy()

    def shift_clicks(self, shift: float) -> None:
        """Move every click logit by the same."""
        with torch.no_grad():
            self.setting.network_of("click")[1].tower["click"].head.bias += shift

    def click_gradient(self, loss: torch.Tensor) -> float:
        return sum(size for name, size in self.gradients(loss).items() if "click" in name)

    def gradients(self, loss: torch.Tensor) -> dict[str, float]:
        """Size of the gradient by parameter; its name tells the network and the tower."""
        for network in self.networks.values():
            network.zero_grad()
        loss.sum().backward()
        return {
            f"{name}/{key}": 0.0 if parameter.grad is None else float(parameter.grad.abs().sum())
            for name, network in self.networks.items()
            for key, parameter in network.named_parameters()
        }


def deep(cls: type, **params: Any) -> Any:
    return cls(learner=us.NeuMF(dim=3, layers=(4,), dropout=0.0), **params)


def ce(target: Any, probability: np.ndarray) -> np.ndarray:
    return -(target * np.log(probability) + (1 - target) * np.log1p(-probability))
