"""DR: doubly robust with one imputed conversion rate for all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.imputation import (
    FormName,
    ImputationForm,
    dr_correction,
    imputed_error,
    require_target_clip,
    warn_of_far_targets,
)
from unskew.debias.method import Batch, Debiaser, Setting, State, within
from unskew.training.means import OnBoth, OnRows, PerModel, Space


class Rate(State):
    """One conversion rate for all pairs."""

    logit: Tensor
    """logit r̃ ``[R, 1]``."""


@register(order=50)
@dataclass(kw_only=True)
class DR(Debiaser):
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p] with ê = CE(r̃, r̂), r̃ = Σ_O r/p / Σ_O 1/p.

    r̃ is the self-normalised estimate of the conversion rate over D from the training clicks; public code
    takes it from randomly shown test pairs, which leaks. Nothing is learned but the prediction. With a fixed
    r̃ L would be unbiased for the ideal loss where p is true; since r̃ comes from the same clicks it is so only
    in the limit, with a bias of the order of 1/|O|. Less variance than IPS where r̃ is better than no guess at
    all; :class:`DRJL` learns a better one.

    Parameters
    ----------
    ratio
        Cells of D in a batch per row of O. The estimator is exact for any; more cells, less noise.
    target_clip
        τ: effective targets r̃ + (r − r̃)/p are clipped to [−τ, 1 + τ]; None (the papers) does not.
    """

    name = "dr"
    paper = "Wang 2019"
    when = "as IPS with less variance, where clicks are too few to learn an imputer"
    with_tables = "pseudo-outcome"
    needs_propensity = True
    needs_full_space = True
    imputation = "P1"
    ranges = within(ratio="(0, inf)")

    ratio: float = 1.0
    target_clip: float | None = None

    def before_epoch(self, setting: Setting) -> None:
        """Find r̃, which stays the same."""
        clicks = setting.clicks
        setting.state(Rate).write(logit=constant_imputation(clicks.conversion, clicks.propensity))

    def imputed_rate(self, setting: Setting) -> Tensor:
        """Return r̃ ``[R]``."""
        return constant_imputation(setting.clicks.conversion, setting.clicks.propensity).sigmoid()[:, 0]

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_{B_D} ê + (|O|/|D|) · mean_{B_O} (e − ê)/p."""
        rate = setting.state(Rate).logit
        return dr(
            observed.conversion,
            (setting.logit(observed), setting.logit(full)),
            observed.propensity,
            (rate.expand(observed.conversion.shape), rate.expand(full.conversion.shape)),
            density=setting.density,
            target_clip=self.target_clip,
        )

    def finish(self, setting: Setting) -> None:
        """Warn of far targets, once."""
        if self.target_clip is None and not setting.state(Rate).is_empty:
            warn_of_far_targets(self.name, setting, setting.state(Rate).logit.sigmoid())

    def _check(self) -> None:
        super()._check()
        require_target_clip(self.target_clip, "P1")


def dr(
    conversion: OnRows,
    logit: OnBoth,
    propensity: OnRows,
    imputation: OnBoth,
    *,
    form: FormName | ImputationForm = "P1",
    target_clip: float | None = None,
    detach_imputation: bool = True,
    **space: Any,
) -> PerModel:
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p], e = CE(r, r̂), ê = CE(r̃, r̂).

    Unbiased for the ideal loss if either p or ê is true. :func:`constant_imputation` gives an imputation
    without a model (``dr``); ``dr_jl``, ``mrdr``, ``dr_bias`` and ``dr_mse`` learn one, each by its own loss
    (:func:`dr_jl_imputation` and so on), in turn with this one.

    Parameters
    ----------
    conversion, propensity
        r and p of clicks; or of rows of D, with ``click``, where neither is read without one.
    logit, imputation
        The logit of r̂, and the output b of the imputer (for ``"P1"`` the logit of r̃): on rows of D, with
        ``click``; or each a pair, on the batch of clicks and on a batch drawn uniformly from D.
    form
        What b says: ``"P1"`` r̃ = σ(b); ``"P2"`` ê = softplus(b); ``"P3"`` r − r̂ is b, and errors are squared.
    target_clip
        τ: effective targets r̃ + (r − r̃)/p are clipped to [−τ, 1 + τ].
    detach_imputation
        False lets the loss move the imputer.
    space
        ``click``; or ``density`` = |O| / |D|, with pairs.

    Examples
    --------
    >>> import torch

    An imputation that is right where nothing was clicked leaves the loss as it would be if all were known:

    >>> click, conversion = torch.tensor([1.0, 0.0]), torch.tensor([1.0, float("nan")])
    >>> logit, p = torch.tensor([0.5, -0.5]), torch.tensor([0.5, 0.5])
    >>> dr(conversion, logit, p, torch.tensor([30.0, -30.0]), click=click)
    tensor(0.4741)
    """
    whole = Space(**space)
    (logit, everywhere), (output, imputed) = whole.both(logit), whole.both(imputation)
    if detach_imputation:
        output, imputed = output.detach(), imputed.detach()
    conversion, p = whole.known(conversion), whole.known(propensity).detach()
    correction = dr_correction(conversion, logit, p, output, form=form, target_clip=target_clip)
    return whole.mean(clicked=correction, everywhere=imputed_error(imputed, everywhere, form=form))


def constant_imputation(conversion: OnRows, propensity: OnRows, **space: Any) -> Tensor:
    """logit r̃ with r̃ = Σ_O r/p / Σ_O 1/p, the conversion rate over D: for :func:`dr` without an imputer.

    Parameters
    ----------
    conversion, propensity
        r and p of all training clicks; or of rows of D, with ``click``.
    space
        ``click``, as in :func:`ips`.

    Examples
    --------
    >>> import torch
    >>> constant_imputation(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
    tensor([0.])
    """
    whole = Space(**space)
    rate = whole.normalised(whole.known(conversion), 1.0 / whole.known(propensity))
    # A log in which every click converted, or none, has no finite logit.
    return torch.logit(rate.unsqueeze(-1), eps=torch.finfo(torch.float32).eps)
