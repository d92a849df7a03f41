"""A comparison in words and tables; it computes no numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unskew.metrics.judgement import MOST_TIMES_DATA
from unskew.offpolicy.covariates import NOT_FEATURES
from unskew.offpolicy.sensitivity import MOST_GAMMA
from unskew.report.text_tables import figure_table, markdown_table, text_of

if TYPE_CHECKING:
    from rich.table import Table

    from unskew.offpolicy.comparison import Comparison, Difference
    from unskew.offpolicy.estimates import OffPolicyEstimate

BALANCE_TITLE = "Held-out clicks against the unseen pairs, differences of means in standard deviations"
BALANCE_COLUMNS = ("covariate", "clicks", "weighted", "balanced", "weights off by")
SHOWN_FEATURES = 5
"""The worst; all are in JSON."""


def difference_text(difference: Difference) -> str:
    """The verdict in one sentence."""
    interval = f"{100 * difference.level:g} % {_number(difference.low)} to {_number(difference.high)}"
    if difference.decided:
        return (
            f"{difference.better} is better than {difference.worse} by {_number(difference.advantage)}"
            f" {difference.metric} ({interval}; it holds up to Γ = {_gamma(difference.survives)}, and the"
            f" propensities are off by {_gamma(difference.gamma)})."
        )
    opening = f"{difference.metric}: the data cannot tell {difference.better} from {difference.worse}"
    if difference.times_more_data is None:
        return (
            f"{opening}: {_number(difference.advantage)} ({interval}) holds only up to"
            f" Γ = {_gamma(difference.survives)}, and the propensities are off by {_gamma(difference.gamma)};"
            " better propensities are needed, not more clicks."
        )
    why = (
        f"the interval of the difference, {_number(difference.low)} to {_number(difference.high)}, includes 0"
        if difference.low <= 0
        else f"{_number(difference.advantage)} ({interval}) is not enough among this many comparisons"
    )
    return f"{opening}: {why}; {_more_data(difference.times_more_data)}."


def comparison_table(comparison: Comparison) -> Table:
    """Estimates by metric and model, with their intervals."""
    return figure_table(_title(comparison), _columns(comparison), _rows(comparison))


def balance_table(comparison: Comparison) -> Table:
    """How far weighted clicks are from the unseen pairs, covariate by covariate."""
    return figure_table(BALANCE_TITLE, BALANCE_COLUMNS, _balance_rows(comparison))


def comparison_text(comparison: Comparison) -> str:
    """The tables, the verdicts and the notes as plain text."""
    balance = [balance_table(comparison)] if comparison.balance else []
    lines = [*comparison.verdicts(), *(f"Note: {note}" for note in comparison.notes)]
    return text_of(comparison_table(comparison), *balance) + "\n".join(lines)


def comparison_markdown(comparison: Comparison) -> str:
    """The tables, the verdicts and the notes in Markdown."""
    estimates = markdown_table(_columns(comparison), _rows(comparison))
    balance = markdown_table(BALANCE_COLUMNS, _balance_rows(comparison))
    verdicts = [f"- {verdict}" for verdict in comparison.verdicts()]
    notes = [f"- Note: {note}" for note in comparison.notes]
    parts = [
        f"{_title(comparison)}:",
        *("", *estimates, ""),
        *((f"{BALANCE_TITLE}:", "", *balance, "") if comparison.balance else ()),
        *verdicts,
        *notes,
    ]
    return "\n".join(parts)


def _balance_rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """What weights are balanced by first, and the features furthest off."""
    first = [each for each in comparison.balance if each.covariate in NOT_FEATURES]
    features = [each for each in comparison.balance if each.covariate not in NOT_FEATURES]
    worst = sorted(features, key=lambda each: -abs(each.weighted))[:SHOWN_FEATURES]
    return [
        (
            each.covariate,
            f"{each.clicks:+.2f}",
            f"{each.weighted:+.2f}",
            f"{each.balanced:+.2f}",
            f"{math.exp(each.spread):.2f}",
        )
        for each in (*first, *worst)
    ]


def _title(comparison: Comparison) -> str:
    some = next(iter(next(iter(comparison.estimates.values())).values()))
    seeds = "1 seed" if len(comparison.seeds) == 1 else f"{len(comparison.seeds)} seeds"
    return (
        f"Off-policy estimates ({comparison.estimator}) from {some.rows:,} held-out clicks of {seeds},"
        f" effectively {some.ess:,.0f}: {100 * comparison.level:g} % intervals, and ranges for propensities"
        f" whose odds are off by Γ = {_gamma(comparison.gamma)}"
    )


def _columns(comparison: Comparison) -> tuple[str, ...]:
    return ("metric", *comparison.estimates)


def _rows(comparison: Comparison) -> list[tuple[str, ...]]:
    metrics = list(next(iter(comparison.estimates.values())))
    return [(metric, *(_cell(of[metric]) for of in comparison.estimates.values())) for metric in metrics]


def _cell(estimate: OffPolicyEstimate) -> str:
    return (
        f"{estimate.value:.4f} ({estimate.low:.4f} to {estimate.high:.4f})"
        f" [{estimate.range_low:.3f} to {estimate.range_high:.3f}]"
    )


def _gamma(value: float) -> str:
    return f"{value:g} and more" if value >= MOST_GAMMA else f"{value:.2f}"


def _number(value: float) -> str:
    """Four places, or three figures of what is smaller."""
    return f"{value:.4f}" if abs(value) >= 0.001 or value == 0 else f"{value:.2g}"


def _more_data(times: float | None) -> str:
    if times is None or math.isinf(times) or times > MOST_TIMES_DATA:
        return f"even {MOST_TIMES_DATA:.0f} times as many clicks would hardly settle so small a difference"
    shown = f"{times:.1f}" if times < 10 else f"{times:.0f}"
    return f"about {shown} times as many clicks would be needed"
