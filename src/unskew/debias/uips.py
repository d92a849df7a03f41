"""UIPS: IPS whose weights are shrunk where propensities are small or not known well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from unskew.base.errors import DataError
from unskew.base.estimator import require_above, require_at_least
from unskew.base.registry import register
from unskew.data import Log
from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, Plan, Setting, State, clicks
from unskew.debias.towers import held_out
from unskew.training import Pass, Step
from unskew.training.means import Space, cross_entropy

if TYPE_CHECKING:
    from jaxtyping import Float


class Information(State):
    """What the clicks tell of each user and item: Σ (1 − p) over theirs, by code."""

    user: Tensor
    """``[R, users + 1]``."""
    item: Tensor
    """``[R, items + 1]``."""


class GivenUncertainty(State):
    """U as it was given, by the cells of the clicks in rising order."""

    cell: Tensor
    """``[R, clicks]``."""
    value: Tensor
    """``[R, clicks]``."""


class OfClicks(NamedTuple):
    """U of a log's clicks, by their cells in rising order."""

    cell: NDArray[np.int64]
    value: NDArray[np.float64]


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

    name: ClassVar[str] = "uips"
    paper: ClassVar[str] = "Zhang 2023"
    when: ClassVar[str] = "IPS where the largest weights are of propensities that few clicks speak for"
    needs_propensity: ClassVar[bool] = True
    with_tables: ClassVar[Literal["weights"]] = "weights"
    detached: ClassVar[tuple[str, ...]] = ("propensity", "uncertainty")

    trusted_weight: float = 10.0
    gamma: float = 1.0
    eta: float = 1.0
    cap: float = 1.0
    prior: float = 1.0

    def __post_init__(self) -> None:
        """Nothing is given yet."""
        self._given_uncertainty: OfClicks | None = None

    def fit(self, log: Log, *, uncertainty: ArrayLike | None = None, **options: Any) -> Self:
        """As :meth:`Debiaser.fit`.

        Parameters
        ----------
        uncertainty
            U of each row of the log, or of each pair ``[users, items]``; such as
            ``spread / p`` of ``propensity.predict_both_each(log)``. None takes that of the clicks' counts.
        options
            Those of :meth:`Debiaser.fit`.
        """
        self._given_uncertainty = None if uncertainty is None else of_clicks(log, uncertainty)
        try:
            return super().fit(log, **options)
        finally:
            self._given_uncertainty = None

    def plan(self) -> Plan:
        """One step over O, with U found before it."""
        return (Pass(clicks, (Step(self.name, self.loss, ("prediction",)),), self.find_uncertainty),)

    def find_uncertainty(self, setting: Setting) -> None:
        """Keep what U is read from, once."""
        observed, given = setting.clicks, self._given_uncertainty
        device, replicas = observed.propensity.device, len(observed.propensity)
        if given is not None and setting.state(GivenUncertainty).is_empty:
            cell, value = (torch.as_tensor(each, device=device).expand(replicas, -1) for each in given)
            setting.state(GivenUncertainty).write(cell=cell, value=value.to(observed.propensity.dtype))
        elif given is None and setting.state(Information).is_empty:
            hashes, rows = held_out(setting).population.hashes, observed.rows.expand(replicas)
            each = 1.0 - observed.propensity
            user, item = (
                torch.zeros(replicas, len(ids), dtype=each.dtype, device=device).scatter_add_(1, code, each)
                for ids, code in ((hashes.user, rows.user), (hashes.item, rows.item))
            )
            setting.state(Information).write(user=user, item=item)

    def uncertainty(self, setting: Setting, observed: Batch) -> Tensor:
        """U of a batch of O ``[R, B]``."""
        given = setting.state(GivenUncertainty)
        if not given.is_empty:
            assert observed.cell is not None
            return given.value.gather(1, torch.searchsorted(given.cell, observed.cell.contiguous()))
        known, rows = setting.state(Information), observed.rows.expand(len(observed.propensity))
        of_user, of_item = known.user.gather(1, rows.user), known.item.gather(1, rows.item)
        variance = 1.0 / (self.prior + of_user) + 1.0 / (self.prior + of_item)
        return (1.0 - observed.propensity) * variance.sqrt()

    def click_weight(self, setting: Setting, observed: Batch) -> Tensor:
        """Return φ/p."""
        self.find_uncertainty(setting)
        p, spread = observed.propensity, self.uncertainty(setting, observed)
        shrinkage = (self.trusted_weight / setting.density) ** 2
        options = {"gamma": self.gamma, "eta": self.eta, "cap": self.cap}
        return uips_factor(p, spread, shrinkage=shrinkage, **options) / p

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_B φ·CE(r, r̂)/p."""
        return uips(
            observed.conversion,
            setting.logit(observed),
            observed.propensity,
            self.uncertainty(setting, observed),
            shrinkage=(self.trusted_weight / setting.density) ** 2,
            gamma=self.gamma,
            eta=self.eta,
            cap=self.cap,
            density=setting.density,
        )

    def _check(self) -> None:
        super()._check()
        require_above(0, trusted_weight=self.trusted_weight, eta=self.eta, cap=self.cap, prior=self.prior)
        require_at_least(0, gamma=self.gamma)


def of_clicks(log: Log, uncertainty: ArrayLike) -> OfClicks:
    """Given values as those of clicks; an error where they are none, or do not fit the log."""
    values, rows = np.asarray(uncertainty, dtype=np.float64), log.clicked
    cell = log.cell[rows] if log.space == "matrix" else rows
    if log.space == "matrix" and values.shape == (log.n_users, log.n_items):
        found = values.reshape(-1)[cell]
    elif values.shape == (len(log),):
        found = values[rows]
    else:
        raise DataError(
            f"uncertainties of shape {values.shape} do not fit a log of {len(log)} rows",
            remedy="give one number per row of the log, or a matrix [users, items]",
        )
    wrong = np.flatnonzero(~((found >= 0.0) & np.isfinite(found)))
    if len(wrong):
        raise DataError(
            f"uncertainty is {found[wrong[0]]}, not a standard error",
            where=f"row {rows[wrong[0]]}",
            remedy="give the standard error of log p, 0 or more, of every click",
        )
    order = np.argsort(cell, kind="stable")
    return OfClicks(cell[order].astype(np.int64), found[order])


def uips(
    conversion: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    uncertainty: Float[Tensor, "*#batches #B"],
    *,
    shrinkage: float,
    gamma: float = 1.0,
    eta: float = 1.0,
    cap: float = 1.0,
    click: Tensor | None = None,
    density: float | None = None,
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_O φ·CE(r, r̂)/p, with φ from :func:`uips_factor`, without gradient.

    Parameters
    ----------
    conversion, logit, propensity, click, density
        As in :func:`ips`.
    uncertainty, shrinkage, gamma, eta, cap
        As in :func:`uips_factor`.

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
    space = Space(click, density)
    p, spread = space.known(propensity).detach(), space.known(uncertainty).detach()
    factor = uips_factor(p, spread, shrinkage=shrinkage, gamma=gamma, eta=eta, cap=cap)
    return space.over_clicks(factor * cross_entropy(space.known(conversion), logit) / p)


def uips_factor(
    propensity: Float[Tensor, "*#shape"],
    uncertainty: Float[Tensor, "*#shape"],
    *,
    shrinkage: float,
    gamma: float = 1.0,
    eta: float = 1.0,
    cap: float = 1.0,
) -> Float[Tensor, "*shape"]:
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
