"""Methods that impute errors where no conversion is known: in which form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unskew.debias.parts.full_space import FullSpace
from unskew.debias.parts.imputation import FORMS, FormName, ImputationForm
from unskew.estimator import require


@dataclass(kw_only=True)
class Imputing(FullSpace):
    """ê as one of three forms says it.

    Parameters
    ----------
    imputation_form
        ``"P1"`` pseudo-label, ``"P2"`` direct error, ``"P3"`` residual with squared errors (METHODS §1.2).
    """

    imputation: ClassVar[str | None] = "P1"

    imputation_form: FormName = "P1"

    @property
    def form(self) -> ImputationForm:
        """The arithmetic of ``imputation_form``."""
        return FORMS[self.imputation_form]

    def _check(self) -> None:
        super()._check()
        require(
            self.imputation_form in FORMS,
            f"imputation_form must be one of {', '.join(FORMS)}, not {self.imputation_form!r}",
            "give one of these",
        )
