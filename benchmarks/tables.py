"""Training on tables of 10⁶ users × 10⁵ items, beside plain loops. ``python -m benchmarks.tables``

Rows of a log per second of processor time (of all threads), of one model in one epoch, with everything an
epoch does (its order, bringing tables up to date at its end), and nothing that comes once (building,
compiling, the first touch of memory).
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor

from benchmarks.common import tell
from benchmarks.plain import PlainNeuMF, plain_optimisers, plain_steps
from unskew.backbones import NeuMF
from unskew.log import Rows, Schema
from unskew.losses import cross_entropy
from unskew.progress import SILENT
from unskew.training import Pass, Sample, Schedule, ShuffledRows, Step, train

USERS, ITEMS = 1_000_000, 100_000
Columns = tuple[Tensor, Tensor, Tensor]
MOST_PLAIN_STEPS = {"Adam": 8, "SparseAdam": 100}
"""Every step of a plain loop costs the same; a few tell."""


def columns(rows: int, seed: int = 0) -> Columns:
    """Users at random, items by popularity, and a label that is learned from nothing."""
    random = torch.Generator().manual_seed(seed)
    user = torch.randint(USERS, (rows,), generator=random)
    item = (torch.rand(rows, generator=random, dtype=torch.float64).square() * ITEMS).long()
    return user, item, (torch.rand(rows, generator=random) < 0.1).float()


def ours(log: Columns, batch: int) -> float:
    """Rows per second of NeuMF's second epoch; memory for Adam's moments is first touched in the first."""
    user, item, label = log
    network = NeuMF().build(Schema.of_ids(USERS, ITEMS), [0])
    ends = []

    def loss(sample: Sample) -> Tensor:
        rows = sample.observed
        assert rows is not None
        return cross_entropy(label[rows], network(Rows(user=user[rows], item=item[rows]))).mean(-1)

    def end_of_epoch() -> Tensor:
        ends.append(time.process_time())
        return torch.zeros(1)

    train(
        {"network": network},
        [Pass(ShuffledRows(torch.arange(len(user))[None], [0], batch), (Step("fit", loss, ("network",)),))],
        Schedule(2, 1e-3, 0.0, None),
        replicas=1,
        validate=end_of_epoch,
        tracker=SILENT,
    )
    return len(user) / (ends[1] - ends[0])


def plain(log: Columns, batch: int, name: str) -> float:
    """Rows per second of a loop as anybody writes it, once it has its moments."""
    user, item, label = (each[: batch * MOST_PLAIN_STEPS[name]] for each in log)
    model = PlainNeuMF(USERS, ITEMS, sparse=name == "SparseAdam")
    optimisers = plain_optimisers(model)
    plain_steps(model, optimisers, (user[: 2 * batch], item[: 2 * batch], label[: 2 * batch]), batch)
    start = time.process_time()
    plain_steps(model, optimisers, (user, item, label), batch)
    return len(user) / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6])
    parser.add_argument("--batch", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--json", default=None, help="also write the results to this file")
    options = parser.parse_args()
    ours(columns(2000), 1000)
    results = []
    for rows in map(int, options.rows):
        for batch in options.batch:
            log = columns(rows)
            own = ours(log, batch)
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
            print(results[-1], flush=True)
    tell(f"NeuMF, {USERS:,} users × {ITEMS:,} items", results, "cpu", options.json)


if __name__ == "__main__":
    main()
