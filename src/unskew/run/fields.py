"""The fields of a trained model: which of them matter, and for which values its predictions are off."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import stdtrit

from unskew.audit.segments import NORMAL_95, Segment, ValueCodes, corrected, segment_cells, segments_of
from unskew.base.estimator import require
from unskew.base.seeds import stream
from unskew.base.tensors import torch
from unskew.data import Log, Rows, Schema, require_log
from unskew.data.values import MISSING, Numbers, Values
from unskew.debias import Debiaser
from unskew.metrics.judgement import LEVEL_TOLERANCE, SIGNIFICANT, is_off
from unskew.metrics.sketch_grid import LIKELIHOOD_FLOOR
from unskew.propensity.propensity import BasePropensity

Floats = NDArray[np.float64]

REPETITIONS = 3
"""Permutations of each field."""
MOST_ROWS = 10_000
"""Rows that fields are permuted on: all positives up to half of it, and negatives with a weight."""
LEAST_OF_EACH = 10
"""Positives, and negatives, that each seed must be judged on for figures to say anything."""
MOST_SEGMENT_ROWS = 1_000_000
NUMBER_GROUPS = 10
"""Groups of equal size that the values of a number are compared in."""


@dataclass(frozen=True)
class Loss:
    """The loss of a metric when a field is permuted; above 0 the field matters.

    Attributes
    ----------
    mean, low, high
        Over seeds and repetitions, with a 95 % interval from seeds *and* rows (of users, together).
    seeds
        The mean over repetitions of each seed.
    """

    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]


@dataclass(frozen=True)
class FieldImportance:
    """The fall of AUC, and the rise of the mean loss (NLL), when a field is permuted between rows."""

    field: str
    kind: str
    auc: Loss
    nll: Loss


@dataclass(frozen=True)
class Importance:
    """The fields of a model, those that AUC loses most by first.

    Attributes
    ----------
    outcome
        ``"conversion"`` or ``"click"``.
    rows, positives
        That it was measured on.
    is_sample
        Whether these are some of the rows that could be judged, drawn at random: the AUC of all is not
        exactly this one.
    auc, nll
        Before anything is permuted, the mean over seeds; NaN where there are too few rows.
    fields
        Empty where the rows are too few to tell (:data:`LEAST_OF_EACH`).
    """

    outcome: str
    rows: int
    positives: int
    is_sample: bool
    auc: float
    nll: float
    fields: tuple[FieldImportance, ...]


@dataclass(frozen=True)
class ValueCalibration:
    """How the predictions for one value of a field compare with what happened.

    Attributes
    ----------
    level, low, high
        Mean prediction ÷ actual rate, and its 95 % interval: what the predictions' own noise leaves. None
        where there is no limit.
    excess
        Rows × |mean prediction − actual rate|: conversions (clicks) that are predicted too many or too few.
    q_value
        Of the χ² test that predictions are right, corrected for all values of all fields; None where the
        rows are too few for it.
    off
        Whether they are off beyond chance.
    """

    field: str
    value: str
    rows: int
    predicted: float
    actual: float
    level: float | None
    low: float | None
    high: float | None
    excess: float
    q_value: float | None
    off: bool


def field_importance(
    model: Debiaser | BasePropensity,
    log: Log,
    *,
    rows: NDArray[np.integer[Any]] | None = None,
    weight: NDArray[Any] | None = None,
    repetitions: int = REPETITIONS,
    most_rows: int = MOST_ROWS,
    seed: int = 0,
) -> Importance:
    """Measure which fields a model ranks and predicts by: AUC and NLL when a field is permuted between rows.

    Fields that say the same (a user's id and country) stand in for one another: permuted alone, each loses
    less than both would. The same seed gives the same numbers.

    Parameters
    ----------
    model
        A fitted debiaser, judged by the conversions of clicked rows, or a fitted propensity, judged by
        clicks; a cross-fitted one by the fold that never saw the pair.
    log
        Rows that trained nothing: a test log. Of a propensity it may be the training log.
    rows
        Row numbers ``[lines, n]`` to be judged on: ``model.validation_rows(log)`` where the log is that of
        training.
    weight
        Of each row of the log; 1/p judges a conversion model by the whole population.
    repetitions, most_rows, seed
        Permutations of each field, rows at most, and what they are drawn from.

    Examples
    --------
    >>> import unskew as us
    >>> data = us.load("synthetic", n_users=60, n_items=40, density=0.2, features="auto")
    >>> model = us.Naive(learner=us.MLP(layers=(8,)), epochs=1).fit(data.train)
    >>> us.field_importance(model, data.test, repetitions=1).outcome
    'conversion'
    """
    require(
        repetitions >= 1 and most_rows >= 2 * LEAST_OF_EACH,
        f"repetitions is {repetitions} and most_rows {most_rows}",
        f"give at least 1 repetition and {2 * LEAST_OF_EACH} rows",
    )
    judged = _judged(model, log, rows, weight, most_rows, seed)
    counts = len(judged.outcome), int(judged.outcome.sum()), judged.is_sample
    there = judged.weight > 0
    positives, total = (there * judged.outcome).sum(axis=1), there.sum(axis=1)
    if min(positives.min(), (total - positives).min()) < LEAST_OF_EACH:
        return Importance(judged.name, *counts, math.nan, math.nan, ())
    before = _measured(judged, judged.predict(judged.rows))
    random = np.random.default_rng(stream(seed, "fields"))
    found = []
    for name, kind, change in _fields(judged.schema):
        after = []
        for _ in range(repetitions):
            order = torch.as_tensor(random.permutation(len(judged.outcome)), device=judged.rows.device)
            after.append(_measured(judged, judged.predict(change(judged.rows, order))))
        # What is lost, seed by seed: AUC falls, and NLL rises.
        losses = {
            metric: _loss(sign * before[metric], [sign * measured[metric] for measured in after], judged.user)
            for metric, sign in (("auc", 1), ("nll", -1))
        }
        found.append(FieldImportance(name, kind, **losses))
    found.sort(key=lambda each: -each.auc.mean)
    auc, nll = (float(before[metric][:, 0].mean()) for metric in ("auc", "nll"))
    return Importance(judged.name, *counts, auc, nll, tuple(found))


def field_calibration(
    model: Debiaser | BasePropensity,
    log: Log,
    *,
    rows: NDArray[np.integer[Any]] | None = None,
    weight: NDArray[Any] | None = None,
    seed: int = 0,
) -> list[ValueCalibration]:
    """Return the predicted ÷ actual rate of every value of every feature, the worst first.

    First those that are off by more than 10 %, beyond chance, by how many conversions (or clicks) they are
    off by; then the rest; last those with too few rows to tell. Numbers are compared in ten groups of equal
    size; a row with several values of a bag counts for each. Predictions are means over seeds.

    Parameters
    ----------
    model, log, rows, weight, seed
        As in :func:`field_importance`.
    """
    judged = _judged(model, log, rows, weight, MOST_SEGMENT_ROWS, seed)
    if log.features is None or not len(judged.outcome):
        return []
    share = judged.weight / np.maximum(judged.weight.sum(axis=0), np.finfo(np.float64).tiny)
    score = (judged.predict(judged.rows) * share).sum(axis=0)
    of_row = judged.weight.mean(axis=0)
    segments: list[Segment] = []
    for feature in log.features.declared:
        if feature.kind == "vector":
            # Its values have no names.
            continue
        at = {"user": judged.user, "item": judged.item}.get(str(feature.role), judged.at)
        row, values = _named(log.features.values[feature.name].take(at))
        names = ValueCodes()
        code = names.codes(values)
        segments += segments_of(
            segment_cells(feature.name, names.names(), code, score[row], judged.outcome[row], of_row[row])
        )
    found = [_value_calibration(each) for each in corrected(segments)]
    return sorted(found, key=lambda each: (each.q_value is None, not each.off, -each.excess))


@dataclass(frozen=True)
class _Judged:
    """Rows that a model is judged on."""

    name: str
    schema: Schema
    rows: Rows
    predict: Callable[[Rows], Floats]
    outcome: Floats
    weight: Floats
    """``[seeds, n]``, or by line; 0 where it is not judged on a row."""
    user: NDArray[np.integer[Any]]
    item: NDArray[np.integer[Any]]
    at: NDArray[np.integer[Any]]
    """Row numbers in the log; −1 for pairs that it does not list."""
    is_sample: bool
    """Whether some of the rows that could be judged were left out."""


def _judged(
    model: Debiaser | BasePropensity,
    log: Log,
    rows: NDArray[np.integer[Any]] | None,
    weight: NDArray[Any] | None,
    most: int,
    seed: int,
) -> _Judged:
    require_log(log)
    converts = not isinstance(model, BasePropensity)
    require(
        isinstance(model, Debiaser | BasePropensity),
        f"{type(model).__name__} is no trained model",
        "give a fitted debiaser or propensity",
    )
    random = np.random.default_rng(stream(seed, "rows"))
    unlisted = not converts and log.space == "matrix"
    at = log.clicked if converts or unlisted else np.arange(len(log))
    outcome = (log.known_conversion() if converts else log.click[at]).astype(np.float64)
    user, item = log.user[at], log.item[at]
    of_row = np.ones(len(at)) if weight is None else np.asarray(weight, dtype=np.float64)[at]
    is_sample = unlisted and len(at) + most < log.population_size
    if unlisted:
        # The pairs of D without a click are not in the log: as many are drawn as may be judged.
        others = log.population_size - log.n_clicks
        drawn = random.integers(log.population_size, size=2 * min(most, others) + 100)
        cells = drawn[~np.isin(drawn, np.unique(log.cell[log.clicked]))][: min(most, others)]
        of_user, of_item = np.divmod(cells, log.n_items)
        user, item = np.append(user, of_user), np.append(item, of_item)
        at = np.append(at, np.full(len(cells), MISSING))
        outcome = np.append(outcome, np.zeros(len(cells)))
        of_row = np.append(of_row, np.full(len(cells), others / max(len(cells), 1)))
    lines = len(model.seeds_)
    if isinstance(model, Debiaser) and rows is not None and np.ndim(rows) > 1 and len(rows) not in (1, lines):
        # The rows that each member of each seed held out.
        lines *= model.split_.lines
        require(
            len(rows) == lines,
            f"{len(rows)} lines of rows do not fit {len(model.seeds_)} seeds",
            "give one line for all, one for each seed, or model.validation_rows(log)",
        )
    by_seed = np.tile(of_row, (lines, 1))
    judged = np.arange(len(at))
    if rows is not None:
        rows = np.broadcast_to(rows, (lines, np.shape(rows)[-1]))
        by_seed = by_seed * np.stack([np.isin(at, line) for line in rows])
        judged = np.flatnonzero((by_seed > 0).any(axis=0))
    sampled, factor = sampled_rows(outcome[judged], most, random)
    chosen = judged[sampled]
    user, item, at = user[chosen], item[chosen], at[chosen]
    reader = model.reader()
    if unlisted:
        asked = reader.of_pairs(log.users.decode(user), log.items.decode(item)).rows
    else:
        asked = reader.of_log(log.take(at)).rows

    def predict(changed: Rows) -> Floats:
        if isinstance(model, BasePropensity):
            return model.predict_rows(changed, folds_of=asked).calibrated
        by_line = lines != len(model.seeds_)
        return model.predict_lines(changed) if by_line else model.predict_rows(changed)

    ids = Schema.of_ids(len(model.users_), len(model.items_))
    return _Judged(
        name="conversion" if converts else "click",
        schema=ids if model.encoders_ is None else model.encoders_.schema,
        rows=asked,
        predict=predict,
        outcome=outcome[chosen],
        weight=by_seed[:, chosen] * factor,
        user=user,
        item=item,
        at=at,
        is_sample=is_sample or len(chosen) < len(judged),
    )


def sampled_rows(outcome: Floats, most: int, random: np.random.Generator) -> tuple[NDArray[np.intp], Floats]:
    """Sample rows, positives first, and return how many rows each stands for."""
    if len(outcome) <= most:
        return np.arange(len(outcome)), np.ones(len(outcome))
    positive, negative = np.flatnonzero(outcome > 0), np.flatnonzero(outcome <= 0)
    positives = min(len(positive), max(most // 2, most - len(negative)))
    sizes = ((positive, positives), (negative, min(len(negative), most - positives)))
    chosen = [np.sort(random.choice(rows, size, replace=False)) for rows, size in sizes]
    factor = [np.full(size, len(rows) / max(size, 1)) for rows, size in sizes]
    return np.concatenate(chosen), np.concatenate(factor)


Change = Callable[[Rows, torch.Tensor], Rows]


def _fields(schema: Schema) -> Iterator[tuple[str, str, Change]]:
    """Name and kind of each field, and what permutes it."""
    for name in ("user", "item"):
        yield name, "id", _permuting(name, slice(None))
    places = {"codes": 0, "numbers": 0}
    for field in schema.features:
        packed = "numbers" if field.is_number else "codes"
        columns = slice(places[packed], places[packed] + field.width)
        places[packed] = columns.stop
        yield field.name, field.kind, _permuting(packed, columns)


def _permuting(packed: str, columns: slice) -> Change:
    def change(rows: Rows, order: torch.Tensor) -> Rows:
        mixed = rows[packed].clone()
        mixed[..., columns] = mixed[:, order][..., columns]
        return Rows(**{**{name: rows[name] for name in rows}, packed: mixed})

    return change


def _measured(judged: _Judged, score: Floats) -> dict[str, Floats]:
    """Return a line for each seed: the metric, then what each row adds to its deviation (its influence)."""
    lines = list(zip(score, judged.weight, strict=True))
    return {
        name: np.array([np.append(*measure(line, judged.outcome, weight)) for line, weight in lines])
        for name, measure in (("auc", auc_and_influence), ("nll", nll_and_influence))
    }


def auc_and_influence(score: Floats, outcome: Floats, weight: Floats) -> tuple[float, Floats]:
    """Compute AUC, and the influences of rows on it (DeLong et al. 1988)."""
    _, group = np.unique(score, return_inverse=True)
    positive, negative = weight * outcome, weight * (1 - outcome)
    positives, negatives = positive.sum(), negative.sum()
    below = np.cumsum(by := np.bincount(group, negative)) - by / 2
    above = positives - np.cumsum(by := np.bincount(group, positive)) + by / 2
    place = np.where(outcome > 0, below[group] / negatives, above[group] / positives)
    value = float(positive @ place / positives)
    share = np.where(outcome > 0, positive / positives, negative / negatives)
    return value, share * (place - value)


def nll_and_influence(score: Floats, outcome: Floats, weight: Floats) -> tuple[float, Floats]:
    """Compute NLL, and the influences of rows on it."""
    likelihood = np.where(outcome > 0, score, 1 - score)
    loss = -np.log(np.maximum(likelihood, LIKELIHOOD_FLOOR))
    share = weight / weight.sum()
    value = float(share @ loss)
    return value, share * (loss - value)


def _loss(before: Floats, after: Sequence[Floats], user: NDArray[np.integer[Any]]) -> Loss:
    """Return the mean over seeds and repetitions, with an interval over seeds (or repetitions) and users."""
    lost = before - np.array(after)
    values, influence = lost[..., 0], lost[..., 1:].mean(axis=(0, 1))
    _, group = np.unique(user, return_inverse=True)
    of_users = np.bincount(group, influence)
    rows_part = NORMAL_95 * math.sqrt(float(of_users @ of_users))
    each = values.mean(axis=0) if values.shape[1] > 1 else values[:, 0]
    seeds_part = 0.0
    if len(each) > 1:
        seeds_part = float(stdtrit(len(each) - 1, 0.975) * each.std(ddof=1) / math.sqrt(len(each)))
    mean, half = float(values.mean()), math.hypot(rows_part, seeds_part)
    return Loss(mean, mean - half, mean + half, tuple(values.mean(axis=0).tolist()))


def _named(values: Values) -> tuple[NDArray[np.intp], Any]:
    """Return values as an Arrow array of names, and the row that each is of."""
    if isinstance(values, Numbers):
        return np.arange(len(values)), number_groups(values.values)
    codes = values.codes
    row = np.arange(len(values))
    if values.starts is not None:
        # A row without a value is one that is missing.
        lengths = np.maximum(values.lengths, 1)
        row, filled = np.repeat(row, lengths), np.repeat(values.lengths > 0, lengths)
        codes = np.full(len(row), MISSING, dtype=np.int32)
        codes[filled] = values.codes
    indices = pa.array(codes, mask=codes == MISSING)
    names = pa.array(values.texts.tolist(), type=pa.large_string())
    return row, pa.DictionaryArray.from_arrays(indices, names)


def number_groups(numbers: Floats) -> Any:
    """Divide numbers into groups of about equal size, named by their least and largest number."""
    known = np.sort(numbers[~np.isnan(numbers)])
    if not len(known):
        return pa.nulls(len(numbers), pa.large_string())
    edges = np.unique(np.quantile(known, np.linspace(0, 1, NUMBER_GROUPS + 1)[1:-1], method="lower"))
    parts = np.split(known, np.searchsorted(known, edges, side="right"))
    names = [f"{part[0]:.4g} to {part[-1]:.4g}" if len(part) else "" for part in parts]
    indices = pa.array(np.searchsorted(edges, numbers, side="left"), mask=np.isnan(numbers))
    return pa.DictionaryArray.from_arrays(indices, pa.array(names))


def _value_calibration(segment: Segment) -> ValueCalibration:
    predicted, actual, rows = segment.mean_score, segment.base_rate, segment.rows
    # The predictions' own noise, at most: Σp(1 − p) is largest where all are their mean.
    noise = NORMAL_95 * math.sqrt(max(predicted * (1 - predicted), 0.0) / max(rows, 1))
    ends = (actual, actual + noise, actual - noise)
    level, low, high = (predicted / rate if rate > 0 else None for rate in ends)
    deviation = math.inf if level is None else abs(level - 1)
    return ValueCalibration(
        field=segment.column,
        value=segment.value,
        rows=rows,
        predicted=predicted,
        actual=actual,
        level=level,
        low=low,
        high=high,
        excess=rows * abs(predicted - actual),
        q_value=segment.q_value,
        off=is_off(segment.q_value, deviation, tolerance=LEVEL_TOLERANCE, significance=SIGNIFICANT),
    )
