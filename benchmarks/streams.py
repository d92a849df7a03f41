"""Training DCN with 8 features on a stream, beside plain loops. ``python -m benchmarks.streams``

Impressions of 10⁶ users × 10⁵ items. Ours is a click model over all rows of a stream, as a propensity trains
it (samples made of blocks, masks of folds, and all); the plain loops are one model over tensors in memory,
with an ``nn.Embedding`` a field and Adam, or SparseAdam for the tables. Rows per second of processor time (of
all threads), after what comes once (building, compiling, the first touch of memory).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from benchmarks.common import tell
from benchmarks.features import PlainDCN
from unskew.base.progress import SILENT
from unskew.data import Log, Rows, StreamedLog
from unskew.data.vocabulary import Vocabulary
from unskew.debias.losses import cross_entropy
from unskew.learners import DCN
from unskew.training import Pass, Sample, Schedule, Step, train
from unskew.training.reader import Tables
from unskew.training.readings import Rounds, reading_of_all
from unskew.training.samplers import Known
from unskew.training.streams import StreamedCells

USERS, ITEMS = 1_000_000, 100_000
MOST_PLAIN_STEPS = {"Adam": 6, "SparseAdam": 60}
"""Every step of a plain loop costs the same; a few tell."""
SPEC = DCN(dim=16, drop=0.0)


def impressions(rows: int, seed: int = 0) -> Log:
    """Users at random, items by popularity, six categories and two numbers, and clicks of one in ten."""
    random = np.random.default_rng(seed)
    columns = {
        "user": random.integers(USERS, size=rows),
        "item": (random.random(rows) ** 2 * ITEMS).astype(np.int64),
        "click": (random.random(rows) < 0.1).astype(np.int64),
    }
    sizes = {"device": 5, "country": 200, "hour": 24, "page": 1_000, "campaign": 5_000, "place": 20}
    columns |= {name: random.integers(size, size=rows).astype("str") for name, size in sizes.items()}
    columns |= {name: random.random(rows) for name in ("price", "age")}
    names = [*sizes, "price", "age"]
    table = pa.table(columns)
    ids = {
        "users": Vocabulary.range(USERS, name="user"),
        "items": Vocabulary.range(ITEMS, name="item"),
    }
    return Log.from_frame(table, click="click", space="impressions", features=names, **ids)


def streamed(source: StreamedLog, log: Log, batch: int, replicas: int, now: Callable[[], float]) -> float:
    """Rows per second of the second round; memory for Adam's moments is first touched in the first."""
    network = SPEC.build(log.schema, list(range(replicas)))
    tables = Tables.of(log.take(np.arange(1)), torch.device("cpu"))
    rounds = Rounds.of(source, len(source), len(source))
    cpu = torch.device("cpu")
    reading = reading_of_all(source, log.encoders, cpu)
    sampler = StreamedCells(rounds, reading, len(source), batch, 0, cpu)
    ends = []

    def loss(sample: Sample) -> Tensor:
        assert isinstance(sample.cells, Known)
        assert tables is not None
        rows = tables.completed(sample.cells.rows)
        return cross_entropy(sample.cells.click, network(rows)).mean(-1)

    def end_of_round() -> Tensor:
        ends.append(now())
        return torch.zeros(replicas)

    train(
        {"network": network},
        [Pass(sampler, (Step("click", loss, ("network",)),))],
        Schedule(2, 1e-3, 0.0, None),
        replicas=replicas,
        validate=end_of_round,
        tracker=SILENT,
    )
    return len(source) / (ends[1] - ends[0])


class SparsePlainDCN(PlainDCN):
    """With tables whose gradients are sparse."""

    def __init__(self, log: Log) -> None:
        super().__init__(log.schema)
        for table in self.tables:
            assert isinstance(table, nn.Embedding)
            table.sparse = True


def plain(
    columns: tuple[Tensor, Tensor, Tensor], log: Log, batch: int, name: str, now: Callable[[], float]
) -> float:
    """Rows per second of a loop as anybody writes it, once it has its moments."""
    model = SparsePlainDCN(log) if name == "SparseAdam" else PlainDCN(log.schema)
    tables = [each.weight for each in model.tables] if name == "SparseAdam" else []
    by_rows = {id(weight) for weight in tables}
    rest = [weight for weight in model.parameters() if id(weight) not in by_rows]
    optimisers: list[torch.optim.Optimizer] = [torch.optim.Adam(rest, lr=1e-3, fused=True)]
    if tables:
        optimisers.append(torch.optim.SparseAdam(tables, lr=1e-3))

    def epoch(steps: int) -> None:
        for rows in _batches(steps * batch, batch):
            codes, numbers, click = (each[rows] for each in columns)
            loss = nn.functional.binary_cross_entropy_with_logits(model(codes, numbers), click)
            for optimiser in optimisers:
                optimiser.zero_grad()
            loss.backward()
            for optimiser in optimisers:
                optimiser.step()

    steps = min(MOST_PLAIN_STEPS[name], len(columns[2]) // batch)
    epoch(2)
    start = now()
    epoch(steps)
    return steps * batch / (now() - start)


def _batches(rows: int, batch: int) -> Iterator[Tensor]:
    yield from torch.randperm(rows).split(batch)


def plain_columns(log: Log) -> tuple[Tensor, Tensor, Tensor]:
    """Codes and numbers of all rows, and clicks."""
    tables = Tables.of(log, torch.device("cpu"))
    assert tables is not None
    ids = Rows(
        user=torch.from_numpy(log.user.astype(np.int64))[None],
        item=torch.from_numpy(log.item.astype(np.int64))[None],
    )
    rows = tables.added(ids, torch.arange(len(log))[None])
    codes = torch.cat((rows.user[0, :, None], rows.item[0, :, None], rows["codes"][0]), dim=-1)
    return codes.long(), rows["numbers"][0], torch.from_numpy(log.click.astype(np.float32))


def turn(
    source: StreamedLog,
    log: Log,
    columns: tuple[Tensor, Tensor, Tensor],
    batch: int,
    now: Callable[[], float],
) -> dict[str, float]:
    """One measurement of each."""
    one, five = (streamed(source, log, batch, replicas, now) for replicas in (1, 5))
    dense, sparse = (plain(columns, log, batch, name, now) for name in MOST_PLAIN_STEPS)
    return {
        "rows per second": one,
        "plain, Adam": dense,
        "plain, SparseAdam": sparse,
        "÷ Adam": one / dense,
        "÷ SparseAdam": one / sparse,
        "five members, times one": one / five,
    }


def _told(values: list[float]) -> str:
    """The median of sorted values, and from where to where they are."""
    shown = [f"{each:,.0f}" if each >= 100.0 else f"{each:.2f}" for each in values]
    middle = shown[len(shown) // 2]
    return middle if len(shown) == 1 else f"{middle} ({shown[0]} to {shown[-1]})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=2e5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--turns", type=int, default=1, help="how often all are measured, one after another")
    parser.add_argument("--json", default=None, help="also write the results to this file")
    parser.add_argument(
        "--clock", action="store_true", help="by the clock: on a quiet machine, several threads"
    )
    options = parser.parse_args()
    now = time.perf_counter if options.clock else time.process_time
    log = impressions(int(options.rows))
    source = StreamedLog.of(log)
    columns = plain_columns(log)
    results = []
    for batch in options.batch:
        turns = [turn(source, log, columns, batch, now) for _ in range(options.turns)]
        # A ratio is of one turn; other work on the machine differs from turn to turn.
        figures = {name: sorted(each[name] for each in turns) for name in turns[0]}
        results.append({"batch": batch} | {name: _told(values) for name, values in figures.items()})
        print(results[-1], flush=True)
    tell(f"DCN with 8 features, {USERS:,} users × {ITEMS:,} items", results, "cpu", options.json)


if __name__ == "__main__":
    main()
