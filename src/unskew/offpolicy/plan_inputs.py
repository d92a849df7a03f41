"""The rows that a plan of random impressions is made from: of arrays, of scored files, of run folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit

from unskew.base.columns import column_of, frame_of, number_column
from unskew.base.errors import DataError, ParameterError
from unskew.base.seeds import stream
from unskew.data import Log
from unskew.data.source import Source, read_table
from unskew.debias import load_model
from unskew.metrics.sketch_grid import LIKELIHOOD_FLOOR
from unskew.offpolicy.comparison import compare
from unskew.offpolicy.evidence import pairs_of
from unskew.offpolicy.inputs import OffPolicyMetric
from unskew.offpolicy.run_folder import facts_of, models_of, training_log, with_row_features
from unskew.training.saved import SavedFolder

Floats = NDArray[np.float64]

MOST_PAIRS = 100_000
"""Pairs that two runs score: σ of some 6,000 users is known to 1 %."""
BASELINE = "naive"
DEFAULT_COLUMNS = {"user": "user", "item": "item", "score": "conversion"}
OUTCOME = "given_conversion"
"""The outcome in a file that ``unskew score`` wrote."""
PRIOR_CLICKS = 10.0
"""What the predictions count for beside the effective number of clicks."""
WIDEST_SHIFT = 30.0
"""Of a logit."""


@dataclass(frozen=True, eq=False)
class PlanRows:
    """Rows as random impressions would be: users, predictions of both models, outcomes.

    Attributes
    ----------
    measured
        Whether outcomes were seen, so that the rows tell which model is ahead; otherwise they were drawn.
    advantages
        By metric, how far the first model is ahead by other rows, and the standard error of that.
    """

    user: NDArray[Any]
    first: Floats
    second: Floats
    outcome: Floats
    names: tuple[str, str]
    measured: bool
    notes: tuple[str, ...]
    advantages: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def rows_of_arrays(
    first: Any,
    second: Any,
    user: Any,
    conversion: Any,
    propensity: Any,
    seed: int,
    names: tuple[str, str] = ("first", "second"),
) -> PlanRows:
    """Make rows of predictions, users and, where known, outcomes and propensities."""
    scores = [np.asarray(each, dtype=np.float64) for each in (first, second)]
    people = np.asarray(user)
    if len({each.shape for each in (*scores, people)}) != 1 or people.ndim != 1 or not len(people):
        raise DataError(
            f"predictions of shapes {scores[0].shape} and {scores[1].shape} and users of shape {people.shape}"
            " are not of the same rows",
            remedy="give one prediction of each model and one user for every row",
        )
    for name, score in zip(names, scores, strict=True):
        wrong = ~((score >= 0.0) & (score <= 1.0))
        if wrong.any():
            raise DataError(
                f"{name}: {score[wrong][0]} is not a probability",
                where=f"row {int(np.flatnonzero(wrong)[0])}",
                remedy="give probabilities of a conversion, without missing values",
            )
    rows = np.arange(len(people))
    notes = []
    if propensity is not None:
        rows, note = _drawn_anew(np.asarray(propensity, dtype=np.float64), len(people), seed)
        notes.append(note)
    elif conversion is not None:
        notes.append("The rows are taken as shown at random: give their propensities where they were not.")
    if conversion is None:
        middle = (scores[0] + scores[1])[rows] / 2.0
        outcome = _draw(middle, seed)
        notes.append(
            "No outcomes are known: conversions were drawn from the mean of the two models' predictions."
        )
    else:
        label = np.asarray(conversion, dtype=np.float64)
        if label.shape != people.shape or not np.isin(label, (0.0, 1.0)).all():
            raise DataError("outcomes are not one 0 or 1 for every row", remedy="give 0 or 1 for every row")
        outcome = label[rows]
    return PlanRows(
        people[rows], scores[0][rows], scores[1][rows], outcome, names, conversion is not None, tuple(notes)
    )


def _drawn_anew(p: Floats, rows: int, seed: int) -> tuple[NDArray[np.int64], str]:
    """Draw rows with weights 1/p, as many as their effective sample size."""
    if p.shape != (rows,) or not ((p > 0.0) & (p <= 1.0)).all():
        raise DataError(
            "a propensity is missing or does not lie above 0 and up to 1",
            remedy="give one propensity for every row",
        )
    weight = 1.0 / p
    size = max(2, round(weight.sum() ** 2 / (weight @ weight)))
    random = np.random.default_rng(stream(seed, "rows by weight"))
    drawn = random.choice(rows, size=size, p=weight / weight.sum())
    note = f"{rows:,} rows stand for random ones by weights 1/p: effectively {size:,}, drawn anew."
    return drawn.astype(np.int64), note


def _draw(rate: Floats, seed: int) -> Floats:
    random = np.random.default_rng(stream(seed, "planned conversions"))
    return (random.random(len(rate)) < rate).astype(np.float64)


def rows_of_files(first: Path, second: Path, columns: Mapping[str, str], seed: int) -> PlanRows:
    """Make rows of two files with the same users and items in the same order."""
    unknown = set(columns) - {*DEFAULT_COLUMNS, "outcome", "propensity"}
    if unknown:
        raise ParameterError(
            f"a scored file has no {', '.join(sorted(unknown))}",
            remedy="name user, item, score, outcome or propensity",
        )
    named = {**DEFAULT_COLUMNS, **columns}
    there = Source.of(str(first)).names
    if "outcome" not in named and OUTCOME in there:
        named["outcome"] = OUTCOME
    numbers = {key: named[key] for key in ("score", "outcome", "propensity") if key in named}
    ids = {key: named[key] for key in ("user", "item")}
    tables = []
    for path, wanted in ((first, named), (second, {key: named[key] for key in DEFAULT_COLUMNS})):
        read = tuple(dict.fromkeys(wanted.values()))
        of_file = [name for name in numbers.values() if name in read]
        tables.append(frame_of(read_table(str(path), read, numbers=of_file)))
    for name in ids.values():
        one, other = (column_of(table, name) for table in tables)
        if len(one) != len(other) or (one != other).any():
            raise DataError(
                f"{first.name} and {second.name} do not hold the same rows: column '{name}' differs",
                remedy="score one file with both models (unskew score), and give both results",
            )
    values = {key: number_column(column_of(tables[0], name), name) for key, name in numbers.items()}
    return rows_of_arrays(
        values["score"],
        number_column(column_of(tables[1], named["score"]), named["score"]),
        column_of(tables[0], named["user"]),
        values.get("outcome"),
        values.get("propensity"),
        seed,
        names=_apart(first, second),
    )


def _apart(first: Path, second: Path) -> tuple[str, str]:
    """Return names of two places that differ."""
    if first.stem != second.stem:
        return first.stem, second.stem
    return str(first), str(second)


def rows_of_runs(
    folders: Sequence[Path],
    models: tuple[str, ...],
    metrics: Sequence[str],
    *,
    slate: int,
    seed: int,
    device: str,
) -> PlanRows:
    """Make rows of pairs drawn at random from the log of one or two runs, scored by a model of each.

    Parameters
    ----------
    metrics
        Those whose difference is to be estimated from held-out clicks.
    """
    saved = [SavedFolder(folder) for folder in folders]
    keys = _keys(saved, models)
    pair = [saved[0], saved[-1]]
    space, p_min, actions = facts_of(pair[0])
    logs = [training_log(each, space, actions) for each in saved]
    if len(logs) == 2 and logs[0].digest != logs[1].digest:
        raise DataError(
            f"{folders[0]} and {folders[1]} are runs of different logs",
            remedy="give two runs of the same log, or scored files",
        )
    log = logs[0]
    chosen = [
        with_row_features(load_model(of, key, device=device), of, log)
        for of, key in zip(pair, keys, strict=True)
    ]
    names = keys if keys[0] != keys[1] else _apart(Path(pair[0].folder), Path(pair[1].folder))
    pairs = _random_pairs(log, slate, seed)
    first, second = (np.asarray(model.predict_each(pairs)).mean(axis=0) for model in chosen)
    rate = _rate(log, p_min, float((first + second).mean()) / 2.0)
    outcome = _draw(_with_mean((first + second) / 2.0, rate), seed)
    if outcome.min() == outcome.max():
        raise DataError(
            f"{len(pairs):,} random pairs at a conversion rate of {rate:.2g} have no conversion among them",
            remedy="give a larger slate, or scored files of more rows",
        )
    notes = [
        f"{len(pairs):,} pairs of {len(np.unique(pairs.user)):,} users were drawn from the log and scored;"
        f" conversions were drawn at the propensity-weighted rate of the clicks, {rate:.4g}."
    ]
    advantages: dict[str, tuple[float, float]] = {}
    if metrics:
        by_name = dict(zip(names, chosen, strict=True))
        known = [OffPolicyMetric.of(name).name for name in metrics]
        comparison = compare(
            by_name,
            log,
            propensity="propensity",
            metrics=[name for name in known if actions is None or name in ("nll", "auc")],
            p_min=p_min,
            slate=slate,
            seed=seed,
        )
        for gap in comparison.differences:
            scale = 1.0 if gap.better == names[0] else -1.0
            if OffPolicyMetric.of(gap.metric).ranks:
                # Off-policy estimates are means over all users, plans over those with a conversion.
                scale /= len(np.unique(pairs.user[outcome == 1])) / len(np.unique(pairs.user))
            advantages[gap.metric] = scale * gap.advantage, abs(scale) * gap.standard_error
        notes.append(
            "Differences are those of held-out clicks, weighted; biased clicks may be wrong about them, in"
            " sign too."
        )
    return PlanRows(pairs.user, first, second, outcome, (names[0], names[1]), False, tuple(notes), advantages)


def _keys(saved: Sequence[SavedFolder], models: tuple[str, ...]) -> tuple[str, str]:
    """Return the models to compare: as named, or the main one of each run; of one run, naive and main."""
    known = [models_of(each) for each in saved]
    if not models:
        last = str(saved[-1].config.get("main"))
        chosen = (BASELINE if len(saved) == 1 else str(saved[0].config.get("main")), last)
    elif len(models) == 2:
        chosen = (models[0], models[1])
    else:
        raise ParameterError(f"{len(models)} model(s) are named", remedy="name two, one of each run, or none")
    for key, keys in zip(chosen, (known[0], known[-1]), strict=True):
        if key not in keys:
            raise ParameterError(f"this run has no model {key!r}", remedy=f"use one of {', '.join(keys)}")
    if len(saved) == 1 and chosen[0] == chosen[1]:
        raise ParameterError(
            f"{chosen[0]} is compared with itself", remedy="name two models of the run, or give two runs"
        )
    return chosen


def _random_pairs(log: Log, slate: int, seed: int) -> Log:
    """``slate`` pairs of each of some users: of any items, or of the impressions that the log lists."""
    random = np.random.default_rng(stream(seed, "planned impressions"))
    most = max(2, MOST_PAIRS // slate)
    if log.space == "impressions" or log.known_propensity is not None:
        people = random.permutation(np.unique(log.user))[:most]
        order = random.permutation(np.flatnonzero(np.isin(log.user, people)))
        order = order[np.argsort(log.user[order], kind="stable")]
        user = log.user[order]
        rank = np.arange(len(order)) - np.searchsorted(user, user)
        return log.take(order[rank < slate])
    people = random.permutation(log.n_users)[:most]
    shown = min(slate, log.n_items)
    items = np.stack([random.choice(log.n_items, size=shown, replace=False) for _ in people])
    return pairs_of(log, (people[:, None].astype(np.int64) * log.n_items + items).ravel())


def _rate(log: Log, p_min: float, predicted: float) -> float:
    """Return the weighted conversion rate of the clicks, drawn to the prediction where weights are few."""
    p = log.columns["propensity"][log.clicked].astype(np.float64)
    weight = 1.0 / np.maximum(p, max(p_min, LIKELIHOOD_FLOOR))
    share = weight / weight.sum()
    clicks = 1.0 / float(share @ share)
    weighted = float(share @ log.known_conversion())
    return (clicks * weighted + PRIOR_CLICKS * predicted) / (clicks + PRIOR_CLICKS)


def _with_mean(rate: Floats, mean: float) -> Floats:
    """Shift rates in the logit to a mean."""
    bounded = logit(np.clip(rate, LIKELIHOOD_FLOOR, 1.0 - LIKELIHOOD_FLOOR))
    if not 0.0 < mean < 1.0:
        raise DataError(
            "the clicks all converted, or none did: nothing can be planned", remedy="give a log with both"
        )

    def gap(shift: float) -> float:
        return float(expit(bounded + shift).mean()) - mean

    if gap(-WIDEST_SHIFT) >= 0 or gap(WIDEST_SHIFT) <= 0:
        return np.full(len(rate), mean)
    return np.asarray(expit(bounded + brentq(gap, -WIDEST_SHIFT, WIDEST_SHIFT)))
