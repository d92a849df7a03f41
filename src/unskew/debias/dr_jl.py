"""DR-JL: doubly robust joint learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.debias.imputation import JointLearning, imputation_loss
from unskew.metrics.sample_weight import inverse_weight
from unskew.training.means import OnRows, PerModel


@register(order=60)
@dataclass(kw_only=True)
class DRJL(JointLearning):
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p], L_imp = (1/|D|) Σ_O (e − ê)²/p, in turn.

    e = CE(r, r̂), ê = CE(r̃, r̂) with r̃ from an imputer of its own; p is ``propensity``. Unbiased for the
    ideal loss if either p or ê is true. Use it where propensities are fair and clicks enough to learn
    from; where weights are large :class:`MRDR` trains its imputer for less variance.
    """

    name = "dr-jl"
    paper = "Wang 2019"
    when = "the first doubly robust method to try, with calibrated propensities"
    with_tables = "pseudo-outcome"


def dr_jl_imputation(
    conversion: OnRows, imputation: OnRows, logit: OnRows, propensity: OnRows, **options: Any
) -> PerModel:
    """L_imp = (1/|D|) Σ_O (e − ê)²/p.

    Parameters
    ----------
    conversion, imputation, logit, propensity
        r, the imputer's output, the logit of the prediction (held fixed) and p, ``[..., B]``: of clicks; or
        of rows of D, with ``click``.
    options
        ``click``, ``density``, ``loss``, ``form``, ``targeting`` and ``mean_weight`` of
        :func:`imputation_loss`.

    Examples
    --------
    >>> import torch
    >>> one = torch.tensor([1.0])
    >>> dr_jl_imputation(one, 0 * one, 2 * one, one / 4)
    tensor(4.)
    """
    return imputation_loss(conversion, imputation, logit, inverse_weight(propensity), **options)
