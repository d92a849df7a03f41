"""A plan of random impressions in words and tables."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unskew.metrics.registry import MISSING
from unskew.report.text_tables import figure_table, markdown_table, text_of

if TYPE_CHECKING:
    from rich.table import Table

    from unskew.offpolicy.plan import MetricPlan, RandomPlan

SIZES_TITLE = "The least difference that so many random impressions tell"
NEVER = "never"
"""Where no number of impressions is enough."""


def number(value: float | None) -> str:
    """A count as tables show it."""
    if value is None:
        return MISSING
    return NEVER if math.isinf(value) else f"{value:,.0f}"


def small(value: float | None) -> str:
    """A difference, with three figures."""
    return MISSING if value is None else f"{value:.3g}"


def verdict(plan: RandomPlan, of: MetricPlan) -> str:
    """What it takes in one metric, as a sentence."""
    chance = f"{100 * plan.power:g} %"
    if of.difference is None:
        tells = small(plan.detectable[of.metric][-1])
        return (
            f"{of.metric}: how far the models differ is not known; {plan.sizes[-1]:,} random impressions tell"
            f" a difference of {tells} with a chance of {chance}. Give the difference that matters."
        )
    if of.impressions is None or math.isinf(of.impressions):
        return f"{of.metric}: the models do not differ in the logs at hand; give the difference that matters."
    source = "as asked" if of.given else f"as the logs at hand show ({of.better} ahead)"
    cost = "" if of.cost is None else f", at a cost of {of.cost:,.2f}"
    least = ""
    if of.impressions_at_low is not None:
        least = (
            "; the logs do not exclude that there is no difference"
            if math.isinf(of.impressions_at_low)
            else f"; {number(of.impressions_at_low)} if it is as small as they allow"
        )
    return (
        f"{of.metric}: {number(of.impressions)} random impressions of {number(of.users)} users{cost} tell a"
        f" difference of {small(of.difference)}, {source}, with a chance of {chance}{least}."
    )


def plan_table(plan: RandomPlan) -> Table:
    """What each metric takes."""
    return figure_table(_title(plan), _columns(plan), _rows(plan))


def size_table(plan: RandomPlan) -> Table:
    """The least difference that each number of impressions tells."""
    return figure_table(SIZES_TITLE, _size_columns(plan), _size_rows(plan))


def plan_text(plan: RandomPlan) -> str:
    """The tables, the verdicts and the notes as plain text."""
    return text_of(*plan.rich()) + "\n".join([*plan.verdicts, *(f"Note: {note}" for note in plan.notes)])


def plan_markdown(plan: RandomPlan) -> str:
    """The same in Markdown."""
    parts = [
        f"{_title(plan)}:",
        "",
        *markdown_table(_columns(plan), _rows(plan)),
        "",
        f"{SIZES_TITLE}:",
        "",
        *markdown_table(_size_columns(plan), _size_rows(plan)),
        "",
        *(f"- {each}" for each in plan.verdicts),
        *(f"- Note: {note}" for note in plan.notes),
    ]
    return "\n".join(parts)


def _title(plan: RandomPlan) -> str:
    return (
        f"Random impressions that tell {plan.names[0]} and {plan.names[1]} apart"
        f" ({100 * plan.level:g} % confidence, {100 * plan.power:g} % power, paired by user)"
    )


def _columns(plan: RandomPlan) -> tuple[str, ...]:
    price = () if plan.price is None else ("cost",)
    return ("metric", "difference", "ahead", "σ of a user", "users", "impressions", "at most", *price)


def _rows(plan: RandomPlan) -> list[tuple[str, ...]]:
    rows = []
    for each in plan.plans.values():
        cost = () if plan.price is None else (MISSING if each.cost is None else f"{each.cost:,.2f}",)
        rows.append(
            (
                each.metric,
                small(each.difference),
                each.better or MISSING,
                small(each.sigma),
                number(each.users),
                number(each.impressions),
                number(each.impressions_at_low),
                *cost,
            )
        )
    return rows


def _size_columns(plan: RandomPlan) -> tuple[str, ...]:
    return ("impressions", *plan.plans, *(() if plan.price is None else ("cost",)))


def _size_rows(plan: RandomPlan) -> list[tuple[str, ...]]:
    return [
        (
            f"{size:,}",
            *(small(plan.detectable[name][place]) for name in plan.plans),
            *(() if plan.price is None else (f"{plan.price * size:,.2f}",)),
        )
        for place, size in enumerate(plan.sizes)
    ]
