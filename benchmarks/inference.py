"""Reading propensities off all of D: plain, MC dropout, an ensemble. ``python -m benchmarks.inference``

``--shape yahoo`` takes the 15.4 million cells of Yahoo! R3 instead of Coat's 87,000. The cells are read in
blocks, so memory does not grow with D. ``peak`` is what was in use at once: on a GPU beyond the networks, on
a CPU beyond the start of the process (data, networks and 4 bytes of result for each cell included).
"""

from __future__ import annotations

import resource
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.common import SHAPES, arguments, seconds, sized_log, tell
from unskew.learners import NeuMF
from unskew.training import Population, resolve_device
from unskew.training.inference import probability_moments
from unskew.training.samplers import BLOCK

PASSES = MEMBERS = 10
AT_START = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def reading(shape: str, replicas: int, passes: int, device: str) -> Callable[[], None]:
    """Probabilities of every cell, from cells to a host array."""
    log = sized_log(shape)
    population = Population(log, resolve_device(device))
    network = NeuMF().build(log.schema, range(replicas)).to_device(population.device)
    result = np.empty(population.size, dtype=np.float32)

    def work() -> None:
        for start in range(0, population.size, BLOCK):
            stop = min(start + BLOCK, population.size)
            cells = torch.arange(start, stop, device=population.device).unsqueeze(0)
            mean, _ = probability_moments(network, population.rows(cells), passes=passes, stacked=replicas)
            result[start:stop] = mean[0].cpu().numpy()

    work()
    return work


def peak_mib(work: Callable[[], None], device: str) -> float:
    """Memory in use at once during ``work``."""
    if device.startswith("cuda"):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    work()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - AT_START) / 2**10


def main() -> None:
    options = arguments(__doc__, shape=True)
    repeats = 5 * options.repeats if options.shape == "coat" else 1
    rows: list[dict[str, object]] = []
    plain = 0.0
    for name, replicas, passes in (
        ("plain", 1, 0),
        (f"MC dropout, T = {PASSES}", 1, PASSES),
        (f"deep ensemble, N = {MEMBERS}", MEMBERS, 0),
    ):
        work = reading(options.shape, replicas, passes, options.device)
        time = seconds(work, repeats, options.device)
        plain = plain or time
        peak = peak_mib(work, options.device)
        rows.append(
            {"inference over all of D": name, "seconds": time, "÷ plain": time / plain, "peak, MiB": peak}
        )
    users, items = SHAPES[options.shape][0]
    title = f"Propensities of all {users * items:,} cells of a D of the shape of {options.shape}"
    tell(title, rows, options.device, options.json)


if __name__ == "__main__":
    main()
