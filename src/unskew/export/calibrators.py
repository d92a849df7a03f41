"""Fitted calibrators as ONNX, in float64 as they were fitted; those of one kind share their operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.calibration import (
    ICIPW,
    AutoCalibrator,
    Beta,
    Calibrator,
    Histogram,
    Identity,
    Isotonic,
    Platt,
    ScalingBinning,
    Segmented,
    Spline,
    Temperature,
    VennAbers,
)
from unskew.calibration.calibrator import PROBABILITY_FLOOR
from unskew.errors import UnskewError
from unskew.export.graph import Value

Form = Callable[[Sequence[Any], Value], Value]
"""From G fitted calibrators of one kind and scores ``[G, n]`` to probabilities ``[G, n]``."""

Table = NDArray[np.float64]


def mean_calibrated(score: Value, calibrators: Sequence[Calibrator | None]) -> Value:
    """(1/R) Σ_r q_r(p̂_r), ``[n]``, of scores ``[R, n]`` in float64 with one calibrator for each line."""
    lines_of: dict[Form, list[int]] = {}
    chosen = [_chosen(each) for each in calibrators]
    for line, calibrator in enumerate(chosen):
        lines_of.setdefault(form_of(calibrator), []).append(line)
    total: Value | None = None
    for form, lines in lines_of.items():
        mine = score if len(lines_of) == 1 else score.take(score.graph.constant(lines))
        part = form([chosen[line] for line in lines], mine).sum(0)
        total = part if total is None else total + part
    assert total is not None
    return total / len(calibrators)


def form_of(calibrator: Calibrator | None) -> Form:
    """How a kind of calibrator is written; an error where it cannot be."""
    if calibrator is None:
        return _raw
    kind = type(calibrator)
    if kind is Platt and calibrator.get_params()["input"] == "prob":
        return _line_on_scores
    if kind is Isotonic and calibrator.get_params()["interpolation"] == "linear":
        return _interpolated
    form = FORMS.get(kind)
    if form is None:
        raise UnskewError(
            f"the calibrator {calibrator.name!r} has no ONNX form here",
            remedy=f"use one of {', '.join(each.name for each in FORMS)}, or auto",
        )
    return form


def _chosen(calibrator: Calibrator | None) -> Calibrator | None:
    return _chosen(calibrator.choice_) if type(calibrator) is AutoCalibrator else calibrator


def inside(probability: Value) -> Value:
    """Kept away from 0 and 1, as every calibrator's answers are."""
    return probability.maximum(PROBABILITY_FLOOR).minimum(1 - PROBABILITY_FLOOR)


def logits(score: Value) -> Value:
    """log(p/(1−p)) of scores kept away from 0 and 1."""
    safe = inside(score)
    return safe.log() - (1.0 - safe).log()


def _raw(calibrators: Sequence[None], score: Value) -> Value:
    return score


def _identity(calibrators: Sequence[Identity], score: Value) -> Value:
    return inside(score)


def _line_on_logits(calibrators: Sequence[Platt | Segmented], score: Value) -> Value:
    """σ(b·logit p̂ + c); of a segmented one the global map, which new pairs get."""
    return inside((logits(score) * _each(calibrators, "slope_") + _each(calibrators, "intercept_")).sigmoid())


def _line_on_scores(calibrators: Sequence[Platt], score: Value) -> Value:
    """σ(b·p̂ + c)."""
    return inside((score * _each(calibrators, "slope_") + _each(calibrators, "intercept_")).sigmoid())


def _temperature(calibrators: Sequence[Temperature], score: Value) -> Value:
    """σ(logit p̂ / T)."""
    return inside((logits(score) / _each(calibrators, "temperature_")).sigmoid())


def _beta(calibrators: Sequence[Beta], score: Value) -> Value:
    """σ(a·log p̂ − b·log(1 − p̂) + c)."""
    safe = inside(score)
    low = safe.log() * _each(calibrators, "a_")
    high = (1.0 - safe).log() * _each(calibrators, "b_")
    return inside((low - high + _each(calibrators, "intercept_")).sigmoid())


def _steps(calibrators: Sequence[Any], score: Value) -> Value:
    """The value of the step that a score is on: the number of edges at or below it."""
    steps = Steps([each.edges_ for each in calibrators], score)
    return inside(steps.take([each.values_ for each in calibrators]))


def _interpolated(calibrators: Sequence[Isotonic], score: Value) -> Value:
    """From a block's value straight to the next one's across the gap between the two."""
    steps = Steps([each.first_[1:] for each in calibrators], score)
    value = steps.take([each.values_ for each in calibrators])
    following = steps.take([_next(each.values_) for each in calibrators])
    last = steps.take([each.last_ for each in calibrators])
    gap = steps.take(
        [np.maximum(_next(each.first_) - each.last_, np.finfo(np.float64).tiny) for each in calibrators]
    )
    share = ((score - last) / gap).maximum(0.0).minimum(1.0)
    return inside(value + share * (following - value))


def _spline(calibrators: Sequence[Spline], score: Value) -> Value:
    """σ of a cubic in the distance from the break below, with straight tails beyond the outer breaks."""
    z = logits(score)
    low, high = (_column([each.breaks_[end] for each in calibrators]) for end in (0, -1))
    within = z.maximum(low).minimum(high)
    pieces = Steps([each.breaks_[1:-1] for each in calibrators], within)
    distance = within - pieces.take([each.breaks_[:-1] for each in calibrators])
    eta = pieces.take([each.coefficients_[0] for each in calibrators])
    for power in range(1, len(calibrators[0].coefficients_)):
        eta = eta * distance + pieces.take([each.coefficients_[power] for each in calibrators])
    beyond = z - within
    slopes = [_column([each.end_slopes_[end] for each in calibrators]) for end in (0, 1)]
    return inside((eta + beyond.minimum(0.0) * slopes[0] + beyond.maximum(0.0) * slopes[1]).sigmoid())


class Steps:
    """``np.searchsorted(edges, score, side="right")`` for each line with edges of its own.

    By bisection of all scores at once: the edges of a line are filled up with infinity to 2^k − 1, so k
    rounds find the step, whatever the line; comparing with every edge would need n × edges of memory.
    """

    def __init__(self, edges: Sequence[Table], score: Value) -> None:
        rounds = max(1, max(len(each) for each in edges).bit_length())
        self.width = 1 << rounds
        lines = np.arange(len(edges))[:, None]
        table = score.graph.constant(_padded(edges, self.width - 1, np.full(len(edges), np.inf)))
        place = score.graph.constant(lines * (self.width - 1))
        for half in (1 << bit for bit in reversed(range(rounds))):
            passed = table.take(place + (half - 1)) <= score
            place = place + passed.cast(np.int64) * half
        self.place = place + lines

    def take(self, values: Sequence[Table]) -> Value:
        """For each score its step's value, of the values of its line."""
        graph = self.place.graph
        table = graph.constant(_padded(values, self.width, [each[-1] for each in values]))
        return table.take(self.place)


def _padded(lines: Sequence[Table], width: int, fill: Sequence[float] | Table) -> Table:
    """Lines one after the other, each filled up to a width."""
    table = np.repeat(np.asarray(fill, dtype=np.float64)[:, None], width, axis=1)
    for row, line in zip(table, lines, strict=True):
        row[: len(line)] = line
    return table.ravel()


def _next(values: Table) -> Table:
    return np.append(values[1:], values[-1])


def _each(calibrators: Sequence[Any], name: str) -> Table:
    return _column([getattr(each, name) for each in calibrators])


def _column(values: Sequence[float]) -> Table:
    return np.asarray(values, dtype=np.float64)[:, None]


FORMS: dict[type[Calibrator], Form] = {
    Identity: _identity,
    Platt: _line_on_logits,
    Temperature: _temperature,
    Beta: _beta,
    Spline: _spline,
    Isotonic: _steps,
    Histogram: _steps,
    VennAbers: _steps,
    ScalingBinning: _steps,
    ICIPW: _steps,
    Segmented: _line_on_logits,
}
"""What each kind of calibrator computes; a subclass may compute something else, so it is not looked up."""
