"""Training DCN on impressions with features, beside a plain PyTorch DCN. ``python -m benchmarks.features``

Both train a click model on the same rows with the same network, batch size and Adam: ours 1 and 10 replicas
in one stack, the plain one a model at a time over tensors that already lie on the device (a DataLoader would
only slow it down). Held-out cross-entropy is that of 10 % of the rows, after the same number of epochs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from benchmarks.common import arguments, seconds, tell
from unskew.base.progress import SILENT
from unskew.data import Log, Rows, Schema
from unskew.data.datasets.impression_world import ImpressionWorld
from unskew.data.datasets.impressions import log_table
from unskew.debias.losses import cross_entropy
from unskew.learners import DCN
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

ROWS, USERS, ITEMS = 200_000, 20_000, 2_000
FEATURES = (
    "country",
    "age",
    "interests",
    "category",
    "brand",
    "price",
    "tags",
    "device",
    "discount",
    "position",
)
BATCH = 2048
EPOCHS = 3
SPEC = DCN(dim=16, drop=0.0)


class PlainDCN(nn.Module):
    """The same network as people write it: an ``nn.Embedding`` a field, one model."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        fields = [schema.user, schema.item, *(each for each in schema.features if each.kind != "number")]
        self.bags = [each.kind == "bag" for each in fields]
        self.slots = [each.width for each in fields]
        self.tables = nn.ModuleList(nn.Embedding(each.size, SPEC.dim or 16) for each in fields)
        for table, each in zip(self.tables, fields, strict=True):
            nn.init.normal_(table.weight, std=SPEC.init_std * (0.1 if each.kind == "id" else 1.0))
        width = (SPEC.dim or 16) * len(fields) + sum(
            each.width for each in schema.features if each.kind == "number"
        )
        self.crosses = nn.ModuleList(nn.Linear(width, width) for _ in range(SPEC.crosses))
        layers: list[nn.Module] = []
        inner = width
        for out in SPEC.layers:
            layers += [nn.Dropout(SPEC.dropout), nn.Linear(inner, out), nn.ReLU()]
            inner = out
        for layer in [*self.crosses, *layers]:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)
        self.mlp = nn.Sequential(*layers)
        self.head = nn.Linear(width + inner, 1)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        parts = []
        for table, bag, code in zip(self.tables, self.bags, codes.split(self.slots, dim=-1), strict=True):
            found = table(code.clamp(min=0))
            if bag:
                there = (code >= 0).unsqueeze(-1)
                parts.append((found * there).sum(1) / there.sum(1))
            else:
                parts.append(found[:, 0])
        x = torch.cat([*parts, numbers], dim=-1)
        crossed = x
        for layer in self.crosses:
            crossed = crossed + x * layer(crossed)
        return self.head(torch.cat((crossed, self.mlp(x)), dim=-1)).squeeze(-1)


def world_log() -> Log:
    """Rows of the synthetic impressions, with features of every kind."""
    world = ImpressionWorld(n_rows=ROWS, n_users=USERS, n_items=ITEMS)
    table = pa.concat_tables([log_table(world, world.chunk(number)) for number in range(world.n_chunks)])
    return Log.from_frame(table, click="click", space="impressions", features=list(FEATURES))


def plain_columns(rows: Rows) -> tuple[Tensor, Tensor]:
    """Codes and numbers of rows as the plain model takes them."""
    codes = torch.cat((rows.user[0, :, None], rows.item[0, :, None], rows["codes"][0]), dim=-1)
    return codes.long(), rows["numbers"][0]


def plain(
    codes: Tensor, numbers: Tensor, click: Tensor, schema: Schema, batch: int, epochs: int
) -> Callable[[], PlainDCN]:
    """Training of one plain model."""

    def work() -> PlainDCN:
        torch.manual_seed(0)
        model = PlainDCN(schema).to(codes.device)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        loss_function = nn.BCEWithLogitsLoss()
        for _ in range(epochs):
            for rows in torch.randperm(len(click), device=codes.device).split(batch):
                loss = loss_function(model(codes[rows], numbers[rows]), click[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        return model

    return work


def stacked(
    population: Population, log: Log, replicas: int, batch: int, epochs: int
) -> Callable[[], nn.Module]:
    """Training of so many replicas in one loop."""
    seeds = list(range(replicas))

    def work() -> nn.Module:
        network = SPEC.build(log.schema, seeds).to_device(population.device)

        def loss(draw: Sample) -> Tensor:
            assert draw.rows is not None
            assert draw.click is not None
            assert draw.cells is not None
            return cross_entropy(draw.click, network(population.filled(draw.rows, draw.cells))).mean(-1)

        train(
            {"click": network},
            [
                Pass(
                    LookedUp(EveryCell(population, seeds, batch), population),
                    (Step("click", loss, ("click",)),),
                )
            ],
            Schedule(epochs, 1e-3, 0.0, None),
            replicas=replicas,
            validate=None,
            tracker=SILENT.task("training", 1),
        )
        return network

    return work


def held_out_loss(logit: Tensor, click: Tensor) -> float:
    """Mean cross-entropy over rows and replicas."""
    return float(nn.functional.binary_cross_entropy_with_logits(logit, click.expand_as(logit)))


def main() -> None:
    options = arguments(__doc__, batch=BATCH)
    batch = options.batch
    device = resolve_device(options.device)
    log = world_log()
    cut = len(log) * 9 // 10
    fitted, later = log.take(np.arange(cut)), log.take(np.arange(cut, len(log)))
    population, held = Population(fitted, device), Population(later, device)
    cells = torch.arange(len(later), device=device)[None]
    held_rows, held_click = held.rows(cells), held.click(cells)
    codes, numbers = plain_columns(population.rows(torch.arange(cut, device=device)[None]))
    click = population.click(torch.arange(cut, device=device))

    stacked(population, fitted, 1, batch, 1)()
    plain(codes, numbers, click, log.schema, batch, 1)()
    model = plain(codes, numbers, click, log.schema, batch, EPOCHS)()
    model.eval()
    with torch.no_grad():
        reference = held_out_loss(model(*plain_columns(held_rows)), held_click[0])
    slow = _per_epoch(lambda n: plain(codes, numbers, click, log.schema, batch, n), options)
    steps = math.ceil(cut / batch)
    rows = [
        {
            "model": "plain loop",
            "replicas": 1,
            "rows/s": cut / slow,
            "µs a step": 1e6 * slow / steps,
            "÷ plain": 1.0,
            "held-out loss": reference,
        }
    ]
    for replicas in (1, 10):
        network = stacked(population, fitted, replicas, batch, EPOCHS)()
        network.eval()
        with torch.no_grad():
            loss = held_out_loss(network(held_rows), held_click)
        time = _per_epoch(lambda n, r=replicas: stacked(population, fitted, r, batch, n), options)
        rows.append(
            {
                "model": "unskew",
                "replicas": replicas,
                "rows/s": cut * replicas / time,
                "µs a step": 1e6 * time / steps,
                "÷ plain": slow * replicas / time,
                "held-out loss": loss,
            }
        )
    tell(
        f"Training DCN on {cut:,} impressions with {len(FEATURES)} features",
        rows,
        options.device,
        options.json,
    )


def _per_epoch(make: Callable[[int], Callable[[], object]], options: object) -> float:
    """Seconds per epoch, start-up taken out by a difference of two lengths."""
    repeats, device = options.repeats, options.device  # type: ignore[attr-defined]
    short, long = (seconds(make(n), repeats, device) for n in (1, 1 + EPOCHS))
    return (long - short) / EPOCHS


if __name__ == "__main__":
    main()
