"""DR: doubly robust with one imputed conversion rate for all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.base.estimator import require_above
from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.imputation import (
    require_target_clip,
    tell_of_far_targets,
    watch_for_far_targets,
    watch_targets,
)
from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, ClicksAndCells, Plan, Setting, State
from unskew.training import Pass, Step


class Rate(State):
    """One conversion rate for all pairs."""

    logit: Tensor
    """logit r̃ ``[R, 1]``."""


@register(order=50)
@dataclass(kw_only=True)
class DR(Debiaser):
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p] with ê = CE(r̃, r̂), r̃ = Σ_O r/p / Σ_O 1/p.

    r̃ is the self-normalised estimate of the conversion rate over D from the training clicks; public code
    takes it from randomly shown test pairs, which leaks. Nothing is learned but the prediction. With a fixed
    r̃ L would be unbiased for the ideal loss where p is true; since r̃ comes from the same clicks it is so only
    in the limit, with a bias of the order of 1/|O|. Less variance than IPS where r̃ is better than no guess at
    all; :class:`DRJL` learns a better one.

    Parameters
    ----------
    ratio
        Cells of D in a batch per row of O. The estimator is exact for any; more cells, less noise.
    target_clip
        τ: effective targets r̃ + (r − r̃)/p are clipped to [−τ, 1 + τ]; None (the papers) does not.
    """

    name: ClassVar[str] = "dr"
    paper: ClassVar[str] = "Wang 2019"
    when: ClassVar[str] = "as IPS with less variance, where clicks are too few to learn an imputer"
    needs_propensity: ClassVar[bool] = True
    needs_full_space: ClassVar[bool] = True
    imputation: ClassVar[str | None] = "P1"
    detached: ClassVar[tuple[str, ...]] = ("propensity", "imputation")

    ratio: float = 1.0
    target_clip: float | None = None

    def plan(self) -> Plan:
        """One pass over O and D for the prediction."""
        step = Step("prediction", self.loss, ("prediction",))
        return (Pass(ClicksAndCells(self.ratio), (step,), self.before_prediction),)

    def before_prediction(self, setting: Setting) -> None:
        """Find r̃, once."""
        watch_targets(setting)
        if setting.state(Rate).is_empty:
            clicks = setting.clicks
            setting.state(Rate).write(logit=losses.constant_imputation(clicks.conversion, clicks.propensity))

    def imputer_output(self, setting: Setting, batch: Batch) -> Tensor:
        """logit r̃."""
        return setting.state(Rate).logit.expand(batch.conversion.shape)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_{B_D} ê + (|O|/|D|) · mean_{B_O} (e − ê)/p."""
        logit, everywhere = setting.logit(observed), setting.logit(full)
        imputed, imputed_everywhere = (self.imputer_output(setting, batch) for batch in (observed, full))
        if self.target_clip is None:
            watch_for_far_targets(setting, observed, imputed.sigmoid())
        return losses.dr(
            observed.conversion,
            (logit, everywhere),
            observed.propensity,
            (imputed, imputed_everywhere),
            density=setting.density,
            target_clip=self.target_clip,
        )

    def finish(self, setting: Setting) -> None:
        """Tell of far targets, once."""
        tell_of_far_targets(setting, self.name)

    def _check(self) -> None:
        super()._check()
        require_above(0, ratio=self.ratio)
        require_target_clip(self.target_clip, "P1")
