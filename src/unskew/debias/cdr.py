"""CDR: doubly robust where the imputer is sure, IPS where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from unskew.base.estimator import require_at_least, require_choice, require_in
from unskew.base.registry import register
from unskew.debias.forms import FormName, ImputationForm, dr_correction, form_of, imputed_error
from unskew.debias.imputation import HOSTS, Hosted
from unskew.debias.setting import Batch, Setting
from unskew.learners.network import Embedded, Network
from unskew.training import evaluating
from unskew.training.means import OnBoth, Space

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


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
        return cdr_correction(
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
        errors = imputed_error(outputs, logit, form=self.form)
        return cdr_trusted(errors, threshold=self.threshold)

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


def cdr(
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    propensity: Float[Tensor, "*#batches #B"],
    imputation: OnBoth,
    trusted: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    form: FormName | ImputationForm = "P1",
    target_clip: float | None = None,
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_D [o·e/p + γ·ê·(1 − o/p)].

    :func:`dr` where the imputer is trusted, :func:`ips` where it is not. The imputer learns the loss of
    MRDR, DR-JL or DR-BIAS.

    Parameters
    ----------
    conversion, logit, propensity, imputation, click, density, form, target_clip
        As in :func:`dr`.
    trusted
        γ as truth values, from :func:`cdr_trusted`; a pair where ``logit`` is one.

    Examples
    --------
    >>> import torch
    >>> one, zero = torch.ones(1), torch.zeros(1)  # A click, as in IPS: CE(1, σ(2)) / 0.5
    >>> cdr(one, 2 * one, one / 2, zero, torch.tensor([False]), click=one)
    tensor(0.2539)
    """
    space = Space(click, density)
    (logit, everywhere), (output, imputed) = space.both(logit), space.both(imputation)
    known = space.known(conversion), logit, space.known(propensity).detach(), output.detach()
    sure, sure_everywhere = space.both(trusted)
    return space.mean(
        clicked=cdr_correction(*known, sure, form=form, target_clip=target_clip),
        everywhere=imputed_error(imputed.detach(), everywhere, form=form) * sure_everywhere,
    )


def cdr_trusted(imputed: Float[Tensor, "M *batches B"], *, threshold: float) -> Bool[Tensor, "*batches B"]:
    """γ = 1[σ̂/μ̂ < η]: where imputed errors of M thinned imputers agree.

    Parameters
    ----------
    imputed
        ê (:func:`imputed_error`) of each, as with M dropout masks on the imputer's embeddings.
    threshold
        η.

    Examples
    --------
    >>> import torch
    >>> cdr_trusted(torch.tensor([[1.0, 1.0], [1.1, 3.0]]), threshold=0.1)
    tensor([ True, False])
    """
    deviation, mean = torch.std_mean(imputed.detach(), dim=0)
    return deviation < threshold * mean


def cdr_correction(
    conversion: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    imputation: Float[Tensor, "*#batches #B"],
    trusted: Bool[Tensor, "*#batches #B"],
    *,
    form: FormName | ImputationForm = "P1",
    target_clip: float | None = None,
) -> Float[Tensor, "*batches B"]:
    """(e − γ·ê)/p of each click; parameters as in :func:`cdr`."""
    doubly_robust = dr_correction(
        conversion, logit, propensity, imputation, form=form, target_clip=target_clip
    )
    return torch.where(trusted, doubly_robust, form_of(form).error(conversion, logit) / propensity)
