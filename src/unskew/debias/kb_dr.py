"""KB-DR: joint learning with weights that balance kernel means in the place of 1/p."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor
from unskew.debias.dr import dr
from unskew.debias.imputation import JointLearning, imputation_loss
from unskew.debias.kb_ips import Balanced
from unskew.debias.method import Batch, Debiaser, Plan, Setting, Step
from unskew.training.means import OnRows, PerModel


@register(order=240)
@dataclass(kw_only=True)
class KBDR(Balanced, JointLearning):
    """L = (1/|D|) Σ_D ê + (1/|O|) Σ_O w·(e − ê), with w from :class:`KBIPS`.

    The imputer minimises (1/|O|) Σ_O w·(e − ê)². w has no gradient in either; on each batch the weights are
    trained, then the imputer, then the prediction. Use it where :class:`DRJL` is the choice but its
    propensities leave some kinds of pairs out of balance; it trains three networks, and wants more clicks.

    Parameters
    ----------
    kernel, anchors, tolerance, gamma
        As in :class:`KBIPS`.
    """

    name = "kb-dr"
    paper = "Li 2024"
    when = "as kb-ips, with an imputer that lowers the variance"

    def steps(self) -> tuple[Step, ...]:
        """Train the weights, the imputer, then the prediction."""
        losses = {"weight": self.weight_loss, "imputation": self.imputation_loss, "prediction": self.loss}
        return tuple(Step(name, loss, (name,)) for name, loss in losses.items())

    def plan(self) -> Plan:
        """Return one pass, other than joint learning has it."""
        return Debiaser.plan(self)

    def before_epoch(self, setting: Setting) -> None:
        """Prepare what joint learning prepares for its two passes."""
        self.before_imputation(setting)
        self.before_prediction(setting)

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """Return the batch with w·|D|/|O| in the place of 1/p."""
        return replace(observed, propensity=setting.density / self.weight(setting, observed))


def kb_dr(
    conversion: OnRows,
    logit: tuple[Tensor, Tensor],
    weight: OnRows,
    imputation: tuple[Tensor, Tensor],
    **options: Any,
) -> PerModel:
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
    conversion: OnRows, imputation: OnRows, logit: OnRows, weight: OnRows, **options: Any
) -> PerModel:
    """L_imp = (1/|O|) Σ_O w·(e − ê)²; options as in :func:`imputation_loss`.

    Examples
    --------
    >>> import torch
    >>> one = torch.tensor([1.0])
    >>> kb_dr_imputation(one, 0 * one, 2 * one, 3 * one)
    tensor(3.)
    """
    return imputation_loss(conversion, imputation, logit, weight, **options)
