"""ESCM²-DR: Multi-DR held to the rate of clicks that convert, over all of D."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from unskew.base.estimator import require_choice
from unskew.base.registry import register
from unskew.debias.dr import dr
from unskew.debias.dr_jl import dr_jl_imputation
from unskew.debias.esmm import MultiTask, esmm
from unskew.debias.forms import FORMS, FormName
from unskew.debias.setting import Batch, Setting
from unskew.debias.tasks import only_clicks
from unskew.debias.towers import Tasks
from unskew.training.means import OnBoth, Space

if TYPE_CHECKING:
    from jaxtyping import Float


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
    detach_pred_in_imp
        True: e has no gradient in L_imp, which then trains ê alone. False, as published (PaddleRec stops the
        gradient of neither e nor ê): L_imp also draws r̂ to where its error is easy to predict.
    """

    name: ClassVar[str] = "escm2-dr"
    paper: ClassVar[str] = "Wang 2022"
    when: ClassVar[str] = "escm2-ips where weights vary much"

    imputation: ClassVar[str | None] = "P2"
    towers: ClassVar[tuple[str, ...]] = ("prediction", "imputation")

    conversion_weight: float = 1.0
    click_conversion_weight: float = 1.0
    imputation_form: FormName = "P2"
    detach_pred_in_imp: bool = True

    def conversion_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """λ_c · (L_err + L_imp)."""
        return self.conversion_weight * dr_with_imputation(
            observed.conversion,
            tasks.of("prediction"),
            self.tower.propensity(setting, observed),
            tasks.of("imputation"),
            form=self.imputation_form,
            detach_prediction=self.detach_pred_in_imp,
            density=tasks.density,
        )

    def _check(self) -> None:
        super()._check()
        require_choice("imputation_form", self.imputation_form, FORMS)


def escm2_dr(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    imputation: OnBoth,
    click_logit: OnBoth,
    *,
    conversion_weight: float = 1.0,
    click_conversion_weight: float = 1.0,
    form: FormName = "P2",
    detach_prediction: bool = True,
    **space: Any,
) -> Tensor:
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (L_err + L_imp) + λ_g · (1/|D|) Σ_D CE(o·r, p·r̂).

    Parameters
    ----------
    conversion, logit, propensity, click_logit, conversion_weight, click_conversion_weight, space
        As in :func:`escm2_ips`.
    imputation, form, detach_prediction
        As in :func:`dr_with_imputation`, which is L_err + L_imp.

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> escm2_dr(torch.tensor([1.0, 0.0]), zero, torch.tensor([0.5, 0.5]), zero, zero, click=click)
    tensor(2.2233)
    """
    tasks = esmm(conversion, logit, click_logit, click_conversion_weight=click_conversion_weight, **space)
    conversions = dr_with_imputation(
        conversion, logit, propensity, imputation, form=form, detach_prediction=detach_prediction, **space
    )
    return tasks + conversion_weight * conversions


def dr_with_imputation(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    imputation: OnBoth,
    *,
    form: FormName = "P2",
    detach_prediction: bool = True,
    **space: Any,
) -> Tensor:
    """L_err + L_imp = (1/|D|) Σ_D [ê + o·(e − ê)/sg(p)] + (1/|D|) Σ_O (e − ê)²/sg(p).

    Of towers that share embeddings: apart, P2 would train the prediction exactly as IPS does.

    Parameters
    ----------
    conversion, logit, propensity, imputation
        As in :func:`dr`; the imputation has its gradient in both terms.
    form
        As in :func:`dr`.
    detach_prediction
        False, as published, lets L_imp draw r̂ to where its error is easy to predict.
    space
        ``click``; or ``density``, with pairs.
    """
    of_clicks = only_clicks(space)
    whole = Space(**of_clicks)
    at_clicks, output = whole.both(logit)[0], whole.both(imputation)[0]
    return dr(
        conversion, logit, propensity, imputation, form=form, detach_imputation=False, **of_clicks
    ) + dr_jl_imputation(
        conversion,
        output,
        at_clicks,
        propensity,
        form=form,
        detach_prediction=detach_prediction,
        **of_clicks,
    )
