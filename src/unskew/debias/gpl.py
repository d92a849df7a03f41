"""GPL: MRDR whose propensities are also learned for the bias and the variance of its estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.imputation import Copy, imputed_error
from unskew.debias.method import Batch, ClicksAndCells, Pass, Setting, Stage, Step, within
from unskew.debias.towers import OwnPropensity, Tasks, click_loss
from unskew.metrics.sample_weight import variance_weight
from unskew.training.means import OnBoth, OnRows, PerModel, Space

LEAST_PENALISED = 1e-4
"""Least p in the penalties of GPL, as published."""


@register(order=80)
@dataclass(kw_only=True)
class GPL(OwnPropensity):
    """L_g = mean_D CE(o, p) + α · [β · mean_D (o − p)²·(δ/p)² + (1 − β) · mean_D o·(δ/p)² / n].

    δ = e − ê of the current MRDR, without gradient, and 0 where nothing was clicked: the two penalties are
    the squared bias and the variance that p gives its estimate; p, before any calibration, has its gradient
    here. In turn, each epoch: the click network learns L_g, p̃ is calibrated on held-out cells (METHODS
    §5B), and MRDR trains its imputer and its prediction with p̃, without gradient. Before that the click
    network and MRDR warm up. Use it where propensities should serve the estimate; given propensities only
    weigh the validation loss (with fixed ones use :class:`MRDR`).

    Parameters
    ----------
    penalty, bias_share
        α and β; 0.7 both in published code.
    variance_over
        n: the ``"batch"`` (published code), or the ``"population"`` |D| (its erratum), where the variance
        all but vanishes.
    warm_up
        Epochs in which MRDR trains alone, after the click network did.
    """

    name = "gpl"
    paper = "Zhou 2023"
    when = "MRDR where propensities should be learned for its bias and variance"
    sources = ("in-loop", "report-only")
    ranges = within(penalty="[0, inf)", bias_share="[0, 1]")

    penalty: float = 0.7
    bias_share: float = 0.7
    variance_over: Literal["batch", "population"] = "batch"
    warm_up: int = 2
    copy: Copy = "epoch"
    patience: int | None = 20

    def stages(self) -> tuple[Stage, ...]:
        """Train the click network alone, MRDR alone, then both in turn."""
        click = Pass(ClicksAndCells(self.ratio), (Step("click", self.propensity_loss, ("click",)),))
        mrdr = (Stage(self.plan(), self.warm_up, selects=False),) if self.warm_up else ()
        return (*self.warm_up_stages(), *mrdr, Stage((click, *self.plan())))

    def propensity_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Return L_g."""
        tasks = Tasks.read(setting, observed, full)
        output, logit = setting.predicted(observed, "imputation"), setting.predicted(observed)
        size = setting.clicks.conversion.shape[1] / setting.density
        return gpl_propensity(
            self.form.error(observed.conversion, logit) - imputed_error(output, logit, form=self.form),
            tasks.of("click"),
            penalty=self.penalty,
            bias_share=self.bias_share,
            count=self.batch_size if self.variance_over == "batch" else size,
            **tasks.space,
        )

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """Return w = (1 − p)/p², as MRDR."""
        return variance_weight(propensity)


def gpl_propensity(
    deviation: OnRows,
    click_logit: OnBoth,
    *,
    penalty: float = 0.7,
    bias_share: float = 0.7,
    count: float,
    **space: Any,
) -> PerModel:
    """L_g = mean_D CE(o, p) + α · [β · mean_D (o − p)²·(δ/p)² + (1 − β) · mean_D o·(δ/p)² / n].

    How GPL learns propensities: δ is 0 where nothing was clicked, so both penalties are sums over clicks.
    Its prediction learns :func:`dr`, its imputer :func:`mrdr_imputation`.

    Parameters
    ----------
    deviation
        δ = e − ê of clicks, read without gradient; or of rows of D, with ``click``.
    click_logit
        Logit of p, which has its gradient everywhere ``[..., B]``; or a pair.
    penalty, bias_share, count
        α, β and n: the rows of a batch (published code), or of D (its erratum).
    space
        As in :func:`click_loss`.

    Examples
    --------
    >>> import torch
    >>> zero, click = torch.zeros(2), torch.tensor([1.0, 0.0])
    >>> gpl_propensity(torch.tensor([1.0, 0.0]), zero, count=2, click=click)
    tensor(1.1481)
    """
    whole = Space(**space)
    p = torch.sigmoid(whole.both(click_logit)[0]).clamp(min=LEAST_PENALISED)
    ratio = (whole.known(deviation).detach() / p).square()
    bias, variance = whole.over_clicks((1.0 - p).square() * ratio), whole.over_clicks(ratio)
    penalties = bias_share * bias + (1.0 - bias_share) * variance / count
    return click_loss(click_logit, **space) + penalty * penalties
