"""EIB: impute the error wherever nothing was clicked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from unskew.base.estimator import require
from unskew.base.registry import register
from unskew.debias.dr import dr
from unskew.debias.forms import FormName, ImputationForm
from unskew.debias.imputation import JointLearning
from unskew.debias.method import Counted
from unskew.debias.setting import Batch, Plan, Setting
from unskew.training.means import OnBoth

if TYPE_CHECKING:
    from jaxtyping import Float


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

    name: ClassVar[str] = "eib"
    paper: ClassVar[str] = "Steck 2010"
    when: ClassVar[str] = "without propensities, where the imputer can be trusted beyond the clicks"
    with_tables: ClassVar[Literal["pseudo-outcome"]] = "pseudo-outcome"
    needs_propensity: ClassVar[bool] = False
    detached: ClassVar[tuple[str, ...]] = (
        "imputation in the prediction step",
        "prediction in the imputation step",
    )

    imp_loss: Literal["sq", "ce"] = "ce"
    constant: float | None = None

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Without an imputer where it is a constant."""
        return super().networks() if self.constant is None else {"prediction": ("prediction",)}

    def learns_from(self) -> Mapping[str, Counted]:
        """A click's error counts once among the |D| errors of the prediction's loss."""
        return {"prediction": "population"}

    def plan(self) -> Plan:
        """The imputer's pass and the prediction's, or the latter alone."""
        return super().plan() if self.constant is None else super().plan()[1:]

    def imputation_weight(self, propensity: Tensor) -> Tensor:
        """w = 1."""
        return torch.ones_like(propensity)

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """With p = 1: the known error stands for its own pair alone."""
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
        """b, or the logit of the constant."""
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
    conversion: Float[Tensor, "*#batches #B"],
    logit: OnBoth,
    imputation: OnBoth,
    *,
    click: Tensor | None = None,
    density: float | None = None,
    form: FormName | ImputationForm = "P1",
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_D [o·e + (1 − o)·ê]: :func:`dr` with p = 1.

    Its imputer learns mean_O CE(r, r̃): :func:`imputation_loss` with weights of 1 and ``loss="ce"``.

    Parameters
    ----------
    conversion, logit, imputation, click, density, form
        As in :func:`dr`.

    Examples
    --------
    >>> import torch
    >>> click, conversion = torch.tensor([1.0, 0.0]), torch.tensor([1.0, float("nan")])
    >>> eib(conversion, torch.tensor([0.5, -0.5]), torch.tensor([0.0, -30.0]), click=click)
    tensor(0.4741)
    """
    return dr(
        conversion, logit, torch.ones_like(conversion), imputation, click=click, density=density, form=form
    )
