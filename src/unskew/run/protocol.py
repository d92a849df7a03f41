"""What a protocol decides for a run, and the label every number of it carries; here the honest one.

Others live above this package and are known by name (:data:`PROTOCOLS`); the two are never mixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from unskew.calibration import Calibrator
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.debias import Debiaser, make_method
from unskew.learners import Learner
from unskew.metrics.weights import Clip
from unskew.propensity import Propensity, Uncertainty, make_uncertainty

if TYPE_CHECKING:
    from unskew.run.config import Config

ProtocolName = Literal["honest", "paper"]

PROTOCOLS = {"honest": "unskew.run.protocol:Protocol", "paper": "unskew.study.paper_protocol:Paper"}
"""Where the class of each protocol is; loaded when it is asked for."""

WITHOUT_CLICKED = "test pairs that were clicked in training are dropped"
"""The label of what is done with pairs; rows of impressions, each an event of its own, all stay."""


PATIENCE = 3
"""Checks without improvement after which a run's training stops; ``--set training.patience=10`` waits longer.
A waiting epoch costs as much as one that learns, and the best epoch is kept either way."""


@dataclass(frozen=True)
class Protocol:
    """The honest protocol; subclasses override what they do otherwise.

    Parameters
    ----------
    crossfit
        Folds of the propensity; None for a single split.
    patience
        Epochs without improvement after which early stopping ends a training; None leaves each class its own.
    propensity_epochs
        Train the propensity for exactly so many epochs instead of stopping early.
    p_min
        The clip of every method and of the figures of weights; None leaves each method its own.
    data
        The dataset's name: the published code trains longer on Coat than on larger ones.
    """

    name: ClassVar[ProtocolName] = "honest"

    crossfit: int | None = 5
    propensity_epochs: int | None = None
    p_min: Clip | None = None
    data: str = "coat"
    patience: int | None = None

    @property
    def clip(self) -> Clip:
        """The clip that figures of weights tell of."""
        return "auto" if self.p_min is None else self.p_min

    @property
    def test_protocol(self) -> ProtocolName:
        """The protocol by which the test set is read."""
        return self.name

    @property
    def stopping(self) -> str:
        """How long the network of a propensity is trained."""
        if self.propensity_epochs is None:
            return "propensity stopped early on held-out likelihood"
        return (
            f"propensity trained for {self.propensity_epochs} epochs without early stopping, as published"
            " code does: expect overconfident raw scores"
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """What was done, a line each."""
        folds = "one 80/10/10 split; weights are in-sample"
        if self.crossfit:
            folds = f"{self.crossfit}-fold cross-fitted"
        clipping = "at each method's own p_min; figures of weights at the clip of least error"
        if self.p_min is not None:
            least = self.p_min == "auto"
            clipping = "where their estimated error is least" if least else f"at p = {self.p_min:g}"
        return (
            "propensities over all of D at the true base rate",
            self.stopping,
            f"model and calibrator held out: {folds}",
            f"weights clipped {clipping}",
            "epoch chosen on a validation split of the clicks",
            "the test set is touched once",
            WITHOUT_CLICKED,
        )

    def propensity(
        self, learner: Learner, calibrator: Calibrator | None = None, uncertainty: str = "none"
    ) -> Propensity:
        """The propensity estimator, untrained."""
        propensity = Propensity(learner=learner, calibrator=calibrator, crossfit=self.crossfit)
        if self.patience is not None:
            propensity.set_params(patience=self.patience)
        if self.propensity_epochs is not None:
            propensity.set_params(epochs=self.propensity_epochs, patience=None)
        return propensity.set_params(uncertainty=self.uncertainty(uncertainty))

    def uncertainty(self, name: str) -> Uncertainty | None:
        """An uncertainty method; None for ``"none"``."""
        return make_uncertainty(name)

    def further_figures(self, propensity: Propensity, log: Log) -> dict[str, list[float]]:
        """Figures by seed beside those of ``Propensity.diagnose``; here none."""
        return {}

    def method(self, name: str, learner: Learner, density: float) -> Debiaser:
        """A debiaser, untrained, for a log with ``density`` = |O| / |D|."""
        options: dict[str, Any] = {} if self.p_min is None else {"p_min": self.p_min}
        method = make_method(name, learner=learner, **options)
        # A method that waits longer than others, as GPL, needs it.
        if self.patience is not None and method.patience == Debiaser.patience:
            method.set_params(patience=self.patience)
        return method

    def validation(self, data: Dataset) -> Log | None:
        """The log on which the epoch is chosen; None takes a share of the clicks, if any."""
        return data.validation


def protocol_of(config: Config) -> Protocol:
    """Return the protocol of a run."""
    return protocol_named(
        config.evaluation.protocol,
        **({"reverse": config.evaluation.reverse} if config.evaluation.reverse else {}),
        crossfit=config.crossfit,
        propensity_epochs=config.propensity.exact_epochs,
        p_min=config.propensity.p_min,
        data=str(config.data.source),
        patience=PATIENCE,
    )


def protocol_named(name: ProtocolName, **settings: Any) -> Protocol:
    """A protocol by its name, with its settings."""
    module, _, kind = PROTOCOLS[name].partition(":")
    return cast("Protocol", getattr(import_module(module), kind)(**settings))
