"""ATT: a third model learns the pairs on which two weighted models agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.ips import ips
from unskew.debias.method import Batch, Counted, Debiaser, Loss, Pass, Setting, Stage, Step, clicks, within
from unskew.debias.naive import naive
from unskew.training.means import OnRows, PerModel, cross_entropy, weighted_mean


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

    name = "att"
    paper = "Saito 2020"
    when = "where weights are too uneven for IPS but propensities rank well"
    needs_propensity = True
    needs_full_space = True
    ranges = within(agreement="(0, 1]", pseudo_epochs="[1, inf)", labelled="[0, inf)", ratio="(0, inf)")

    agreement: float = 0.1
    pseudo_epochs: int = 50
    labelled: float = 1.0
    ratio: float = 1.0

    def learns_from(self) -> Mapping[str, Counted]:
        """Count all of D: pseudo-labels make rows of it."""
        return dict.fromkeys(self.networks(), "population")

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Return three predictors of the same shape."""
        return {name: (name,) for name in ("prediction", "first", "second")}

    def stages(self) -> tuple[Stage, ...]:
        """Pre-train on O, then train on pseudo-labels of D."""
        pretrain = tuple(
            Pass(clicks, (Step(f"pre-train {tower}", self._pretrain(tower), (tower,)),))
            for tower in self.networks()
        )
        return Stage(pretrain), Stage(self.plan(), epochs=self.pseudo_epochs)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Σ over the three of the mean of CE(r̂₁, ·) where A₁ and A₂ agree."""
        labels = [setting.predicted(full, tower) for tower in ("first", "second")]
        logits = setting.logits(full, "prediction", "first", "second")
        total = torch.stack([att(logit, *labels, agreement=self.agreement) for logit in logits]).sum(0)
        if self.labelled:
            for tower in ("first", "second"):
                total = total + self.labelled * self._pretrain(tower)(setting, observed, full)
        return total

    def _pretrain(self, tower: str) -> Loss:
        """Return the loss of IPS for A₁ and A₂, the plain mean for A₀."""

        def loss(setting: Setting, observed: Batch, full: Batch) -> Tensor:
            conversion, logit = observed.conversion, setting.logit(observed, tower)
            if tower == "prediction":
                return naive(conversion, logit)
            return ips(conversion, logit, observed.propensity, density=setting.density)

        return loss


def att(logit: OnRows, first: OnRows, second: OnRows, *, agreement: float) -> PerModel:
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
