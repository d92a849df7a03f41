"""What an audit found, as numbers: for the terminal, for ``--json``, for the report."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from unskew.audit.audit_figures import ErrorFigure, Region, WeightFigures
from unskew.audit.crossfit import CalibratorScore
from unskew.audit.segment_repair import MULTI, SegmentRepair
from unskew.audit.segments import Segment
from unskew.audit.verdict import OutcomeWords, headline, outcome_words, verdict
from unskew.base.notebook import ShowsItself
from unskew.data.stream import Roles
from unskew.metrics import CalibrationSketch, WeightTest
from unskew.metrics.judgement import WeightJudgement

SEGMENTS_LISTED = 100
"""Worst segments in :meth:`AuditResult.to_dict`."""

OF_CALIBRATORS = ("name", "nll", "wce", "ece", "wce_debiased", "mean_outcome_over_score")
"""What it tells of a calibrator."""

PLAIN = (
    "rows", "clicks", "base_rate", "mean_score", "nll", "brier", "auc", "mean_outcome_over_score", "verdict",
    "headline", "healthy", "tolerance", "significance", "recommended", "command",
)  # fmt: skip
"""What it tells as it is."""


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult(ShowsItself):
    """What an audit found; :meth:`to_dict` is what ``unskew audit --json`` writes.

    Attributes
    ----------
    rows, clicks, base_rate, mean_score
        Rows, rows with outcome 1, and weighted means of outcome and score.
    ece, wce
        With interval and noise floor.
    judgement
        What follows from the rows (:class:`unskew.metrics.judgement.WeightJudgement`).
    test
        The χ² test that the weights are honest.
    nll, brier, auc, mean_outcome_over_score
        Of the scores as they are; ``auc`` is None where all outcomes are the same.
    regions
        Where scores are clearly off, the worst first.
    segments
        Every segment, the worst first: those beyond chance before the others, and those with too few rows
        to be judged last.
    calibrators
        What each calibrator would reach on held-out rows, lowest NLL first; empty where there are too few
        rows of one class.
    recommended
        The calibrator of scores alone to use: the simplest that is honest and within one standard error of
        the lowest NLL; ``"none"`` where weights are within the tolerance, noise taken out, or no
        calibrator is better beyond noise.
    repair
        Whether one that reads the segments is worth it; None without segments, or with too few rows.
    paths
        What was audited, as it was given; empty where no files were.
    sketch
        All rows.
    """

    files: tuple[str, ...]
    roles: Roles
    tolerance: float
    significance: float
    rows: int
    clicks: int
    base_rate: float
    mean_score: float
    ece: ErrorFigure
    wce: ErrorFigure
    judgement: WeightJudgement
    test: WeightTest
    nll: float
    brier: float
    auc: float | None
    mean_outcome_over_score: float
    weights: WeightFigures | None
    regions: tuple[Region, ...]
    segments: tuple[Segment, ...]
    calibrators: tuple[CalibratorScore, ...]
    recommended: str | None
    repair: SegmentRepair | None
    sketch: CalibrationSketch
    paths: tuple[str, ...] = ()

    @property
    def limits(self) -> dict[str, float]:
        """The tolerance and the significance, by name."""
        return {"tolerance": self.tolerance, "significance": self.significance}

    @cached_property
    def verdict(self) -> str:
        """The verdict in a few sentences."""
        return verdict(self)

    @property
    def headline(self) -> str:
        """The verdict in a word or two."""
        return headline(self)

    @property
    def remedy(self) -> CalibratorScore | None:
        """The recommended calibrator."""
        return next((score for score in self.calibrators if score.name == self.recommended), None)

    @property
    def calibrated(self) -> CalibrationSketch | None:
        """All rows, calibrated out of fold by the recommended calibrator."""
        return None if self.remedy is None else self.remedy.sketch

    @property
    def healthy(self) -> bool | None:
        """Whether the weights are honest within the tolerance; None where that is undecided."""
        return self.judgement.healthy

    @property
    def outcome_words(self) -> OutcomeWords:
        """What rows with outcome 1 are called."""
        return outcome_words(self.roles.outcome)

    @property
    def command(self) -> str | None:
        """The command that writes the weights of the calibrator to use, or None where there is none."""
        worth_it = self.repair is not None and self.repair.worth_it
        calibrator = MULTI if worth_it else self.recommended
        if calibrator in (None, "none") or not self.paths:
            return None
        roles = self.roles
        words = ["unskew", "weights", *self.paths, "--score", roles.score, "--outcome", roles.outcome]
        words += ["--sample-weight", roles.weight] if roles.weight else []
        words += ["--calibrator", str(calibrator)]
        words += [word for name in roles.segments if worth_it for word in ("--segment", name)]
        return shlex.join([*words, "--out", "weighted.parquet"])

    @property
    def judged_segments(self) -> tuple[Segment, ...]:
        """The segments with enough rows for a test."""
        return tuple(segment for segment in self.segments if segment.p_value is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, text and lists."""
        judged, test = self.judgement, self.test
        return {
            "files": list(self.files),
            "columns": dataclasses.asdict(self.roles),
            **{name: getattr(self, name) for name in PLAIN},
            "ece": vars(self.ece),
            "wce": {
                **vars(self.wce),
                "debiased": judged.wce_debiased,
                "chi2": test.statistic,
                "dof": test.dof,
                "p_value": test.p_value,
                "p_beyond_tolerance": judged.p_beyond_tolerance,
            },
            "weights": None if self.weights is None else vars(self.weights),
            "regions": [vars(region) for region in self.regions],
            "reason": judged.reason,
            "power": {name: getattr(judged, name) for name in ("error", "power", "rows_needed")},
            "beyond_chance": None if judged.chance is None else judged.chance._asdict(),
            "segments": [vars(segment) for segment in self.segments[:SEGMENTS_LISTED]],
            "segment_count": len(self.segments),
            "calibrators": [
                {name: getattr(score, name) for name in OF_CALIBRATORS} for score in self.calibrators
            ],
            "by_segment": None if self.repair is None else self.repair.to_dict(),
        }
