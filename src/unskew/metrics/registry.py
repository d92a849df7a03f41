"""Every metric's name, format and goal: what tables, plots, words and documentation say of it.

A metric is shown everywhere once it is computed and has an entry here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Goal = Literal["higher", "lower", "one", "floor", ""]
"""What is good: more, less, nearest to 1, nearest to its noise floor; or nothing of these."""

MISSING = "–"
"""Stands where a number is missing or undefined."""

CUTOFFS = (2, 4, 6)
"""The paper's K."""


SIGNIFICANT, MOST_DECIMALS = 3, 9
"""Digits that a small figure has at the least, and decimals at most: less is rounding."""


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes
    ----------
    name
        Its key in ``metrics.json`` and in the tables of a study; a family (``dcg``) has an entry without K.
    label, head
        What it is called, and what the head of a narrow column says (by default the label).
    goal, ideal
        What is good, and the best value in words.
    decimals, percent
        How it is written.
    note
        What it is, in one line.
    level
        Whether it looks at the level of predictions; otherwise at their order alone.
    compared
        Whether a study tests its differences; the others only describe.
    random, oracle
        What a random and a perfect order reach, where that is a constant.
    """

    name: str
    label: str
    goal: Goal
    note: str
    head: str = ""
    ideal: str = ""
    decimals: int = 4
    percent: bool = False
    level: bool = False
    compared: bool = True
    random: float | None = None
    oracle: float | None = None

    @property
    def heading(self) -> str:
        """The head of its column."""
        return self.head or self.label

    def text(self, value: float | None) -> str:
        """Return a value as tables show it.

        Examples
        --------
        >>> metric("auc").text(0.71234), metric("nll").text(None)
        ('0.7123', '–')
        >>> PROPENSITY_METRICS["ece"].text(0.0000213)
        '0.0000213'
        >>> PROPENSITY_METRICS["clipped"].text(0.0213)
        '2.13 %'
        """
        if value is None or np.isnan(value):
            return MISSING
        return f"{100 * value:,.2f} %" if self.percent else f"{value:,.{self.decimals_of(value)}f}"

    def decimals_of(self, value: float) -> int:
        """Return the decimals to write: at least three digits of what is small, as a rate of 0.1 %."""
        if self.decimals < SIGNIFICANT or not 0.0 < abs(value) < 1.0:
            return self.decimals
        return max(self.decimals, min(SIGNIFICANT - 1 - math.floor(math.log10(abs(value))), MOST_DECIMALS))

    def compared_by(self, values: Floats) -> Floats:
        """Return what two models are compared by: the values, or their distance from 1 where 1 is the goal.

        Examples
        --------
        >>> metric("mean_over_rate").compared_by(np.array([1.5, 0.75]))
        array([0.5 , 0.25])
        """
        return np.abs(values - 1.0) if self.goal == "one" else values

    def gain(self, difference: float) -> float:
        """Return a difference of what models are compared by, with the sign that makes more better.

        Examples
        --------
        >>> metric("auc").gain(0.1), metric("nll").gain(0.1), metric("mean_over_rate").gain(0.1)
        (0.1, -0.1, -0.1)
        """
        return difference if self.goal == "higher" else -difference

    def rails(self, measured: Mapping[str, Mapping[str, float]]) -> dict[str, float | None]:
        """Return what a random and a perfect order reach, as constants or as measured (``metrics.json``)."""
        if self.random is not None:
            return {"random": self.random, "oracle": self.oracle}
        return {name: of.get(self.name) for name, of in measured.items()}

    @property
    def advice(self) -> str:
        """Return what is good, where more is not."""
        return {"lower": "lower is better", "one": "1 is right"}.get(self.goal, "")


_CONVERSION = (
    Metric(
        "auc",
        "AUC",
        "higher",
        "chance that a conversion is scored above another pair",
        random=0.5,
        oracle=1.0,
    ),
    Metric(
        "user_auc", "AUC per user", "higher", "AUC of each user's pairs, averaged", random=0.5, oracle=1.0
    ),
    Metric(
        "mean_over_rate",
        "Predicted ÷ actual rate",
        "one",
        "mean prediction ÷ conversion rate: is the level right?",
        level=True,
    ),
    Metric("nll", "NLL", "lower", "negative log-likelihood", level=True),
    Metric("dcg", "DCG", "higher", "discounted gain of the conversions among a user's first K"),
    Metric("hits", "Hits", "higher", "conversions among a user's first K (the paper's Recall)"),
    Metric("recall", "Recall", "higher", "the share of a user's conversions that is among the first K"),
    Metric("ndcg", "NDCG", "higher", "DCG ÷ that of a perfect order"),
)

_PROPENSITY = (
    Metric("ece", "ECE", "floor", "mean gap between propensity and clicks, 100 bins", ideal="the floor"),
    Metric(
        "ece_floor",
        "ECE of pure noise",
        "",
        "what a perfect propensity would show at this size",
        head="its noise floor",
    ),
    Metric("wce", "WCE", "lower", "mean error of the weights, relative: follows the bias of IPS", ideal="0"),
    Metric("nll", "NLL", "lower", "negative log-likelihood of the clicks", ideal="lower"),
    Metric("brier", "Brier", "lower", "mean squared error of the clicks", ideal="lower"),
    Metric(
        "auc",
        "AUC of clicks",
        "higher",
        "how well clicks are separated from the rest; no calibrator adds to it",
        head="AUC",
        ideal="higher",
    ),
    Metric(
        "mean_over_base_rate",
        "Mean ÷ base rate",
        "one",
        "right on average?",
        head="mean p ÷ rate",
        ideal="1",
        decimals=3,
        compared=False,
    ),
    Metric(
        "weight_check",
        "Weight check",
        "one",
        "sum of 1/p over clicks ÷ population",
        head="Σ1/p ÷ size of D",
        ideal="1",
        decimals=3,
    ),
    Metric(
        "effective_sample_size",
        "Effective sample size",
        "higher",
        "equal rows that carry the same information",
        head="ESS",
        ideal="higher",
        decimals=0,
    ),
    Metric(
        "clipped",
        "Clipped",
        "lower",
        "share of clicks with p below p_min",
        ideal="0 %",
        percent=True,
        compared=False,
    ),
    Metric(
        "clipped_mass",
        "Clipped mass",
        "lower",
        "share of the sum of 1/p that the clip takes",
        ideal="0 %",
        percent=True,
        compared=False,
    ),
    Metric("ece_all_of_d", "ECE on all of D", "floor", "ECE where propensities were not trained for"),
    Metric(
        "mean_over_base_rate_all_of_d",
        "mean p ÷ rate on D",
        "one",
        "mean ÷ base rate on all pairs",
        ideal="1",
        decimals=3,
    ),
)

CONVERSION_METRICS = {each.name: each for each in _CONVERSION}
"""Of conversion models on a test set, in the order of tables; ``dcg`` stands for ``dcg@2`` and so on."""

PROPENSITY_METRICS = {each.name: each for each in _PROPENSITY}
"""Of propensities on held-out cells."""

RANKING = ("auc", *(f"{kind}@{k}" for kind in ("dcg", "hits") for k in CUTOFFS))
"""The columns of the paper's tables; its "Recall@K" is hits@K."""

SHOWN_METRICS = ("auc", *(each.name for each in _CONVERSION if each.level), *RANKING[1:])
"""The paper's seven metrics and those of the level: what tables and plots show of a model unless asked."""

SHOWN_PROPENSITY = tuple(each for each in _PROPENSITY if not each.name.endswith("_all_of_d"))
"""What tables show of a propensity."""

EVALUATED_METRICS = tuple(
    f"{each.name}@{k}" if k else each.name
    for each in _CONVERSION
    for k in (CUTOFFS if each.name in ("dcg", "hits", "recall", "ndcg") else (0,))
)
"""All that :func:`unskew.evaluate` gives by default."""


def metric(name: str) -> Metric:
    """Return a metric of a conversion model by its name; one without an entry is called by its name.

    Examples
    --------
    >>> metric("ndcg@10").label, metric("mean_over_rate").goal, metric("best_epoch").label
    ('NDCG@10', 'one', 'Best_epoch')
    """
    kind, at, cutoff = name.partition("@")
    known = CONVERSION_METRICS.get(kind) or Metric(kind, kind.capitalize(), "higher", "")
    return replace(known, name=name, label=f"{known.label}{at}{cutoff}") if at else known


def shown_metrics(methods: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Return that of metrics by method, those that plots and sentences show: the known ones, or else all."""
    present = list(dict.fromkeys(name for of_method in methods.values() for name in of_method))
    return [name for name in SHOWN_METRICS if name in present] or present
