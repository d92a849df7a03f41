"""Reading propensities off all of D: plain, MC dropout, an ensemble. ``python -m benchmarks.inference``"""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.common import arguments, coat_sized_log, seconds, tell
from unskew.backbones import NeuMF
from unskew.training import Population, resolve_device
from unskew.training.inference import probability_moments

PASSES = MEMBERS = 10


def reading(replicas: int, passes: int, device: str) -> Callable[[], None]:
    """Probabilities of every cell, from cells to a host array."""
    log = coat_sized_log()
    population = Population(log, resolve_device(device))
    network = NeuMF().build(log.n_users, log.n_items, range(replicas)).to_device(population.device)

    def work() -> None:
        cells = torch.arange(population.size, device=population.device).unsqueeze(0)
        mean, _ = probability_moments(network, *population.pairs(cells), passes=passes)
        mean.mean(0).cpu().numpy()

    work()
    return work


def main() -> None:
    options = arguments(__doc__)
    repeats = 5 * options.repeats
    rows: list[dict[str, object]] = []
    plain = 0.0
    for name, replicas, passes in (
        ("plain", 1, 0),
        (f"MC dropout, T = {PASSES}", 1, PASSES),
        (f"deep ensemble, N = {MEMBERS}", MEMBERS, 0),
    ):
        time = seconds(reading(replicas, passes, options.device), repeats, options.device)
        plain = plain or time
        rows.append({"inference over all of D": name, "seconds": time, "÷ plain": time / plain})
    tell("Propensities of all 87,000 cells of a Coat-sized D", rows, options.device, options.json)


if __name__ == "__main__":
    main()
