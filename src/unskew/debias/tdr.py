"""TDR: doubly robust with imputed errors that are targeted by one number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unskew.base.estimator import require, require_choice
from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.imputation import Hosted
from unskew.debias.setting import Batch, Setting, State

HOSTS_OF_TDR = ("dr-jl", "mrdr")


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

    name: ClassVar[str] = "tdr"
    paper: ClassVar[str] = "Li 2023 (TDR-CL)"
    when: ClassVar[str] = "doubly robust where imputed errors are off in proportion to the weights"
    detached: ClassVar[tuple[str, ...]] = (*Hosted.detached, "epsilon")

    host: str = "dr-jl"

    def before_imputation(self, setting: Setting) -> None:
        """ε is 0 until the first imputer is there."""
        super().before_imputation(setting)
        if setting.state(Targeting).is_empty:
            setting.state(Targeting).write(epsilon=torch.zeros_like(setting.clicks.propensity[:, :1]))

    def before_prediction(self, setting: Setting) -> None:
        """Target the imputer that was just trained."""
        super().before_prediction(setting)
        output, logit = setting.predicted(setting.clicks, "imputation"), setting.predicted(setting.clicks)
        conversion, propensity = setting.clicks.conversion, setting.clicks.propensity
        epsilon = losses.tdr_epsilon(conversion, output, logit, propensity, form=self.form)
        setting.state(Targeting).write(epsilon=epsilon)

    def targeting(self, setting: Setting, observed: Batch) -> Tensor:
        """ε·(1/p − 1)."""
        return losses.tdr_targeting(setting.state(Targeting).epsilon, observed.propensity)

    def _check(self) -> None:
        require_choice("host", self.host, HOSTS_OF_TDR)
        super()._check()
        require(
            self.imp_loss == "sq" and self.imputation_form != "P3",
            f"targeting needs e − ê, and imp_loss {self.imp_loss!r} with {self.imputation_form} has none",
            "use imp_loss='sq' with P1 or P2",
        )
