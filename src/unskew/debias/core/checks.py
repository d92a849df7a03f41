"""Claims about parameters that several methods have in common, each stated once."""

from __future__ import annotations

import warnings

from unskew.estimator import require


def require_share(name: str, share: float) -> None:
    """A share of something, by the parameter's name."""
    require(0.0 <= share <= 1.0, f"{name} must be in [0, 1], not {share}", "give a share of 1, such as 0.5")


def check_imputer(method: str, imputation_form: str, imp_loss: str, copying: str | None) -> None:
    """A loss that an imputer of this form has, weights to copy that mean something to it; warns of IPS."""
    has_label = imputation_form == "P1"
    require(imp_loss in ("sq", "ce"), f"imp_loss must be 'sq' or 'ce', not {imp_loss!r}", "give one of these")
    require(has_label or imp_loss == "sq", "imp_loss 'ce' needs a pseudo-label", "use imputation_form='P1'")
    require(
        copying in ("epoch", "batch", "none", None),
        f"copy must be 'epoch', 'batch' or 'none', not {copying!r}",
        "give one of these",
    )
    require(
        has_label or copying not in ("epoch", "batch"),
        f"copy {copying!r}: a prediction's weights mean nothing to an imputer of the form {imputation_form}",
        "use copy='none', or imputation_form='P1'",
    )
    if imputation_form == "P2":
        warnings.warn(
            f"{method} with P2 and separate networks trains the prediction exactly as IPS does:"
            " ê does not depend on it (METHODS §1.2); use P1, or a method with shared embeddings",
            stacklevel=4,
        )
