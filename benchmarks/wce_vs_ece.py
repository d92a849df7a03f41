"""Which metric ranks propensities as the bias of IPS does? ``python -m benchmarks.wce_vs_ece``

16 worlds whose true propensities p are known: logit-normal with mean 5 % or 0.1 %; scores p̂ over-spread,
shifted, both, or under-spread on the logit scale; prediction errors e that rise or fall with p. In each world
every calibrator is fitted on one sample and judged on another: by each metric from scores and clicks alone,
and by what the metrics should tell, |bias of IPS| = |mean((1 − p/p̂)·e)|. A world's figure is Spearman's rank
correlation between metric and bias over the calibrators.

The same is done with scores that do not know all of p (noise on their logit). Then a part of the bias is
refinement, which no calibrator removes and no calibration error sees.

``--write docs/reference/metrics.md`` puts the table between the page's marks.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import spearmanr

from unskew.calibration import CALIBRATORS, Calibrator, Platt
from unskew.metrics import CalibrationSketch, adaptive_ece, ece, nll, relative_error, wce

Floats = NDArray[np.float64]

PREVALENCES = (0.05, 0.001)
DISTORTIONS = {
    "over-spread": (1.5, 0.0),
    "shifted": (1.0, 0.7),
    "both": (1.5, 0.7),
    "under-spread": (0.6, 0.0),
}
"""Slope about the mean logit, and shift, of scores against true propensities."""
ERROR_SLOPES = (0.5, -0.5)
"""Errors are proportional to exp(slope · standardised logit p)."""
SPREAD = 1.2
"""Standard deviation of true logits."""
NOISES = (0.0, 0.4)
"""Standard deviation of what a score does not know of a true logit."""

METRICS: dict[str, Callable[[CalibrationSketch], float]] = {
    "ECE-100, equal width": lambda sketch: ece(sketch),
    "ECE-100, equal mass": lambda sketch: adaptive_ece(sketch),
    "NLL": lambda sketch: nll(sketch),
    "relative error": lambda sketch: relative_error(sketch),
    "WCE": lambda sketch: wce(sketch),
}
MARKED = re.compile(r"(<!-- table: wce_vs_ece -->\n).*?(\n<!-- end of table -->)", re.DOTALL)


@dataclass(frozen=True)
class World:
    """True logits are normal; the mean propensity is ``prevalence``."""

    prevalence: float
    distortion: str
    error_slope: float
    noise: float = 0.0

    def centre(self) -> float:
        """Mean logit at which the mean propensity is the prevalence."""
        points, weights = np.polynomial.hermite_e.hermegauss(60)
        weights /= weights.sum()
        return float(brentq(lambda m: weights @ expit(m + SPREAD * points) - self.prevalence, -30, 5))

    def draw(
        self, rows: int, random: np.random.Generator
    ) -> tuple[Floats, Floats, NDArray[np.uint8], Floats]:
        """Return the true propensity, score, click and prediction error of rows."""
        centre, (slope, shift) = self.centre(), DISTORTIONS[self.distortion]
        standard = random.standard_normal(rows)
        known = SPREAD * standard + self.noise * random.standard_normal(rows)
        p, score = expit(centre + SPREAD * standard), expit(centre + shift + slope * known)
        click = (random.random(rows) < p).astype(np.uint8)
        error = np.exp(self.error_slope * standard)
        return p, score, click, error / error.mean()


def worlds(noise: float) -> Iterator[World]:
    """All 16."""
    for values in product(PREVALENCES, DISTORTIONS, ERROR_SLOPES):
        yield World(*values, noise)


def contenders() -> dict[str, Calibrator]:
    """Every calibrator, Platt also on probabilities, and (as ``none``) the scores as they are."""
    kinds: dict[str, Calibrator] = {name: kind() for name, kind in CALIBRATORS.items() if name != "auto"}
    return kinds | {"platt on probabilities": Platt(input="prob")}


def rank_correlations(world: World, rows: int, seed: int) -> dict[str, float]:
    """Spearman's correlation of each metric with |bias of IPS|, over the calibrators."""
    fit_draw, judge_draw = np.random.default_rng(seed).spawn(2)
    _, fit_score, fit_click, _ = world.draw(rows, fit_draw)
    p, score, click, error = world.draw(rows, judge_draw)
    sketch = CalibrationSketch.of(score=fit_score, outcome=fit_click)
    bias, found = [], []
    for calibrator in contenders().values():
        used = calibrator.fit(sketch).predict(score)
        bias.append(abs(float(((1 - p / used) * error).mean())))
        judged = CalibrationSketch.of(score=used, outcome=click)
        found.append([metric(judged) for metric in METRICS.values()])
    return {
        name: float(spearmanr(bias, values).statistic)
        for name, values in zip(METRICS, np.array(found).T, strict=True)
    }


def study(rows: int, draws: int, noise: float = 0.0) -> list[dict[str, object]]:
    """One record a world, correlations averaged over draws."""
    records: list[dict[str, object]] = []
    for world in worlds(noise):
        each = [rank_correlations(world, rows, seed) for seed in range(draws)]
        means = {name: float(np.mean([one[name] for one in each])) for name in METRICS}
        records.append({**world.__dict__, **means})
    return records


def table(clean: list[dict[str, object]], noisy: list[dict[str, object]]) -> str:
    """Means over worlds in Markdown."""
    lines = [
        "| metric | 16 worlds | of them at 5 % | at 0.1 % | WCE ranks better in | 16 worlds, noisy scores |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in METRICS:
        values, other = (np.array([record[name] for record in part], dtype=float) for part in (clean, noisy))
        best = np.array([record["WCE"] for record in clean], dtype=float)
        rate = np.array([record["prevalence"] for record in clean])
        means = [values.mean(), *(values[rate == each].mean() for each in PREVALENCES), other.mean()]
        *first, last = (f"**{mean:.2f}**" if name == "WCE" else f"{mean:.2f}" for mean in means)
        wins = "–" if name == "WCE" else f"{(best > values).sum()} of {len(clean)}"
        lines.append(f"| {name} | {' | '.join(first)} | {wins} | {last} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None, help="also write the results to this file")
    parser.add_argument("--write", type=Path, default=None, help="a page with marks for the table")
    options = parser.parse_args()
    clean, noisy = (study(options.rows, options.draws, noise) for noise in NOISES)
    text = table(clean, noisy)
    print(text)
    print(json.dumps({"rows": options.rows, "draws": options.draws, "worlds": [*clean, *noisy]}))
    if options.json:
        options.json.write_text(json.dumps([*clean, *noisy], indent=1) + "\n")
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        options.write.write_text(MARKED.sub(lambda found: found[1] + text + found[2], page), encoding="utf-8")


if __name__ == "__main__":
    main()
