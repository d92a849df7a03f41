"""The published code's choices as switches: on by default, named in the output, reversible.

Nothing here selects on the test set, which that code did for its doubly robust methods (METHODS §0, 8): what
that does is shown by a diagnostic, ``epoch_chosen_on_test`` of ``table-switches``, which no table has on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unskew.base.errors import ParameterError
from unskew.calibration import Calibrator
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.debias import Debiaser, make_method
from unskew.learners import Learner, NeuMF
from unskew.metrics import CalibrationSketch, ece
from unskew.metrics.weights import Clip
from unskew.propensity import DualFocal, MCDropout, Propensity, Uncertainty, make_uncertainty
from unskew.run.protocol import Protocol, ProtocolName
from unskew.study import legacy
from unskew.study.legacy_propensity import DualFocalOnProbabilities, LegacyPropensity
from unskew.study.presets import PAPER

BATCH = 1024
DROPOUT = 0.2
NEGATIVES_OF_DR = 6.0
MRDR_CLAMP = 5.0
LARGE = ("yahoo_r3", "kuairand")
"""Datasets on which the published code trains for fewer epochs."""

PROPENSITY_EPOCHS = {False: 100, True: 20}
"""On Coat, and on the larger datasets."""
MODEL_EPOCHS = {False: 200, True: 4}
IPS_EPOCHS = {False: 200, True: 1}
"""The IPS script and the baseline's tell of epoch 1 on the larger datasets."""

WEIGHT_DECAY = {"ips": 1e-3, "snips": 1e-3, "dr-jl": 1e-3, "mrdr": 1e-2}
"""Defaults of the published scripts; the baseline's is read and not used."""
STATED_WEIGHT_DECAY = 1e-4
"""What the paper's supplement states for all methods."""

MOST_CELLS = 1 << 21
"""Pairs of D up to which the ECE over all of them is measured too."""

NO_CLIP = 1e-12
"""The published IPS clips nothing."""

SWITCHES: dict[str, str] = PAPER["switches"]
"""The deviations of the published code by name, and what each does; reversed, the honest thing is done."""


@dataclass(frozen=True)
class Paper(Protocol):
    """The published protocol: its switches decide on cross-fitting, clipping, training and the test set.

    Parameters
    ----------
    reverse
        Names in :data:`SWITCHES` of what is not done as published.

    Examples
    --------
    >>> Paper(reverse=("no_offset",)).does("no_offset")
    False
    """

    name: ClassVar[ProtocolName] = "paper"

    reverse: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.reverse:
            if name not in SWITCHES:
                raise ParameterError(
                    f"the paper protocol has no switch {name!r}", remedy=f"use one of {', '.join(SWITCHES)}"
                )

    def does(self, switch: str) -> bool:
        """Return whether it is done as published."""
        assert switch in SWITCHES, switch
        return switch not in self.reverse

    @property
    def labels(self) -> tuple[str, ...]:
        """Return a line for each switch."""
        return tuple(
            f"paper protocol{'' if self.does(name) else ', REVERSED'}: {text} [{name}]"
            for name, text in SWITCHES.items()
        )

    @property
    def clip(self) -> Clip:
        """Return no clip, as published."""
        return NO_CLIP if self.does("no_clip") else super().clip

    @property
    def test_protocol(self) -> ProtocolName:
        """Return the protocol of the test set: as shipped, unless that is reversed."""
        return "paper" if self.does("test_as_shipped") else "honest"

    def uncertainty(self, name: str) -> Uncertainty | None:
        """Return an uncertainty method as the published code has it; None for ``"none"``."""
        if name == MCDropout.name and self.does("embedding_dropout"):
            return MCDropout(layers="embedding")
        if name == DualFocal.name and self.does("dual_focal_on_probabilities"):
            return DualFocalOnProbabilities()
        return make_uncertainty(name)

    def propensity(
        self, learner: Learner, calibrator: Calibrator | None = None, uncertainty: str = "none"
    ) -> Propensity:
        """Return the propensity estimator, untrained; a learner that is not NeuMF stays as it is."""
        options: dict[str, Any] = {}
        if self.does("sampled_negatives"):
            options |= {
                "negatives": 1.0,
                "negatives_once": self.does("negatives_once"),
                "population": "sampled" if self.does("no_offset") else "D",
            }
        if self.does("propensity_epochs_fixed"):
            epochs = self.propensity_epochs or PROPENSITY_EPOCHS[self.data in LARGE]
            options |= {"epochs": epochs, "patience": None}
        return LegacyPropensity(
            learner=_with_embedding_dropout(learner) if self.does("embedding_dropout") else learner,
            calibrator=calibrator,
            uncertainty=self.uncertainty(uncertainty),
            crossfit=None,
            calibrate_in_sample=self.does("platt_in_sample"),
            judge_in_sample=self.does("ece_in_sample"),
            spare_tenth=self.does("spare_tenth"),
            calibrator_dropout=self.does("platt_dropout"),
            **options,
        )

    def further_figures(self, propensity: Propensity, log: Log) -> dict[str, list[float]]:
        """Return figures over every pair of a small D at the true rate, whatever the switches measure on."""
        if log.space != "matrix" or log.population_size > MOST_CELLS:
            return {}
        click = np.zeros(log.population_size)
        click[log.cell[log.clicked]] = 1.0
        sketches = [
            CalibrationSketch.of(score=line.ravel(), outcome=click)
            for line in propensity.predict_matrix_each()
        ]
        return {
            "ece_all_of_d": [ece(sketch) for sketch in sketches],
            "mean_over_base_rate_all_of_d": [sketch.mean_score / sketch.base_rate for sketch in sketches],
        }

    def method(self, name: str, learner: Learner, density: float) -> Debiaser:
        """Return a debiaser, untrained; one that the published code does not have is as it is."""
        used = learner if self.does("models_of_first_version") else _with_embedding_dropout(learner)
        made = make_method(name, learner=used, **self.method_options(name, density=density))
        return legacy.as_published(made, *self.deviations(name))

    def validation(self, data: Dataset) -> None:
        """Return no validation log: what is chosen at all is chosen on clicks."""

    def method_options(self, method: str, *, density: float) -> dict[str, Any]:
        """Return the parameters of a debiaser; none for methods that the published code does not have.

        Parameters
        ----------
        density
            |O| / |D|: our losses are means over D, so that a sum over a batch of B is B ÷ density of them.
        """
        baseline = method == "naive"
        if not baseline and method not in WEIGHT_DECAY:
            return {}
        options: dict[str, Any] = {}
        large = self.data in LARGE
        if self.does("model_epochs_fixed"):
            epochs = (IPS_EPOCHS if method in ("naive", "ips", "snips") else MODEL_EPOCHS)[large]
            options |= {"epochs": epochs, "patience": None, "validation_share": 0.0}
            if baseline and self.does("baseline_on_nine_tenths"):
                options["validation_share"] = 0.1
        if self.does("no_clip") and not baseline:
            options["p_min"] = NO_CLIP
        decay = 0.0 if baseline else WEIGHT_DECAY[method]
        options["weight_decay"] = decay if self.does("scripts_weight_decay") else STATED_WEIGHT_DECAY
        if not baseline and self.does("sum_reduction"):
            options["weight_decay"] *= density / BATCH
        if method in ("dr-jl", "mrdr"):
            options |= self._joint_learning(method, density, options["weight_decay"])
        return options

    def deviations(self, method: str) -> tuple[type[Debiaser], ...]:
        """Return what the published code of a method does that no parameter of it says."""
        kinds: list[type[Debiaser]] = []
        if method in ("dr-jl", "mrdr"):
            if self.does("dr_six_to_one"):
                kinds += [legacy.AveragedTogether, legacy.UnclickedOnce]
            if self.does("imputer_dropout"):
                kinds.append(legacy.NoisyImputer)
        return tuple(kinds)

    def _joint_learning(self, method: str, density: float, decay: float) -> dict[str, Any]:
        options: dict[str, Any] = {"imputation_weight_decay": decay}
        if self.does("dr_six_to_one"):
            options["ratio"] = NEGATIVES_OF_DR
            if self.does("sum_reduction"):
                # Clicks and unclicked pairs are averaged together here, without the factor |O| / |D|.
                options["weight_decay"] = decay / density
        if self.does("imputation_by_cross_entropy"):
            options |= {"imp_loss": "ce", "normalise_weights": False}
        if method == "mrdr":
            options |= {
                "weight_clamp": MRDR_CLAMP if self.does("mrdr_clamp") else None,
                "copy": "batch" if self.does("mrdr_copy_per_batch") else "epoch",
            }
        return options


def _with_embedding_dropout(learner: Learner) -> Learner:
    if not isinstance(learner, NeuMF):
        return learner
    return NeuMF(**{**learner.get_params(deep=False), "emb_dropout": DROPOUT})
