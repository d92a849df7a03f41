"""How many impressions shown at random tell two models apart: a power analysis from the logs at hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require, require_share
from unskew.base.notebook import ShowsItself
from unskew.metrics.judgement import LEAST_POWER
from unskew.metrics.registry import MISSING
from unskew.metrics.user_bootstrap import PairedUsers, paired_users
from unskew.offpolicy.plan_inputs import PlanRows, rows_of_arrays, rows_of_files, rows_of_runs
from unskew.report.table import Table, markdown_of, text_of

Floats = NDArray[np.float64]

PLANNED_METRICS = ("nll", "auc", "dcg@4")
"""The likelihood, the pooled order and the top of a user's list."""
SIZES = (1, 2, 5)
"""Steps within a decade of the impressions that detectable differences are listed for."""
LISTED = (1_000, 1_000_000)
"""From so many impressions to so many, at least."""
SIZES_TITLE = "The least difference that so many random impressions tell"


@dataclass(frozen=True)
class MetricPlan:
    """The experiment that it takes to tell two models apart in one metric.

    Attributes
    ----------
    sigma
        Standard deviation of what one user adds to the paired difference.
    rows
        Impressions of a user.
    difference
        The difference to tell: as given, or as the logs show it; None where they show none.
    low, high
        Its interval, where it was estimated.
    given
        Whether the difference was given.
    users, impressions
        Needed to tell it; infinite where it is 0, None where it is unknown.
    impressions_at_low
        Needed if the difference is at the end of its interval that is nearer to 0; infinite if that holds 0.
    cost
        Of ``impressions``, where a price is given.
    better
        The model that is ahead in the logs at hand; empty where that is unknown.
    """

    metric: str
    sigma: float
    rows: float
    difference: float | None
    low: float | None
    high: float | None
    given: bool
    users: float | None
    impressions: float | None
    impressions_at_low: float | None
    cost: float | None
    better: str


@dataclass(frozen=True, eq=False, repr=False)
class RandomPlan(ShowsItself):
    """The result of :func:`plan_random`; ``print`` it, or read its parts.

    Attributes
    ----------
    plans
        By metric.
    sizes
        Numbers of impressions, and the least difference that each tells, by metric: ``detectable``.
    notes
        What the numbers rest on.
    """

    names: tuple[str, str]
    level: float
    power: float
    price: float | None
    plans: Mapping[str, MetricPlan]
    sizes: tuple[int, ...]
    detectable: Mapping[str, tuple[float, ...]]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        return text_of(self.tables(), [*self.verdicts, *(f"Note: {note}" for note in self.notes)])

    @property
    def verdicts(self) -> list[str]:
        """One sentence for each metric."""
        return [self._verdict(each) for each in self.plans.values()]

    def to_markdown(self) -> str:
        """Return the tables, the verdicts and the notes in Markdown."""
        return markdown_of(self.tables(), [*self.verdicts, *(f"Note: {note}" for note in self.notes)])

    def _verdict(self, plan: MetricPlan) -> str:
        """Return what it takes in one metric, as a sentence."""
        chance = f"{100 * self.power:g} %"
        if plan.difference is None:
            tells = _small(self.detectable[plan.metric][-1])
            return (
                f"{plan.metric}: how far the models differ is not known; {self.sizes[-1]:,} random"
                f" impressions tell a difference of {tells} with a chance of {chance}. Give the"
                " difference that matters."
            )
        if plan.impressions is None or math.isinf(plan.impressions):
            same = "the models do not differ in the logs at hand; give the difference that matters."
            return f"{plan.metric}: {same}"
        source = "as asked" if plan.given else f"as the logs at hand show ({plan.better} ahead)"
        cost = "" if plan.cost is None else f", at a cost of {plan.cost:,.2f}"
        least = ""
        if plan.impressions_at_low is not None:
            least = (
                "; the logs do not exclude that there is no difference"
                if math.isinf(plan.impressions_at_low)
                else f"; {_count(plan.impressions_at_low)} if it is as small as they allow"
            )
        return (
            f"{plan.metric}: {_count(plan.impressions)} random impressions of {_count(plan.users)} users"
            f"{cost} tell a difference of {_small(plan.difference)}, {source}, with a chance of"
            f" {chance}{least}."
        )

    def tables(self) -> list[Table]:
        """Return what each metric takes, and the least difference that each number of impressions tells."""
        priced = self.price is not None
        title = (
            f"Random impressions that tell {self.names[0]} and {self.names[1]} apart"
            f" ({100 * self.level:g} % confidence, {100 * self.power:g} % power, paired by user)"
        )
        columns = ("metric", "difference", "ahead", "σ of a user", "users", "impressions", "at most")
        rows = [
            (
                *(each.metric, _small(each.difference), each.better or MISSING, _small(each.sigma)),
                *map(_count, (each.users, each.impressions, each.impressions_at_low)),
                *((MISSING if each.cost is None else f"{each.cost:,.2f}",) if priced else ()),
            )
            for each in self.plans.values()
        ]
        sizes = [
            (
                f"{size:,}",
                *(_small(self.detectable[name][number]) for name in self.plans),
                *(() if self.price is None else (f"{self.price * size:,.2f}",)),
            )
            for number, size in enumerate(self.sizes)
        ]
        cost = ("cost",) if priced else ()
        return [
            Table(title, (*columns, *cost), rows),
            Table(SIZES_TITLE, ("impressions", *self.plans, *cost), sizes),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "models": list(self.names),
            "level": self.level,
            "power": self.power,
            "price": self.price,
            "metrics": {name: asdict(each) for name, each in self.plans.items()},
            "sizes": list(self.sizes),
            "detectable": {name: list(each) for name, each in self.detectable.items()},
            "verdicts": self.verdicts,
            "notes": list(self.notes),
        }

    def svg(self) -> str:
        """Draw the least difference by the number of impressions, as a picture that stands alone."""
        from unskew.report.plots.curves import plan_svg

        return plan_svg(self.to_dict())


def plan_random(
    first: Any,
    second: Any = None,
    *,
    user: Any = None,
    conversion: Any = None,
    propensity: Any = None,
    metrics: Sequence[str] = PLANNED_METRICS,
    differences: Mapping[str, float] | None = None,
    models: Sequence[str] = (),
    slate: int = 16,
    power: float = LEAST_POWER,
    level: float = 0.95,
    price: float | None = None,
    names: tuple[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    seed: int = 0,
    device: str = "auto",
) -> RandomPlan:
    r"""Plan how many random impressions tell two models apart, from the logs at hand.

    .. math::
        U = \Bigl( \frac{(z_{(1 + level)/2} + z_{power})\, \sigma}{\delta} \Bigr)^2, \qquad
        n = m \, U

    δ is the difference to tell, σ the standard deviation of what one user adds to the paired difference of
    the two models (:func:`unskew.metrics.user_bootstrap.paired_users`), m the impressions of a user. Both
    models are judged on the same impressions, so that what both find hard cancels, and impressions of one
    user are not taken as independent.

    σ needs rows like those that would be shown at random:

    * two run folders (or one: its naive model against its main one): users and items are drawn at random
      from the log, ``slate`` items a user, both models score them, and conversions are drawn from the mean of
      their predictions, shifted to the propensity-weighted conversion rate of the clicks. δ is what
      :func:`unskew.compare` estimates from held-out clicks, unless given.
    * two scored files of the same rows, or two arrays: the rows themselves. With outcomes, σ and δ are
      measured; with a propensity they are first drawn anew with weights 1/p, as many as their effective
      sample size; without outcomes conversions are drawn from the mean of the predictions, and δ must be
      given.

    A difference that biased clicks show may be wrong in size and in sign. The list of what each number of
    impressions could tell does not depend on it.

    Parameters
    ----------
    first, second
        Run folders, files as ``unskew score`` writes them, or predictions ``[n]`` with ``user``.
    user, conversion, propensity
        Of arrays: the user, the outcome and the propensity of each row.
    differences
        By metric, the difference to tell, instead of the one that the logs show.
    models
        Of run folders: a model of each, by its key [the main one]; of one folder, two of its models.
    power, level
        The chance to tell a difference of δ, and the confidence of the two-sided test.
    price
        Of one random impression.
    columns
        Of files: the names of ``user``, ``item``, ``score`` [conversion], ``outcome`` [given_conversion,
        where it is there] and ``propensity`` [none: rows were shown at random].

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> user, rate = np.repeat(np.arange(500), 8), random.random(4000) / 2
    >>> outcome = (random.random(4000) < rate).astype(int)
    >>> plan = plan_random(rate, np.full(4000, 0.25), user=user, conversion=outcome, metrics=["nll"])
    >>> plan.plans["nll"].better, plan.plans["nll"].impressions < 1000
    ('first', True)
    """
    require_share("power", power, "0.8")
    require_share("level", level, "0.95")
    require(
        price is None or 0.0 <= price < math.inf,
        f"price must be at least 0, not {price}",
        "give the cost of one random impression",
    )
    require(slate >= 2, f"slate must be at least 2, not {slate}", "give the items that a user is shown")
    asked = dict(differences or {})
    wrong = [name for name, each in asked.items() if name not in metrics or not 0.0 < each < math.inf]
    require(
        not wrong,
        f"the difference {asked.get(wrong[0]) if wrong else ''} of {wrong[0] if wrong else ''} cannot be"
        " planned for",
        f"give a positive number for one of {', '.join(metrics)}",
    )
    rows = _rows(
        first, second, user, conversion, propensity, columns, models, metrics, slate, seed, device, asked
    )
    labels = names or rows.names
    z = float(ndtri((1.0 + level) / 2.0) + ndtri(power))
    plans: dict[str, MetricPlan] = {}
    for name in metrics:
        paired = paired_users(
            name, user=rows.user, outcome=rows.outcome, first=rows.first, second=rows.second
        )
        if not paired.sigma > 0:
            raise DataError(
                f"the two models do not differ in {name} on the rows at hand, of {paired.users:,} users",
                remedy="give two different models, and rows of several users",
            )
        plans[name] = _plan(paired, rows, asked.get(name), z, level, price, labels)
    needed = [
        each.impressions for each in plans.values() if each.impressions and math.isfinite(each.impressions)
    ]
    low = min([LISTED[0], *(each / 2 for each in needed)])
    high = max([LISTED[1], *(each * 2 for each in needed)])
    decades = range(math.floor(math.log10(max(low, 10))), math.ceil(math.log10(min(high, 1e12))) + 1)
    every = (step * 10**decade for decade in decades for step in SIZES)
    sizes = tuple(size for size in every if low <= size <= high)
    detectable = {
        name: tuple(z * each.sigma * math.sqrt(each.rows / size) for size in sizes)
        for name, each in plans.items()
    }
    return RandomPlan(labels, level, power, price, plans, sizes, detectable, rows.notes)


def _rows(
    first: Any,
    second: Any,
    user: Any,
    conversion: Any,
    propensity: Any,
    columns: Mapping[str, str] | None,
    models: Sequence[str],
    metrics: Sequence[str],
    slate: int,
    seed: int,
    device: str,
    asked: Mapping[str, float],
) -> PlanRows:
    places = [each for each in (first, second) if each is not None]
    if not all(isinstance(each, str | Path) for each in places):
        if second is None or user is None:
            raise ParameterError("predictions need those of a second model, and user=", remedy="give both")
        return rows_of_arrays(first, second, user, conversion, propensity, seed)
    folders = [Path(each) for each in places if Path(each).is_dir()]
    if len(folders) == len(places):
        wanted = [name for name in metrics if name not in asked]
        return rows_of_runs(folders, tuple(models), wanted, slate=slate, seed=seed, device=device)
    if folders or second is None:
        raise ParameterError(
            "two models are run folders or scored files, and not one of each",
            remedy="give two run folders, or two files that unskew score wrote",
        )
    require(not models, "files have no models to choose from", "leave models out")
    return rows_of_files(Path(first), Path(second), dict(columns or {}), seed)


def _plan(
    paired: PairedUsers,
    rows: PlanRows,
    asked: float | None,
    z: float,
    level: float,
    price: float | None,
    names: tuple[str, str],
) -> MetricPlan:
    advantage, error = rows.advantages.get(paired.metric, (None, None))
    if rows.measured:
        advantage, error = paired.advantage, paired.standard_error
    low = high = at_low = None
    difference = asked
    better = "" if advantage is None else names[0] if advantage >= 0 else names[1]
    if asked is None and advantage is not None and error is not None:
        difference = abs(advantage)
        margin = float(ndtri((1.0 + level) / 2.0)) * error
        low, high = difference - margin, difference + margin
        at_low = _impressions(paired, z, max(low, 0.0))
    impressions = None if difference is None else _impressions(paired, z, difference)
    return MetricPlan(
        metric=paired.metric,
        sigma=paired.sigma,
        rows=paired.rows,
        difference=difference,
        low=low,
        high=high,
        given=asked is not None,
        users=None if impressions is None else impressions / paired.rows,
        impressions=impressions,
        impressions_at_low=at_low,
        cost=None if impressions is None or price is None else price * impressions,
        better=better,
    )


def _impressions(paired: PairedUsers, z: float, difference: float) -> float:
    """m·U, of whole users."""
    if difference <= 0:
        return math.inf
    return paired.rows * math.ceil((z * paired.sigma / difference) ** 2)


def _count(value: float | None) -> str:
    """Return a count as tables show it; ``never`` where no number is enough."""
    return MISSING if value is None else "never" if math.isinf(value) else f"{value:,.0f}"


def _small(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3g}"
