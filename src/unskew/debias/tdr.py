"""TDR: doubly robust with imputed errors that are targeted by one number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unskew.debias.core.setting import Batch, Setting
from unskew.debias.parts.hosted import Hosted
from unskew.estimator import require
from unskew.registry import register


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
    hosts: ClassVar[tuple[str, ...]] = ("dr-jl", "mrdr")

    host: str = "dr-jl"

    def before_imputation(self, setting: Setting) -> None:
        """ε is 0 until the first imputer is there."""
        super().before_imputation(setting)
        if "epsilon" not in setting.state:
            setting.remember("epsilon", torch.zeros_like(setting.clicks.propensity[:, :1]))

    def before_prediction(self, setting: Setting) -> None:
        """Target the imputer that was just trained."""
        super().before_prediction(setting)
        output, logit = setting.predicted(setting.clicks, "imputation"), setting.predicted(setting.clicks)
        deviation = self.form.deviation(setting.clicks.conversion, output, logit)
        odds = _inverse_odds(setting.clicks)
        square = odds.square().sum(-1, keepdim=True)
        epsilon = (deviation * odds).sum(-1, keepdim=True) / torch.where(square > 0, square, 1.0)
        setting.remember("epsilon", epsilon)

    def deviation(self, setting: Setting, observed: Batch, output: Tensor) -> Tensor:
        """e − ê* of clicks."""
        return super().deviation(setting, observed, output) - setting.state["epsilon"] * _inverse_odds(
            observed
        )

    def _check(self) -> None:
        super()._check()
        require(
            self.imp_loss == "sq" and self.imputation_form != "P3",
            f"targeting needs e − ê, and imp_loss {self.imp_loss!r} with {self.imputation_form} has none",
            "use imp_loss='sq' with P1 or P2",
        )


def _inverse_odds(batch: Batch) -> Tensor:
    """1/p − 1 of clicks."""
    return 1.0 / batch.propensity - 1.0
