"""EIB: impute the error wherever nothing was clicked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from unskew.base.estimator import require
from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.dr import dr
from unskew.debias.imputation import FormName, ImputationForm, JointLearning
from unskew.debias.method import Batch, Counted, Plan, Setting
from unskew.training.means import OnBoth, OnRows, PerModel


@register(order=40)
@dataclass(kw_only=True)
class EIB(JointLearning):
    """L = (1/|D|) Σ_D [o·e + (1 − o)·ê], the imputer by L_imp = mean_O CE(r, r̃), unweighted.

    e is the error where the conversion is known, ê the imputed one elsewhere. It is the doubly robust loss
    with p = 1: no propensities, little variance, and as biased as its imputer, which learned from clicks
    alone. Use it to see what imputation does by itself; with propensities use :class:`DRJL`.

    Parameters
    ----------
    constant
        Steck's constant r̃ in the place of a learned one: every unclicked pair converts with this
        probability. None learns.
    """

    name = "eib"
    paper = "Steck 2010"
    when = "without propensities, where the imputer can be trusted beyond the clicks"
    with_tables = "pseudo-outcome"
    needs_propensity = False

    imp_loss: Literal["sq", "ce"] = "ce"
    constant: float | None = None

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Return no imputer where it is a constant."""
        return super().networks() if self.constant is None else {"prediction": ("prediction",)}

    def learns_from(self) -> Mapping[str, Counted]:
        """Count all of D for the prediction: a click's error is one of |D| errors in its loss."""
        return {"prediction": "population"}

    def plan(self) -> Plan:
        """Return the imputer's pass and the prediction's, or the latter alone."""
        return super().plan() if self.constant is None else super().plan()[1:]

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """Return w = 1."""
        return torch.ones_like(propensity)

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """Return the batch with p = 1: the known error stands for its own pair alone."""
        return replace(observed, propensity=torch.ones_like(observed.conversion))

    def pseudo_propensity(self, observed: Batch) -> Tensor:
        """Return 1: the known error stands for its own pair alone."""
        return torch.ones_like(observed.conversion)

    def imputed_rate(self, setting: Setting) -> Tensor | None:
        """Return the constant, if there is one."""
        if self.constant is None:
            return None
        return torch.full_like(setting.clicks.conversion[:, 0], self.constant)

    def imputer_output(self, setting: Setting, batch: Batch) -> Tensor:
        """Return b, or the logit of the constant."""
        if self.constant is None:
            return super().imputer_output(setting, batch)
        return torch.logit(torch.full_like(batch.conversion, self.constant))

    def _check(self) -> None:
        super()._check()
        require(
            self.constant is None or (0.0 < self.constant < 1.0 and self.imputation_form == "P1"),
            f"constant {self.constant} does not fit imputation {self.imputation_form}",
            "give a probability in (0, 1) with P1, or None",
        )


def eib(
    conversion: OnRows,
    logit: OnBoth,
    imputation: OnBoth,
    *,
    form: FormName | ImputationForm = "P1",
    **space: Any,
) -> PerModel:
    """L = (1/|D|) Σ_D [o·e + (1 − o)·ê]: :func:`dr` with p = 1.

    Its imputer learns mean_O CE(r, r̃): :func:`imputation_loss` with weights of 1 and ``loss="ce"``.

    Parameters
    ----------
    conversion, logit, imputation, form, space
        As in :func:`dr`.

    Examples
    --------
    >>> import torch
    >>> click, conversion = torch.tensor([1.0, 0.0]), torch.tensor([1.0, float("nan")])
    >>> eib(conversion, torch.tensor([0.5, -0.5]), torch.tensor([0.0, -30.0]), click=click)
    tensor(0.4741)
    """
    return dr(conversion, logit, torch.ones_like(conversion), imputation, form=form, **space)
