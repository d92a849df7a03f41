"""Do off-policy intervals hold the truth, and winners win? ``python -m benchmarks.offpolicy_coverage``

Worlds whose conversions are known for every pair, drawn again and again: users, items, clicks, conversions
and models. Of two scores the second is noisier; the first is calibrated on all pairs ("a"), on the clicks
alone, which selection favours ("a of clicks"), and halfway, the second ("b") on all pairs. Clicks are all
there is to judge by; propensities are given, or estimated from the same clicks. Told are, for each world and
estimator:

* how often 95 % intervals hold the metric of all pairs, and the difference of two models;
* how often the range does, of propensities that are off by the measured Γ;
* how many of all comparisons are decided, and in how many redraws any winner is wrong: by the p-value alone
  (what is said without Γ), and as `compare` decides.

``--write docs/explanation/evaluation.md`` puts the table between the page's marks.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

import unskew as us
from unskew.data import Log
from unskew.metrics import auc, nll
from unskew.offpolicy.statistics import expected_gain

Floats = NDArray[np.float64]

METRICS = ("nll", "auc", "dcg@4", "hits@4")
SLATE = 16
ESTIMATORS = ("snips", "balanced")
MARKED = re.compile(r"(<!-- table: offpolicy_coverage -->\n).*?(\n<!-- end of table -->)", re.DOTALL)


@dataclass(frozen=True)
class Scenario:
    """A world, what is known of its propensities, and how good the models are.

    Attributes
    ----------
    taste
        Whether people click by a taste that ids and popularity do not tell: the synthetic world. Otherwise
        by activity and popularity alone, which move conversions too.
    bias
        Strength of selection in the synthetic world.
    features
        Whether the log has noisy views of tastes.
    noises
        Of the two scores, on the logit scale, where conversions spread by 1 to 1.5.
    known
        Whether the propensities are known, and Γ is 1.
    """

    name: str
    propensity: Callable[[Log, Floats], Any]
    taste: bool = True
    bias: float = 1.0
    features: bool = True
    noises: tuple[float, float] = (0.5, 1.0)
    known: bool = False


def truth(log: Log, propensity: Floats) -> Floats:
    """Return the true propensities."""
    return propensity


def logistic(log: Log, propensity: Floats) -> us.Propensity:
    """Logistic regression on ids, and features where there are some."""
    return us.Propensity(learner=us.Linear(), crossfit=5).fit(log)


def popularity(log: Log, propensity: Floats) -> us.PopularityPropensity:
    """Fit counts of clicks."""
    return us.PopularityPropensity(crossfit=5).fit(log)


SCENARIOS = (
    Scenario("right: known propensities", truth, taste=False, known=True),
    Scenario("right: estimated, well specified", logistic, taste=False),
    Scenario("nearly right: taste, estimated from noisy features", logistic),
    Scenario("wrong: taste, popularity", popularity),
    Scenario("wrong: strong taste, popularity", popularity, bias=1.5, features=False),
    Scenario(
        "wrong: strong taste that poor models hardly see, popularity",
        popularity,
        bias=1.5,
        features=False,
        noises=(4.0, 8.0),
    ),
)


@dataclass(frozen=True, eq=False)
class World:
    """A log, the true propensities and labels of all pairs, and models."""

    log: Log
    propensity: Floats
    labels: NDArray[np.uint8]
    models: dict[str, Floats]


def draw(scenario: Scenario, users: int, items: int, seed: int) -> World:
    """Draw a world."""
    random = np.random.default_rng(seed)
    if scenario.taste:
        data = us.load("synthetic", n_users=users, n_items=items, density=0.12, bias=scenario.bias, seed=seed)
        assert data.truth is not None
        labels, propensity = data.truth.labels, data.truth.propensity
        level = logit(data.truth.conversion)
        click = np.zeros(labels.shape, dtype=bool)
        click[data.train.user, data.train.item] = True
        log = data.train if scenario.features else _log(click, labels)
    else:
        activity, popular = random.standard_normal((users, 1)), random.standard_normal((1, items))
        level = 0.8 * (activity + popular) - 1.0 + 0.7 * random.standard_normal((users, items))
        propensity = expit(0.8 * (activity + popular) - 2.4)
        labels = (random.random(level.shape) < expit(level)).astype(np.uint8)
        click = random.random(level.shape) < propensity
        log = _log(click, labels)
    first, second = (level + noise * random.standard_normal(level.shape) for noise in scenario.noises)
    whole, clicks = (_calibrated(first[rows], labels[rows]) for rows in (np.ones_like(click), click))
    levels = {"a": whole, "a halfway": (whole + clicks) / 2.0, "a of clicks": clicks}
    models = {name: expit(slope * first + intercept) for name, (slope, intercept) in levels.items()}
    slope, intercept = _calibrated(second.ravel(), labels.ravel())
    return World(log, propensity, labels, {**models, "b": expit(slope * second + intercept)})


def ideal(score: Floats, labels: NDArray[np.uint8]) -> dict[str, float]:
    """Return what a random test set would show on average, from the labels of all pairs."""
    above = (-score).argsort(axis=1).argsort(axis=1).ravel()
    size = score.shape[1]
    found = {
        "nll": nll(score=score.ravel(), outcome=labels.ravel()),
        "auc": auc(score=score.ravel(), outcome=labels.ravel()),
    }
    for gain in ("dcg", "hits"):
        others = np.full(len(above), size - 1)
        worth = expected_gain(above=above, others=others, slate=SLATE, k=4, gain=gain)
        found[f"{gain}@4"] = float((worth * labels.ravel()).sum() * SLATE / size / len(score))
    return found


def judge(
    scenario: Scenario,
    estimator: str,
    *,
    redraws: int,
    users: int,
    items: int,
    metrics: Sequence[str] = METRICS,
) -> dict[str, Any]:
    """Redraw a world, and count what held."""
    covered: dict[str, list[bool]] = {name: [] for name in metrics}
    apart: dict[str, list[bool]] = {name: [] for name in metrics}
    in_range: dict[str, list[bool]] = {name: [] for name in metrics}
    said, decided, gammas, misled, wrong = [], [], [], [], []
    for seed in range(redraws):
        world = draw(scenario, users, items, seed)
        truths = {name: ideal(score, world.labels) for name, score in world.models.items()}
        told = us.compare(
            world.models,
            world.log,
            propensity=scenario.propensity(world.log, world.propensity),
            estimator=estimator,
            metrics=metrics,
            gamma=1.0 if scenario.known else None,
            held_out="all",
            p_min=1e-3,
            resamples=400,
        )
        gammas.append(told.gamma)
        for name, of in told.estimates.items():
            for metric, each in of.items():
                value = truths[name][metric]
                covered[metric].append(each.low <= value <= each.high)
                in_range[metric].append(each.range_low <= value <= each.range_high)
        losers: dict[str, bool] = {"said": False, "decided": False}
        for pair in told.differences:
            sign = -1.0 if pair.metric == "nll" else 1.0
            true = sign * (truths[pair.better][pair.metric] - truths[pair.worse][pair.metric])
            apart[pair.metric].append(pair.low <= true <= pair.high)
            sure = pair.p_holm < 1.0 - told.level
            said.append(sure)
            decided.append(pair.decided)
            losers["said"] |= sure and true < 0
            losers["decided"] |= pair.decided and true < 0
        misled.append(losers["said"])
        wrong.append(losers["decided"])
    return {
        "scenario": scenario.name,
        "estimator": estimator,
        "redraws": redraws,
        "gamma": float(np.mean(gammas)),
        "covered": {name: float(np.mean(line)) for name, line in covered.items()},
        "differences_covered": {name: float(np.mean(line)) for name, line in apart.items()},
        "range_covered": {name: float(np.mean(line)) for name, line in in_range.items()},
        "decided_by_p_value": float(np.mean(said)),
        "redraws_with_a_wrong_winner_by_p_value": float(np.mean(misled)),
        "decided": float(np.mean(decided)),
        "redraws_with_a_wrong_winner": float(np.mean(wrong)),
    }


def table(records: list[dict[str, Any]]) -> str:
    """In Markdown."""
    lines = [
        "| world and propensities | estimator | nll | auc | dcg@4 | Δ nll | Δ dcg@4 | Γ | in range"
        " | decided without Γ | wrong | decided | wrong |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for record in records:
        held, apart = record["covered"], record["differences_covered"]
        cells = [
            *(f"{held[name]:.2f}" for name in ("nll", "auc", "dcg@4")),
            *(f"{apart[name]:.2f}" for name in ("nll", "dcg@4")),
            f"{record['gamma']:.2f}",
            f"{min(record['range_covered'].values()):.2f}",
            f"{record['decided_by_p_value']:.2f}",
            f"{record['redraws_with_a_wrong_winner_by_p_value']:.2f}",
            f"{record['decided']:.2f}",
            f"**{record['redraws_with_a_wrong_winner']:.2f}**",
        ]
        lines.append(f"| {record['scenario']} | {record['estimator']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--redraws", type=int, default=100)
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--items", type=int, default=80)
    parser.add_argument("--json", type=Path, default=None, help="also write the results to this file")
    parser.add_argument("--write", type=Path, default=None, help="a page with marks for the table")
    options = parser.parse_args()
    sizes = {"redraws": options.redraws, "users": options.users, "items": options.items}
    records = []
    for scenario in SCENARIOS:
        for estimator in ESTIMATORS:
            records.append(judge(scenario, estimator, **sizes))
            print(json.dumps(records[-1]), flush=True)
    text = table(records)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1) + "\n")
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(MARKED.sub(lambda found: found[1] + text + found[2], page), encoding="utf-8")


def _calibrated(score: Floats, label: NDArray[np.uint8]) -> Floats:
    """Slope and intercept of a logistic regression on one score."""

    def loss(theta: Floats) -> tuple[float, Floats]:
        z = theta[0] * score + theta[1]
        off = expit(z) - label
        value = (np.logaddexp(0.0, z) - label * z).mean()
        return float(value), np.array([(off * score).mean(), off.mean()])

    theta: Floats = minimize(loss, np.array([1.0, 0.0]), jac=True).x
    return theta


def _log(click: NDArray[np.bool_], labels: NDArray[np.uint8]) -> Log:
    user, item = np.nonzero(click)
    return us.Log.from_arrays(
        user=user,
        item=item,
        conversion=labels[click],
        users=us.Vocabulary.range(len(click), name="user"),
        items=us.Vocabulary.range(click.shape[1], name="item"),
    )


if __name__ == "__main__":
    main()
