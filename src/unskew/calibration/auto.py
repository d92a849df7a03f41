"""The calibrator that chooses a calibrator, by cross-validated log loss and weights, and says why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unskew.base.errors import ParameterError
from unskew.base.estimator import require, require_at_least
from unskew.base.registry import register
from unskew.calibration import sql
from unskew.calibration.calibrator import Calibrator, inside
from unskew.calibration.grouping import Grouped, Vector, both_classes, folds_of, log_loss
from unskew.metrics.judgement import CLEAR_ERRORS
from unskew.metrics.score_cells import ScoreCells, outcome_weights
from unskew.metrics.weight_calibration import wce_differences

CANDIDATES = ("platt", "beta", "spline", "isotonic", "histogram", "none")
"""The order in which near-ties are decided: Platt first, then the more flexible. Raw scores come last: with
few rows they are near-tied with everything, and their weights may be off severalfold. They are there so that
a map with worse weights is left out. Temperature is within Platt and misses the base rate, and Venn-Abers
makes weights that are too small (``docs/calibrators/venn_abers.md``): both are no candidates."""

FEW_ROWS = "platt"
"""What is taken where there are too few rows to choose."""


@register(order=110)
@dataclass(kw_only=True, eq=False, repr=False)
class AutoCalibrator(Calibrator):
    r"""Platt, unless another candidate has a lower cross-validated log loss, or better weights, beyond noise.

    .. math:: \text{NLL}_m = \frac1N Σ_k Σ_{j ∈ fold_k} −\log L_j(q_m^{(−k)}), \qquad
              \text{choose the first } m: \text{NLL}_m − \min \text{NLL} ≤ s·\text{SE(difference)}

    q_m^{(−k)} is candidate m fitted without fold k; the standard error is that of the paired differences
    of rows. Log loss is dominated by where most rows are, and weights 1/q by the lowest scores: a candidate
    whose weights on held-out rows have a larger WCE₂² than another's beyond noise
    (:func:`unskew.metrics.weight_calibration.wce_differences`, 3 standard errors) is left out first.
    ``choice_`` is the fitted calibrator, ``losses_`` the NLL of each candidate, ``left_out_`` the names of
    those with worse weights, ``reason_`` the choice in words. With too few rows to choose it is Platt.

    It is the default of propensities, and right when there is no reason to prefer one map. Not on rows that
    trained the model: every candidate then looks better than it is, the flexible ones most.

    Parameters
    ----------
    candidates
        Names of the registry, in the order in which near-ties are decided.
    standard_errors
        s; 2 asks for a gain beyond noise, 1 is the usual rule for trees (Breiman et al. 1984), 0 takes the
        lowest loss.
    folds, seed
        Rows go to folds at random; a sketch is divided by thinning its cells, which is the same.

    Examples
    --------
    >>> random = np.random.default_rng(0)
    >>> truth = random.uniform(0.02, 0.5, 4000)
    >>> auto = AutoCalibrator(candidates=("none", "platt")).fit(truth**2, random.random(4000) < truth)
    >>> auto.choice_.name
    'platt'
    """

    name: ClassVar[str] = "auto"
    monotone: ClassVar[bool] = False

    candidates: tuple[str, ...] = CANDIDATES
    standard_errors: float = 2.0
    folds: int = 5
    seed: int = 0

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require(
            len(self.candidates) > 0,
            "candidates must name at least one calibrator",
            "name one, such as 'platt'",
        )
        require_at_least(0, standard_errors=self.standard_errors)
        require_at_least(2, folds=self.folds)
        if self.name in self.candidates:
            raise ParameterError("auto cannot choose itself", remedy="leave 'auto' out of candidates")

    def _fit_grouped(self, points: Grouped) -> None:
        from unskew.calibration import make_calibrator

        splits = [
            (training, part)
            for training, part in folds_of(points, self.folds, self.seed)
            if both_classes(training) and part.total.sum() > 0
        ]
        if not splits:
            self._take(FEW_ROWS if FEW_ROWS in self.candidates else self.candidates[0], points)
            self.losses_ = {}
            self.left_out_: tuple[str, ...] = ()
            self.reason_ = f"{self.choice_.name}: too few rows of one class to choose by cross-validation"
            return
        held_out = [part for _, part in splits]
        predicted = {
            name: [
                inside(make_calibrator(name)._fit_on(training)._predict(part.score))
                for training, part in splits
            ]
            for name in self.candidates
        }
        count = sum(float(part.total.sum()) for part in held_out)
        self.losses_ = {
            name: sum(log_loss(part, q) for part, q in zip(held_out, folds, strict=True)) / count
            for name, folds in predicted.items()
        }
        self.left_out_ = _worse_weights(held_out, predicted, self.losses_)
        admitted = [name for name in self.candidates if name not in self.left_out_]
        best = min(admitted, key=lambda name: self.losses_[name])
        chosen = next(
            name
            for name in admitted
            if self.losses_[name] - self.losses_[best]
            <= self.standard_errors * _standard_error(held_out, predicted[name], predicted[best])
        )
        self._take(chosen, points)
        self.reason_ = self._reason(chosen, best)

    def _take(self, name: str, points: Grouped) -> None:
        from unskew.calibration import make_calibrator

        self.choice_ = make_calibrator(name)._fit_on(points)
        self.message_ = self.choice_.message_

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        self._fit_grouped(Grouped.unweighted(score, total, positive))

    def _predict(self, score: Vector) -> Vector:
        return self.choice_._predict(score)

    def _sql(self, score: str, safe: str, dialect: sql.Dialect) -> str:
        return self.choice_._sql(score, safe, dialect)

    def _reason(self, chosen: str, best: str) -> str:
        reason = f"{chosen}: cross-validated NLL {self.losses_[chosen]:.6g} over {self.rows_:,} rows"
        if chosen == best:
            reason += ", the lowest" + (" of those with the best weights" if self.left_out_ else "")
        else:
            reason += (
                f", within {self.standard_errors:g} standard errors of the lowest"
                f" ({best}, {self.losses_[best]:.6g}) and before it in order"
            )
        others = [name for name in sorted(self.losses_, key=self.losses_.__getitem__) if name != chosen]
        if others:
            reason += "; " + ", ".join(f"{name} {self.losses_[name]:.6g}" for name in others)
        if self.left_out_:
            reason += f"; weights worse beyond noise: {', '.join(self.left_out_)}"
        return reason

    def _learned_to_dict(self) -> dict[str, Any]:
        return super()._learned_to_dict() | {
            "choice_": self.choice_.to_dict(),
            "losses_": dict(self.losses_),
            "left_out_": list(self.left_out_),
            "reason_": self.reason_,
        }

    def _learned_from_dict(self, learned: Mapping[str, Any]) -> None:
        from unskew.calibration import calibrator_from_dict

        super()._learned_from_dict(learned)
        self.candidates = tuple(self.candidates)
        self.choice_ = calibrator_from_dict(learned["choice_"])
        self.losses_ = dict(learned["losses_"])
        self.left_out_ = tuple(learned["left_out_"])
        if not set(self.left_out_) <= set(self.candidates):
            raise ValueError(f"left_out_ is {self.left_out_!r}")
        self.reason_ = str(learned["reason_"])


def _worse_weights(
    held_out: list[Grouped], predicted: Mapping[str, list[Vector]], losses: Mapping[str, float]
) -> tuple[str, ...]:
    """Name the candidates whose held-out weights are worse than another's beyond noise."""
    rows = Grouped(*(np.concatenate(column) for column in zip(*held_out, strict=True)))
    order = np.argsort(rows.score, kind="stable")
    rows = rows.take(order)
    cells = {name: _cells(rows, np.concatenate(folds)[order]) for name, folds in predicted.items()}
    best = min(losses, key=lambda name: losses[name])
    difference, error = wce_differences(list(cells.values()), cells[best])
    worse = difference > CLEAR_ERRORS * error
    return tuple(name for name, beaten in zip(cells, worse.max(axis=1), strict=True) if beaten)


def _cells(rows: Grouped, score: Vector) -> ScoreCells:
    """Return the held-out rows with a candidate's scores, in the order of the raw ones."""
    weight = np.stack([rows.total - rows.positive, rows.positive], axis=1)
    count = np.stack([rows.rows - rows.positive_rows, rows.positive_rows], axis=1)
    square = weight**2 / np.maximum(count, 1.0)
    return ScoreCells(
        score=score,
        rows=count.astype(np.int64),
        weight=weight,
        score_sum=weight * score[:, None],
        square_sum=square,
        outcome_weight=outcome_weights(count, weight, square),
        inverse_sum=rows.positive / score,
        brier_sum=np.nan,
        log_loss_sum=np.nan,
    )


def _standard_error(held_out: list[Grouped], one: list[Vector], other: list[Vector]) -> float:
    """Return that of the mean paired difference in log loss, from the two outcomes of every group."""
    mass, rows, difference = [], [], []
    for fold, p, q in zip(held_out, one, other, strict=True):
        mass += [fold.positive, fold.total - fold.positive]
        rows += [fold.positive_rows, fold.rows - fold.positive_rows]
        difference += [np.log(q) - np.log(p), np.log1p(-q) - np.log1p(-p)]
    weight, count, value = (np.concatenate(columns) for columns in (mass, rows, difference))
    spread = value - weight @ value / weight.sum()
    return float(np.sqrt(weight**2 / np.maximum(count, 1) @ spread**2) / weight.sum())
