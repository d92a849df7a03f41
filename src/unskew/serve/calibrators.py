"""Fitted calibrators as one table of polynomial pieces, in float64; networks and files are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import embedding

from unskew import calibration as kinds
from unskew.base.errors import UnskewError
from unskew.calibration import Calibrator, Multicalibrated
from unskew.calibration.calibrator import PROBABILITY_FLOOR
from unskew.calibration.segment_columns import SegmentColumn

Table = NDArray[np.float64]


class LineTable(NamedTuple):
    """One calibrator: in piece k, between two knots, Σ_j coefficients[k, j]·(x − origin[k])^(3−j).

    x is the score, or its logit z; η = the polynomial + bend·(log p̂ + log(1 − p̂)); q = η or σ(η).
    """

    knots: Table
    origin: Table
    coefficients: Table
    logit: bool = False
    sigmoid: bool = False
    bend: float = 0.0
    floor: float = PROBABILITY_FLOOR


class Pieces(nn.Module):
    """Piecewise polynomials ``[R, n] → [R, n]``, one for each line, which may differ in their knots."""

    def __init__(self, lines: Sequence[LineTable]) -> None:
        super().__init__()
        self.rounds = max(len(line.knots) for line in lines).bit_length()
        self.width = 1 << self.rounds
        knots = np.full((len(lines), self.width), np.inf)
        pieces = np.zeros((len(lines), self.width, 5))
        for row, line in enumerate(lines):
            knots[row, : len(line.knots)] = line.knots
            pieces[row, : len(line.origin)] = np.column_stack([line.origin, line.coefficients])
        self.register_buffer("knots", torch.from_numpy(knots.reshape(-1, 1)))
        self.register_buffer("pieces", torch.from_numpy(pieces.reshape(-1, 5)))
        self.register_buffer("first", torch.arange(len(lines))[:, None] * self.width)

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate them, after a bisection of the knots of all rows at once."""
        place = self.get_buffer("first") + torch.zeros_like(x, dtype=torch.int64)
        for half in (1 << bit for bit in reversed(range(self.rounds))):
            edge = embedding(place + (half - 1), self.get_buffer("knots")).squeeze(-1)
            place = place + (edge <= x).long() * half
        origin, *coefficients = embedding(place, self.get_buffer("pieces")).unbind(-1)
        value, distance = coefficients[0], x - origin
        for coefficient in coefficients[1:]:
            value = value * distance + coefficient
        return value


class Calibration(nn.Module):
    """Scores ``[R, n]`` in float64 → probabilities ``[R, n]``, by one calibrator (or None) for each line."""

    def __init__(self, calibrators: Sequence[Calibrator | None]) -> None:
        super().__init__()
        lines = [line_of(chosen(each)) for each in calibrators]
        self.pieces = Pieces(lines)
        for name in ("logit", "sigmoid", "bend", "floor"):
            self.register_buffer(name, torch.from_numpy(np.array([[getattr(line, name)] for line in lines])))

    def forward(self, score: Tensor) -> Tensor:
        """Map the scores of each line."""
        low, high = log_ends(score)
        eta = self.pieces(torch.where(self.get_buffer("logit"), low - high, score))
        eta = eta + self.get_buffer("bend") * (low + high)
        q = torch.where(self.get_buffer("sigmoid"), sigmoid(eta), eta)
        floor = self.get_buffer("floor")
        return torch.minimum(torch.maximum(q, floor), 1.0 - floor)


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
        low, high = log_ends(score)
        z = low - high
        t = (z - own.middle_) / own.spread_
        codes = [segment_codes(column, columns[column.name]) for column in own.columns_]
        codes.append(_passed(score, own.score_edges_))
        eta = z * own.common_slope_ + own.common_intercept_
        for number, term in enumerate(own.terms_):
            segment = codes[term.columns[0]]
            for place, size in zip(term.columns[1:], term.shape[1:], strict=True):
                segment = segment * size + codes[place]
            level, slope = embedding(segment, self.get_buffer(f"term_{number}")).unbind(-1)
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
    return embedding(values.long().clamp(0, len(table) - 1), torch.from_numpy(table)[:, None]).squeeze(-1)


def _passed(values: Tensor, edges: Table) -> Tensor:
    """Return how many of a few edges lie at or below each value."""
    passed = torch.zeros_like(values, dtype=torch.int64)
    for edge in edges.tolist():
        passed = passed + (values >= edge).long()
    return passed


def sigmoid(z: Tensor) -> Tensor:
    """1/(1 + e^−z): onnxruntime's own cancels for z < 0, and is 0 at 10⁻¹⁷."""
    return 1.0 / (torch.exp(-z) + 1.0)


def log_ends(score: Tensor) -> tuple[Tensor, Tensor]:
    """Log p̂ and log(1 − p̂) of scores kept away from 0 and 1."""
    safe = score.clamp(PROBABILITY_FLOOR, 1.0 - PROBABILITY_FLOOR)
    return safe.log(), (1.0 - safe).log()


def chosen(calibrator: Calibrator | None) -> Calibrator | None:
    """Return a calibrator, or the one that ``auto`` chose."""
    return chosen(calibrator.choice_) if type(calibrator) is kinds.AutoCalibrator else calibrator


def line_of(calibrator: Calibrator | None) -> LineTable:
    """Return a calibrator as a line of the table; an error for one that the table cannot hold."""
    if calibrator is None:
        return _straight(1.0, 0.0, floor=0.0)
    form = FORMS.get(type(calibrator))
    if form is None or len(getattr(calibrator, "segments_", ())):
        problem = "has segments of its own" if form else "has no ONNX form here"
        raise UnskewError(
            f"the calibrator {calibrator.name!r} {problem}",
            remedy=f"use one of {', '.join(kind.name for kind in FORMS)}, or auto",
        )
    return form(calibrator)


def interpolation(x: Table, y: Table) -> LineTable:
    """Return the line of ``np.interp(…, x, y)``."""
    slope = np.concatenate([[0.0], np.diff(y) / np.diff(x), [0.0]])
    values = np.concatenate([y[:1], y])
    return LineTable(x, np.concatenate([x[:1], x]), _columns(slope, values))


def _columns(slope: Table, value: Table) -> Table:
    return np.column_stack([np.zeros((len(value), 2)), slope, value])


def _straight(slope: float, intercept: float, **options: Any) -> LineTable:
    return LineTable(np.empty(0), np.zeros(1), np.array([[0.0, 0.0, slope, intercept]]), **options)


def _beta(calibrator: kinds.Beta) -> LineTable:
    """a·log p̂ − b·log(1 − p̂) = z·(a + b)/2 + (log p̂ + log(1 − p̂))·(a − b)/2."""
    a, b = calibrator.a_, calibrator.b_
    return _straight((a + b) / 2, calibrator.intercept_, logit=True, sigmoid=True, bend=(a - b) / 2)


def _platt(calibrator: Any) -> LineTable:
    on_logit = getattr(calibrator, "input", "logit") == "logit"
    return _straight(calibrator.slope_, calibrator.intercept_, logit=on_logit, sigmoid=True)


def _steps(calibrator: Any) -> LineTable:
    if getattr(calibrator, "interpolation", "step") == "linear":
        x = np.column_stack([calibrator.first_, calibrator.last_]).ravel()
        y = np.repeat(calibrator.values_, 2)
        distinct = np.append(True, np.diff(x) > 0)
        return interpolation(x[distinct], y[distinct])
    values = np.asarray(calibrator.values_, dtype=np.float64)
    return LineTable(
        np.asarray(calibrator.edges_), np.zeros(len(values)), _columns(np.zeros(len(values)), values)
    )


def _spline(calibrator: kinds.Spline) -> LineTable:
    """Cubics between the breaks, and straight tails beyond them."""
    breaks, inner = np.asarray(calibrator.breaks_), np.asarray(calibrator.coefficients_).T
    low, high = calibrator.end_slopes_
    end = np.polyval(inner[-1], breaks[-1] - breaks[-2])
    tails = [[0.0, 0.0, low, inner[0, -1]]], [[0.0, 0.0, high, end]]
    origin = np.concatenate([breaks[:1], breaks])
    return LineTable(breaks, origin, np.concatenate([tails[0], inner, tails[1]]), logit=True, sigmoid=True)


FORMS: dict[type[Calibrator], Callable[[Any], LineTable]] = {
    kinds.Identity: lambda calibrator: _straight(1.0, 0.0),
    kinds.Platt: _platt,
    kinds.Temperature: lambda of: _straight(1.0 / of.temperature_, 0.0, logit=True, sigmoid=True),
    kinds.Beta: _beta,
    kinds.Spline: _spline,
    **dict.fromkeys((kinds.Isotonic, kinds.Histogram, kinds.VennAbers), _steps),
    **dict.fromkeys((kinds.ScalingBinning, kinds.ICIPW), _steps),
    kinds.Segmented: _platt,
}
"""What each kind of calibrator is; a subclass may compute something else, so it is not looked up."""
