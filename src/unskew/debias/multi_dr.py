"""Multi-DR: doubly robust learning with its propensity and its imputer on shared embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from unskew.debias.core.setting import Batch, Setting
from unskew.debias.parts.imputation import FormName
from unskew.debias.parts.imputing import Imputing
from unskew.debias.parts.multi_task import MultiTask
from unskew.debias.parts.tasks import Tasks
from unskew.registry import register
from unskew.training import stratified


@register(order=200)
@dataclass(kw_only=True)
class MultiDR(Imputing, MultiTask):
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (L_err + L_imp).

    L_err = (1/|D|) Σ_D [ê + o·(e − ê)/sg(p)], L_imp = (1/|D|) Σ_O (e − ê)²/sg(p); e = CE(r, r̂), and ê is
    what the imputation tower says of it; λ_c is ``conversion_weight``, 1 in the paper. Towers share
    embeddings: apart, P2 would train the prediction exactly as IPS does. Use it as :class:`MultiIPW`, where
    weights vary much.

    Parameters
    ----------
    imputation_form
        ``"P2"``, ê = softplus of the tower, as in the papers; ``"P1"`` or ``"P3"`` (METHODS §1.2).
    detach_pred_in_imp
        True: e has no gradient in L_imp, which then trains ê alone. False, as published (PaddleRec stops the
        gradient of neither e nor ê): L_imp also draws r̂ to where its error is easy to predict.
    """

    name: ClassVar[str] = "multi-dr"
    paper: ClassVar[str] = "Zhang 2020"
    when: ClassVar[str] = "doubly robust where clicks can teach the embeddings what conversions need"
    imputation: ClassVar[str | None] = "P2"
    towers: ClassVar[tuple[str, ...]] = ("prediction", "imputation")

    imputation_form: FormName = "P2"
    detach_pred_in_imp: bool = True

    def conversion_loss(self, setting: Setting, observed: Batch, full: Batch, tasks: Tasks) -> Tensor:
        """λ_c · (L_err + L_imp)."""
        form = self.form
        logit, output = tasks.observed["prediction"], tasks.observed["imputation"]
        correction = form.error(observed.conversion, logit) - form.imputed(output, logit)
        fixed = logit.detach() if self.detach_pred_in_imp else logit
        deviation = form.deviation(observed.conversion, output, fixed)
        return self.conversion_weight * stratified(
            observed=(correction + deviation.square()) / self.propensity(setting, observed),
            full=form.imputed(tasks.full["imputation"], tasks.full["prediction"]),
            density=setting.density,
        )
