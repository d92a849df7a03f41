"""The two protocols, never mixed: what each sets, and the label every number of it carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from unskew.backbones import Backbone
from unskew.calibration import Calibrator
from unskew.propensity import Propensity

ProtocolName = Literal["honest", "paper"]

PAPER_BATCH = 1024
PAPER_WEIGHT_DECAY = 1e-3 / PAPER_BATCH
"""The published code sums the loss over a batch of 1,024 with weight decay 10⁻³; under Adam that is the mean
with a weight decay 1,024 times smaller (METHODS §1.3)."""

PAPER_PROPENSITY_EPOCHS = 100
"""On Coat; the published code trains 20 on the larger datasets."""

NO_CLIP = 1e-12
"""The published IPS clips nothing."""


@dataclass(frozen=True)
class ProtocolSettings:
    """What a protocol decides for a run."""

    name: ProtocolName
    crossfit: int | None
    propensity_epochs: int | None
    p_min: float
    labels: tuple[str, ...]

    def propensity(self, backbone: Backbone, calibrator: Calibrator | None) -> Propensity:
        """The propensity estimator under this protocol."""
        if self.name == "honest":
            propensity = Propensity(backbone=backbone, calibrator=calibrator, crossfit=self.crossfit)
            if self.propensity_epochs is not None:
                propensity.set_params(epochs=self.propensity_epochs, patience=None)
            return propensity
        return Propensity(
            backbone=backbone,
            calibrator=calibrator,
            negatives=1.0,
            resample_negatives=False,
            population="sampled",
            calibrate_on="training",
            epochs=PAPER_PROPENSITY_EPOCHS if self.propensity_epochs is None else self.propensity_epochs,
            patience=None,
        )

    def method_options(self, *, weighted: bool) -> dict[str, Any]:
        """Parameters of a debiaser under this protocol."""
        if self.name == "honest":
            return {"p_min": self.p_min}
        return {
            "p_min": self.p_min,
            "epochs": 200,
            "patience": None,
            "weight_decay": PAPER_WEIGHT_DECAY if weighted else 0.0,
            # The published baseline trains on 90 % of the clicks, its weighted methods on all.
            "validation_share": 0.0 if weighted else 0.1,
        }


def protocol_settings(
    name: ProtocolName, *, crossfit: int | None, propensity_epochs: int | None, p_min: float
) -> ProtocolSettings:
    """The settings of a protocol; ``paper`` overrides cross-fitting and clipping."""
    if name == "honest":
        folds = f"{crossfit}-fold cross-fitted" if crossfit else "one 80/10/10 split"
        stopping = (
            "propensity stopped early on held-out likelihood"
            if propensity_epochs is None
            else f"propensity trained for {propensity_epochs} epochs without early stopping, as published"
            " code does: expect overconfident raw scores"
        )
        return ProtocolSettings(
            name=name,
            crossfit=crossfit,
            propensity_epochs=propensity_epochs,
            p_min=p_min,
            labels=(
                "propensities over all of D at the true base rate",
                stopping,
                f"model and calibrator held out: {folds}",
                f"weights clipped at p = {p_min:g}",
                "epoch chosen on a validation split of the clicks; the test set is touched once",
                "test pairs that were clicked in training are dropped",
            ),
        )
    return ProtocolSettings(
        name=name,
        crossfit=None,
        propensity_epochs=propensity_epochs,
        p_min=NO_CLIP,
        labels=(
            "paper protocol: 1:1 sampled negatives without the logit offset, so scores are not"
            " propensities over D",
            "paper protocol: calibrator fitted and ECE measured on training clicks and fresh negatives",
            f"paper protocol: fixed epochs (propensity {propensity_epochs or PAPER_PROPENSITY_EPOCHS},"
            " conversion 200), no validation, no clipping",
            "paper protocol: the baseline trains on 90 % of the clicks, weighted methods on all",
            "paper protocol: test set as shipped, with the pairs that were clicked in training",
        ),
    )
