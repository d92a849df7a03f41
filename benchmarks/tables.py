"""Training on tables of 10⁶ users × 10⁵ items, beside plain loops. ``python -m benchmarks.tables``

Rows of a log per second of processor time, of one model in one epoch, with everything an epoch does (its
order, bringing tables up to date at its end), and nothing that comes once (building, compiling).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.common import tell
from benchmarks.plain import PlainNeuMF, plain_steps
from unskew.backbones import NeuMF
from unskew.log import Rows, Schema
from unskew.losses import cross_entropy
from unskew.progress import SILENT
from unskew.training import Pass, Sample, Schedule, ShuffledRows, Step, train

USERS, ITEMS = 1_000_000, 100_000
MOST_PLAIN_STEPS = {"Adam": 16, "SparseAdam": 200}
"""Every step of a plain loop costs the same; a few tell."""


def columns(rows: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Users at random, items by popularity, and a label that is learned from nothing."""
    random = torch.Generator().manual_seed(seed)
    user = torch.randint(USERS, (rows,), generator=random)
    item = (torch.rand(rows, generator=random, dtype=torch.float64).square() * ITEMS).long()
    return user, item, (torch.rand(rows, generator=random) < 0.1).float()


def ours(log: tuple[Tensor, Tensor, Tensor], batch: int) -> Callable[[], None]:
    """An epoch of NeuMF."""
    user, item, label = log
    network = NeuMF().build(Schema.of_ids(USERS, ITEMS), [0])

    def loss(sample: Sample) -> Tensor:
        rows = sample.observed
        assert rows is not None
        return cross_entropy(label[rows], network(Rows(user=user[rows], item=item[rows]))).mean(-1)

    def work() -> None:
        train(
            {"network": network},
            [
                Pass(
                    ShuffledRows(torch.arange(len(user))[None], [0], batch),
                    (Step("fit", loss, ("network",)),),
                )
            ],
            Schedule(1, 1e-3, 0.0, None),
            replicas=1,
            validate=None,
            tracker=SILENT,
        )

    return work


def rows_per_second(work: Callable[[], None], rows: int) -> float:
    """By the time of all threads of this process."""
    start = time.process_time()
    work()
    return rows / (time.process_time() - start)


def plain(log: tuple[Tensor, Tensor, Tensor], batch: int, optimiser: str) -> float:
    """Rows per second of a loop as anybody writes it."""
    some = [each[: batch * MOST_PLAIN_STEPS[optimiser]] for each in log]
    model = PlainNeuMF(USERS, ITEMS, sparse=optimiser == "SparseAdam")
    plain_steps(model, *(each[: 2 * batch] for each in some), batch)
    return rows_per_second(lambda: plain_steps(model, *some, batch), len(some[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6])
    parser.add_argument("--batch", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--json", default=None, help="also write the results to this file")
    options = parser.parse_args()
    # Memory that the system has not given out before costs several times as much to touch.
    ours(columns(100_000), 1024)()
    results = []
    for rows in map(int, options.rows):
        for batch in options.batch:
            log = columns(rows)
            own = rows_per_second(ours(log, batch), rows)
            dense, sparse = (plain(log, batch, name) for name in MOST_PLAIN_STEPS)
            results.append(
                {
                    "rows": f"{rows:,}",
                    "batch": batch,
                    "rows per CPU-second": round(own),
                    "plain, Adam": round(dense),
                    "plain, SparseAdam": round(sparse),
                    "÷ Adam": own / dense,
                    "÷ SparseAdam": own / sparse,
                }
            )
    tell(f"NeuMF, {USERS:,} users × {ITEMS:,} items", results, "cpu", options.json)


if __name__ == "__main__":
    main()
