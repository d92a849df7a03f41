"""Imputed errors: what the output of an imputer says about the error of a prediction (METHODS §1.2)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from unskew.training.means import cross_entropy, squared_error

FormName = Literal["P1", "P2", "P3"]
"""Pseudo-label, direct error, residual."""


class ImputationForm:
    """What the output b of an imputer says about the error of a prediction with logit a.

    e is the error with the known conversion r, ê the imputed one; r̃ is the conversion that the imputer
    stands for, where the form has one.
    """

    has_label: bool = True
    """Whether there is an r̃, and with it an effective target t = r̃ + (r − r̃)/p."""

    def error(self, conversion: Tensor, logit: Tensor) -> Tensor:
        """e."""
        return cross_entropy(conversion, logit)

    def imputed(self, output: Tensor, logit: Tensor) -> Tensor:
        """ê."""
        raise NotImplementedError

    def label(self, output: Tensor, logit: Tensor) -> Tensor:
        """r̃."""
        raise NotImplementedError

    def deviation(self, conversion: Tensor, output: Tensor, logit: Tensor) -> Tensor:
        """What the squared imputation loss squares: e − ê."""
        return self.error(conversion, logit) - self.imputed(output, logit)

    def shifted(self, conversion: Tensor, output: Tensor, logit: Tensor, shift: Tensor) -> Tensor:
        """(e − ê)·s, written with the shift (r − r̃)·s of the target."""
        raise NotImplementedError


class PseudoLabel(ImputationForm):
    """P1: r̃ = σ(b), ê = CE(r̃, r̂).

    CE is affine in its target, so e − ê = −(r − r̃)·a exactly: nothing is subtracted that could cancel.
    """

    def imputed(self, output: Tensor, logit: Tensor) -> Tensor:
        """CE(σ(b), r̂)."""
        return cross_entropy(self.label(output, logit), logit)

    def label(self, output: Tensor, logit: Tensor) -> Tensor:
        """σ(b)."""
        return torch.sigmoid(output)

    def deviation(self, conversion: Tensor, output: Tensor, logit: Tensor) -> Tensor:
        """−(r − r̃)·a."""
        return -(conversion - self.label(output, logit)) * logit

    def shifted(self, conversion: Tensor, output: Tensor, logit: Tensor, shift: Tensor) -> Tensor:
        """−(r − r̃)·s·a."""
        return -shift * logit


class DirectError(ImputationForm):
    """P2: ê = softplus(b), which is never negative and, unlike a probability, may exceed 1."""

    has_label = False

    def imputed(self, output: Tensor, logit: Tensor) -> Tensor:
        """softplus(b)."""
        return torch.nn.functional.softplus(output)


class SquaredErrors(ImputationForm):
    """Errors are squared: e = (r − r̂)², ê = (r̃ − r̂)²."""

    def error(self, conversion: Tensor, logit: Tensor) -> Tensor:
        """(r − r̂)²."""
        return squared_error(conversion, logit)

    def imputed(self, output: Tensor, logit: Tensor) -> Tensor:
        """(r̃ − r̂)²."""
        return self.error(self.label(output, logit), logit)

    def shifted(self, conversion: Tensor, output: Tensor, logit: Tensor, shift: Tensor) -> Tensor:
        """(r − r̃)·s·(r + r̃ − 2r̂)."""
        return shift * (conversion + self.label(output, logit) - 2.0 * torch.sigmoid(logit))


class Residual(SquaredErrors):
    """P3: b predicts r − r̂, r̃ = sg(r̂) + b; the value of ê is b², its gradient −2b·∇r̂."""

    def label(self, output: Tensor, logit: Tensor) -> Tensor:
        """sg(r̂) + b."""
        return torch.sigmoid(logit).detach() + output

    def deviation(self, conversion: Tensor, output: Tensor, logit: Tensor) -> Tensor:
        """r − r̂ − b: the residual itself, since e − ê would leave the sign of b open."""
        return conversion - torch.sigmoid(logit) - output


class SquaredPseudoLabel(SquaredErrors):
    """P1 with squared errors: r̃ = σ(b) (IPS-V2 and DR-V2 as published)."""

    def label(self, output: Tensor, logit: Tensor) -> Tensor:
        """σ(b)."""
        return torch.sigmoid(output)


FORMS: dict[FormName, ImputationForm] = {"P1": PseudoLabel(), "P2": DirectError(), "P3": Residual()}
"""Forms of imputation by name."""


def form_of(form: FormName | ImputationForm) -> ImputationForm:
    """A form by name, or the one given."""
    return form if isinstance(form, ImputationForm) else FORMS[form]
