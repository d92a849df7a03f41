"""MRDR: more robust doubly robust, an imputer trained for little variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor
from unskew.debias.imputation import Copy, JointLearning, imputation_loss
from unskew.metrics.sample_weight import variance_weight
from unskew.training.means import OnRows, PerModel


@register(order=70)
@dataclass(kw_only=True)
class MRDR(JointLearning):
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p], L_imp = (1/|D|) Σ_O (1 − p)/p² · (e − ê)², in turn.

    As :class:`DRJL`, but the imputer minimises the variance of the estimate instead of the error of
    imputation, and starts each epoch from the prediction's weights. Use it where propensities vary much;
    with propensities near 1 its weights vanish and the imputer does not train.
    """

    name = "mrdr"
    paper = "Guo 2021"
    when = "doubly robust where propensities vary much and variance is what hurts"
    with_tables = "pseudo-outcome"

    copy: Copy = "epoch"

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """Return w = (1 − p)/p²."""
        return variance_weight(propensity)


def mrdr_imputation(
    conversion: OnRows, imputation: OnRows, logit: OnRows, propensity: OnRows, **options: Any
) -> PerModel:
    """L_imp = (1/|D|) Σ_O (1 − p)/p² · (e − ê)²; parameters as in :func:`dr_jl_imputation`.

    Examples
    --------
    >>> import torch
    >>> one = torch.tensor([1.0])
    >>> mrdr_imputation(one, 0 * one, 2 * one, one / 2)
    tensor(2.)
    """
    return imputation_loss(conversion, imputation, logit, variance_weight(propensity), **options)
