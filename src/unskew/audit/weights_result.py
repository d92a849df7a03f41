"""The result of writing weights: their clip, their calibrators, and its sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unskew.audit.audit_result import WeightFigures, weight_figures
from unskew.base.errors import DataError
from unskew.base.notebook import ShowsItself
from unskew.calibration import Calibrator
from unskew.calibration.venn_abers import RAISED, is_raised
from unskew.metrics import CalibrationSketch, mean_outcome_over_score, wce
from unskew.metrics.judgement import judge_clip
from unskew.metrics.weights import Clip


@dataclass(frozen=True, eq=False, repr=False)
class WeightsResult(ShowsItself):
    """The weights that were written: their calibrators, sketches and clip.

    Attributes
    ----------
    rows, folds
        Rows, and the number of folds.
    calibrators
        The calibrators, one for each fold, each fitted on the others.
    raw, calibrated
        Sketches of the scores before and after, each row's calibrated without its fold.
    trained
        How a propensity that was trained here was chosen, in words.
    """

    rows: int
    folds: int
    calibrators: tuple[Calibrator, ...]
    raw: CalibrationSketch
    calibrated: CalibrationSketch
    p_min: float
    trained: str | None = None

    @property
    def chosen(self) -> tuple[str, ...]:
        """The names of the calibrators, of what ``auto`` chose rather than ``auto`` itself."""
        return tuple(getattr(calibrator, "choice_", calibrator).name for calibrator in self.calibrators)

    @property
    def messages(self) -> tuple[str, ...]:
        """Return what the calibrators have to say of their fits, and of weights made with them."""
        said = sorted({calibrator.message_ for calibrator in self.calibrators if calibrator.message_})
        return (*said, *([RAISED] if any(map(is_raised, self.calibrators)) else []))

    @property
    def weights(self) -> WeightFigures | None:
        """Figures of the written weights of the clicked rows, after the clip."""
        return weight_figures(self.calibrated, p_min=self.p_min)

    @property
    def clip_decides(self) -> bool:
        """Return whether the clip takes so much of the sum of 1/p̂ that it decides."""
        return self.weights is not None and judge_clip(self.weights.clipped_mass).level == "bad"

    @property
    def verdict(self) -> str:
        """Return what the clip does to the weights, in a sentence or two."""
        figures = self.weights
        if figures is None:
            return "There are no finite weights of clicked rows to judge."
        taken = (
            f"The clip at p_min = {figures.p_min:g} takes {100 * figures.clipped_mass:.2g} % of the sum of"
            f" the weights 1/p̂ ({100 * figures.clipped:.4g} % of the clicked rows are below it)"
        )
        if not self.clip_decides:
            return f"{taken}."
        return (
            f"{taken}: what is left is the clip's, not the propensities'. Lower p_min (--p-min); the smallest"
            f" p̂ of a clicked row is {1 / figures.largest_unclipped:.2g}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text."""
        return {
            "verdict": self.verdict,
            "clip_decides": self.clip_decides,
            "rows": self.rows,
            "folds": self.folds,
            "calibrator": self.calibrators[0].name,
            "chosen": list(self.chosen),
            "messages": list(self.messages),
            "propensity": self.trained,
            **{
                kind: {
                    "wce": wce(sketch),
                    "mean_outcome_over_score": mean_outcome_over_score(sketch),
                }
                for kind, sketch in (("raw", self.raw), ("calibrated", self.calibrated))
            },
            "weights": None if self.weights is None else vars(self.weights),
        }


def clip_of(calibrated: CalibrationSketch, p_min: Clip) -> float:
    """Return the clip as a number; ``"auto"`` is that of the least error for these propensities."""
    if p_min != "auto":
        return float(p_min)
    figures = weight_figures(calibrated, p_min=p_min)
    if figures is None:
        raise DataError(
            "no clip can be chosen: no row has outcome 1, or one with outcome 1 has propensity 0",
            remedy="give a p_min (--p-min) of your own, or another calibrator",
        )
    return figures.p_min
