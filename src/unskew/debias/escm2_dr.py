"""ESCM²-DR: Multi-DR held to the rate of clicks that convert, over all of D."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.base.estimator import require_choice
from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.losses import FormName
from unskew.debias.losses.forms import FORMS
from unskew.debias.setting import Batch, Setting
from unskew.debias.towers import MultiTask, Tasks


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
        return self.conversion_weight * losses.dr_with_imputation(
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
