"""DR-JL: doubly robust joint learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor

from unskew.base.registry import register
from unskew.debias.forms import imputation_loss
from unskew.debias.imputation import JointLearning
from unskew.metrics.sample_weight import inverse_weight

if TYPE_CHECKING:
    pass


@register(order=60)
@dataclass(kw_only=True)
class DRJL(JointLearning):
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p], L_imp = (1/|D|) Σ_O (e − ê)²/p, in turn.

    e = CE(r, r̂), ê = CE(r̃, r̂) with r̃ from an imputer of its own; p is ``propensity``. Unbiased for the
    ideal loss if either p or ê is true. Use it where propensities are fair and clicks enough to learn
    from; where weights are large :class:`MRDR` trains its imputer for less variance.
    """

    name: ClassVar[str] = "dr-jl"
    paper: ClassVar[str] = "Wang 2019"
    when: ClassVar[str] = "the first doubly robust method to try, with calibrated propensities"
    with_tables: ClassVar[Literal["pseudo-outcome"]] = "pseudo-outcome"

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """w = 1/p."""
        return inverse_weight(propensity)


def dr_jl_imputation(
    conversion: Tensor, imputation: Tensor, logit: Tensor, propensity: Tensor, **options: Any
) -> Tensor:
    """L_imp = (1/|D|) Σ_O (e − ê)²/p.

    Parameters
    ----------
    conversion, imputation, logit, propensity
        r, the imputer's output, the logit of the prediction (held fixed) and p, ``[..., B]``: of clicks; or
        of rows of D, with ``click``.
    options
        ``click``, ``density``, ``loss``, ``form``, ``targeting``, ``mean_weight`` and ``detach_prediction``
        of :func:`imputation_loss`.

    Examples
    --------
    >>> import torch
    >>> one = torch.tensor([1.0])
    >>> dr_jl_imputation(one, 0 * one, 2 * one, one / 4)
    tensor(4.)
    """
    return imputation_loss(conversion, imputation, logit, inverse_weight(propensity), **options)
