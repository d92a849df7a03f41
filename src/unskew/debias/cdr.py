"""CDR: doubly robust where the imputer is sure, IPS where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.imputation import FormName, Hosted, ImputationForm, dr_correction, form_of, imputed_error
from unskew.debias.method import Batch, Setting, evaluating, within
from unskew.training.means import OnBoth, OnRows, PerModel, Space

if TYPE_CHECKING:
    from unskew.learners.network import Embedded, Network


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

    name = "cdr"
    paper = "Song 2023"
    when = "doubly robust where some imputed errors cannot be trusted"
    ranges = within(threshold="[0, inf)", masks="[2, inf)", mask_rate="(0, 1)")

    threshold: float = 0.1
    masks: int = 10
    mask_rate: float = 0.5

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_{B_D} γ·ê + (|O|/|D|) · mean_{B_O} (e − γ·ê)/p."""
        batches = (observed, full)
        logits = [setting.logit(batch) for batch in batches]
        trusted = [self.trusted(setting, *each) for each in zip(batches, logits, strict=True)]
        outputs = [self.imputer_output(setting, batch) for batch in batches]
        return cdr(
            observed.conversion,
            (logits[0], logits[1]),
            observed.propensity,
            (outputs[0], outputs[1]),
            (trusted[0], trusted[1]),
            form=self.form,
            target_clip=self.target_clip,
            density=setting.density,
        )

    def trusted(self, setting: Setting, batch: Batch, logit: Tensor) -> Tensor:
        """Return γ ``[R, B]`` as truth values."""
        _, imputer = setting.network_of("imputation")
        with torch.no_grad(), evaluating([imputer]):
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


def cdr(
    conversion: OnRows,
    logit: OnBoth,
    propensity: OnRows,
    imputation: OnBoth,
    trusted: OnBoth,
    *,
    form: FormName | ImputationForm = "P1",
    target_clip: float | None = None,
    **space: Any,
) -> PerModel:
    """L = (1/|D|) Σ_D [o·e/p + γ·ê·(1 − o/p)].

    :func:`dr` where the imputer is trusted, :func:`ips` where it is not. The imputer learns the loss of
    MRDR, DR-JL or DR-BIAS.

    Parameters
    ----------
    conversion, logit, propensity, imputation, form, target_clip, space
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
    whole = Space(**space)
    (logit, everywhere), (output, imputed) = whole.both(logit), whole.both(imputation)
    conversion, p = whole.known(conversion), whole.known(propensity).detach()
    sure, sure_everywhere = whole.both(trusted)
    doubly_robust = dr_correction(conversion, logit, p, output.detach(), form=form, target_clip=target_clip)
    return whole.mean(
        clicked=torch.where(sure, doubly_robust, form_of(form).error(conversion, logit) / p),
        everywhere=imputed_error(imputed.detach(), everywhere, form=form) * sure_everywhere,
    )


def cdr_trusted(imputed: Tensor, *, threshold: float) -> Tensor:
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
