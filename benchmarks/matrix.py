"""A matrix of 10⁹ pairs: a propensity and IPS, by the clock and in memory. ``python -m benchmarks.matrix``

10⁵ users × 10⁴ items with 10⁶ clicks, drawn by popularity: the propensity that ``choose_propensity`` takes,
and one IPS model with it. Memory is the peak of the process; some 400 MB are Python and its libraries.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import unskew as us


def clicks(users: int, items: int, rows: int) -> us.Log:
    """Pairs without repetition, of users and items that differ in how often they click and are clicked."""
    rng = np.random.default_rng(0)
    drawn = 2 * rows
    user = (users * rng.random(drawn) ** 1.5).astype(np.int64)
    item = (items * rng.random(drawn) ** 2).astype(np.int64)
    cell = np.unique(user * items + item)
    cell = np.sort(rng.permutation(cell)[:rows])
    user, item = cell // items, cell % items
    rate = 1 / (1 + np.exp(1 - np.sin(0.37 * user) - np.cos(0.11 * item)))
    return us.Log.from_arrays(user=user, item=item, conversion=(rng.random(len(cell)) < rate).astype(float))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=float, default=1e5)
    parser.add_argument("--items", type=float, default=1e4)
    parser.add_argument("--clicks", type=float, default=1e6)
    parser.add_argument("--json", default=None, help="also write the results to this file")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []

    def timed(what: str, work: Callable[[], Any]) -> Any:
        start, before = time.perf_counter(), time.process_time()
        found = work()
        results.append(
            {
                "what": what,
                "seconds": round(time.perf_counter() - start, 1),
                "of the processor": round(time.process_time() - before, 1),
                "peak MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
            }
        )
        print("| " + " | ".join(str(each) for each in results[-1].values()) + " |", flush=True)
        return found

    log = timed("log", lambda: clicks(int(options.users), int(options.items), int(options.clicks)))
    print(f"|D| = {log.population_size:,}, {log.n_clicks:,} clicks")
    choice = timed("propensity", lambda: us.choose_propensity(log, device="cpu"))
    print(choice.sentence)
    timed("IPS", lambda: us.IPS().fit(log, propensity=choice.propensity, device="cpu"))
    print(json.dumps(results))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
