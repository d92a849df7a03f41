"""GPL: MRDR whose propensities are also learned for the bias and the variance of its estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torch import Tensor

from unskew.debias.core.checks import require_share
from unskew.debias.core.plans import Loss, StagePlan, StepPlan
from unskew.debias.core.setting import Batch, Setting
from unskew.debias.mrdr import MRDR
from unskew.debias.parts.own_propensity import OwnPropensity, Source
from unskew.debias.parts.propensity_penalties import mean_penalties
from unskew.debias.parts.tasks import Tasks
from unskew.estimator import require
from unskew.registry import register


@register(order=80)
@dataclass(kw_only=True)
class GPL(MRDR, OwnPropensity):
    """L_g = mean_D CE(o, p) + α · [β · mean_D (o − p)²·(δ/p)² + (1 − β) · mean_D o·(δ/p)² / n].

    δ = e − ê of the current MRDR, without gradient, and 0 where nothing was clicked: the two penalties are
    the squared bias and the variance that p gives its estimate; p, before any calibration, has its gradient
    here. In turn, each epoch: the click network learns L_g, p̃ is calibrated on held-out cells (METHODS
    §5B), and MRDR trains its imputer and its prediction with p̃, without gradient. Before that the click
    network and MRDR warm up. Use it where propensities should serve the estimate; given propensities only
    weigh the validation loss (with fixed ones use :class:`MRDR`).

    Parameters
    ----------
    penalty, bias_share
        α and β; 0.7 both in published code.
    variance_over
        n: the ``"batch"`` (published code), or the ``"population"`` |D| (its erratum), where the variance
        all but vanishes.
    warm_up
        Epochs in which MRDR trains alone, after the click network did.
    click_weight_decay
        Of the click network; None takes ``weight_decay``.
    """

    name: ClassVar[str] = "gpl"
    paper: ClassVar[str] = "Zhou 2023"
    when: ClassVar[str] = "MRDR where propensities should be learned for its bias and variance"
    needs_propensity: ClassVar[bool] = False
    sources: ClassVar[tuple[Source, ...]] = ("in-loop", "report-only")
    detached: ClassVar[tuple[str, ...]] = (
        "propensity in the imputation and prediction steps",
        "imputation in the prediction step",
        "prediction in the imputation step",
        "errors in the propensity step",
    )

    penalty: float = 0.7
    bias_share: float = 0.7
    variance_over: Literal["batch", "population"] = "batch"
    warm_up: int = 2
    click_weight_decay: float | None = None
    patience: int | None = 20

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Those of MRDR, and one for the click."""
        return {**super().networks(), "click": ("click",)}

    def weight_decays(self) -> Mapping[str, float]:
        """MRDR's, and ``click_weight_decay`` where it is given."""
        own = {} if self.click_weight_decay is None else {"click": self.click_weight_decay}
        return {**super().weight_decays(), **own}

    def stages(self) -> tuple[StagePlan, ...]:
        """The click network alone, MRDR alone, then both in turn."""
        together = (self.full_pass(_click_step(self.propensity_loss)), *self.plan())
        mrdr = (StagePlan(self.plan(), self.warm_up, selects=False),) if self.warm_up else ()
        return (*self.warm_up_of_clicks(), *mrdr, StagePlan(together))

    def propensity_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """L_g."""
        tasks = Tasks.read(setting, observed, full)
        output, logit = setting.predicted(observed, "imputation"), setting.predicted(observed)
        deviation = self.form.error(observed.conversion, logit) - self.form.imputed(output, logit)
        bias, variance = mean_penalties(tasks.observed["click"], deviation, setting.density)
        size = setting.clicks.rows.shape[1] / setting.density
        count = self.batch_size if self.variance_over == "batch" else size
        penalty = self.bias_share * bias + (1.0 - self.bias_share) * variance / count
        return tasks.click_loss() + self.penalty * penalty

    def before_imputation(self, setting: Setting) -> None:
        """The new p̃ of all training clicks, then as MRDR."""
        self.recalibrate(setting)
        setting.clicks = self.weighed(setting, setting.clicks)
        super().before_imputation(setting)

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """With p̃ in the place of given propensities."""
        return replace(observed, propensity=self.propensity(setting, observed))

    def finish(self, setting: Setting) -> None:
        """Tell of far targets, and judge the click network."""
        super().finish(setting)
        OwnPropensity.finish(self, setting)

    def _check(self) -> None:
        super()._check()
        require(self.penalty >= 0, f"penalty must not be negative, not {self.penalty}", "give 0 or more")
        require_share("bias_share", self.bias_share)


def _click_step(loss: Loss) -> StepPlan:
    return StepPlan("click", loss, ("click",))
