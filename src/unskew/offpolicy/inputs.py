"""Checked inputs of an off-policy estimate: metrics, scores, and rows that trained no model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, NotFittedError, ParameterError
from unskew.base.estimator import require, require_choice, require_range, require_share
from unskew.base.numbers import without_mask
from unskew.data import Log
from unskew.metrics.registry import metric
from unskew.metrics.sketch_grid import DEFAULT_RESAMPLES, MOST_RESAMPLES
from unskew.offpolicy.evidence import Evidence

Estimator = Literal["balanced", "snips", "ips", "dr"]
Kind = Literal["nll", "auc", "dcg", "hits"]
HeldOutRows = Literal["validation", "all"] | NDArray[np.integer[Any]]

DEFAULT_METRICS = ("nll", "auc", "dcg@4", "hits@4")
"""A loss, a pooled ranking and the paper's two ranking metrics at its middle cut-off."""
METRICS_OF_SHOWN_ROWS = ("nll", "auc")
"""Those of a log of shown rows with known propensities."""


@dataclass(frozen=True)
class OffPolicyMetric:
    """A metric that an off-policy estimate knows: ``nll``, ``auc``, ``dcg@K`` or ``hits@K``."""

    name: str
    kind: Kind
    k: int

    @classmethod
    def of(cls, name: str) -> OffPolicyMetric:
        """Return the metric of a name."""
        if name in ("nll", "auc"):
            return cls(name, cast(Kind, name), 0)
        match = re.fullmatch(r"(dcg|hits)@([1-9]\d*)", name)
        if match is None:
            raise ParameterError(
                f"there is no off-policy estimate of {name!r}",
                remedy="use nll, auc, dcg@K or hits@K; recall@K and ndcg@K divide by what a log never tells",
            )
        return cls(name, cast(Kind, match[1]), int(match[2]))

    @property
    def ranks(self) -> bool:
        """Return whether it needs a user's candidates."""
        return self.kind in ("dcg", "hits")

    def within(self, value: float) -> float:
        """Cut a value to the range of the metric: none is negative, and an AUC is at most 1."""
        return min(max(value, 0.0), 1.0 if self.kind == "auc" else math.inf)

    @property
    def sign(self) -> float:
        """+1 if more is better, −1 if less is."""
        return metric(self.name).gain(1.0)


def metrics_of(names: Sequence[str]) -> tuple[OffPolicyMetric, ...]:
    """Return metrics by name; none, or one twice, is an error."""
    if isinstance(names, str) or not names or len(set(names)) != len(names):
        raise ParameterError(
            f"metrics must be distinct names, not {names!r}", remedy=f"give for example {DEFAULT_METRICS}"
        )
    return tuple(OffPolicyMetric.of(name) for name in names)


def estimator_for(log: Log, estimator: Estimator, metrics: Sequence[OffPolicyMetric]) -> Estimator:
    """Return the estimator that a log allows.

    A log of shown rows with known propensities does not list what was not shown: there is nothing to balance
    by, which leaves SNIPS of ``"balanced"``, nothing to impute for, and no candidates to rank among.
    """
    if log.known_propensity is None:
        return estimator
    ranking = [metric.name for metric in metrics if metric.ranks]
    if ranking or estimator == "dr":
        raise ParameterError(
            f"{ranking[0] if ranking else 'dr'} needs pairs that were not shown, which a log with known"
            " propensities does not list",
            remedy="ask for nll or auc, by snips or ips",
        )
    return "snips" if estimator == "balanced" else estimator


MOST_ITEMS = 2**31 - 1
"""Items of a slate at most: as many as a log can have."""


def check_options(*, estimator: str, slate: int, resamples: int, level: float, gamma: float | None) -> None:
    """Check the options that have a range."""
    require_choice("estimator", estimator, get_args(Estimator))
    require_range("slate", slate, 1, MOST_ITEMS, "the items that a user is shown")
    require_range("resamples", resamples, 2, MOST_RESAMPLES, f"for example {DEFAULT_RESAMPLES}")
    require_share("level", level, "0.95")
    require(
        gamma is None or 1.0 <= gamma < float("inf"),
        f"gamma must be 1 or more, not {gamma}",
        "give 1 for propensities that are known",
    )


def seeds_and_rows(
    models: Mapping[str, Any], log: Log, held_out: HeldOutRows
) -> tuple[tuple[int, ...], NDArray[np.int64]]:
    """Return the seeds that the models share, and rows that trained none of them.

    ``[seeds, n]``; where members held out rows of their own, ``[seeds · members, n]``.
    """
    seeds = _shared_seeds(models)
    if isinstance(held_out, str):
        if held_out == "all":
            return seeds, np.tile(log.clicked, (len(seeds), 1))
        if held_out != "validation":
            raise ParameterError(
                f"held_out must be 'validation', 'all' or row numbers, not {held_out!r}",
                remedy="give one of these",
            )
        return seeds, _validation_rows(models, log, seeds)
    rows = np.atleast_2d(np.asarray(held_out))
    fits = len(rows) == 1 or len(rows) % len(seeds) == 0
    if rows.dtype.kind not in "iu" or rows.ndim != 2 or not fits or not rows.size:
        raise DataError(
            f"held_out of type {rows.dtype} and shape {np.shape(held_out)} does not name rows of"
            f" {len(seeds)} seeds",
            remedy="give row numbers [n], or one line of them for each seed (or each of its members)",
        )
    outside = (rows < 0) | (rows >= len(log))
    if outside.any() or not log.click[rows].all() or any(len(np.unique(line)) < len(line) for line in rows):
        raise DataError(
            "held_out names a row that is not there, not clicked, or named twice",
            remedy="give numbers of clicked rows of this log, each once",
        )
    return seeds, np.broadcast_to(np.sort(rows, axis=1), (max(len(rows), len(seeds)), rows.shape[1]))


def scores_of(
    scored: Any, evidence: Evidence, log: Log, seeds: Sequence[int], name: str, *, everywhere: bool
) -> NDArray[Any]:
    """Return probabilities of the evidence's pairs, a line for each of its own, from a model, an array or one
    number; NaN for pairs without a score, which are an error if scores are needed ``everywhere``."""
    outside = np.zeros(len(evidence.pairs), dtype=bool)
    members = len(evidence.seeds) // len(seeds)
    own = getattr(getattr(scored, "split_", None), "lines", members)
    if members > 1 and own != members:
        raise DataError(
            f"{name} has {own} lines of held-out rows a seed, and {members} are asked for",
            remedy="fit all models with as many members, of the same kind of ensemble",
        )
    if members > 1 and hasattr(scored, "predict_lines_each"):
        lines = np.asarray(scored.predict_lines_each(evidence.pairs), dtype=np.float64)
    elif hasattr(scored, "predict_each"):
        lines = np.asarray(scored.predict_each(evidence.pairs), dtype=np.float64)
    else:
        values = np.asarray(without_mask(scored), dtype=np.float64)
        if values.ndim == 0:
            lines = np.full((1, len(evidence.pairs)), float(values))
        elif log.space == "matrix" and values.shape[-2:] == (log.n_users, log.n_items):
            lines = values.reshape(-1, log.population_size)[:, evidence.pairs.cell]
        elif values.ndim in (1, 2) and values.shape[-1] == len(log):
            unlisted = evidence.row < 0
            if everywhere and unlisted.any():
                raise ParameterError(
                    f"{name}: scores of the log's rows are not enough to rank all items, or for 'dr'",
                    remedy="give an array [users, items] or a model, or ask for nll and auc by snips",
                )
            lines = np.where(unlisted, np.nan, np.atleast_2d(values)[:, evidence.row])
            outside = unlisted
        else:
            raise DataError(
                f"{name}: scores of shape {values.shape} do not fit a log of {len(log)} rows",
                remedy="give one score per row of the log, or an array [users, items]",
            )
    if len(lines) == len(seeds):
        lines = lines.repeat(members, axis=0)
    if len(lines) not in (1, len(evidence.seeds)):
        raise DataError(
            f"{name}: {len(lines)} lines of scores do not fit {len(evidence.seeds)} of held-out rows",
            remedy="give one line for all, one for each seed, or one for each line of held-out rows",
        )
    if not (outside | ((lines >= 0.0) & (lines <= 1.0))).all():
        raise DataError(
            f"{name}: a score is not in [0, 1]",
            remedy="give probabilities of a conversion, without missing values",
        )
    return np.broadcast_to(lines, (len(evidence.seeds), lines.shape[1]))


def _shared_seeds(models: Mapping[str, Any]) -> tuple[int, ...]:
    by_model: dict[str, tuple[int, ...]] = {}
    for name, model in models.items():
        if hasattr(model, "seeds_"):
            by_model[name] = tuple(model.seeds_)
        elif hasattr(model, "get_params"):
            raise NotFittedError(f"{name}: this {type(model).__name__} is not fitted yet", remedy="call fit")
    if len(set(by_model.values())) > 1:
        shown = ", ".join(f"{name} {seeds}" for name, seeds in by_model.items())
        raise DataError(
            f"the models were trained with different seeds, so their held-out rows differ: {shown}",
            remedy="fit them with the same seeds",
        )
    if by_model:
        return next(iter(by_model.values()))
    lines = {np.shape(model)[0] for model in models.values() if np.ndim(model) == 3}
    return tuple(range(max(lines, default=1)))


def _validation_rows(models: Mapping[str, Any], log: Log, seeds: tuple[int, ...]) -> NDArray[np.int64]:
    splits: dict[str, Any] = {}
    for name, model in models.items():
        if getattr(model, "split_", None) is None:
            raise ParameterError(
                f"{name} does not tell which rows it did not train on",
                remedy="say it with held_out= (row numbers, or 'all' for a new log)",
            )
        splits[name] = model.split_
    if unheld := [name for name, split in splits.items() if split.held_out == 0]:
        raise DataError(
            f"{', '.join(unheld)} trained on every click of the log: no row is left to judge by",
            remedy="fit with validation_share > 0 and without validation=, or give a new log and"
            " held_out='all'",
        )
    for attribute, problem, remedy in (
        ("held_out", "held out different numbers of rows", "the same validation_share"),
        (
            "lines",
            "have different numbers of members that held out rows of their own",
            "as many members, of the same kind of ensemble",
        ),
    ):
        numbers = {name: getattr(split, attribute) for name, split in splits.items()}
        if len(set(numbers.values())) > 1:
            shown = ", ".join(f"{name} {number}" for name, number in numbers.items())
            raise DataError(f"the models {problem}: {shown}", remedy=f"fit them with {remedy}")
    if len(set(splits.values())) > 1:
        raise DataError(
            "the models held out different rows: they were trained on different logs",
            remedy="fit them on the same log",
        )
    return np.sort(next(iter(splits.values())).rows(log, seeds), axis=1)
