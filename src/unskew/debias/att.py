"""ATT: a third model learns the pairs on which two weighted models agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from unskew.base.estimator import require_above, require_at_least, require_in
from unskew.base.registry import register
from unskew.debias.ips import ips
from unskew.debias.method import Counted, Debiaser
from unskew.debias.naive import naive
from unskew.debias.setting import (
    Batch,
    ClicksAndCells,
    Loss,
    Plan,
    Setting,
    Stage,
    clicks,
)
from unskew.training import Pass, Step
from unskew.training.means import cross_entropy, weighted_mean

if TYPE_CHECKING:
    from jaxtyping import Float


@register(order=220)
@dataclass(kw_only=True)
class ATT(Debiaser):
    """L = mean of CE(r̂₁, r̂₀) over the pairs of D with |r̂₁ − r̂₂| ≤ ε (asymmetric tri-training).

    A₁ (``"first"``) and A₂ (``"second"``) are trained on O with weights 1/p, each from its own initial
    weights and batches; A₀ (``"prediction"``) without weights. Then pairs are drawn from D, those on which
    A₁ and A₂ agree are labelled with r̂₁ (without gradient), and all three are trained on them. A₀ predicts.
    Use it where weights are so uneven that IPS is unstable; not where A₁ is poor, whose errors A₀ inherits.

    Parameters
    ----------
    agreement
        ε, a difference of probabilities. Tuned log-uniformly in [0.001, 1] by the published code, whose
        predictions are ratings from 1 to 5; its choices on Coat, 0.16 to 0.45, are 0.04 to 0.11 here.
    pseudo_epochs
        Epochs on pseudo-labels at most; early stopping applies.
    ratio
        Pairs of D per click in a batch of pseudo-labels.
    labelled
        Weight of the IPS losses of A₁ and A₂ beside their pseudo-labels. The published code has 0, but A₁
        is then taught its own predictions, and weight decay alone moves it.
    """

    name: ClassVar[str] = "att"
    paper: ClassVar[str] = "Saito 2020"
    when: ClassVar[str] = "where weights are too uneven for IPS but propensities rank well"
    needs_propensity: ClassVar[bool] = True
    needs_full_space: ClassVar[bool] = True
    detached: ClassVar[tuple[str, ...]] = ("propensity", "pseudo-label")

    agreement: float = 0.1
    pseudo_epochs: int = 50
    labelled: float = 1.0
    ratio: float = 1.0

    def learns_from(self) -> Mapping[str, Counted]:
        """Pseudo-labels make rows of all of D."""
        return dict.fromkeys(self.networks(), "population")

    def networks(self) -> dict[str, tuple[str, ...]]:
        """Three predictors of the same shape."""
        return {"prediction": ("prediction",), "first": ("first",), "second": ("second",)}

    def stages(self) -> tuple[Stage, ...]:
        """Pre-training on O, then pseudo-labels on D."""
        pretrain = tuple(
            Pass(clicks, (Step(f"pre-train {tower}", self._pretrain(tower), (tower,)),))
            for tower in self.networks()
        )
        return Stage(pretrain), Stage(self.plan(), epochs=self.pseudo_epochs)

    def plan(self) -> Plan:
        """The passes on pseudo-labels."""
        step = Step("pseudo-labels", self.loss, tuple(self.networks()))
        return (Pass(ClicksAndCells(self.ratio), (step,)),)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Σ over the three of the mean of CE(r̂₁, ·) where A₁ and A₂ agree."""
        labels = [setting.predicted(full, tower) for tower in ("first", "second")]
        logits = setting.logits(full, "prediction", "first", "second")
        each = [att(logit, *labels, agreement=self.agreement) for logit in logits]
        total = torch.stack(each).sum(0)
        if self.labelled:
            for tower in ("first", "second"):
                total = total + self.labelled * self._pretrain(tower)(setting, observed, full)
        return total

    def _pretrain(self, tower: str) -> Loss:
        """IPS for A₁ and A₂, the plain mean for A₀."""

        def loss(setting: Setting, observed: Batch, full: Batch) -> Tensor:
            conversion, logit = observed.conversion, setting.logit(observed, tower)
            if tower == "prediction":
                return naive(conversion, logit)
            return ips(conversion, logit, observed.propensity, density=setting.density)

        return loss

    def _check(self) -> None:
        super()._check()
        require_above(0, ratio=self.ratio)
        require_in("(0, 1]", agreement=self.agreement)
        require_at_least(1, pseudo_epochs=self.pseudo_epochs)
        require_at_least(0, labelled=self.labelled)


def att(
    logit: Float[Tensor, "*#batches #B"],
    first: Float[Tensor, "*#batches #B"],
    second: Float[Tensor, "*#batches #B"],
    *,
    agreement: float,
) -> Float[Tensor, " *batches"]:
    """L = mean of CE(r̂₁, r̂) over the rows with |r̂₁ − r̂₂| ≤ ε, 0 where there is none.

    The loss of one of ATT's three models on pseudo-labels. Before, the first and the second learn
    :func:`ips`, each from its own start, and the one that predicts learns :func:`naive`.

    Parameters
    ----------
    logit
        Of the model that learns, on rows of D.
    first, second
        Logits of r̂₁ and r̂₂, read without gradient.
    agreement
        ε, a difference of probabilities.

    Examples
    --------
    >>> import torch
    >>> second = torch.tensor([0.1, 3.0])  # The first row's labels agree, the second's do not.
    >>> att(torch.tensor([0.0, 5.0]), torch.tensor([0.0, 0.0]), second, agreement=0.1)
    tensor(0.6931)
    """
    label, other = (torch.sigmoid(each).detach() for each in (first, second))
    agree = ((label - other).abs() <= agreement).to(logit.dtype)
    return weighted_mean(cross_entropy(label, logit), agree, least=1.0)
