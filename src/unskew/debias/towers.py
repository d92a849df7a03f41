"""Click towers: what they learn over D, which p becomes a weight, and how honest it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.base.estimator import require_choice
from unskew.base.tensors import Tensor, torch
from unskew.calibration import Platt
from unskew.data import Log
from unskew.debias.imputation import JointLearning
from unskew.debias.ips import Errors
from unskew.debias.method import (
    Batch,
    ClicksAndCells,
    Debiaser,
    Pass,
    Setting,
    SplitCells,
    Stage,
    State,
    Step,
    within,
)
from unskew.metrics import CalibrationSketch
from unskew.metrics.weights import least_error_clip
from unskew.propensity.diagnosis import average, propensity_figures
from unskew.training.means import OnBoth, Space, cross_entropy

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

    logits: Mapping[str, tuple[Tensor, Tensor]]
    space: Mapping[str, Any]
    """How the batches stand for D, as losses take it."""

    @classmethod
    def read(cls, setting: Setting, observed: Batch, full: Batch, *towers: str) -> Tasks:
        """Read both batches with the click tower and others."""
        names = ("click", *towers)
        pairs = zip(
            *(_with_constants(setting, batch, setting.logits(batch, *names)) for batch in (observed, full)),
            strict=True,
        )
        space = {"density": setting.density, "unclicked": 1.0 - setting.clicked(full)}
        return cls(dict(zip(names, pairs, strict=True)), space)

    def of(self, tower: str) -> tuple[Tensor, Tensor]:
        """Return a tower's logits on the batch of O and on the batch of D."""
        return self.logits[tower]


def _with_constants(setting: Setting, batch: Batch, logits: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return logits, the first of which, of clicks, has no gradient on held-out cells."""
    click = logits[0] + base_logit(setting)
    return torch.where(setting.cells.trains(batch.rows), click, click.detach()), *logits[1:]


def base_logit(setting: Setting) -> float:
    """Return logit(|O|/|D|), where the click tower starts; it learns who differs from the mean."""
    density = min(max(setting.density, LEAST_DENSITY), 1.0 - LEAST_DENSITY)
    return math.log(density / (1.0 - density))


class PlattMap(State):
    """σ(b·z + c) of each replica's click logits z."""

    slope: Tensor
    """b ``[R, 1]``."""
    intercept: Tensor
    """c ``[R, 1]``."""


@dataclass(kw_only=True)
class WithTower(Debiaser):
    """p = σ(z) of a click tower; as a weight p̃ = σ(b·z + c), or p̃ from outside (METHODS §5B).

    The click tower trains on all cells of D but those held out: a tenth to calibrate with, a tenth to judge
    by. Where p becomes a weight it is clipped at ``p_min``, without gradient and without dropout. What the
    tower is worth on cells it never saw is in ``click_propensity_`` after ``fit``. Given propensities also
    weigh the validation loss (``selection="snips"``); without them it is unweighted.

    Before anything else the click tower learns by itself, L = (1/|D|) Σ_D CE(o, p), until the likelihood of
    clicks on its calibration cells no longer rises. Learned only beside the conversions, it would stop with
    them: a few passes over O, after which it can hardly tell one pair from another.

    Parameters
    ----------
    ratio
        Cells of D in a batch per row of O. The estimators are exact for any; more cells, less noise.
    calibration
        Which p becomes a weight. ``"external"``: the propensities given to ``fit``, while the click tower
        still trains for what it shares. ``"in-loop"``: the tower's, after a Platt map that is fitted anew
        after each epoch, for each replica, on held-out cells. ``"report-only"``: the tower's as it is.
        ``"auto"``: the first of these that is possible.
    click_warm_up
        Epochs, at most, in which the click tower trains alone; 0 for none.
    """

    sources: ClassVar[tuple[Source, ...]] = ("external", "in-loop", "report-only")
    """Which values of ``calibration`` the method has."""
    has_tower = True
    ranges = within(ratio="(0, inf)", click_warm_up="[0, inf)")

    ratio: float = 1.0
    click_warm_up: int = 50
    calibration: Literal["auto", "external", "in-loop", "report-only"] = "auto"

    def source(self, setting: Setting) -> Source:
        """Return where the p of weights comes from; ``"auto"`` resolved."""
        if self.calibration != "auto":
            return self.calibration
        return next(source for source in self.sources if setting.given or source != "external")

    def propensity_of(self, setting: Setting, batch: Batch) -> Tensor:
        """Return the p of weights ``[R, B]``, clipped, without gradient."""
        if self.source(setting) == "external":
            return batch.propensity
        return self.click_probability(setting, batch).clamp(min=setting.floor)

    def click_probability(self, setting: Setting, batch: Batch | SplitCells, *, raw: bool = False) -> Tensor:
        """Return the tower's p after the Platt map, if there is one; without dropout and gradient."""
        logit = setting.predicted(batch, "click") + base_logit(setting)
        platt = setting.state(PlattMap)
        return torch.sigmoid(logit if raw or platt.is_empty else platt.slope * logit + platt.intercept)

    def calibrate_clicks(self, setting: Setting) -> None:
        """Fit the Platt map of each replica on its calibration cells, and choose its clip.

        Not before the first epoch of a tower that did not train alone: its logits hardly differ, so a map
        fitted on them is steep, and a little training later it would turn them into extremes.
        """
        if self.source(setting) == "in-loop":
            platt, cells = setting.state(PlattMap), setting.cells.calibration
            fits = self.click_warm_up > 0 or not platt.is_empty
            one = torch.ones(len(cells.weight), 1, device=cells.weight.device)
            platt.write(slope=one, intercept=torch.zeros_like(one))
            if fits:
                slope, intercept = platt_maps(cells, self.click_probability(setting, cells)).unbind(-1)
                platt.write(slope=slope, intercept=intercept)
        if self.p_min == "auto":
            on_clicks = self.click_probability(setting, setting.clicks)
            floors = [least_error_clip(propensity=line) for line in on_clicks.double().cpu().numpy()]
            setting.floor.copy_(torch.tensor(floors, dtype=torch.float32).unsqueeze(1))

    def before_epoch(self, setting: Setting) -> None:
        """Calibrate p anew."""
        self.calibrate_clicks(setting)

    def warm_up_stages(self) -> tuple[Stage, ...]:
        """Return the stage in which the click tower trains alone, if there is one."""
        if not self.click_warm_up:
            return ()
        trains = tuple(name for name, towers in self.networks().items() if "click" in towers)
        alone = Pass(ClicksAndCells(self.ratio), (Step("click", loss_of_clicks, trains),))
        return (Stage((alone,), self.click_warm_up, validate=held_out_click_loss, patience=CLICK_PATIENCE),)

    def stages(self) -> tuple[Stage, ...]:
        """Return the click tower's stage, then the method's."""
        return (*self.warm_up_stages(), *super().stages())

    def finish(self, setting: Setting) -> None:
        """Judge the tower on evaluation cells: ``"raw"`` and, where there is a map, ``"calibrated"``."""
        super().finish(setting)
        self.calibrate_clicks(setting)
        calibrated = {} if setting.state(PlattMap).is_empty else {"calibrated": False}
        kinds, cells = {**calibrated, "raw": True}, setting.cells.evaluation
        self.click_propensity_ = {kind: self._figures(setting, raw=raw) for kind, raw in kinds.items()}
        scored = {
            kind: next(_by_replica(cells, self.click_probability(setting, cells, raw=raw)))
            for kind, raw in kinds.items()
        }
        self.click_sketches_ = {
            kind: CalibrationSketch.of(score=score, outcome=click, weight=weight)
            for kind, (score, click, weight) in scored.items()
        }

    def _figures(self, setting: Setting, *, raw: bool) -> dict[str, Any] | None:
        """Return means over seeds and each seed's figures, as :meth:`unskew.Propensity.diagnose` has them.

        None where the cells of some replica are all clicked, or none is.
        """
        cells = setting.cells.evaluation
        scored = list(_by_replica(cells, self.click_probability(setting, cells, raw=raw)))
        if not all(_both_kinds(each) for each in scored):
            return None
        on_clicks = self.click_probability(setting, setting.clicks, raw=raw).double().cpu().numpy()
        return average(
            [
                propensity_figures(
                    CalibrationSketch.of(score=score, outcome=click, weight=weight),
                    clicked,
                    p_min=floor,
                    population_size=round(on_clicks.shape[1] / setting.density),
                )
                for (score, click, weight), clicked, floor in zip(
                    scored, on_clicks, setting.floor.flatten().tolist(), strict=True
                )
            ]
        )

    def own_propensity(self, setting: Setting, rows: Log) -> NDArray[np.float64]:
        """Return the tower's p of some rows, clipped: ``[R, n]``."""
        cells = SplitCells(self.reader().of_log(rows).rows, torch.empty(0), torch.empty(0))
        p = torch.maximum(self.click_probability(setting, cells), setting.floor)
        return np.asarray(p.double().cpu().numpy())

    def _check(self) -> None:
        super()._check()
        require_choice("calibration", self.calibration, ("auto", *self.sources))


@dataclass(kw_only=True)
class OwnPropensity(WithTower, JointLearning):
    """Joint learning with the propensities of a click network of its own, which shares nothing."""

    needs_propensity = False

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Return a network each for the prediction, the imputer and the clicks."""
        return {**super().networks(), "click": ("click",)}

    def before_imputation(self, setting: Setting) -> None:
        """Calibrate p anew, and what joint learning does."""
        self.calibrate_clicks(setting)
        super().before_imputation(setting)

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """Return a batch of O with the p of the click network."""
        return replace(observed, propensity=self.propensity_of(setting, observed))


def click_loss(click_logit: OnBoth, *, errors: Errors = "ce", **space: Any) -> Tensor:
    """L = (1/|D|) Σ_D CE(o, p), or mean_D (o − p)².

    Parameters
    ----------
    click_logit
        Logit of p ``[..., B]``; or a pair.
    space
        ``click``, on rows of D; or with pairs ``density`` and ``unclicked``, which is 1 on the rows of the
        batch of D that have no click.

    Examples
    --------
    >>> import torch
    >>> click_loss(torch.tensor([0.0, 2.0]), click=torch.tensor([1.0, 0.0]))
    tensor(1.4100)
    """
    whole = Space(**space)
    observed, full = whole.both(click_logit)
    if errors == "squared":
        return whole.over_cells(
            clicked=(1.0 - torch.sigmoid(observed)).square(), unclicked=torch.sigmoid(full).square()
        )
    logsigmoid = torch.nn.functional.logsigmoid
    return whole.over_cells(clicked=-logsigmoid(observed), unclicked=-logsigmoid(-full))


def loss_of_clicks(setting: Setting, observed: Batch, full: Batch) -> Tensor:
    """Return mean_D CE(o, p) of the click tower alone."""
    tasks = Tasks.read(setting, observed, full)
    return click_loss(tasks.of("click"), **tasks.space)


def held_out_click_loss(setting: Setting) -> Tensor:
    """CE(o, p) of the calibration cells, as they weigh in D ``[R]``."""
    cells = setting.cells.calibration
    error = cross_entropy(cells.click, setting.predicted(cells, "click") + base_logit(setting))
    return (error * cells.weight).sum(1) / cells.weight.sum(1)


def platt_maps(cells: SplitCells, score: Tensor) -> Tensor:
    """Return slope and intercept of each replica's Platt map ``[R, 1, 2]``, from scores ``[R, n]`` of cells.

    Where a replica's cells are all clicked, or none is, it gets the identity.
    """
    maps = []
    for scored in _by_replica(cells, score):
        platt = Platt().fit(*scored) if _both_kinds(scored) else None
        maps.append((1.0, 0.0) if platt is None else (platt.slope_, platt.intercept_))
    return torch.tensor(maps, device=score.device).unsqueeze(1)


def _by_replica(cells: SplitCells, score: Tensor) -> Iterator[Scored]:
    for line in zip(score, cells.click, cells.weight, strict=True):
        counted = line[2] > 0
        scores, clicks, weights = (values[counted].double().cpu().numpy() for values in line)
        yield scores, clicks, weights


def _both_kinds(scored: Scored) -> bool:
    return len(np.unique(scored[1])) == 2
