"""DR-V2: doubly robust learning with a propensity that also balances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor

from unskew.base.estimator import require, require_choice
from unskew.base.registry import register
from unskew.debias.dr import dr
from unskew.debias.forms import FORMS, ImputationForm, SquaredPseudoLabel
from unskew.debias.ips import Errors
from unskew.debias.ips_v2 import IPSV2, ips_v2
from unskew.debias.setting import Batch, Setting
from unskew.debias.tasks import only_clicks
from unskew.debias.towers import Tasks
from unskew.training.means import OnBoth, Space

if TYPE_CHECKING:
    from jaxtyping import Float

FORM_OF_ERRORS: dict[Errors, ImputationForm] = {"ce": FORMS["P1"], "squared": SquaredPseudoLabel()}
"""How a pseudo-label imputes errors of a kind."""


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
    imp_loss
        ``"residual"``: (r − r̃)²/p, least where r̃ is the rate of conversions. ``"sq"``: (e − ê)²/p, as
        published.
    detach_pred_in_imp
        False lets L_imp move the prediction; with ``"sq"`` only, as ``"residual"`` has no prediction in it.
    detach_imp_in_cvr
        False lets L_cvr move the imputation, as published: it then learns to make the estimate small rather
        than right, and on sparse logs the prediction follows it.
    """

    name: ClassVar[str] = "dr-v2"
    when: ClassVar[str] = "doubly robust where propensities should balance clicked and unclicked pairs"
    imputation: ClassVar[str | None] = "P1"
    detached: ClassVar[tuple[str, ...]] = (
        "propensity in the conversion and imputation losses",
        "prediction in the imputation loss",
        "imputation in the conversion loss",
    )

    conversion_weight: float = 2.0
    balance_weight: float = 0.1
    imputation_weight: float = 1.0
    imp_loss: Literal["residual", "sq"] = "residual"
    detach_pred_in_imp: bool = True
    detach_imp_in_cvr: bool = True

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """A network each for the prediction, the click and the imputation."""
        return {**super().networks(), "imputation": ("imputation",)}

    def conversion_loss(self, setting: Setting, observed: Batch, tasks: Tasks) -> Tensor:
        """β · L_cvr + κ · L_imp."""
        conversion, density = observed.conversion, tasks.density
        p = self.weight_propensity(setting, observed, tasks)
        error = dr(
            conversion,
            tasks.of("prediction"),
            p,
            tasks.of("imputation"),
            density=density,
            form=FORM_OF_ERRORS[self.errors],
            detach_propensity=self.detach_p_in_cvr,
            detach_imputation=self.detach_imp_in_cvr,
        )
        imputation = dr_v2_imputation(
            conversion,
            tasks.observed["imputation"],
            tasks.observed["prediction"],
            p,
            density=density,
            loss=self.imp_loss,
            errors=self.errors,
            detach_prediction=self.detach_pred_in_imp,
            detach_propensity=self.detach_p_in_cvr,
        )
        return self.conversion_weight * error + self.imputation_weight * imputation

    def _check(self) -> None:
        super()._check()
        require_choice("imp_loss", self.imp_loss, ("residual", "sq"))
        require(
            self.detach_pred_in_imp or self.imp_loss == "sq",
            "detach_pred_in_imp=False says nothing with imp_loss='residual', which has no prediction in it",
            "use imp_loss='sq', or leave detach_pred_in_imp out",
        )


def dr_v2(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    imputation: OnBoth,
    click_logit: OnBoth,
    *,
    click_conversion_weight: float = 1.0,
    conversion_weight: float = 2.0,
    imputation_weight: float = 1.0,
    balance_weight: float = 0.1,
    errors: Errors = "squared",
    p_min: float | Tensor = 0.0,
    **space: Any,
) -> Tensor:
    """L = mean_D (p − o)² + α · mean_D (p·r̂ − o·r)² + β · L_cvr + κ · L_imp + γ · (imbalance)².

    L_cvr is :func:`dr` with errors as here, L_imp :func:`dr_v2_imputation`.

    Parameters
    ----------
    imputation
        Logit of r̃, as in :func:`dr`.
    imputation_weight
        κ; the others as in :func:`ips_v2`.

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(4), torch.tensor([1.0, 0.0, 1.0, 0.0])
    >>> dr_v2(click, zero, torch.full((4,), 0.5), zero, zero, click=click)
    tensor(1.3125)
    """
    rest = ips_v2(
        conversion,
        logit,
        propensity,
        click_logit,
        click_conversion_weight=click_conversion_weight,
        conversion_weight=0.0,
        balance_weight=balance_weight,
        errors=errors,
        p_min=p_min,
        **space,
    )
    of_clicks = only_clicks(space)
    whole = Space(**of_clicks)
    imputing = dr_v2_imputation(
        conversion, whole.both(imputation)[0], whole.both(logit)[0], propensity, errors=errors, **of_clicks
    )
    error = dr(conversion, logit, propensity, imputation, form=FORM_OF_ERRORS[errors], **of_clicks)
    return rest + conversion_weight * error + imputation_weight * imputing


def dr_v2_imputation(
    conversion: Float[Tensor, "*#batches #B"],
    imputation: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
    density: float | None = None,
    loss: Literal["residual", "sq"] = "residual",
    errors: Errors = "squared",
    detach_prediction: bool = True,
    detach_propensity: bool = True,
) -> Float[Tensor, " *batches"]:
    """L_imp = (1/|D|) Σ_O (r − r̃)²/p, or as published (1/|D|) Σ_O (e − ê)²/p.

    Parameters
    ----------
    conversion, imputation, logit, propensity, click, density
        As in :func:`dr_jl_imputation`.
    loss
        ``"residual"``, least where r̃ is the rate of conversions; ``"sq"``, as published, least at
        r̃ = r̂ ± √E[e].

    Examples
    --------
    >>> import torch
    >>> dr_v2_imputation(torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([3.0]), torch.tensor([0.5]))
    tensor(0.5000)
    """
    space, form = Space(click, density), FORM_OF_ERRORS[errors]
    conversion, p = space.known(conversion), space.known(propensity)
    if loss == "residual":
        deviation = conversion - form.label(imputation, logit)
    else:
        deviation = form.deviation(conversion, imputation, logit.detach() if detach_prediction else logit)
    return space.over_clicks(deviation.square() / (p.detach() if detach_propensity else p))
