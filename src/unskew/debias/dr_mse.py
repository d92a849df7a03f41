"""DR-MSE: doubly robust with an imputer trained for bias and variance together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor
from unskew.debias.imputation import JointLearning, imputation_loss
from unskew.debias.method import within
from unskew.metrics.sample_weight import error_weight
from unskew.training.means import OnRows, PerModel


@register(order=160)
@dataclass(kw_only=True)
class DRMSE(JointLearning):
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p], L_imp = (1/|D|) Σ_O [λ·(1 − p)²/p³ + (1 − λ)·(1 − p)/p²]·(e − ê)².

    Between :class:`MRDR` (λ = 0, but without its copy) and :class:`DRBias` (λ = 1). The original learns λ
    in a scheme of three levels; here, as in public code, it is fixed.

    Parameters
    ----------
    bias_share
        λ: 0.5 on Coat and Yahoo! R3, 0.25 on KuaiRec in public code.
    """

    name = "dr-mse"
    paper = "Dai 2022"
    when = "doubly robust where it is unclear whether bias or variance hurts more"
    with_tables = "pseudo-outcome"

    ranges = within(bias_share="[0, 1]")

    bias_share: float = 0.5

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """Return w = λ·(1 − p)²/p³ + (1 − λ)·(1 − p)/p²."""
        return error_weight(propensity, bias_share=self.bias_share)


def dr_mse_imputation(
    conversion: OnRows,
    imputation: OnRows,
    logit: OnRows,
    propensity: OnRows,
    *,
    bias_share: float = 0.5,
    **options: Any,
) -> PerModel:
    """L_imp = (1/|D|) Σ_O [λ·(1 − p)²/p³ + (1 − λ)·(1 − p)/p²] · (e − ê)²; as :func:`dr_jl_imputation`.

    Parameters
    ----------
    bias_share
        λ.

    Examples
    --------
    >>> import torch
    >>> one = torch.tensor([1.0])
    >>> dr_mse_imputation(one, 0 * one, 2 * one, one / 4)
    tensor(24.)
    """
    weight = error_weight(propensity, bias_share=bias_share)
    return imputation_loss(conversion, imputation, logit, weight, **options)
