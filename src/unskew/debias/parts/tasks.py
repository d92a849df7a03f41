"""Sums over D for a click tower and the towers it trains with: CE(o, p), CE(o·r, p·r̂), any other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from unskew.debias.core.held_out import HeldOut
from unskew.debias.core.setting import Batch, Setting
from unskew.training import halves

LEAST_DENSITY = 1e-9
"""Keeps the logit of |O|/|D| finite where every cell, or next to none, is clicked."""

logsigmoid = torch.nn.functional.logsigmoid


@dataclass(frozen=True)
class Tasks:
    """Logits by tower on a batch of O and a batch of D; click logits are constants on held-out cells."""

    observed: Mapping[str, Tensor]
    full: Mapping[str, Tensor]
    unclicked: Tensor
    """1.0 on the cells of the batch of D that have no click."""
    density: float

    @classmethod
    def read(cls, setting: Setting, observed: Batch, full: Batch, *towers: str) -> Tasks:
        """Read both batches with the click tower and others."""
        assert full.cell is not None
        return cls(
            observed=_logits(setting, observed, towers),
            full=_logits(setting, full, towers),
            unclicked=held_out(setting).unclicked(full.cell),
            density=setting.density,
        )

    def over_cells(self, *, clicked: Tensor, unclicked: Tensor) -> Tensor:
        """(1/|D|) Σ_D [o·a + (1 − o)·b] = (|O|/|D|) · mean_{B_O} a + (1 − |O|/|D|) · mean_{B_D, o = 0} b.

        Clicked and unclicked cells are two strata. The difference form of ``over_population`` would count a
        click that is held out for validation as o = 0, and lets 1/(1 − p) on clicks cancel only on average.

        Parameters
        ----------
        clicked, unclicked
            a on the batch of O, b on the batch of D.
        """
        share = self.unclicked / self.unclicked.sum(-1, keepdim=True).clamp(min=1.0)
        return self.density * clicked.mean(-1) + (1.0 - self.density) * (share * unclicked).sum(-1)

    def halves(self) -> tuple[Tasks, Tasks]:
        """Both batches cut in two, for products that estimate a square (:func:`unskew.training.halves`)."""
        observed, full = (
            {name: halves(logit) for name, logit in logits.items()} for logits in (self.observed, self.full)
        )
        unclicked = halves(self.unclicked)
        first, second = (
            Tasks(
                observed={name: parts[half] for name, parts in observed.items()},
                full={name: parts[half] for name, parts in full.items()},
                unclicked=unclicked[half],
                density=self.density,
            )
            for half in (0, 1)
        )
        return first, second

    def click_loss(self) -> Tensor:
        """(1/|D|) Σ_D CE(o, p)."""
        return self.over_cells(
            clicked=-logsigmoid(self.observed["click"]), unclicked=-logsigmoid(-self.full["click"])
        )

    def click_conversion_loss(self, conversion: Tensor) -> Tensor:
        """(1/|D|) Σ_D CE(o·r, p·r̂), the CTCVR loss.

        Parameters
        ----------
        conversion
            r on the batch of O.
        """
        both = logsigmoid(self.observed["click"]) + logsigmoid(self.observed["prediction"])
        return self.over_cells(
            clicked=-(conversion * both + (1.0 - conversion) * log_not_both(self.observed)),
            unclicked=-log_not_both(self.full),
        )


def squared_click_losses(tasks: Tasks, conversion: Tensor) -> tuple[Tensor, Tensor]:
    """mean_D (p − o)² and mean_D (p·r̂ − o·r)²."""
    (p, r), (p_full, r_full) = (
        (torch.sigmoid(logits["click"]), torch.sigmoid(logits["prediction"]))
        for logits in (tasks.observed, tasks.full)
    )
    return (
        tasks.over_cells(clicked=(1.0 - p).square(), unclicked=p_full.square()),
        tasks.over_cells(clicked=(p * r - conversion).square(), unclicked=(p_full * r_full).square()),
    )


def log_not_both(logits: Mapping[str, Tensor]) -> Tensor:
    """log(1 − p·r̂) = log[(1 − p) + p·(1 − r̂)], finite for all logits, also where p·r̂ rounds to 1."""
    click, conversion = logits["click"], logits["prediction"]
    return torch.logaddexp(logsigmoid(-click), logsigmoid(click) + logsigmoid(-conversion))


def base_logit(setting: Setting) -> float:
    """logit(|O|/|D|), where the click tower starts: what is left to it is who differs from the mean."""
    density = min(max(setting.density, LEAST_DENSITY), 1.0 - LEAST_DENSITY)
    return math.log(density / (1.0 - density))


def held_out(setting: Setting) -> HeldOut:
    """The cells that the click tower must not train on."""
    assert setting.held_out is not None
    return setting.held_out


def _logits(setting: Setting, batch: Batch, towers: tuple[str, ...]) -> dict[str, Tensor]:
    assert batch.cell is not None
    names = ("click", *towers)
    logits = dict(zip(names, setting.logits(batch, *names), strict=True))
    click = logits["click"] + base_logit(setting)
    return {**logits, "click": torch.where(held_out(setting).trains(batch.cell), click, click.detach())}
