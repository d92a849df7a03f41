"""ESCM²-DR: Multi-DR held to the rate of clicks that convert, over all of D."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor
from unskew.debias.dr import dr
from unskew.debias.dr_jl import dr_jl_imputation
from unskew.debias.esmm import MultiTask, esmm
from unskew.debias.imputation import FormName
from unskew.debias.method import Batch, Setting
from unskew.debias.towers import Tasks
from unskew.training.means import OnBoth, OnRows, PerModel, Space


@register(order=140)
@dataclass(kw_only=True)
class ESCM2DR(MultiTask):
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (L_err + L_imp) + λ_g · (1/|D|) Σ_D CE(o·r, p·r̂).

    L_err = (1/|D|) Σ_D [ê + o·(e − ê)/sg(p)], L_imp = (1/|D|) Σ_O (e − ê)²/sg(p), ê from a third tower.
    λ_c is ``conversion_weight``, λ_g ``click_conversion_weight``: public code has (0.5, 0.5), (0.1, 1) and
    (1, 1). Use it as :class:`ESCM2IPS`, where weights vary much.

    Parameters
    ----------
    imputation_form
        ``"P2"``, ê = softplus of the tower, as in the papers; ``"P1"`` or ``"P3"`` (METHODS §1.2).
    """

    name = "escm2-dr"
    paper = "Wang 2022"
    when = "escm2-ips where weights vary much"
    imputation = "P2"
    towers = ("prediction", "imputation")

    conversion_weight: float = 1.0
    click_conversion_weight: float = 1.0
    imputation_form: FormName = "P2"

    def tasks_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """Return L."""
        return escm2_dr(
            observed.conversion,
            tasks.of("prediction"),
            self.propensity_of(setting, observed),
            tasks.of("imputation"),
            tasks.of("click"),
            conversion_weight=self.conversion_weight,
            click_conversion_weight=self.click_conversion_weight,
            form=self.imputation_form,
            **tasks.space,
        )


def escm2_dr(
    conversion: OnRows,
    logit: OnBoth,
    propensity: OnRows,
    imputation: OnBoth,
    click_logit: OnBoth,
    *,
    conversion_weight: float = 1.0,
    click_conversion_weight: float = 1.0,
    form: FormName = "P2",
    **space: Any,
) -> PerModel:
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (L_err + L_imp) + λ_g · (1/|D|) Σ_D CE(o·r, p·r̂).

    Parameters
    ----------
    conversion, logit, propensity, click_logit, conversion_weight, click_conversion_weight, space
        As in :func:`escm2_ips`.
    imputation, form
        As in :func:`dr`; the imputation has its gradient in L_err and in L_imp.

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> escm2_dr(torch.tensor([1.0, 0.0]), zero, torch.tensor([0.5, 0.5]), zero, zero, click=click)
    tensor(2.2233)
    """
    tasks = esmm(conversion, logit, click_logit, click_conversion_weight=click_conversion_weight, **space)
    whole = Space(**space)
    at_clicks, output = whole.both(logit)[0], whole.both(imputation)[0]
    error = dr(conversion, logit, propensity, imputation, form=form, detach_imputation=False, **space)
    imputing = dr_jl_imputation(conversion, output, at_clicks, propensity, form=form, **space)
    return tasks + conversion_weight * (error + imputing)
