"""KB-DR: joint learning with weights that balance kernel means in the place of 1/p."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from unskew.base.registry import register
from unskew.debias.dr import dr
from unskew.debias.forms import imputation_loss
from unskew.debias.imputation import JointLearning
from unskew.debias.kb_ips import Balanced
from unskew.debias.setting import Batch, ClicksAndCells, Plan, Setting
from unskew.metrics.sample_weight import inverse_weight
from unskew.training import Pass, Step

if TYPE_CHECKING:
    from jaxtyping import Float


@register(order=240)
@dataclass(kw_only=True)
class KBDR(Balanced, JointLearning):
    """L = (1/|D|) Σ_D ê + (1/|O|) Σ_O w·(e − ê), with w from :class:`unskew.debias.kb_ips.KernelBalance`.

    The imputer minimises (1/|O|) Σ_O w·(e − ê)². w has no gradient in either; on each batch the weights are
    trained, then the imputer, then the prediction. Use it where :class:`DRJL` is the choice but its
    propensities leave some kinds of pairs out of balance; it trains three networks, and wants more clicks.

    Parameters
    ----------
    kernel, anchors, tolerance, gamma
        As in :class:`KBIPS`.
    """

    name: ClassVar[str] = "kb-dr"
    paper: ClassVar[str] = "Li 2024"
    when: ClassVar[str] = "as kb-ips, with an imputer that lowers the variance"
    detached: ClassVar[tuple[str, ...]] = (
        *JointLearning.detached,
        "weight in the imputation and prediction steps",
        "embeddings in the kernels",
    )

    def networks(self) -> dict[str, tuple[str, ...]]:
        """The predictor, the imputer and the weights."""
        return {**super().networks(), "weight": ("weight",)}

    def plan(self) -> Plan:
        """On each batch the weights, the imputer, then the prediction."""
        imputation = Step("imputation", self.imputation_loss, ("imputation",))
        prediction = Step("prediction", self.loss, ("prediction",))
        steps = (self.balance.step(), imputation, prediction)
        return (Pass(ClicksAndCells(self.ratio), steps, self.before_epoch),)

    def before_epoch(self, setting: Setting) -> None:
        """What joint learning prepares for its two passes."""
        self.before_imputation(setting)
        self.before_prediction(setting)

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """w."""
        return inverse_weight(propensity)

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """With w·|D|/|O| in the place of 1/p."""
        return self.balance.weighed(setting, observed)


def kb_dr(
    conversion: Float[Tensor, "*#batches #O"],
    logit: tuple[Tensor, Tensor],
    weight: Float[Tensor, "*#batches #O"],
    imputation: tuple[Tensor, Tensor],
    **options: Any,
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_D ê + (1/|O|) Σ_O w·(e − ê), w and ê without gradient: :func:`dr` with w·|D|/|O| for 1/p.

    Parameters
    ----------
    conversion, weight
        r and w of clicks.
    logit, imputation
        Pairs, as in :func:`dr`.
    options
        ``form`` and ``target_clip`` of :func:`dr`; the latter clips r̃ + w·(r − r̃).

    Examples
    --------
    >>> import torch
    >>> one, zero = torch.ones(1), torch.zeros(1)
    >>> kb_dr(one, (2 * one, zero), one, (zero, zero))  # CE(½, ½) − (r − r̃)·a
    tensor(-0.3069)
    """
    return dr(conversion, logit, 1.0 / weight, imputation, density=1.0, **options)


def kb_dr_imputation(
    conversion: Float[Tensor, "*#batches #B"],
    imputation: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    weight: Float[Tensor, "*#batches #B"],
    **options: Any,
) -> Float[Tensor, " *batches"]:
    """L_imp = (1/|O|) Σ_O w·(e − ê)²; options as in :func:`imputation_loss`.

    Examples
    --------
    >>> import torch
    >>> one = torch.tensor([1.0])
    >>> kb_dr_imputation(one, 0 * one, 2 * one, 3 * one)
    tensor(3.)
    """
    return imputation_loss(conversion, imputation, logit, weight, **options)
