"""DR-V2: doubly robust learning with a propensity that also balances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.dr import dr
from unskew.debias.esmm import click_conversion_loss
from unskew.debias.imputation import SquaredPseudoLabel
from unskew.debias.ips_v2 import IPSV2, squared_imbalance
from unskew.debias.method import Batch, Setting
from unskew.debias.towers import click_loss
from unskew.training.means import OnBoth, OnRows, PerModel, Space


@register(order=110)
@dataclass(kw_only=True)
class DRV2(IPSV2):
    """L = mean_D (p − o)² + α · mean_D (p·r̂ − o·r)² + β · L_cvr + κ · L_imp + γ · (imbalance)².

    L_cvr = (1/|D|) Σ_D [ê + o·(e − ê)/p], L_imp = (1/|D|) Σ_O (r − r̃)²/p with e = (r − r̂)² and
    ê = (r̃ − r̂)², r̃ the imputation; the imbalance is that of :class:`IPSV2`. p has no gradient in L_cvr and
    L_imp, r̂ none in L_imp. κ is ``imputation_weight``. All three networks learn in one step.

    As published L_imp is (1/|D|) Σ_O (e − ê)²/p, and e − ê = (r − r̃)·(r + r̃ − 2r̂) for squared errors. That
    matches the size of e and leaves the side of r̃ open: it is least at r̃ = r̂ ± √E[e], not at the rate of
    conversions. For a rate of 2 % that is an r̃ of 16 %, which r̂ is then drawn to on all of D.

    Parameters
    ----------
    conversion_weight, balance_weight, imputation_weight
        β, γ and κ. Published code: 2, 0.1 and 0.001 on Coat, 1, 0.05 and 5 on Yahoo! R3; α = 1 on both.
        κ = 1: the imputer learns from this term alone, and at 0.001 its gradients are as small as Adam's ε.
    """

    name = "dr-v2"
    when = "doubly robust where propensities should balance clicked and unclicked pairs"
    imputation = "P1"

    conversion_weight: float = 2.0
    balance_weight: float = 0.1
    imputation_weight: float = 1.0

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Return a network each for the prediction, the click and the imputation."""
        return {**super().networks(), "imputation": ("imputation",)}

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Return L."""
        tasks = self.tasks(setting, observed, full)
        return dr_v2(
            observed.conversion,
            tasks.of("prediction"),
            self.propensity_of(setting, observed),
            tasks.of("imputation"),
            tasks.of("click"),
            click_conversion_weight=self.click_conversion_weight,
            conversion_weight=self.conversion_weight,
            imputation_weight=self.imputation_weight,
            balance_weight=self.balance_weight,
            p_min=setting.floor,
            **tasks.space,
        )


def dr_v2(
    conversion: OnRows,
    logit: OnBoth,
    propensity: OnRows,
    imputation: OnBoth,
    click_logit: OnBoth,
    *,
    click_conversion_weight: float = 1.0,
    conversion_weight: float = 2.0,
    imputation_weight: float = 1.0,
    balance_weight: float = 0.1,
    p_min: float | Tensor = 0.0,
    **space: Any,
) -> PerModel:
    """L = mean_D (p − o)² + α · mean_D (p·r̂ − o·r)² + β · L_cvr + κ · L_imp + γ · (imbalance)².

    L_cvr is :func:`dr` with squared errors, L_imp = (1/|D|) Σ_O (r − r̃)²/p.

    Parameters
    ----------
    imputation
        Logit of r̃, as in :func:`dr`.
    click_conversion_weight, conversion_weight, imputation_weight, balance_weight
        α, β, κ and γ.
    conversion, logit, propensity, click_logit, p_min, space
        As in :func:`ips_v2`.

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(4), torch.tensor([1.0, 0.0, 1.0, 0.0])
    >>> dr_v2(click, zero, torch.full((4,), 0.5), zero, zero, click=click)
    tensor(1.3125)
    """
    whole = Space(**space)
    both = click_conversion_loss(conversion, logit, click_logit, errors="squared", **space)
    error = dr(conversion, logit, propensity, imputation, form=SquaredPseudoLabel(), **space)
    residual = whole.known(conversion) - torch.sigmoid(whole.both(imputation)[0])
    imputing = whole.over_clicks(residual.square() / whole.known(propensity).detach())
    return (
        click_loss(click_logit, errors="squared", **space)
        + click_conversion_weight * both
        + (conversion_weight * error + imputation_weight * imputing)
        + balance_weight * squared_imbalance(logit, click_logit, p_min=p_min, **space)
    )
