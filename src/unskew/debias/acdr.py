"""ACDR: DR-JL whose propensities are also trained for their calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.base.estimator import require_at_least
from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.imputation import JointLearning
from unskew.debias.losses import inverse_weight
from unskew.debias.setting import Batch, ClicksAndCells, Setting, Stage, State
from unskew.debias.towers import Source, Tasks, WithTower, held_out
from unskew.training import Pass, Step


class Bins(State):
    """The bins of the calibration error in this epoch."""

    edges: Tensor
    """Between them ``[R, M − 1]``."""


@register(order=260)
@dataclass(kw_only=True)
class ACDR(WithTower, JointLearning):
    """L_g = mean_D CE(o, p) + λ · ECE, ECE = Σ_m |mean_D 1[p in bin m]·(o − p)|; then DR-JL with p.

    The M bins have equal weight in D by the p of held-out cells, and are found anew in each epoch; a bin's p
    has its gradient, its edges have none. In turn, each epoch: the click network learns L_g, then DR-JL
    trains its imputer and its prediction with p, without gradient. Before that the click network warms up on
    the first term alone. A baseline: calibration in the loss, where post-hoc calibration is the alternative
    (``calibration="in-loop"``, or :class:`DRJL` with a calibrated :class:`Propensity`). Given propensities
    only weigh the validation loss.

    Parameters
    ----------
    penalty
        λ; 1 in the published code.
    bins
        M; 15 in the published code.
    calibration
        As in :class:`ClickTower`, but ``"auto"`` is the network's own.
    """

    name: ClassVar[str] = "acdr"
    paper: ClassVar[str] = "ACDR, public code"
    when: ClassVar[str] = "as a baseline: calibration in the loss of the propensity, not after it"
    needs_propensity: ClassVar[bool] = False
    sources: ClassVar[tuple[Source, ...]] = ("report-only", "in-loop")
    detached: ClassVar[tuple[str, ...]] = (
        "propensity in the imputation and prediction steps",
        "imputation in the prediction step",
        "prediction in the imputation step",
        "edges of the bins",
    )

    penalty: float = 1.0
    bins: int = 15

    def stages(self) -> tuple[Stage, ...]:
        """The click network alone, then with DR-JL in turn."""
        step = Step("click", self.propensity_loss, ("click",))
        click = Pass(ClicksAndCells(self.ratio), (step,), self.find_bins)
        return (*self.tower.stages(self.networks()), Stage((click, *self.plan())))

    def find_bins(self, setting: Setting) -> None:
        """Bins of equal weight, by the p of the cells that no click network trains on."""
        cells = held_out(setting).calibration
        p = self.tower.probability(setting, cells, raw=True)
        setting.state(Bins).write(edges=losses.equal_mass_edges(p, cells.weight.to(p.dtype), bins=self.bins))

    def propensity_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """L_g."""
        tasks, trains = Tasks.read(setting, observed, full), held_out(setting).trains
        return losses.acdr_propensity(
            tasks.of("click"),
            setting.state(Bins).edges,
            penalty=self.penalty,
            counts=(trains(observed.rows), trains(full.rows)),
            **tasks.space,
        )

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """w = 1/p, as DR-JL."""
        return inverse_weight(propensity)

    def _check(self) -> None:
        super()._check()
        require_at_least(0, penalty=self.penalty)
        require_at_least(1, bins=self.bins)
