"""DR-BIAS: doubly robust with an imputer trained for little bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor
from unskew.debias.imputation import JointLearning, imputation_loss
from unskew.metrics.sample_weight import bias_weight
from unskew.training.means import OnRows, PerModel


@register(order=150)
@dataclass(kw_only=True)
class DRBias(JointLearning):
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p], L_imp = (1/|D|) Σ_O (1 − p)²/p³ · (e − ê)², in turn.

    As :class:`DRJL`, but the imputer minimises the bias that wrong propensities leave. The weight is the
    most uneven of its family (a few small propensities decide): use it with propensities clipped well, and
    compare :class:`DRMSE`, which mixes it with the weight of :class:`MRDR`.
    """

    name = "dr-bias"
    paper = "Dai 2022"
    when = "doubly robust where propensities may be wrong and bias is what hurts"
    with_tables = "pseudo-outcome"

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """Return w = (1 − p)²/p³."""
        return bias_weight(propensity)


def dr_bias_imputation(
    conversion: OnRows, imputation: OnRows, logit: OnRows, propensity: OnRows, **options: Any
) -> PerModel:
    """L_imp = (1/|D|) Σ_O (1 − p)²/p³ · (e − ê)²; parameters as in :func:`dr_jl_imputation`.

    Examples
    --------
    >>> import torch
    >>> one = torch.tensor([1.0])
    >>> dr_bias_imputation(one, 0 * one, 2 * one, one / 4)
    tensor(36.)
    """
    return imputation_loss(conversion, imputation, logit, bias_weight(propensity), **options)
