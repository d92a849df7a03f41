"""The level of a conversion model: its predictions against weighted outcomes of clicks that trained nothing.

Debiased training orders pairs; how many conversions it predicts is another matter, since networks overfit
and early stopping looks at few rows. A monotone map of the predictions mends the level and keeps the order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from unskew.base.errors import DataError, RunFolderError
from unskew.base.estimator import require
from unskew.calibration import CALIBRATORS, Calibrator, Platt, calibrator_from_dict
from unskew.calibration.calibrator import logits

NONE, AUTO, SHIFT = "none", "auto", "shift"
"""No recalibration; what the rows can be trusted with; a shift of the logit."""

FOLDS = 5
"""Parts of the held-out rows: maps are judged on rows that they were not fitted on."""

CLEAR = 1.0
"""Standard errors by which a line must beat a shift, in paired losses of held-out rows, to be taken."""

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]


class Level(NamedTuple):
    """Predicted ÷ actual rate, with the limits of its 95 % interval over rows."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Describe both, for people."""
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


class Judged(NamedTuple):
    """Rows that trained nothing, one line per seed: ``[seeds, n]`` each."""

    predicted: Floats
    outcome: Floats
    weight: Floats


@dataclass(frozen=True, eq=False)
class Recalibration:
    """Maps of the predictions, one for each seed.

    Attributes
    ----------
    by
        What kind of map, for each seed: ``"shift"``, or the name of a calibrator.
    on
        The rows that it was fitted on, in words.
    rows
        How many, of each seed.
    before
        Predicted ÷ actual rate on them. There is no figure after: the map brings their sum to 1, cross-fitted
        or not, so that only other rows, such as a test set, can tell what it is worth.
    trust
        The share of the shift that was made, by :func:`trust_in`; 1 for all other maps.
    """

    calibrators: tuple[Calibrator, ...]
    by: tuple[str, ...]
    on: str
    rows: int
    before: Level
    trust: float = 1.0

    def predict(self, lines: Floats) -> Floats:
        """Return predictions ``[seeds, n]`` at their right level; those that are not known stay so."""
        known = np.isfinite(lines[0])
        copied = lines.copy()
        for line, calibrator in zip(copied, self.calibrators, strict=True):
            line[known] = calibrator.predict(line[known])
        return copied

    @property
    def figures(self) -> dict[str, Any]:
        """Return what was done, in plain values, without the maps."""
        return {
            "by": list(self.by),
            "on": self.on,
            "rows": self.rows,
            "before": self.before._asdict(),
            "trust": self.trust,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {**self.figures, "calibrators": [each.to_dict() for each in self.calibrators]}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Recalibration:
        """Return what :meth:`to_dict` describes."""
        try:
            return cls(
                tuple(calibrator_from_dict(each) for each in saved["calibrators"]),
                tuple(map(str, saved["by"])),
                str(saved["on"]),
                int(saved["rows"]),
                Level(**saved["before"]),
                float(saved["trust"]),
            )
        except (LookupError, TypeError, ValueError) as error:
            raise RunFolderError(
                f"the saved recalibration is damaged: {error}", remedy="train the model again"
            ) from error


def require_kind(kind: str) -> None:
    """Return what ``recalibrate`` may be."""
    known = (NONE, AUTO, SHIFT, *(name for name in CALIBRATORS if name != NONE))
    require(
        kind in known,
        f"recalibrate must be one of {', '.join(known)}, not {kind!r}",
        "give 'auto' or 'shift'",
    )


def recalibration(
    rows: Judged, kind: str, on: str, *, known: bool = False, number: Numbers | None = None
) -> Recalibration:
    """Fit a map of each seed's predictions to its weighted outcomes.

    Parameters
    ----------
    kind
        ``"auto"``, ``"shift"``, or the name of a calibrator.
    on
        What the rows are, in words.
    known
        Whether weights are of known propensities, not of estimated ones: ``"auto"`` trusts them, as it does
        rows that count alike.
    number
        As in :func:`trust_in`.
    """
    few = rows.outcome.shape[1] < FOLDS
    if few or not ((rows.outcome.min(axis=1) == 0) & (rows.outcome.max(axis=1) == 1)).all():
        raise DataError(
            f"the {rows.outcome.shape[1]} {on} are too few to recalibrate on: they must hold both conversions"
            " and none",
            remedy="hold out more (validation_share), give a random sample, or recalibrate='none'",
        )
    lines = [Judged(*line) for line in zip(*rows, strict=True)]
    trust = 1.0
    if kind == AUTO and not known and (rows.weight != rows.weight[:, :1]).any():
        kind, trust = SHIFT, trust_in(rows, number)
    kinds = [_chosen(line) if kind == AUTO else kind for line in lines]
    return Recalibration(
        calibrators=tuple(_fitted(each, *line, trust) for line, each in zip(lines, kinds, strict=True)),
        by=tuple(kinds),
        on=on,
        rows=rows.outcome.shape[1],
        before=level_of(rows),
        trust=trust,
    )


def trust_in(rows: Judged, number: Numbers | None = None) -> float:
    r"""Return how much of the shift that weighted clicks ask for is made, from 0 to 1.

    .. math:: \left(1 - \frac{\mathrm{se}(d)^2}{d^2}\right)_+ \left(1 - \frac{(\bar r - R)_+}{d}\right)_+
        \text{ for } d > 0; \qquad d = \sum_j s_j (r_j - \hat r_j), \quad R = \sum_j s_j r_j

    The weights s of the clicks add up to 1; d is the mean over seeds, and its standard error counts a click
    that several of them held out once. For d < 0 all signs are turned.

    Estimated propensities miss some of what people chose by, and what they leave of the bias has most likely
    the sign of what they take away, r̄ − R. Where they lower the rate of the clicks, as they do where people
    choose what they like, the true rate is lower still, by as much again in the worst case that is reckoned
    with: a shift down to R is then safe, and of a shift up what goes beyond r̄ − R. Where they hardly move the
    rate, clicks were as good as shown at random, and stand for all.

    Parameters
    ----------
    number
        Of each row ``[seeds, n]`` in its log, since seeds may hold out the same; None for all different.
    """
    share = rows.weight / rows.weight.sum(axis=1, keepdims=True)
    residual = rows.outcome - rows.predicted
    adjustment = (share * residual).sum(axis=1, keepdims=True)
    level = float(adjustment.mean())
    removed = float((rows.outcome.mean(axis=1) - (share * rows.outcome).sum(axis=1)).mean())
    if level == 0.0:
        return 0.0
    added = (share * (residual - adjustment)).ravel() / len(share)
    # What several seeds held out adds up; they do not make it surer.
    each_row = np.arange(added.size) if number is None else np.unique(number, return_inverse=True)[1].ravel()
    variance = float((np.bincount(each_row, weights=added) ** 2).sum())
    return max(0.0, 1.0 - variance / level**2) * max(0.0, 1.0 - max(0.0, removed / level))


def level_of(rows: Judged) -> Level:
    r"""Return the mean over seeds of :math:`\sum w \hat r / \sum w r`, with its 95 % interval over rows.

    The standard error of a ratio of sums is that of :math:`\sum w (\hat r - L r)`. Seeds share rows, so that
    the standard error is that of one seed on average.
    """
    top, bottom = ((rows.weight * each).sum(axis=1) for each in (rows.predicted, rows.outcome))
    ratio = top / bottom
    gap = rows.weight * (rows.predicted - ratio[:, None] * rows.outcome)
    half = 1.96 * float((np.sqrt((gap**2).sum(axis=1)) / bottom).mean())
    return Level(float(ratio.mean()), float(ratio.mean()) - half, float(ratio.mean()) + half)


def _chosen(line: Judged) -> str:
    """Return a shift, unless a line is better by more than its noise on rows that fitted neither."""
    logit_of = (logits(_crossed(line, kind)) for kind in (SHIFT, Platt.name))
    shift, platt = (np.logaddexp(0.0, z) - line.outcome * z for z in logit_of)
    gain = line.weight * (shift - platt)
    error = math.sqrt(float(((gain - gain.mean()) ** 2).sum()))
    return Platt.name if gain.sum() > CLEAR * error else SHIFT


def _crossed(line: Judged, kind: str) -> Floats:
    """Predict each part by the map of the other parts; the rows are in an order by a hash."""
    fold_of_row = np.arange(len(line.outcome)) % FOLDS
    corrected = np.empty_like(line.predicted)
    for fold in range(FOLDS):
        rest = Judged(*(values[fold_of_row != fold] for values in line))
        # Without both outcomes there is nothing to fit.
        both = rest.outcome.min() < rest.outcome.max()
        own = line.predicted[fold_of_row == fold]
        corrected[fold_of_row == fold] = _fitted(kind, *rest, 1.0).predict(own) if both else own
    return corrected


def _fitted(kind: str, predicted: Floats, outcome: Floats, weight: Floats, trust: float) -> Calibrator:
    if kind != SHIFT:
        return CALIBRATORS[kind]().fit(predicted, outcome, weight)
    calibrator = Platt().fit(predicted, outcome, weight)
    z, share = logits(predicted), weight / weight.sum()
    aim = float(share @ (predicted + trust * (outcome - predicted)))
    # With one logit each, all would be too low, or too high.
    bracket = float(logit(aim)) - float(z.max()) - 1.0, float(logit(aim)) - float(z.min()) + 1.0
    calibrator.slope_ = 1.0
    calibrator.intercept_ = float(brentq(lambda c: float(share @ expit(z + c)) - aim, *bracket, xtol=1e-10))
    calibrator.message_ = ""
    return calibrator
