"""Click towers: what they learn over D, which p becomes a weight, how honest it is; methods of several tasks.

A method with a click tower *has* a :class:`ClickTower`; its losses over D are :class:`Tasks`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.base.estimator import require, require_at_least
from unskew.calibration import Platt
from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, ClicksAndCells, Setting, Stage, State
from unskew.debias.tasks import click_loss
from unskew.metrics import CalibrationSketch
from unskew.metrics.clip import least_error_clip
from unskew.propensity.diagnosis import average, propensity_figures
from unskew.training import Pass, Step
from unskew.training.held_out import HeldOut, SplitCells
from unskew.training.means import cross_entropy

if TYPE_CHECKING:
    pass


LEAST_DENSITY = 1e-9
"""Keeps the logit of |O|/|D| finite where every cell, or next to none, is clicked."""

CLICK_PATIENCE = 3
"""Epochs without a better likelihood of held-out clicks after which the click tower has learned enough."""

Source = Literal["external", "in-loop", "report-only"]

Scored = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Score, click and weight of one replica's cells."""


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
        return cls(
            observed=_logits(setting, observed, towers),
            full=_logits(setting, full, towers),
            unclicked=1.0 - clicked(setting, full),
            density=setting.density,
        )

    @property
    def space(self) -> dict[str, Any]:
        """How the batches stand for D, as losses take it."""
        return {"density": self.density, "unclicked": self.unclicked}

    def of(self, tower: str) -> tuple[Tensor, Tensor]:
        """A tower's logits on the batch of O and on the batch of D."""
        return self.observed[tower], self.full[tower]


def base_logit(setting: Setting) -> float:
    """logit(|O|/|D|), where the click tower starts: what is left to it is who differs from the mean."""
    density = min(max(setting.density, LEAST_DENSITY), 1.0 - LEAST_DENSITY)
    return math.log(density / (1.0 - density))


def held_out(setting: Setting) -> HeldOut:
    """The cells that the click tower must not train on."""
    assert setting.held_out is not None
    return setting.held_out


def clicked(setting: Setting, batch: Batch) -> Tensor:
    """1.0 where a pair of D has a click at all: one that is held out for validation is a click too."""
    assert batch.cell is not None
    return held_out(setting).population.click(batch.cell)


def _logits(setting: Setting, batch: Batch, towers: tuple[str, ...]) -> dict[str, Tensor]:
    names = ("click", *towers)
    logits = dict(zip(names, setting.logits(batch, *names), strict=True))
    click = logits["click"] + base_logit(setting)
    return {**logits, "click": torch.where(held_out(setting).trains(batch.rows), click, click.detach())}


class PlattMap(State):
    """σ(b·z + c) of each replica's click logits z."""

    slope: Tensor
    """b ``[R, 1]``."""
    intercept: Tensor
    """c ``[R, 1]``."""


@dataclass(frozen=True)
class ClickTower:
    """p = σ(z) of the click tower; as a weight p̃ = σ(b·z + c), or p̃ from outside (METHODS §5B).

    The click tower trains on all cells of D but those held out: a tenth to calibrate with, a tenth to judge
    by. Where p becomes a weight it is clipped at ``p_min``, without gradient and without dropout. What the
    tower is worth on cells it never saw is in ``click_propensity_`` after ``fit``. Given propensities also
    weigh the validation loss (``selection="snips"``); without them it is unweighted.

    Before anything else the click tower learns by itself, L = (1/|D|) Σ_D CE(o, p), until the likelihood of
    clicks on its calibration cells no longer rises. Learned only beside the conversions, it would stop with
    them: a few passes over O, after which it can hardly tell one pair from another.

    Parameters
    ----------
    sources
        Which values of ``calibration`` the method has.
    calibration
        Which p becomes a weight. ``"external"``: the propensities given to ``fit``, while the click tower
        still trains for what it shares. ``"in-loop"``: the tower's, after a Platt map that is fitted anew
        after each epoch, for each replica, on held-out cells. ``"report-only"``: the tower's as it is.
        ``"auto"``: the first of these that is possible.
    warm_up
        Epochs, at most, in which the click tower trains alone; 0 for none.
    ratio
        Cells of D in a batch per row of O, while it trains alone.
    chooses_clip
        Whether the clip is chosen anew with each map (``p_min="auto"``).
    """

    sources: tuple[Source, ...]
    calibration: Literal["auto", "external", "in-loop", "report-only"]
    warm_up: int
    ratio: float
    chooses_clip: bool

    def source(self, setting: Setting) -> Source:
        """Where the p of weights comes from; ``"auto"`` resolved."""
        if self.calibration != "auto":
            return self.calibration
        return next(source for source in self.sources if setting.given or source != "external")

    def propensity(self, setting: Setting, batch: Batch) -> Tensor:
        """The p of weights ``[R, B]``, clipped, without gradient."""
        if self.source(setting) == "external":
            return batch.propensity
        return self.probability(setting, batch).clamp(min=setting.floor)

    def probability(self, setting: Setting, batch: Batch | SplitCells, *, raw: bool = False) -> Tensor:
        """The tower's p after the Platt map, if there is one; without dropout and gradient."""
        logit = setting.predicted(batch, "click") + base_logit(setting)
        platt = setting.state(PlattMap)
        return torch.sigmoid(logit if raw or platt.is_empty else platt.slope * logit + platt.intercept)

    def recalibrate(self, setting: Setting) -> None:
        """Fit the Platt map of each replica on its calibration cells, and choose its clip.

        Not before the first epoch of a tower that did not train alone: its logits hardly differ, so a map
        fitted on them is steep, and a little training later it would turn them into extremes.
        """
        if self.source(setting) == "in-loop":
            platt, cells = setting.state(PlattMap), held_out(setting).calibration
            fits = self.warm_up > 0 or not platt.is_empty
            one = torch.ones(len(cells.weight), 1, device=cells.weight.device)
            platt.write(slope=one, intercept=torch.zeros_like(one))
            if fits:
                slope, intercept = platt_maps(cells, self.probability(setting, cells)).unbind(-1)
                platt.write(slope=slope, intercept=intercept)
        if self.chooses_clip:
            on_clicks = self.probability(setting, setting.clicks)
            setting.floor.copy_(chosen_floors(on_clicks))

    def stages(self, networks: Mapping[str, tuple[str, ...]]) -> tuple[Stage, ...]:
        """The stage in which the click tower trains alone, if there is one."""
        if not self.warm_up:
            return ()
        trains = tuple(name for name, towers in networks.items() if "click" in towers)
        alone = Pass(ClicksAndCells(self.ratio), (Step("click", loss_of_clicks, trains),))
        return (Stage((alone,), self.warm_up, validate=held_out_click_loss, patience=CLICK_PATIENCE),)

    def judged(self, setting: Setting) -> dict[str, dict[str, Any] | None]:
        """Figures on evaluation cells: ``"raw"`` and, where there is a map, ``"calibrated"``."""
        self.recalibrate(setting)
        calibrated = {} if setting.state(PlattMap).is_empty else {"calibrated": self._figures(setting)}
        return {**calibrated, "raw": self._figures(setting, raw=True)}

    def sketches(self, setting: Setting) -> dict[str, CalibrationSketch]:
        """Return scores against clicks on the evaluation cells of the first replica, by kind as in
        :meth:`judged`."""
        cells = held_out(setting).evaluation
        kinds = {"raw": True} | ({} if setting.state(PlattMap).is_empty else {"calibrated": False})
        scored = {
            kind: next(_by_replica(cells, self.probability(setting, cells, raw=raw)))
            for kind, raw in kinds.items()
        }
        return {
            kind: CalibrationSketch.of(score=score, outcome=click, weight=weight)
            for kind, (score, click, weight) in scored.items()
        }

    def _figures(self, setting: Setting, *, raw: bool = False) -> dict[str, Any] | None:
        cells = held_out(setting).evaluation
        score, on_clicks = (self.probability(setting, rows, raw=raw) for rows in (cells, setting.clicks))
        return tower_figures(
            cells, score, on_clicks, p_min=setting.floor.flatten().tolist(), density=setting.density
        )

    def check(self, method: str) -> None:
        """Raise for parameters with which the method of this name cannot work."""
        require_at_least(0, click_warm_up=self.warm_up)
        require(
            self.calibration in ("auto", *self.sources),
            f"{method} has no calibration {self.calibration!r}",
            f"use one of auto, {', '.join(self.sources)}",
        )


def loss_of_clicks(setting: Setting, observed: Batch, full: Batch) -> Tensor:
    """Return mean_D CE(o, p) of the click tower alone."""
    tasks = Tasks.read(setting, observed, full)
    return click_loss(tasks.of("click"), **tasks.space)


def held_out_click_loss(setting: Setting) -> Tensor:
    """CE(o, p) of the calibration cells, as they weigh in D ``[R]``."""
    cells = held_out(setting).calibration
    logit = setting.predicted(cells, "click") + base_logit(setting)
    each = cross_entropy(cells.click, logit)
    return (each * cells.weight).sum(1) / cells.weight.sum(1)


def platt_maps(cells: SplitCells, score: Tensor) -> Tensor:
    """Slope and intercept of each replica's Platt map ``[R, 1, 2]``, from its scores ``[R, n]`` of cells.

    Where a replica's cells are all clicked, or none is, it gets the identity.
    """
    maps = []
    for scored in _by_replica(cells, score):
        slope, intercept = 1.0, 0.0
        if _both_kinds(scored):
            fitted = Platt().fit(*scored)
            slope, intercept = fitted.slope_, fitted.intercept_
        maps.append((slope, intercept))
    return torch.tensor(maps, device=score.device).unsqueeze(1)


def chosen_floors(on_clicks: Tensor) -> Tensor:
    """Return the clips ``[R, 1]`` with the least error for propensities of clicks ``[R, m]``."""
    lines = on_clicks.double().cpu().numpy()
    floors = [least_error_clip(propensity=line) for line in lines]
    return torch.tensor(floors, dtype=torch.float32, device=on_clicks.device).unsqueeze(1)


def tower_figures(
    cells: SplitCells, score: Tensor, on_clicks: Tensor, *, p_min: Sequence[float], density: float
) -> dict[str, Any] | None:
    """Means over seeds and each seed's figures, as :meth:`unskew.Propensity.diagnose` has them.

    Parameters
    ----------
    score
        The tower's propensities ``[R, n]`` of the cells.
    on_clicks
        Its propensities ``[R, m]`` of training clicks, for the figures about weights.
    p_min
        The clip of each replica.

    Returns
    -------
    dict or None
        None where the cells of some replica are all clicked, or none is.
    """
    by_replica = list(_by_replica(cells, score))
    if not all(_both_kinds(scored) for scored in by_replica):
        return None
    size = round(on_clicks.shape[1] / density)
    return average(
        [
            propensity_figures(
                CalibrationSketch.of(score=score_, outcome=click, weight=weight),
                clicked,
                p_min=floor,
                population_size=size,
            )
            for (score_, click, weight), clicked, floor in zip(
                by_replica, on_clicks.double().cpu().numpy(), p_min, strict=True
            )
        ]
    )


def _by_replica(cells: SplitCells, score: Tensor) -> Iterator[Scored]:
    for line in zip(score, cells.click, cells.weight, strict=True):
        kept = line[2] > 0
        scores, clicks, weights = (values[kept].double().cpu().numpy() for values in line)
        yield scores, clicks, weights


def _both_kinds(scored: Scored) -> bool:
    return len(np.unique(scored[1])) == 2


@dataclass(kw_only=True)
class WithTower(Debiaser):
    """A method that has a click tower.

    Parameters
    ----------
    ratio
        Cells of D in a batch per row of O. The estimators are exact for any; more cells, less noise.
    click_warm_up, calibration
        How long the click tower trains alone, and which p becomes a weight: as in :class:`ClickTower`.
    """

    sources: ClassVar[tuple[Source, ...]] = ("external", "in-loop", "report-only")
    """Which values of ``calibration`` the method has."""

    ratio: float = 1.0
    click_warm_up: int = 50
    calibration: Literal["auto", "external", "in-loop", "report-only"] = "auto"

    @property
    def tower(self) -> ClickTower:
        """The click tower."""
        return ClickTower(
            self.sources, self.calibration, self.click_warm_up, self.ratio, self.p_min == "auto"
        )
