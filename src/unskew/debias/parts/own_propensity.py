"""Methods that train a click tower of their own: which p becomes a weight, and how honest that tower is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from unskew.debias.core.given import GivenPropensities
from unskew.debias.core.held_out import Cells
from unskew.debias.core.method import Rows
from unskew.debias.core.plans import PassPlan, StagePlan, StepPlan
from unskew.debias.core.setting import FLOOR, Batch, Setting
from unskew.debias.parts.click_tower import (
    MAP,
    chosen_floors,
    identity_maps,
    mapped,
    platt_maps,
    tower_figures,
)
from unskew.debias.parts.full_space import FullSpace
from unskew.debias.parts.tasks import Tasks, base_logit, held_out
from unskew.errors import ParameterError
from unskew.estimator import require
from unskew.log import Log
from unskew.training import cross_entropy

Source = Literal["external", "in-loop", "report-only"]

CLICK_PATIENCE = 3
"""Epochs without a better likelihood of held-out clicks after which the click tower has learned enough."""


@dataclass(kw_only=True)
class OwnPropensity(FullSpace):
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
    click_warm_up
        Epochs, at most, in which the click tower trains alone; 0 for none.
    calibration
        Which p becomes a weight. ``"external"``: the propensities given to ``fit``, while the click tower
        still trains for what it shares. ``"in-loop"``: the tower's, after a Platt map that is fitted anew
        after each epoch, for each replica, on held-out cells. ``"report-only"``: the tower's as it is.
        ``"auto"``: the first of these that is possible.
    """

    detached: ClassVar[tuple[str, ...]] = ("propensity in weights",)
    sources: ClassVar[tuple[Source, ...]] = ("external", "in-loop", "report-only")
    """Which values of ``calibration`` the method has."""

    click_warm_up: int = 50
    calibration: Literal["auto", "external", "in-loop", "report-only"] = "auto"

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Towers for the prediction and the click on shared embeddings."""
        return {"prediction": ("prediction", "click")}

    def stages(self) -> tuple[StagePlan, ...]:
        """The click tower alone, then everything."""
        return (*self.warm_up_of_clicks(), StagePlan(self.plan()))

    def warm_up_of_clicks(self) -> tuple[StagePlan, ...]:
        """The stage in which the click tower trains alone, if there is one."""
        if not self.click_warm_up:
            return ()
        network = next(name for name, towers in self.networks().items() if "click" in towers)
        alone = self.full_pass(StepPlan("click", self.click_loss, (network,)))
        return (
            StagePlan(
                (alone,), self.click_warm_up, validate=self.held_out_click_loss, patience=CLICK_PATIENCE
            ),
        )

    def learns_from(self) -> Mapping[str, Rows]:
        """Networks with a click tower learn from all of D."""
        return {name: "population" for name, towers in self.networks().items() if "click" in towers}

    def click_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_D CE(o, p)."""
        return Tasks.read(setting, observed, full).click_loss()

    def held_out_click_loss(self, setting: Setting) -> Tensor:
        """CE(o, p) of the calibration cells, as they weigh in D ``[R]``."""
        cells = held_out(setting).calibration
        logit = setting.predicted(cells, "click") + base_logit(setting)
        each = cross_entropy(cells.click, logit)
        return (each * cells.weight).sum(1) / cells.weight.sum(1)

    def plan(self) -> tuple[PassPlan, ...]:
        """One joint step over O and D for everything."""
        step = StepPlan(self.name, self.loss, tuple(self.networks()))
        return (self.full_pass(step, before=self.recalibrate),)

    def source(self, setting: Setting) -> Source:
        """Where the p of weights comes from; ``"auto"`` resolved."""
        if self.calibration != "auto":
            return self.calibration
        return next(source for source in self.sources if setting.given or source != "external")

    def propensity(self, setting: Setting, batch: Batch) -> Tensor:
        """The p of weights ``[R, B]``, clipped, without gradient."""
        if self.source(setting) == "external":
            return batch.propensity
        return self.mapped(setting, batch).clamp(min=setting.floor)

    def mapped(self, setting: Setting, batch: Batch | Cells) -> Tensor:
        """The tower's p after the Platt map, if there is one; without dropout and gradient."""
        logit = setting.predicted(batch, "click") + base_logit(setting)
        return torch.sigmoid(mapped(setting, logit))

    def recalibrate(self, setting: Setting) -> None:
        """Fit the Platt map of each replica on its calibration cells, and choose its clip.

        Not before the first epoch of a tower that did not train alone: its logits hardly differ, so a map
        fitted on them is steep, and a little training later it would turn them into extremes.
        """
        if self.source(setting) == "in-loop":
            cells = held_out(setting).calibration
            untrained = MAP not in setting.state and not self.click_warm_up
            setting.remember(MAP, identity_maps(cells))
            if not untrained:
                setting.remember(MAP, platt_maps(cells, self.mapped(setting, cells)))
        if self.p_min == "auto":
            setting.remember(FLOOR, chosen_floors(self.mapped(setting, setting.clicks)))

    def finish(self, setting: Setting) -> None:
        """Judge the click tower on evaluation cells: ``click_propensity_["raw"]`` and ``["calibrated"]``."""
        self.recalibrate(setting)
        self.click_propensity_ = {}
        if MAP in setting.state:
            self.click_propensity_["calibrated"] = self._figures(setting)
            del setting.state[MAP]
        self.click_propensity_["raw"] = self._figures(setting)

    def _figures(self, setting: Setting) -> dict[str, Any] | None:
        cells = held_out(setting).evaluation
        score, on_clicks = self.mapped(setting, cells), self.mapped(setting, setting.clicks)
        return tower_figures(
            cells, score, on_clicks, p_min=setting.floor.flatten().tolist(), density=setting.density
        )

    def _check(self) -> None:
        super()._check()
        require(
            self.click_warm_up >= 0,
            f"click_warm_up must be at least 0, not {self.click_warm_up}",
            "give 0 or more",
        )
        require(
            self.calibration in ("auto", *self.sources),
            f"{self.name} has no calibration {self.calibration!r}",
            f"use one of auto, {', '.join(self.sources)}",
        )

    def _given(self, log: Log, propensity: Any, calibrated: bool) -> GivenPropensities | None:
        if self.calibration == "external" and propensity is None:
            raise ParameterError(
                f"{self.name} with calibration='external' needs propensities",
                remedy="give fit(…, propensity=) a Propensity, an array or a column, or use 'in-loop'",
            )
        return super()._given(log, propensity, calibrated)
