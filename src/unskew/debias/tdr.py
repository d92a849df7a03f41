"""TDR: doubly robust with imputed errors that are targeted by one number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unskew.base.estimator import require, require_choice
from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.imputation import FormName, Hosted, ImputationForm, form_of
from unskew.debias.method import Batch, Setting, State
from unskew.training.means import OnRows


class Targeting(State):
    """The one number by which imputed errors are targeted."""

    epsilon: Tensor
    """ε ``[R, 1]``."""


@register(order=180)
@dataclass(kw_only=True)
class TDR(Hosted):
    """L = (1/|D|) Σ_D [ê* + o·(e − ê*)/p], ê* = ê + ε·(1/p − 1), ε = argmin_ε Σ_O (e − ê*)².

    ε = Σ_O (e − ê)(1/p − 1) / Σ_O (1/p − 1)² is found once per epoch over all training clicks, in closed
    form and without gradient. Its term does not depend on the prediction, so ∇L is the host's: constants
    are left out of the loss (and p is needed on clicks alone). What targeting changes is the imputer, which
    learns what ε does not explain: L_imp = (1/|D|) Σ_O w·(e − ê*)² with the host's w. Use it where an
    imputer is off in proportion to the weights; expect little where it is not.

    Parameters
    ----------
    host
        ``"dr-jl"`` or ``"mrdr"``: how the imputer is trained.
    """

    name = "tdr"
    paper = "Li 2023 (TDR-CL)"
    when = "doubly robust where imputed errors are off in proportion to the weights"

    host: Literal["mrdr", "dr-jl", "dr-bias"] = "dr-jl"

    def before_imputation(self, setting: Setting) -> None:
        """Start with an ε of 0, until the first imputer is there."""
        super().before_imputation(setting)
        if setting.state(Targeting).is_empty:
            setting.state(Targeting).write(epsilon=torch.zeros_like(setting.clicks.propensity[:, :1]))

    def before_prediction(self, setting: Setting) -> None:
        """Target the imputer that was just trained."""
        output, logit = setting.predicted(setting.clicks, "imputation"), setting.predicted(setting.clicks)
        conversion, propensity = setting.clicks.conversion, setting.clicks.propensity
        epsilon = tdr_epsilon(conversion, output, logit, propensity, form=self.form)
        setting.state(Targeting).write(epsilon=epsilon)

    def targeting(self, setting: Setting, observed: Batch) -> Tensor:
        """ε·(1/p − 1)."""
        return tdr_targeting(setting.state(Targeting).epsilon, observed.propensity)

    def _check(self) -> None:
        require_choice("host", self.host, ("dr-jl", "mrdr"))
        super()._check()
        require(
            self.imp_loss == "sq" and self.imputation_form != "P3",
            f"targeting needs e − ê, and imp_loss {self.imp_loss!r} with {self.imputation_form} has none",
            "use imp_loss='sq' with P1 or P2",
        )


def tdr_epsilon(
    conversion: OnRows,
    imputation: OnRows,
    logit: OnRows,
    propensity: OnRows,
    *,
    form: FormName | ImputationForm = "P1",
) -> Tensor:
    """ε = Σ_O (e − ê)(1/p − 1) / Σ_O (1/p − 1)², over all clicks and without gradient.

    TDR trains its prediction by :func:`dr` and its imputer by its host's loss with
    ``targeting=tdr_targeting(epsilon, propensity)``.

    Examples
    --------
    >>> import torch
    >>> one = torch.tensor([1.0])
    >>> tdr_epsilon(one, 0 * one, 2 * one, one / 4)  # (e − ê) = −1, 1/p − 1 = 3
    tensor([-0.3333])
    """
    deviation = form_of(form).deviation(conversion, imputation, logit).detach()
    odds = 1.0 / propensity - 1.0
    square = odds.square().sum(-1, keepdim=True)
    # Where every p is 1 there is nothing to target.
    return (deviation * odds).sum(-1, keepdim=True) / torch.where(square > 0, square, 1.0)


def tdr_targeting(epsilon: Tensor, propensity: OnRows) -> OnRows:
    """ε·(1/p − 1): what TDR adds to imputed errors of clicks.

    Examples
    --------
    >>> import torch
    >>> tdr_targeting(torch.tensor([0.5]), torch.tensor([0.25, 1.0]))
    tensor([1.5000, 0.0000])
    """
    return epsilon * (1.0 / propensity - 1.0)
