"""Fitted calibrators as modules for ONNX: any of them is one table of interpolation, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unskew.base.tensors import Tensor, nn, torch
from unskew.calibration import AutoCalibrator, Calibrator, Multicalibrated
from unskew.calibration.calibrator import PROBABILITY_FLOOR
from unskew.calibration.segment_columns import SegmentColumn

Floats = NDArray[np.float64]

CLOSE = 1e-8
"""Relative error of the interpolation, a sixth of float32's rounding."""

ROUNDING = 1e-13
"""Relative difference of two probabilities, and difference of two logits, that are the same."""

STEP = 1e-12
"""Two knots that are less apart are a step."""

FIRST_KNOTS = 513
HALVINGS = 60
"""Halvings of an interval, after which no double is between its ends."""

STEPS = ("edges_", "first_", "last_")
"""Attributes of calibrators with steps: the scores at which these are."""


class Interpolation(nn.Module):
    """Lines of straight pieces ``[R, n] → [R, n]``, which may differ in their knots.

    Parameters
    ----------
    lines
        For each line the knots in rising order, and x and y at the knots. Between two knots the value is
        linear in x; outside it is that of the nearest knot.
    """

    def __init__(self, lines: Sequence[tuple[Floats, Floats, Floats]]) -> None:
        super().__init__()
        self.rounds = max(len(knots) for knots, _, _ in lines).bit_length()
        width = 1 << self.rounds
        edges, pieces = np.full((len(lines), width), np.inf), np.zeros((len(lines), width, 3))
        for row, (knots, x, y) in enumerate(lines):
            slope = np.zeros(len(x) + 1)
            # Neighbouring doubles are a step, and x is known to its rounding only.
            slope[1:-1] = np.divide(np.diff(y), np.diff(x), out=slope[1:-1], where=np.diff(x) > STEP)
            edges[row, : len(knots)] = knots
            pieces[row, 0] = x[0], y[0], 0.0
            pieces[row, 1 : len(x) + 1] = np.column_stack([x, y, slope[1:]])
        self.register_buffer("edges", torch.from_numpy(edges.reshape(-1, 1)))
        self.register_buffer("pieces", torch.from_numpy(pieces.reshape(-1, 3)))
        self.register_buffer("first", torch.arange(len(lines))[:, None] * width)

    def forward(self, position: Tensor, x: Tensor) -> Tensor:
        """Find the pieces of positions by bisection, for all lines at once, and evaluate them at x."""
        piece = self.get_buffer("first") + torch.zeros_like(position, dtype=torch.int64)
        for half in (1 << bit for bit in reversed(range(self.rounds))):
            edge = nn.functional.embedding(piece + (half - 1), self.get_buffer("edges")).squeeze(-1)
            piece = piece + (edge <= position).long() * half
        start, value, slope = nn.functional.embedding(piece, self.get_buffer("pieces")).unbind(-1)
        return value + slope * (x - start)


class Calibration(nn.Module):
    """Scores ``[R, n]`` in float64 → probabilities ``[R, n]``, by one calibrator (or none) for each line."""

    def __init__(self, calibrators: Sequence[Calibrator | None]) -> None:
        super().__init__()
        self.none = [calibrator is None for calibrator in calibrators]
        self.lines = None if all(self.none) else Interpolation(list(map(line_of, calibrators)))

    def forward(self, score: Tensor) -> Tensor:
        """Map the scores of each line."""
        if self.lines is None:
            return score
        q = sigmoid(self.lines(score, logit(score)))
        return torch.where(torch.tensor(self.none)[:, None], score, q) if any(self.none) else q


def line_of(calibrator: Calibrator | None) -> tuple[Floats, Floats, Floats]:
    """Return the scores, their logits and the logits of what a calibrator makes of them, at its knots.

    Knots are added halfway between two others where the straight line is not yet close to the calibrator, so
    that a logistic map has two knots, a spline some thousands, and a step two neighbouring doubles.
    """
    predict = (lambda score: score) if calibrator is None else calibrator.predict
    plain = chosen(calibrator)
    steps = np.concatenate([np.ravel(getattr(plain, name, [])) for name in STEPS])
    before = np.nextafter(steps, 0.0)
    before = before[np.abs(predict(before) - predict(steps)) > ROUNDING * predict(steps)]
    low, high = _logit(np.array([0.0, 1.0]))
    even = expit(np.linspace(low, high, FIRST_KNOTS))
    score = np.unique(np.clip(np.concatenate([[0.0, 1.0], even, steps, before]), 0.0, 1.0))
    for _ in range(HALVINGS):
        x, y = _logit(score), _logit(predict(score))
        between = expit((x[1:] + x[:-1]) / 2)
        slope = np.divide(np.diff(y), np.diff(x), out=np.zeros(len(x) - 1), where=np.diff(x) > 0)
        straight, true = expit(y[:-1] + slope * (_logit(between) - x[:-1])), predict(between)
        far = (np.abs(straight - true) > CLOSE * true) & (score[:-1] < between) & (between < score[1:])
        if not far.any():
            break
        score = np.sort(np.concatenate([score, between[far]]))
    return _without_straight(score, _logit(score), _logit(predict(score)))


def _without_straight(*knots: Floats) -> tuple[Floats, Floats, Floats]:
    """Leave out knots that lie, within rounding, on the line from the knot before to the one behind."""
    table = np.stack(knots)
    for number in range(2 * HALVINGS):
        # Every second knot at a time: of two that are nearly one, only one may go.
        middle = np.arange(1 + number % 2, table.shape[1] - 1, 2)
        (x0, y0), (x1, y1), (x2, y2) = (table[1:, middle + step] for step in (-1, 0, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.abs(y0 + (x1 - x0) / (x2 - x0) * (y2 - y0) - y1)
        table = np.delete(table, middle[off <= ROUNDING], axis=1)
    return table[0], table[1], table[2]


class MultiCalibration(nn.Module):
    """One multicalibrated map: ``[n]`` scores and the columns of its segments → ``[n]`` probabilities."""

    def __init__(self, calibrator: Multicalibrated) -> None:
        super().__init__()
        self.calibrator = calibrator
        for number, term in enumerate(calibrator.terms_):
            self.register_buffer(f"term_{number}", torch.from_numpy(np.ascontiguousarray(term.value.T)))

    def forward(self, score: Tensor, columns: Mapping[str, Tensor]) -> Tensor:
        """σ(b·z + c + Σ_k a_k(x) + s_k(x)·t), as :meth:`unskew.Multicalibrated.predict`."""
        own = self.calibrator
        z = logit(score)
        t = (z - own.middle_) / own.spread_
        codes = [segment_codes(column, columns[column.name]) for column in own.columns_]
        codes.append(_passed(score, own.score_edges_))
        eta = z * own.common_slope_ + own.common_intercept_
        for number, term in enumerate(own.terms_):
            segment = codes[term.columns[0]]
            for column, size in zip(term.columns[1:], term.shape[1:], strict=True):
                segment = segment * size + codes[column]
            level, slope = nn.functional.embedding(segment, self.get_buffer(f"term_{number}")).unbind(-1)
            eta = eta + level + slope * t
        return sigmoid(eta).clamp(PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)


def segment_codes(column: SegmentColumn, values: Tensor) -> Tensor:
    """Return the segment of each code or scaled number, as :meth:`SegmentColumn.codes` does."""
    if column.kind == "number":
        number = values.double()
        missing = torch.full_like(values, len(column.values) + 1, dtype=torch.int64)
        return torch.where(number == number, _passed(number, column.values), missing)
    if not column.size:
        return torch.zeros_like(values, dtype=torch.int64)
    # Codes are small whole numbers, so a table of all of them says which segment each is.
    table = np.full(int(column.values.max()) + 2, column.size)
    table[column.values.astype(np.int64)] = np.arange(column.size)
    return nn.functional.embedding(
        values.long().clamp(0, len(table) - 1), torch.from_numpy(table)[:, None]
    ).squeeze(-1)


def _passed(values: Tensor, edges: Floats) -> Tensor:
    """Return how many of a few edges lie at or below each value."""
    passed = torch.zeros_like(values, dtype=torch.int64)
    for edge in edges.tolist():
        passed = passed + (values >= edge).long()
    return passed


def sigmoid(z: Tensor) -> Tensor:
    """1/(1 + e^−z): onnxruntime's own cancels for z < 0, and is 0 at 10⁻¹⁷."""
    return 1.0 / (torch.exp(-z) + 1.0)


def logit(score: Tensor) -> Tensor:
    """Return log p̂ − log(1 − p̂) of scores kept away from 0 and 1."""
    safe = score.clamp(PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)
    return safe.log() - (1.0 - safe).log()


def _logit(score: Floats) -> Floats:
    """Return the same in NumPy, by the same operations."""
    safe = np.clip(score, PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)
    logits: Floats = np.log(safe) - np.log(1.0 - safe)
    return logits


def chosen(calibrator: Calibrator | None) -> Any:
    """Return a calibrator, or the one that ``auto`` chose."""
    return chosen(calibrator.choice_) if type(calibrator) is AutoCalibrator else calibrator
