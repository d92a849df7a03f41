"""DR: doubly robust with one imputed conversion rate for all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unskew.debias.core.setting import Batch, Setting
from unskew.debias.parts.doubly_robust import DoublyRobust
from unskew.estimator import require
from unskew.registry import register


@register(order=50)
@dataclass(kw_only=True)
class DR(DoublyRobust):
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p] with ê = CE(r̃, r̂), r̃ = Σ_O r/p / Σ_O 1/p.

    r̃ is the self-normalised estimate of the conversion rate over D from the training clicks; public code
    takes it from randomly shown test pairs, which leaks. Nothing is learned but the prediction. With a fixed
    r̃ L would be unbiased for the ideal loss where p is true; since r̃ comes from the same clicks it is so only
    in the limit, with a bias of the order of 1/|O|. Less variance than IPS where r̃ is better than no guess at
    all; :class:`DRJL` learns a better one.
    """

    name: ClassVar[str] = "dr"
    paper: ClassVar[str] = "Wang 2019"
    when: ClassVar[str] = "as IPS with less variance, where clicks are too few to learn an imputer"

    def before_prediction(self, setting: Setting) -> None:
        """Find r̃, once."""
        super().before_prediction(setting)
        if "rate" not in setting.state:
            weight = 1.0 / setting.clicks.propensity
            total = weight.sum(-1, keepdim=True)
            rate = (weight * setting.clicks.conversion).sum(-1, keepdim=True) / total
            setting.remember("rate", rate)

    def imputer_output(self, setting: Setting, batch: Batch) -> Tensor:
        """logit r̃."""
        # A log in which every click converted, or none, has no finite logit.
        tiny = torch.finfo(torch.float32).eps
        return torch.logit(setting.state["rate"], eps=tiny).expand(batch.rows.shape)

    def _check(self) -> None:
        super()._check()
        require(self.imputation_form == "P1", "dr imputes a conversion rate", "use imputation_form='P1'")
