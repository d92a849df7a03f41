"""What ``auto`` ships, with and without a random sample, on worlds of known truth: a table of regret.

``python -m benchmarks.battery`` trains the candidates of a default run in every world of
:mod:`benchmarks.battery_worlds`. ``auto`` decides with 5 % of the random pairs, and without; all are judged
on the other random pairs, beside the naive ensemble: five NeuMF, or on impressions the run's naive model.

``--small`` is a first look. ``--root DATA/coat`` adds the real Coat log. ``--seed 1`` draws other worlds.
``--write PAGE`` puts the tables between the page's marks.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.battery_worlds import UNBIASED_SHARE, WORLDS, draw
from benchmarks.common import markdown, put
from unskew.base.errors import CollapseWarning
from unskew.base.progress import SILENT
from unskew.data.datasets import Dataset, load
from unskew.data.datasets.dataset import with_unbiased_share
from unskew.debias import Naive
from unskew.learners import NeuMF
from unskew.metrics import auc, nll
from unskew.run.auto import Search, mean_of
from unskew.run.config import Config
from unskew.run.decision import RandomSample, decide, mean_paired
from unskew.run.propensities import propensities_of
from unskew.run.protocol import protocol_of
from unskew.run.sizes import sized, sizes_of
from unskew.training.fitted import combined

Floats = NDArray[np.float64]

REAL = "coat (real)"
NAIVE, ALONE, SAMPLED = "naive ensemble", "auto, no sample", "auto, 5 % sample"
MEMBERS = 5
"""Networks of the naive ensemble that everything is held against."""
LEAST_GAP = 0.005
"""AUC between the naive ensemble and the best candidate from which a share of the gap says something."""
Z = 1.96


@dataclass(frozen=True)
class Shipped:
    """One of the three models in one world."""

    auc: float
    nll: float
    level: float
    ahead: float
    error: float
    models: int

    @property
    def lost(self) -> bool:
        """Whether it is behind the naive ensemble beyond the paired interval of 95 %."""
        return self.ahead + Z * self.error < 0


def world_of(name: str, options: argparse.Namespace) -> Dataset:
    """Return the logs of a world."""
    if name == REAL:
        return with_unbiased_share(load("coat", options.root), UNBIASED_SHARE)
    return draw(name, small=options.small, seed=options.seed)


def judged(data: Dataset, epochs: int | None = None) -> dict[str, Any]:
    """Train and decide in one world; return plain values."""
    start = time.process_time()
    parameters = {} if epochs is None else {"method.epochs": epochs}
    columns = {"features": "auto"} if data.train.space == "impressions" else {}
    asked = Config(effort="quick", parameters=parameters, **columns)
    config = sized(asked.resolved(), sizes_of(asked, data.train))
    protocol = protocol_of(config)
    searched = Search(config, protocol, data, propensities_of(config, protocol, data, SILENT)).run()
    seconds = time.process_time() - start
    assert data.test is not None
    test = data.test.take(data.test.clicked)
    outcome = data.test.known_conversion().astype(np.float64)
    lines = {name: model.predict_each(test) for name, model in searched.models.items()}
    names, naive = tuple(lines), searched.decision.naive
    alone = decide(None, names, naive).shipped
    sampled = mean_of([searched.models[name] for name in searched.decision.shipped])
    if data.unbiased is not None:
        sampled.recalibrate_on(data.unbiased)
    lines[NAIVE] = mean_logit(lines, naive) if data.train.features else ensemble(data, test, epochs)
    lines[ALONE], lines[SAMPLED] = mean_logit(lines, alone), sampled.predict_each(test)
    sample = RandomSample(test.user, outcome, lines)
    shipped = {
        name: figures(sample, name, models)
        for name, models in ((NAIVE, 1), (ALONE, len(alone)), (SAMPLED, len(searched.decision.shipped)))
    }
    aucs = {name: auc(lines[name][0], outcome) for name in names}
    best = max(aucs, key=lambda name: aucs[name])
    return {
        "clicks": data.train.n_clicks,
        "density": data.train.density,
        "sample": 0 if data.unbiased is None else len(data.unbiased),
        "cpu_seconds": seconds,
        "best": best,
        "gap": aucs[best] - shipped[NAIVE].auc,
        "candidates": aucs,
        "shipped": {name: {**vars(of), "lost": of.lost} for name, of in shipped.items()},
    }


def ensemble(data: Dataset, test: Any, epochs: int | None) -> Floats:
    """Return what five naive NeuMF say together."""
    options = {} if epochs is None else {"epochs": epochs}
    model = Naive(learner=NeuMF(), members=MEMBERS, patience=3, **options)
    return model.fit(data.train, seeds=[0]).predict_each(test)


def mean_logit(lines: Mapping[str, Floats], names: Sequence[str]) -> Floats:
    """Return the mean logit of some candidates."""
    return combined(np.stack([lines[name] for name in names], axis=1))


def figures(sample: RandomSample, name: str, models: int) -> Shipped:
    """Judge one model on the random test pairs."""
    score, outcome = sample.predictions[name][0], sample.outcome
    paired = mean_paired(sample, (name,), (NAIVE,))
    level = float(score.mean() / outcome.mean())
    loss, order = nll(score, outcome), auc(score, outcome)
    return Shipped(order, loss, level, paired.advantage, paired.standard_error, models)


def page(result: Mapping[str, Any]) -> str:
    """Return the tables of a result in Markdown."""
    rows = []
    for world, of in result.items():
        for name, shipped in of["shipped"].items():
            ahead = "" if name == NAIVE else f"{shipped['ahead']:+.4f} ± {Z * shipped['error']:.4f}"
            closed = "" if name == NAIVE or of["gap"] < LEAST_GAP else f"{shipped['ahead'] / of['gap']:.0%}"
            label = f"{world} ({of['density']:.1%} of {of['clicks']:,} clicks)" if name == NAIVE else ""
            values = (f"{shipped['auc']:.4f}", f"{shipped['nll']:.4f}", f"{shipped['level']:.2f}")
            rows.append((label, name, *values, ahead + (" **lost**" if shipped["lost"] else ""), closed))
    head = ("world", "shipped", "AUC", "log-loss", "predicted ÷ actual", "AUC over naive, 95 %", "gap closed")
    return markdown(head, rows) + "\n\n" + "\n".join(summary(result))


def summary(result: Mapping[str, Any]) -> list[str]:
    """Return the worlds lost and the mean share of the gap that is closed, a line each."""
    lines = []
    for name in (ALONE, SAMPLED):
        lost = sum(of["shipped"][name]["lost"] for of in result.values())
        won = sum(of["shipped"][name]["ahead"] > Z * of["shipped"][name]["error"] for of in result.values())
        shares = [
            of["shipped"][name]["ahead"] / of["gap"] for of in result.values() if of["gap"] >= LEAST_GAP
        ]
        mean = f"{np.mean(shares):.0%}" if shares else "none"
        lines.append(
            f"* {name}: {won} of {len(result)} worlds won, {lost} lost; share of the gap closed, mean of"
            f" {len(shares)} worlds: {mean}"
        )
    return lines


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Judge every world."""
    result: dict[str, Any] = {}
    for name in (*(options.world or WORLDS), *([REAL] if options.root else [])):
        data = world_of(name, options)
        result[name] = judged(replace(data, truth=None), options.epochs)
        print(json.dumps({name: result[name]}), flush=True)
    return result


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--world", action="append", choices=tuple(WORLDS), help="may be repeated [all]")
    parser.add_argument("--small", action="store_true", help="small worlds")
    parser.add_argument("--seed", type=int, default=0, help="of the worlds")
    parser.add_argument("--epochs", type=int, default=None, help="at most [the methods' own]")
    parser.add_argument("--root", default=None, help="the folder of Coat's files: one more world")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file")
    parser.add_argument("--write", type=Path, default=None, help="a page with marks for the tables")
    return parser.parse_args(arguments)


def main() -> None:
    """Run the battery as the command line says."""
    options = parsed()
    # What learned nothing shows in its numbers.
    warnings.simplefilter("ignore", CollapseWarning)
    result = run(options)
    print(page(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.write:
        put(options.write, "battery", page(result))


if __name__ == "__main__":
    main()
