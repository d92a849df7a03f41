"""ACDR: DR-JL whose propensities are also trained for their calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.method import Batch, ClicksAndCells, Pass, Setting, Stage, State, Step, within
from unskew.debias.towers import OwnPropensity, Tasks, click_loss
from unskew.training.means import OnBoth, OnRows, PerModel, Space


class Bins(State):
    """The bins of the calibration error in this epoch."""

    edges: Tensor
    """Between them ``[R, M − 1]``."""


@register(order=260)
@dataclass(kw_only=True)
class ACDR(OwnPropensity):
    """L_g = mean_D CE(o, p) + λ · ECE, ECE = Σ_m |mean_D 1[p in bin m]·(o − p)|; then DR-JL with p.

    The M bins have equal weight in D by the p of held-out cells, and are found anew in each epoch; a bin's p
    has its gradient, its edges have none. In turn, each epoch: the click network learns L_g, then DR-JL
    trains its imputer and its prediction with p, without gradient. Before that the click network warms up on
    the first term alone. A baseline: calibration in the loss, where post-hoc calibration is the alternative
    (``calibration="in-loop"``, or :class:`DRJL` with a calibrated :class:`Propensity`). Given propensities
    only weigh the validation loss.

    Parameters
    ----------
    penalty
        λ; 1 in the published code.
    bins
        M; 15 in the published code.
    calibration
        As in :class:`GPL`, but ``"auto"`` is the network's own.
    """

    name = "acdr"
    paper = "ACDR, public code"
    when = "as a baseline: calibration in the loss of the propensity, not after it"
    sources = ("report-only", "in-loop")
    ranges = within(penalty="[0, inf)", bins="[1, inf)")

    penalty: float = 1.0
    bins: int = 15

    def stages(self) -> tuple[Stage, ...]:
        """Train the click network alone, then with DR-JL in turn."""
        step = Step("click", self.propensity_loss, ("click",))
        click = Pass(ClicksAndCells(self.ratio), (step,), self.find_bins)
        return (*self.warm_up_stages(), Stage((click, *self.plan())))

    def find_bins(self, setting: Setting) -> None:
        """Find bins of equal weight, by the p of the cells that no click network trains on."""
        cells = setting.cells.calibration
        p = self.click_probability(setting, cells, raw=True)
        setting.state(Bins).write(edges=equal_mass_edges(p, cells.weight.to(p.dtype), bins=self.bins))

    def propensity_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Return L_g."""
        tasks, trains = Tasks.read(setting, observed, full), setting.cells.trains
        return acdr_propensity(
            tasks.of("click"),
            setting.state(Bins).edges,
            penalty=self.penalty,
            counts=(trains(observed.rows), trains(full.rows)),
            **tasks.space,
        )


def acdr_propensity(
    click_logit: OnBoth,
    edges: Tensor,
    *,
    penalty: float = 1.0,
    counts: OnBoth | None = None,
    **space: Any,
) -> PerModel:
    """L_g = mean_D CE(o, p) + λ · ECE, with ECE from :func:`calibration_error`.

    How ACDR learns propensities. Its prediction learns :func:`dr`, its imputer :func:`dr_jl_imputation`.

    Parameters
    ----------
    click_logit
        Logit of p, which has its gradient everywhere ``[..., B]``; or a pair.
    edges, counts
        As in :func:`calibration_error`.
    penalty
        λ.
    space
        As in :func:`click_loss`.

    Examples
    --------
    >>> import torch
    >>> acdr_propensity(torch.zeros(2), torch.tensor([0.7]), click=torch.tensor([1.0, 1.0]))
    tensor(1.1931)
    """
    error = calibration_error(click_logit, edges, counts=counts, **space)
    return click_loss(click_logit, **space) + penalty * error


def calibration_error(
    click_logit: OnBoth, edges: Tensor, *, counts: OnBoth | None = None, **space: Any
) -> PerModel:
    """L = Σ_m |mean_D 1[p in bin m]·(o − p)|: ECE, whose gradient moves the p of a bin but not its bin.

    Parameters
    ----------
    click_logit
        Logit of p ``[..., B]``; or a pair.
    edges
        Between M + 1 bins, in rising order; from :func:`equal_mass_edges`, for example.
    counts
        1 (or true) on the rows that it is of; all by default.
    space
        As in :func:`click_loss`.

    Examples
    --------
    >>> import torch
    >>> calibration_error(torch.zeros(2), torch.tensor([0.7]), click=torch.tensor([1.0, 0.0]))
    tensor(0.)
    """
    whole = Space(**space)
    clicked, full = (torch.sigmoid(each) for each in whole.both(click_logit))
    bins = [
        torch.searchsorted(edges.contiguous(), p.detach().contiguous(), right=True) for p in (clicked, full)
    ]
    counted = (1.0, 1.0) if counts is None else whole.both(counts)
    missing, surplus = (1.0 - clicked) * counted[0], -full * counted[1]
    total = torch.zeros_like(full[..., 0])
    for number in range(edges.shape[-1] + 1):
        gap = whole.over_cells(clicked=missing * (bins[0] == number), unclicked=surplus * (bins[1] == number))
        total = total + gap.abs()
    return total


def equal_mass_edges(probability: OnRows, weight: OnRows, *, bins: int) -> Tensor:
    """Return the edges between ``bins`` bins of equal weight.

    Examples
    --------
    >>> import torch
    >>> equal_mass_edges(torch.tensor([0.1, 0.4, 0.2, 0.3]), torch.ones(4), bins=2)
    tensor([0.2000])
    """
    rising, order = probability.sort(dim=-1)
    below = weight.gather(-1, order).cumsum(-1)
    share = torch.arange(1, bins, dtype=below.dtype, device=below.device) / bins
    at = torch.searchsorted(below, (share * below[..., -1:]).contiguous())
    return rising.gather(-1, at.clamp(max=rising.shape[-1] - 1))
