"""Training 1, 10 and 100 replicas over Coat's D, beside the plain way. ``python -m benchmarks.training``"""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.common import BATCH, arguments, coat_sized_log, seconds, tell
from benchmarks.plain import plain_epochs
from unskew.base.progress import SILENT
from unskew.debias.losses import cross_entropy
from unskew.learners import NeuMF
from unskew.training import (
    EveryCell,
    LookedUp,
    Pass,
    Population,
    Sample,
    Schedule,
    Step,
    resolve_device,
    train,
)

EPOCHS = 5


def stacked(replicas: int, device: str, epochs: int) -> Callable[[], None]:
    """Training of so many replicas over all of D, in one stacked loop."""
    log = coat_sized_log()
    population = Population(log, resolve_device(device))
    seeds = list(range(replicas))

    def work() -> None:
        network = NeuMF().build(log.schema, seeds).to_device(population.device)

        def loss(sample: Sample) -> torch.Tensor:
            assert sample.click is not None
            return cross_entropy(sample.click, network(sample.rows)).mean(-1)

        sampler = LookedUp(EveryCell(population, seeds, BATCH), population)
        train(
            {"propensity": network},
            [Pass(sampler, (Step("propensity", loss, ("propensity",)),))],
            Schedule(epochs, 1e-3, 0.0, None),
            replicas=replicas,
            validate=None,
            tracker=SILENT.task("training", 1),
        )

    return work


def per_epoch(replicas: int, device: str, repeats: int) -> float:
    """Seconds per epoch, start-up (building, capturing) taken out by a difference of two lengths."""
    few, many = EPOCHS, 4 * EPOCHS if device.startswith("cuda") else 2 * EPOCHS
    short = seconds(stacked(replicas, device, few), repeats, device)
    long = seconds(stacked(replicas, device, many), repeats, device)
    return (long - short) / (many - few)


def main() -> None:
    options = arguments(__doc__)
    log = coat_sized_log()
    click = torch.zeros(log.n_users, log.n_items)
    click.view(-1)[torch.tensor(log.cell)] = 1.0
    plain = seconds(lambda: plain_epochs(click, BATCH, 1, options.device), options.repeats, options.device)
    counts = (1, 10, 100) if options.device.startswith("cuda") else (1, 10)
    rows = []
    stacked(1, options.device, 1)()
    one = 0.0
    for replicas in counts:
        time = per_epoch(replicas, options.device, options.repeats)
        one = one or time
        rows.append(
            {
                "replicas": replicas,
                "seconds per epoch": time,
                "÷ 1 replica": time / one,
                "plain loop, same replicas": plain * replicas,
                "times faster than plain": plain * replicas / time,
            }
        )
    tell("Training NeuMF over all 87,000 cells of a Coat-sized D", rows, options.device, options.json)


if __name__ == "__main__":
    main()
