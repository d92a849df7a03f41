"""The two protocols, never mixed: what each sets, and the label every number of it carries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from unskew.backbones import Backbone
from unskew.calibration import Calibrator
from unskew.metrics.clip import Clip
from unskew.propensity import Propensity, Uncertainty, make_uncertainty
from unskew.run.paper_protocol import NO_CLIP, PaperProtocol

ProtocolName = Literal["honest", "paper"]


@dataclass(frozen=True)
class ProtocolSettings:
    """What a protocol decides for a run."""

    name: ProtocolName
    crossfit: int | None
    propensity_epochs: int | None
    p_min: Clip
    labels: tuple[str, ...]
    data: str = "coat"
    """The dataset's name: the published code trains longer on Coat than on larger ones."""
    switches: PaperProtocol = field(default_factory=PaperProtocol)
    """Of the paper protocol."""

    @property
    def test_protocol(self) -> ProtocolName:
        """The protocol by which the test set is read."""
        return "paper" if self.name == "paper" and self.switches.test_as_shipped else "honest"

    def propensity(self, backbone: Backbone, calibrator: Calibrator | None) -> Propensity:
        """The propensity estimator under this protocol."""
        if self.name == "paper":
            return self.switches.propensity(
                backbone, calibrator, data=self.data, epochs=self.propensity_epochs
            )
        propensity = Propensity(backbone=backbone, calibrator=calibrator, crossfit=self.crossfit)
        if self.propensity_epochs is not None:
            propensity.set_params(epochs=self.propensity_epochs, patience=None)
        return propensity

    def uncertainty(self, name: str) -> Uncertainty | None:
        """An uncertainty method under this protocol."""
        return self.switches.uncertainty(name) if self.name == "paper" else make_uncertainty(name)

    def method_backbone(self, backbone: Backbone) -> Backbone:
        """The backbone of a conversion model under this protocol."""
        return self.switches.method_backbone(backbone) if self.name == "paper" else backbone

    def method_options(
        self, *, weighted: bool, method: str | None = None, density: float = 1.0
    ) -> dict[str, Any]:
        """Parameters of a debiaser under this protocol.

        Parameters
        ----------
        weighted
            Whether it has propensities.
        method
            Its name; None is IPS, or naive.
        density
            |O| / |D| of the log.
        """
        if self.name == "honest":
            return {"p_min": self.p_min}
        name = method or ("ips" if weighted else "naive")
        return self.switches.method_options(name, data=self.data, density=density)


def protocol_settings(
    name: ProtocolName,
    *,
    crossfit: int | None,
    propensity_epochs: int | None,
    p_min: Clip,
    data: str = "coat",
    switches: PaperProtocol | None = None,
) -> ProtocolSettings:
    """The settings of a protocol; ``paper`` overrides cross-fitting and clipping."""
    switches = switches or PaperProtocol()
    if name == "paper":
        return ProtocolSettings(
            name=name,
            crossfit=None,
            propensity_epochs=propensity_epochs,
            p_min=NO_CLIP if switches.no_clip else p_min,
            labels=switches.labels(),
            data=data,
            switches=switches,
        )
    folds = f"{crossfit}-fold cross-fitted" if crossfit else "one 80/10/10 split; weights are in-sample"
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
            "weights clipped where their estimated error is least"
            if p_min == "auto"
            else f"weights clipped at p = {p_min:g}",
            "epoch chosen on a validation split of the clicks",
            "the test set is touched once",
            "test pairs that were clicked in training are dropped",
        ),
        data=data,
    )
