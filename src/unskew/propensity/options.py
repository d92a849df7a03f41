"""The parameters of a propensity estimator: checked, and what follows from them before any training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from unskew.backbones import Backbone, NeuMF
from unskew.calibration import Calibrator, Platt
from unskew.estimator import Estimator, require, require_schedule, require_types
from unskew.propensity.design import DEFAULT_FOLDS, SplitDesign
from unskew.propensity.negatives import Negatives, resolve_ratio
from unskew.propensity.uncertainty import Uncertainty
from unskew.training.population import FoldBy

CellsKind = Literal["held-out", "training"]


@dataclass(kw_only=True)
class PropensityOptions(Estimator):
    """Parameters of :class:`unskew.Propensity`, which tells what each means."""

    backbone: Backbone = field(default_factory=NeuMF)
    calibrator: Calibrator | None = field(default_factory=Platt)
    uncertainty: Uncertainty | None = None
    crossfit: int | None = DEFAULT_FOLDS
    fold_by: FoldBy = "cell"
    negatives: Negatives = "auto"
    resample_negatives: bool = True
    population: Literal["D", "sampled"] = "D"
    calibrate_on: CellsKind = "held-out"
    judge_on: CellsKind | None = None
    spare_tenth: bool = False
    calibrator_dropout: bool = False
    label_smoothing: float = 0.0
    epochs: int = 50
    batch_size: int = 1024
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    patience: int | None = 5

    def _check(self) -> None:
        require_types(self)
        self.method().check()
        for name, kind in (("calibrate_on", self.calibrate_on), ("judge_on", self.judged_on())):
            require(
                kind in ("held-out", "training"),
                f"{name} must be 'held-out' or 'training', not {kind!r}",
                "give one of these",
            )
        require(
            self.crossfit is None or {self.calibrate_on, self.judged_on()} == {"held-out"},
            "cross-fitting and calibrating or judging on training cells exclude each other",
            "give crossfit=None, or leave out the other",
        )
        require(self.epochs >= 1, f"epochs must be at least 1, not {self.epochs}", "give 1 or more")
        require(
            self.batch_size >= 1, f"batch_size must be at least 1, not {self.batch_size}", "give 1 or more"
        )
        resolve_ratio(self.negatives, 1)
        require_schedule(self.learning_rate, self.weight_decay, self.patience)
        require(
            0.0 <= self.label_smoothing < 1.0,
            f"label_smoothing must be in [0, 1), not {self.label_smoothing}",
            "give a number between 0 and 1, such as 0.1",
        )
        require(
            self.population in ("D", "sampled"),
            f"population must be 'D' or 'sampled', not {self.population!r}",
            "give one of these",
        )
        require(
            self.fold_by in ("cell", "user", "item"),
            f"fold_by must be 'cell', 'user' or 'item', not {self.fold_by!r}",
            "give one of these",
        )

    def method(self) -> Uncertainty:
        """The uncertainty method; one that changes nothing if there is none."""
        return self.uncertainty or Uncertainty()

    def judged_on(self) -> CellsKind:
        """``judge_on``, or where the calibrator is fitted."""
        return self.judge_on or self.calibrate_on

    def holds_out(self) -> bool:
        """Whether any cell of D is kept from training."""
        return "held-out" in (self.calibrate_on, self.judged_on()) or self.patience is not None

    def split_design(self) -> SplitDesign:
        """Which cells have which role."""
        return SplitDesign.of(self.crossfit, hold_out=self.holds_out(), spare=self.spare_tenth)

    def calibrator_noise(self) -> bool:
        """Whether the calibrator's scores have dropout noise of their own."""
        return self.calibrator_dropout and self.calibrator is not None and not self.method().passes()

    def trained_backbone(self) -> Backbone:
        """The backbone as the uncertainty method has it."""
        return self.method().backbone(self.backbone)
