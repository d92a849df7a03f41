"""UIPS: IPS whose weights are shrunk where propensities are small or not known well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.base.errors import DataError
from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.data import Log
from unskew.debias.method import Batch, Debiaser, Setting, State, within
from unskew.training.means import OnRows, PerModel, Space, cross_entropy


class PropensityUncertainty(State):
    """The source of U: the clicks' information on each user and item, or U as it was given."""

    user: Tensor
    """Σ (1 − p) over the clicks of each user ``[R, users + 1]``."""
    item: Tensor
    """The same of each item ``[R, items + 1]``."""
    cell: Tensor
    """Cells of the clicks in rising order ``[R, clicks]``, where U is given."""
    value: Tensor
    """Their U ``[R, clicks]``."""


@register(order=35)
@dataclass(kw_only=True)
class UIPS(Debiaser):
    """L = (1/|D|) Σ_O φ·CE(r, r̂)/p, φ = min{λ/[(λ/η)e^(−γU) + η/(p²e^(−γU))], 2η₂/(e^(γU) + e^(−γU))}.

    p is ``propensity``, U the standard error of log p. φ shrinks the weights of small and of uncertain
    propensities, both without gradient: it minimises a bound of the squared error of the weighted loss if the
    true propensity is within p·e^(±γU) (target policy 1: every pair counts alike). With λ → ∞ and U = 0 this
    is :class:`IPS`. Use it where propensities of rare users and items become the largest weights.

    U is given to ``fit`` (``uncertainty=``). Otherwise, for propensities of any kind, it is √(gᵀA⁻¹g) of the
    simplest model of clicks, a logistic one with an effect of each user and item, by the diagonal of its
    information A at the given p: U = (1 − p)·√(1/(κ + I_u) + 1/(κ + I_i)), where I is Σ (1 − p) over the
    clicks of the user (item). It needs no training, and falls with the clicks of a user and an item.

    Parameters
    ----------
    trusted_weight
        τ: λ = (τ·|D|/|O|)². A weight of τ times the mean is halved, larger ones fall again.
    gamma
        γ: how many standard errors p may be off.
    eta, cap
        η and η₂: 1 leaves propensities that are large and sure as IPS has them.
    prior
        κ: 1 is a normal prior of variance 1 of each effect.
    """

    name = "uips"
    paper = "Zhang 2023"
    when = "IPS where the largest weights are of propensities that few clicks speak for"
    needs_propensity = True
    with_tables = "weights"
    ranges = within(
        trusted_weight="(0, inf)", eta="(0, inf)", cap="(0, inf)", prior="(0, inf)", gamma="[0, inf)"
    )

    trusted_weight: float = 10.0
    gamma: float = 1.0
    eta: float = 1.0
    cap: float = 1.0
    prior: float = 1.0

    def __post_init__(self) -> None:
        """Start with no uncertainty given."""
        self._given: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None

    def fit(self, log: Log, *, uncertainty: ArrayLike | None = None, **options: Any) -> Self:
        """Train as :meth:`Debiaser.fit` does.

        Parameters
        ----------
        uncertainty
            U of each row of the log, or of each pair ``[users, items]``; such as
            ``spread / p`` of ``propensity.predict_both_each(log)``. None takes that of the clicks' counts.
        options
            Those of :meth:`Debiaser.fit`.
        """
        self._given = None if uncertainty is None else of_clicks(log, uncertainty)
        try:
            return super().fit(log, **options)
        finally:
            self._given = None

    def before_epoch(self, setting: Setting) -> None:
        """Keep what U is read from, once."""
        observed, known = setting.clicks, setting.state(PropensityUncertainty)
        if not known.is_empty:
            return
        replicas, device = len(observed.propensity), observed.propensity.device
        if self._given is not None:
            cell, value = (torch.as_tensor(each, device=device).expand(replicas, -1) for each in self._given)
            known.write(cell=cell, value=value.to(observed.propensity.dtype))
            return
        hashes, rows = setting.cells.population.hashes, observed.rows.expand(replicas)
        information = 1.0 - observed.propensity
        user, item = (
            torch.zeros(replicas, len(ids), dtype=information.dtype, device=device).scatter_add_(
                1, code, information
            )
            for ids, code in ((hashes.user, rows.user), (hashes.item, rows.item))
        )
        known.write(user=user, item=item)

    def uncertainty(self, setting: Setting, observed: Batch) -> Tensor:
        """Return U of a batch of O ``[R, B]``."""
        known = setting.state(PropensityUncertainty)
        if "value" in vars(known):
            assert observed.cell is not None
            return known.value.gather(1, torch.searchsorted(known.cell, observed.cell.contiguous()))
        rows = observed.rows.expand(len(observed.propensity))
        of_user, of_item = known.user.gather(1, rows.user), known.item.gather(1, rows.item)
        variance = 1.0 / (self.prior + of_user) + 1.0 / (self.prior + of_item)
        return (1.0 - observed.propensity) * variance.sqrt()

    def shrinking(self, setting: Setting) -> dict[str, float]:
        """Return the parameters of φ."""
        shrinkage = (self.trusted_weight / setting.density) ** 2
        return {"shrinkage": shrinkage, "gamma": self.gamma, "eta": self.eta, "cap": self.cap}

    def click_weight(self, setting: Setting, observed: Batch) -> Tensor:
        """Return φ/p."""
        self.before_epoch(setting)
        p, spread = observed.propensity, self.uncertainty(setting, observed)
        return uips_factor(p, spread, **self.shrinking(setting)) / p

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_B φ·CE(r, r̂)/p."""
        logit, spread = setting.logit(observed), self.uncertainty(setting, observed)
        options = {**self.shrinking(setting), "density": setting.density}
        return uips(observed.conversion, logit, observed.propensity, spread, **options)


def of_clicks(log: Log, uncertainty: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the cells of the clicks in rising order and their U; raise where it does not fit the log."""
    values, rows = np.asarray(uncertainty, dtype=np.float64), log.clicked
    cell = log.cell[rows] if log.space == "matrix" else rows
    if log.space == "matrix" and values.shape == (log.n_users, log.n_items):
        on_clicks = values.reshape(-1)[cell]
    elif values.shape == (len(log),):
        on_clicks = values[rows]
    else:
        raise DataError(
            f"uncertainties of shape {values.shape} do not fit a log of {len(log)} rows",
            remedy="give one number per row of the log, or a matrix [users, items]",
        )
    wrong = np.flatnonzero(~((on_clicks >= 0.0) & np.isfinite(on_clicks)))
    if len(wrong):
        raise DataError(
            f"uncertainty is {on_clicks[wrong[0]]}, not a standard error",
            where=f"row {rows[wrong[0]]}",
            remedy="give the standard error of log p, 0 or more, of every click",
        )
    order = np.argsort(cell, kind="stable")
    return cell[order].astype(np.int64), on_clicks[order]


def uips(
    conversion: OnRows,
    logit: OnRows,
    propensity: OnRows,
    uncertainty: OnRows,
    *,
    shrinkage: float,
    gamma: float = 1.0,
    eta: float = 1.0,
    cap: float = 1.0,
    **space: Any,
) -> PerModel:
    """L = (1/|D|) Σ_O φ·CE(r, r̂)/p, with φ from :func:`uips_factor`, without gradient.

    Parameters
    ----------
    conversion, logit, propensity
        As in :func:`ips`.
    uncertainty, shrinkage, gamma, eta, cap
        As in :func:`uips_factor`.
    space
        ``click`` or ``density``, as in :func:`ips`.

    Examples
    --------
    >>> import torch

    A propensity that is sure, and a λ so large that nothing is shrunk, leave :func:`ips`:

    >>> conversion, logit, p = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]), torch.tensor([0.5, 0.1])
    >>> uips(conversion, logit, p, torch.zeros(2), shrinkage=1e9, density=0.5)
    tensor(5.6639)
    >>> uips(conversion, logit, p, torch.tensor([0.0, 2.0]), shrinkage=1e9, density=0.5)
    tensor(1.7599)
    """
    whole = Space(**space)
    p, spread = whole.known(propensity).detach(), whole.known(uncertainty).detach()
    factor = uips_factor(p, spread, shrinkage=shrinkage, gamma=gamma, eta=eta, cap=cap)
    return whole.over_clicks(factor * cross_entropy(whole.known(conversion), logit) / p)


def uips_factor(
    propensity: OnRows,
    uncertainty: OnRows,
    *,
    shrinkage: float,
    gamma: float = 1.0,
    eta: float = 1.0,
    cap: float = 1.0,
) -> OnRows:
    """φ = min{λ / [(λ/η)·e^(−γU) + η/(p²·e^(−γU))], 2η₂ / (e^(γU) + e^(−γU))} of each click.

    The weight φ/p has the least bound of its squared error, if the true propensity is between p·e^(−γU) and
    p·e^(γU) and every pair is to count alike.

    Parameters
    ----------
    propensity, uncertainty
        p, and U: the standard error of log p.
    shrinkage
        λ. Without uncertainty φ is ½ at 1/p = √λ (η = 1), where φ/p is largest.
    gamma, eta, cap
        γ, η and η₂.

    Examples
    --------
    >>> import torch
    >>> uips_factor(torch.tensor([0.5, 0.1, 0.1]), torch.tensor([0.0, 0.0, 1.0]), shrinkage=100.0)
    tensor([0.9615, 0.5000, 0.3240])
    """
    sure = torch.exp(-gamma * uncertainty)
    shrunk = shrinkage / (shrinkage / eta * sure + eta / (propensity.square() * sure))
    return torch.minimum(shrunk, cap / torch.cosh(gamma * uncertainty))
