"""CDR: doubly robust where the imputer is sure, IPS where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unskew.base.estimator import require_at_least, require_choice, require_in
from unskew.base.registry import register
from unskew.debias import losses
from unskew.debias.imputation import HOSTS, Hosted
from unskew.debias.setting import Batch, Setting
from unskew.learners.backbone import Embedded, Network
from unskew.training import evaluating


@register(order=90)
@dataclass(kw_only=True)
class CDR(Hosted):
    """L = (1/|D|) Σ_D [o·e/p + γ·ê·(1 − o/p)], γ = 1[σ̂/μ̂ < η].

    μ̂ and σ̂ are mean and standard deviation of ê over ``masks`` thinned copies of the imputer, each with a
    dropout mask on its embeddings; γ has no gradient, and this dropout is not used in training. An imputed
    error that the thinned imputers disagree on is left out, and its pair counts as in IPS: η → 0 is IPS,
    η → ∞ the host. Use it where the imputer meets pairs unlike those it learned from.

    Parameters
    ----------
    host
        ``"mrdr"``, ``"dr-jl"`` or ``"dr-bias"``: how the imputer is trained.
    threshold
        η; the paper searches 0.1, 0.5, 1, 3, 5, 7, 10, 50. On Coat 0.1 trusts about half of the pairs with
        NeuMF, 1 nearly all, so the smallest is the default.
    masks, mask_rate
        How many thinned imputers, and the share of each embedding that a mask removes (10 and 0.5 in the
        paper); what is left is scaled by 1/(1 − rate). A mask serves a whole batch: one thinned network.
    """

    name: ClassVar[str] = "cdr"
    paper: ClassVar[str] = "Song 2023"
    when: ClassVar[str] = "doubly robust where some imputed errors cannot be trusted"
    detached: ClassVar[tuple[str, ...]] = (*Hosted.detached, "filter")

    threshold: float = 0.1
    masks: int = 10
    mask_rate: float = 0.5

    def imputed_error(self, setting: Setting, batch: Batch, logit: Tensor) -> Tensor:
        """γ·ê."""
        return super().imputed_error(setting, batch, logit) * self.trusted(setting, batch, logit)

    def correction(self, setting: Setting, observed: Batch, logit: Tensor) -> Tensor:
        """(e − γ·ê)/p of clicks."""
        return losses.cdr_correction(
            observed.conversion,
            logit,
            observed.propensity,
            self.watched_output(setting, observed, logit),
            self.trusted(setting, observed, logit),
            form=self.form,
            target_clip=self.target_clip,
        )

    @torch.no_grad()
    def trusted(self, setting: Setting, batch: Batch, logit: Tensor) -> Tensor:
        """γ ``[R, B]`` as truth values."""
        _, imputer = setting.network_of("imputation")
        with evaluating([imputer]):
            rows = imputer.embed(batch.rows)
            outputs = torch.stack([self._thinned(imputer, rows) for _ in range(self.masks)])
        errors = losses.imputed_error(outputs, logit, form=self.form)
        return losses.cdr_trusted(errors, threshold=self.threshold)

    def _thinned(self, imputer: Network, rows: Embedded) -> Tensor:
        user, item = (
            part * imputer.noise.keep_mask((len(part), 1, *part.shape[2:]), self.mask_rate, part.dtype)
            for part in rows
        )
        return imputer.read((user, item), "imputation")

    def _check(self) -> None:
        require_choice("host", self.host, tuple(HOSTS))
        super()._check()
        require_at_least(0, threshold=self.threshold)
        require_at_least(2, masks=self.masks)
        require_in("(0, 1)", mask_rate=self.mask_rate)
