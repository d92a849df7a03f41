"""False alarms and delays of ``unskew monitor``: ``python -m benchmarks.monitor_simulation [--runs N]``.

Scores are normal in the logit; every segment gets so many clicks a day. Without drift, how many of the runs
raise an alarm in a year of daily looks; with a change of the level in one segment, in how many days is it
found? Prints a table for docs/guides/monitor.md.
"""

from __future__ import annotations

import argparse

import numpy as np

from unskew.metrics.anytime import evidence_over_time, evidence_terms, family_shares

LOGIT = np.linspace(-6, 0, 31)
SCORE = 1 / (1 + np.exp(-LOGIT))
TOLERANCE, SIGNIFICANCE, SEGMENTS, YEAR = 0.05, 0.05, 20, 365


def rows_for(clicks: float) -> np.ndarray:
    shape = np.exp(-0.5 * (LOGIT + 3) ** 2)
    return np.rint(shape / (shape @ SCORE) * clicks).astype(np.int64)


def evidence(rate: np.ndarray, clicks: float, generator: np.random.Generator) -> np.ndarray:
    """log M of each segment and of all rows, ``[segment, day]``, from rates ``[day, segment, score]``."""
    rows = rows_for(clicks)
    linear, row, click, other = evidence_terms(SCORE, rows.astype(float), TOLERANCE)
    clicked, not_clicked = linear + row + click, row + other
    drawn = generator.binomial(rows, np.minimum(rate, 1.0))
    drawn = np.concatenate([drawn, drawn.sum(axis=1, keepdims=True)], axis=1)
    counts = np.concatenate([np.tile(rows, (SEGMENTS, 1)), SEGMENTS * rows[None]])
    return evidence_over_time((drawn @ clicked + (counts - drawn) @ not_clicked).swapaxes(0, 1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--clicks", type=float, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    shares = family_shares(np.zeros(SEGMENTS + 1, dtype=np.int64))
    threshold = np.log(1 / (SIGNIFICANCE * shares))[:, None]
    print("| | runs | |\n|---|---:|---|")
    for factor, name in ((1.0, "honest scores"), (1 + TOLERANCE, "scores off by the whole tolerance")):
        rate = np.broadcast_to(SCORE * factor, (YEAR, SEGMENTS, len(SCORE)))
        alarms = [
            bool((evidence(rate, options.clicks, generator) >= threshold).any()) for _ in range(options.runs)
        ]
        print(
            f"| {name}, a year | {options.runs} | {100 * np.mean(alarms):.1f} % raise an alarm |", flush=True
        )
    for factor in (1.2, 0.8):
        for quiet in (7, 300):
            rate = np.broadcast_to(SCORE, (quiet + 7, SEGMENTS, len(SCORE))).copy()
            rate[quiet:, 0] *= factor
            delays = []
            for _ in range(options.runs):
                found = evidence(rate, options.clicks, generator)[0, quiet:] >= threshold[0]
                delays.append(int(np.argmax(found)) + 1 if found.any() else 99)
            within = ", ".join(f"{100 * np.mean(np.array(delays) <= d):.1f} % in {d} d" for d in (1, 2, 3))
            name = f"level × {factor:g} in one segment after {quiet} quiet days"
            print(f"| {name} | {options.runs} | found: {within} |", flush=True)


if __name__ == "__main__":
    main()
