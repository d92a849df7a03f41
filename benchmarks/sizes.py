"""How often honest scores are refused at 5 %: ``python -m benchmarks.sizes [--runs N]``.

Scores are normal in the logit, with 5 % clicks. Rows have weights that vary, or the rows without a click were
sampled. Prints tables of docs/evidence/robustness.md: how often ``monitor`` calls off any of 200
periods, the shares that ``wce_test`` and ``judge_weights`` (which decides for ``audit``) refuse, and how
often the tests of an audit's segments give small p-values.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from scipy.special import expit, ndtri
from scipy.stats import binomtest

from unskew.audit.monitor import history_cells
from unskew.audit.segments import segment_cells, segments_of
from unskew.metrics import CalibrationSketch, wce_test
from unskew.metrics.anytime import evidence_over_time, family_shares, log_evidence
from unskew.metrics.judgement import TOLERANCE, judge_weights

SCORE = expit(-3.4 + ndtri((np.arange(100) + 0.5) / 100))
LEVEL, PERIODS = 0.05, 200
BITS = {"bins": 1, "mantissa_bits": 4}
CELL = np.array([CalibrationSketch.of(score=[p], outcome=[0], **BITS).occupied()[0] for p in SCORE])
WEIGHTS = {
    "none": lambda generator, rows: np.ones(rows),
    "U(.5, 2)": lambda generator, rows: generator.uniform(0.5, 2, rows),
    "Exp(1)": lambda generator, rows: generator.exponential(size=rows),
    "log-normal(0, 1)": lambda generator, rows: generator.lognormal(size=rows),
    "1/U(.02, 1)": lambda generator, rows: 1 / generator.uniform(0.02, 1, rows),
}
SAMPLED = {
    "negatives 1:10": np.full(100, 10.0),
    "negatives 1:100": np.full(100, 100.0),
    "negatives 1:10, by score": np.maximum(10 * 0.05 / SCORE, 1),
    "negatives 1:100, by score": np.maximum(100 * 0.05 / SCORE, 1),
}


def sketches(
    kind: str, rows: int, periods: int, generator: np.random.Generator
) -> Iterator[CalibrationSketch]:
    """Sketches of so many rows each, whose rates are the scores."""
    negative = SAMPLED.get(kind, np.ones(len(SCORE)))
    share = np.stack([(1 - SCORE) / negative, SCORE], axis=1).ravel()
    count = generator.multinomial(rows, share / share.sum(), size=periods)
    shape = (periods, len(SCORE), 2)
    by_outcome = np.stack([negative, np.ones(len(SCORE))], axis=1).ravel()
    sums = [count * by_outcome, count * by_outcome**2]
    if kind in WEIGHTS:
        group = np.repeat(np.arange(count.size), count.ravel())
        weight = WEIGHTS[kind](generator, rows * periods)
        sums = [np.bincount(group, w, count.size) for w in (weight, weight**2)]
    for n, w, square in zip(count.reshape(shape), *(s.reshape(shape) for s in sums), strict=True):
        sketch = CalibrationSketch(**BITS)
        cells = sketch.sums
        np.add.at(cells.rows, CELL, n)
        np.add.at(cells.weight, CELL, w)
        np.add.at(cells.square, CELL, square)
        np.add.at(cells.score, CELL, w * SCORE[:, None])
        np.add.at(cells.inverse[:, 1], CELL, w[:, 1] / SCORE)
        yield sketch


def is_called_off(kind: str, rows: int, generator: np.random.Generator) -> bool:
    """Whether ``monitor`` calls honest scores off in any of 200 periods."""
    threshold = np.log(1 / (LEVEL * family_shares(np.zeros(1, dtype=np.int64))[0]))
    drawn = dict(zip(map(str, range(PERIODS)), sketches(kind, rows, PERIODS, generator), strict=True))
    evidence = np.array([log_evidence(cells, TOLERANCE) for cells in history_cells(drawn).values()])
    return bool((evidence_over_time(evidence) >= threshold).any())


def rate(refused: np.ndarray) -> str:
    """Return a share with its 95 % interval."""
    low, high = binomtest(int(refused.sum()), len(refused)).proportion_ci()
    return f"{refused.mean():.3f} ({low:.3f} to {high:.3f})"


def sizes(runs: int, seed: int) -> None:
    """Print the sizes of the monitor and of the tests."""
    print("| weights | rows | `monitor`, ever | `wce_test` | `judge_weights` |\n|---|---:|---|---|---|")
    for rows, times in ((1_500, runs), (5_000, runs), (60_000, max(runs // 5, 1))):
        for kind in (*WEIGHTS, *SAMPLED):
            generator = np.random.default_rng(seed)
            ever = np.array([is_called_off(kind, rows, generator) for _ in range(times)])
            drawn = list(sketches(kind, rows, times, generator))
            test = np.array([wce_test(sketch).p_value < LEVEL for sketch in drawn])
            judged = np.array([judge_weights(s, significance=LEVEL).level == "bad" for s in drawn])
            print(f"| {kind} | {rows:,} | {rate(ever)} | {rate(test)} | {rate(judged)} |", flush=True)


def segment_tails(segments: int, seed: int) -> None:
    """Print how often the tests of honest segments give less than so much."""
    print("\n| negatives | clicks | test | p < .05 | p < .01 | p < .001 |\n|---:|---:|---|---:|---:|---:|")
    score = np.exp(np.linspace(np.log(0.004), np.log(0.3), 60))
    for negatives, clicks in ((1, 20), (1, 50), (10, 20), (10, 50), (100, 50)):
        generator, names = np.random.default_rng(seed), list(map(str, range(segments)))
        rows = np.repeat(score, round(clicks / score.sum()))
        drawn, segment = np.tile(rows, segments), np.repeat(np.arange(segments), len(rows))
        clicked = generator.random(len(drawn)) < drawn
        kept = clicked | (generator.random(len(drawn)) < 1 / negatives)
        weight = np.where(clicked, 1.0, negatives)[kept]
        cells = segment_cells("segment", names, segment[kept], drawn[kept], clicked[kept], weight)
        tested = [own for own in segments_of(cells) if own.p_value is not None]
        for name in ("p_value", "p_differs"):
            p = np.array([getattr(own, name) for own in tested])
            shares = " | ".join(f"{np.mean(p < level):.4f}" for level in (0.05, 0.01, 0.001))
            print(f"| 1:{negatives} | {clicks} | `{name}` of {len(p):,} | {shares} |", flush=True)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sizes(options.runs, options.seed)
    segment_tails(40 * options.runs, options.seed)


if __name__ == "__main__":
    main()
