"""DR: doubly robust with one imputed conversion rate for all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from unskew.base.estimator import require_above
from unskew.base.registry import register
from unskew.debias.forms import FormName, ImputationForm, dr_correction, imputed_error
from unskew.debias.imputation import (
    require_target_clip,
    tell_of_far_targets,
    watch_for_far_targets,
    watch_targets,
)
from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, ClicksAndCells, Plan, Setting, State
from unskew.training import Pass, Step
from unskew.training.means import OnBoth, Space

if TYPE_CHECKING:
    from jaxtyping import Float


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

    name: ClassVar[str] = "dr"
    paper: ClassVar[str] = "Wang 2019"
    when: ClassVar[str] = "as IPS with less variance, where clicks are too few to learn an imputer"
    with_tables: ClassVar[Literal["pseudo-outcome"]] = "pseudo-outcome"
    needs_propensity: ClassVar[bool] = True
    needs_full_space: ClassVar[bool] = True
    imputation: ClassVar[str | None] = "P1"
    detached: ClassVar[tuple[str, ...]] = ("propensity", "imputation")

    ratio: float = 1.0
    target_clip: float | None = None

    def plan(self) -> Plan:
        """One pass over O and D for the prediction."""
        step = Step("prediction", self.loss, ("prediction",))
        return (Pass(ClicksAndCells(self.ratio), (step,), self.before_prediction),)

    def before_prediction(self, setting: Setting) -> None:
        """Find r̃, once."""
        watch_targets(setting)
        if setting.state(Rate).is_empty:
            clicks = setting.clicks
            setting.state(Rate).write(logit=constant_imputation(clicks.conversion, clicks.propensity))

    def imputed_rate(self, setting: Setting) -> Tensor:
        """Return r̃ ``[R]``."""
        return constant_imputation(setting.clicks.conversion, setting.clicks.propensity).sigmoid()[:, 0]

    def imputer_output(self, setting: Setting, batch: Batch) -> Tensor:
        """logit r̃."""
        return setting.state(Rate).logit.expand(batch.conversion.shape)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_{B_D} ê + (|O|/|D|) · mean_{B_O} (e − ê)/p."""
        logit, everywhere = setting.logit(observed), setting.logit(full)
        imputed, imputed_everywhere = (self.imputer_output(setting, batch) for batch in (observed, full))
        if self.target_clip is None:
            watch_for_far_targets(setting, observed, imputed.sigmoid())
        return dr(
            observed.conversion,
            (logit, everywhere),
            observed.propensity,
            (imputed, imputed_everywhere),
            density=setting.density,
            target_clip=self.target_clip,
        )

    def finish(self, setting: Setting) -> None:
        """Tell of far targets, once."""
        tell_of_far_targets(setting, self.name)

    def _check(self) -> None:
        super()._check()
        require_above(0, ratio=self.ratio)
        require_target_clip(self.target_clip, "P1")


def dr(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    imputation: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    form: FormName | ImputationForm = "P1",
    target_clip: float | None = None,
    detach_propensity: bool = True,
    detach_imputation: bool = True,
) -> Float[Tensor, " *batches"]:
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
    density
        |O| / |D|, with pairs.
    form
        What b says: ``"P1"`` r̃ = σ(b); ``"P2"`` ê = softplus(b); ``"P3"`` r − r̂ is b, and errors are squared.
    target_clip
        τ: effective targets r̃ + (r − r̃)/p are clipped to [−τ, 1 + τ].
    detach_propensity, detach_imputation
        False lets the loss move p, or the imputer.

    Examples
    --------
    >>> import torch

    An imputation that is right where nothing was clicked leaves the loss as it would be if all were known:

    >>> click, conversion = torch.tensor([1.0, 0.0]), torch.tensor([1.0, float("nan")])
    >>> logit, p = torch.tensor([0.5, -0.5]), torch.tensor([0.5, 0.5])
    >>> dr(conversion, logit, p, torch.tensor([30.0, -30.0]), click=click)
    tensor(0.4741)
    """
    space = Space(click, density)
    (logit, everywhere), (output, imputed) = space.both(logit), space.both(imputation)
    if detach_imputation:
        output, imputed = output.detach(), imputed.detach()
    propensity = space.known(propensity)
    each = dr_correction(
        space.known(conversion),
        logit,
        propensity.detach() if detach_propensity else propensity,
        output,
        form=form,
        target_clip=target_clip,
    )
    return space.mean(clicked=each, everywhere=imputed_error(imputed, everywhere, form=form))


def constant_imputation(
    conversion: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
) -> Float[Tensor, "*batches 1"]:
    """logit r̃ with r̃ = Σ_O r/p / Σ_O 1/p, the conversion rate over D: for :func:`dr` without an imputer.

    Parameters
    ----------
    conversion, propensity
        r and p of all training clicks; or of rows of D, with ``click``.

    Examples
    --------
    >>> import torch
    >>> constant_imputation(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
    tensor([0.])
    """
    space = Space(click)
    rate = space.normalised(space.known(conversion), 1.0 / space.known(propensity))
    # A log in which every click converted, or none, has no finite logit.
    return torch.logit(rate.unsqueeze(-1), eps=torch.finfo(torch.float32).eps)
