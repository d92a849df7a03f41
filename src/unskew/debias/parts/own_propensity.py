"""Methods that train a click tower of their own: which p becomes a weight, and how honest that tower is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from unskew.debias.core.given import GivenPropensities
from unskew.debias.core.held_out import Cells
from unskew.debias.core.plans import PassPlan, StepPlan
from unskew.debias.core.setting import Batch, Setting
from unskew.debias.parts.click_tower import MAP, identity_maps, mapped, platt_maps, tower_figures
from unskew.debias.parts.full_space import FullSpace
from unskew.debias.parts.tasks import base_logit, held_out
from unskew.errors import ParameterError
from unskew.estimator import require
from unskew.log import Log

Source = Literal["external", "in-loop", "report-only"]


@dataclass(kw_only=True)
class OwnPropensity(FullSpace):
    """p = σ(z) of the click tower; as a weight p̃ = σ(b·z + c), or p̃ from outside (METHODS §5B).

    The click tower trains on all cells of D but those held out: a tenth to calibrate with, a tenth to judge
    by. Where p becomes a weight it is clipped at ``p_min``, without gradient and without dropout. What the
    tower is worth on cells it never saw is in ``click_propensity_`` after ``fit``. Given propensities also
    weigh the validation loss (``selection="snips"``); without them it is unweighted.

    Parameters
    ----------
    calibration
        Which p becomes a weight. ``"external"``: the propensities given to ``fit``, while the click tower
        still trains for what it shares. ``"in-loop"``: the tower's, after a Platt map that is fitted anew
        after each epoch, for each replica, on held-out cells. ``"report-only"``: the tower's as it is.
        ``"auto"``: the first of these that is possible.
    """

    detached: ClassVar[tuple[str, ...]] = ("propensity in weights",)
    sources: ClassVar[tuple[Source, ...]] = ("external", "in-loop", "report-only")
    """Which values of ``calibration`` the method has."""

    calibration: Literal["auto", "external", "in-loop", "report-only"] = "auto"

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Towers for the prediction and the click on shared embeddings."""
        return {"prediction": ("prediction", "click")}

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
        return self.mapped(setting, batch).clamp(min=self.p_min)

    def mapped(self, setting: Setting, batch: Batch | Cells) -> Tensor:
        """The tower's p after the Platt map, if there is one; without dropout and gradient."""
        logit = setting.predicted(batch, "click") + base_logit(setting)
        return torch.sigmoid(mapped(setting, logit))

    def recalibrate(self, setting: Setting) -> None:
        """Fit the Platt map of each replica on its calibration cells.

        Not before the first epoch: the logits of an untrained tower hardly differ, so a map fitted on them
        is steep, and a little training later it would turn them into extremes.
        """
        if self.source(setting) != "in-loop":
            return
        cells = held_out(setting).calibration
        first = MAP not in setting.state
        setting.remember(MAP, identity_maps(cells))
        if not first:
            setting.remember(MAP, platt_maps(cells, self.mapped(setting, cells)))

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
        return tower_figures(cells, score, on_clicks, p_min=self.p_min, density=setting.density)

    def _check(self) -> None:
        super()._check()
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
