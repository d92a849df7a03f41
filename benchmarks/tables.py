"""Training on tables of 10⁶ users × 10⁵ items, beside plain loops. ``python -m benchmarks.tables``

Rows of a log per second of processor time (of all threads), of one model in one epoch, with everything an
epoch does (its order, bringing tables up to date at its end), and nothing that comes once (building,
compiling, the first touch of memory), and the bytes that tables take.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple, cast

import torch
from torch import Tensor

from benchmarks.common import tell
from benchmarks.plain import PlainNeuMF, plain_optimisers, plain_steps
from unskew.base.progress import SILENT
from unskew.data import Rows, Schema
from unskew.debias.losses import cross_entropy
from unskew.learners import NeuMF
from unskew.learners.layers import ReplicaEmbedding, tables_of
from unskew.training import Pass, Sample, Schedule, ShuffledRows, Step, train
from unskew.training.state import Stateful

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


class Ours(NamedTuple):
    """What is measured of a training."""

    rows_per_second: float
    table_bytes: int
    """Of the tables' weights, moments and steps, and of their gradients where these are buffers."""


def ours(log: Columns, batch: int, device: str = "cpu") -> Ours:
    """NeuMF's second epoch; memory for Adam's moments is first touched in the first.

    Seconds are of the processor, and by the clock on a GPU.
    """
    user, item, label = (each.to(device) for each in log)
    network = NeuMF().build(Schema.of_ids(USERS, ITEMS), [0])
    network.to_device(torch.device(device))
    ends: list[float] = []
    sizes: list[int] = []

    def loss(sample: Sample) -> Tensor:
        rows = sample.observed
        assert rows is not None
        return cross_entropy(label[rows], network(Rows(user=user[rows], item=item[rows]))).mean(-1)

    def end_of_epoch() -> Tensor:
        if device != "cpu":
            torch.cuda.synchronize()
        ends.append(time.process_time() if device == "cpu" else time.perf_counter())
        sizes.append(sum(bytes_of(table) for table in tables_of(network)))
        return torch.zeros(1, device=device)

    order = ShuffledRows(torch.arange(len(user), device=device)[None], [0], batch)
    train(
        {"network": network},
        [Pass(order, (Step("fit", loss, ("network",)),))],
        Schedule(2, 1e-3, 0.0, None),
        replicas=1,
        validate=end_of_epoch,
        tracker=SILENT.task("training", 1),
    )
    return Ours(len(user) / (ends[1] - ends[0]), sizes[-1])


def bytes_of(table: ReplicaEmbedding) -> int:
    """Of a table while it is trained; of one by dense Adam its weights alone are counted."""
    tensors = [] if table.lazy is None else [*cast("Stateful", table.lazy).tensors().values()]
    gradient = getattr(table.lazy, "gradient", None)
    parts = [table.weight.detach(), *tensors, *([] if gradient is None else [gradient])]
    return sum(part.numel() * part.element_size() for part in parts)


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
    parser.add_argument("--device", default="cpu", help="cpu or cuda; on a GPU without the plain loops")
    parser.add_argument("--json", default=None, help="also write the results to this file")
    options = parser.parse_args()
    ours(columns(2000), 1000, options.device)
    results = []
    for rows in map(int, options.rows):
        for batch in options.batch:
            log = columns(rows)
            own = ours(log, batch, options.device)
            row = {
                "rows": f"{rows:,}",
                "batch": batch,
                "rows per second": round(own.rows_per_second),
                "tables, MB": own.table_bytes / 1e6,
            }
            if options.device == "cpu":
                dense, sparse = (plain(log, batch, name) for name in MOST_PLAIN_STEPS)
                row |= {
                    "plain, Adam": round(dense),
                    "plain, SparseAdam": round(sparse),
                    "÷ Adam": own.rows_per_second / dense,
                    "÷ SparseAdam": own.rows_per_second / sparse,
                }
            results.append(row)
            print(results[-1], flush=True)
    tell(f"NeuMF, {USERS:,} users × {ITEMS:,} items", results, options.device, options.json)


if __name__ == "__main__":
    main()
