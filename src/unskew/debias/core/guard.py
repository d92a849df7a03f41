"""Which of a method's networks learned nothing; the rule is :mod:`unskew.metrics.collapse`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from unskew.debias.core.method import Method
from unskew.debias.core.setting import Setting
from unskew.debias.core.validation import ValidationLoss
from unskew.metrics.collapse import Learned, learned
from unskew.training import Population, hashing
from unskew.training.inference import logits

PAIRS = 4096
"""Pairs of D, the same for all networks, on which the spread of logits is looked at beside held-out rows."""

OF_CONVERSIONS = ("prediction", "first", "second", "imputation")
"""Towers whose output is (by default) the logit of a conversion."""

OF_CLICKS = "click"
"""The tower whose output is the logit of a click, up to a constant."""


def learned_by_towers(
    method: Method, setting: Setting, validation: ValidationLoss | None, population: Population
) -> dict[str, list[Learned]]:
    """What each tower of each replica learned, by the tower's name.

    A conversion tower is judged on the rows that chose the epoch, with their weights; where none were held
    out, and where its output is no rate (scores to rank by, imputed errors), by its spread alone. A click
    tower is judged on cells that it never saw. Towers of other kinds (weights of kernels, shifts of
    propensities) are meant to be nearly constant, and are not judged.
    """
    zero = torch.zeros((), dtype=torch.int64, device=population.device)
    cells = hashing.uniform_int(torch.arange(PAIRS, device=population.device), zero, population.size)
    pairs = population.rows(cells[None])
    found: dict[str, list[Learned]] = {}
    for network in setting.networks.values():
        for tower in network.towers:
            if tower == OF_CLICKS or (tower in OF_CONVERSIONS and _is_of_conversions(method, tower)):
                elsewhere = logits(network, pairs, tower=tower).detach().double().cpu().numpy()
                rows = _held_out(method, setting, validation, tower)
                found[tower] = [
                    learned(logits=z, outcome=o, weight=w, elsewhere=e)
                    for (z, o, w), e in zip(rows, elsewhere, strict=True)
                ]
    return found


def _is_of_conversions(method: Method, tower: str) -> bool:
    # A residual that is 0 everywhere is what an imputer of the form P3 should learn from a good prediction.
    return tower != "imputation" or getattr(method, "imputation_form", "P1") != "P3"


def _held_out(
    method: Method, setting: Setting, validation: ValidationLoss | None, tower: str
) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
    """Logits, outcomes and weights of each replica's held-out rows."""
    if tower == OF_CLICKS:
        assert setting.held_out is not None
        seen = setting.held_out.evaluation
        for z, o, w in zip(setting.predicted(seen, tower), seen.click, seen.weight, strict=True):
            kept = w > 0
            yield _plain(z[kept]), _plain(o[kept]), _plain(w[kept])
        return
    source = setting.clicks if validation is None else validation
    z = logits(setting.network_of(tower)[1], source.rows, tower=tower)
    is_rate = method.predicts_rates
    if tower == "imputation":
        is_rate = getattr(method, "imputation_form", "P1") == "P1"
    judged = validation is not None and is_rate
    outcome = source.conversion.expand(z.shape)
    weight = torch.ones_like(z) if validation is None else validation.weight.expand(z.shape)
    for of_z, of_outcome, of_weight in zip(z, outcome, weight, strict=True):
        yield _plain(of_z), _plain(of_outcome) if judged else None, _plain(of_weight)


def _plain(values: Tensor) -> Tensor:
    return values.detach().double().cpu()
