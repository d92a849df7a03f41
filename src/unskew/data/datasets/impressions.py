"""Synthetic impressions, 100,000 by default: sessions, positions, times, features; the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.base.errors import ParameterError
from unskew.base.estimator import require_whole
from unskew.base.files import whole_folder, write_json
from unskew.base.progress import SILENT, Progress
from unskew.base.registry import register
from unskew.data import Log, Wanted
from unskew.data.datasets.dataset import Dataset, Protocol, own_features, takes
from unskew.data.datasets.impression_world import START, TOPICS, Column, Columns, ImpressionWorld
from unskew.data.vocabulary import Vocabulary

COUNTRY = [
    *("us", "de", "fr", "gb", "es", "it", "pl", "nl", "br", "jp"),
    *("in", "mx", "ca", "au", "se", "ch", "at", "be", "pt", "dk"),
]
DEVICE = ["phone", "desktop", "tablet"]
CATEGORY = [f"category_{number:02d}" for number in range(24)]

OUTCOMES = ("click", "conversion", "conversion_time")
FEATURES = (
    *("position", "time", "country", "age", "interests"),
    *("category", "brand", "price", "tags", "device", "discount"),
)
"""Columns that ``features="auto"`` takes."""

COLUMNS = ("user", "item", "session", *FEATURES[:2], *OUTCOMES, *FEATURES[2:])
"""The columns of the log."""

TRUTH = {
    "true_examination": "examination",
    "true_click": "p_click",
    "true_conversion": "p_conversion",
    "true_taste": "taste",
    "examined": "examined",
    "would_convert": "label",
}
"""The columns of the truth, which no model may see, and what the world calls them."""

CHUNKS_PER_FILE = 8
"""Chunks of a file, which are in memory at once: about a million rows."""


@register(order=45)
@takes(ImpressionWorld)
def impressions(
    root: str | Path | None,
    world: ImpressionWorld,
    *,
    protocol: Protocol = "honest",
    test_rows: int = 20_000,
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
) -> Dataset:
    """Draw a log of impressions from a world whose truth is known: o = click, r = conversion.

    The model and its parameters are those of
    :class:`~unskew.data.datasets.impression_world.ImpressionWorld`. The
    training log is in the space ``"impressions"``; its further columns are what was shown. The test log holds
    ``test_rows`` pairs of any user and any item, shown at random on the day after the log, with the
    conversions that a click would have had; its users may be new. ``row_truth["train"]`` and
    ``row_truth["test"]`` have the truth of their rows (``true_click``, ``true_conversion``,
    ``true_examination``, …), and the first ``conversion_time``. ``unskew make-data impressions`` writes the
    same rows to files, up to 10⁸ and more. With ``features="auto"`` networks read all columns but
    the session and the time of the conversion.

    Examples
    --------
    >>> data = impressions(n_rows=2000, n_users=200, n_items=50, test_rows=500)
    >>> len(data.train), data.train.space, len(data.row_truth["train"]["true_click"])
    (2000, 'impressions', 2000)
    """
    if root is not None:
        raise ParameterError("the impressions are drawn, not read", remedy="leave out root (--root)")
    require_whole(1, test_rows=test_rows)
    keep = [name for name in COLUMNS if name not in ("user", "item", "interests", "tags", *OUTCOMES)]
    shared: dict[str, Any] = {
        "users": Vocabulary.range(world.n_users, name="user"),
        "items": Vocabulary.range(world.n_items, name="item"),
        "conversion": "conversion",
        "keep": keep,
    }
    chunks = [world.chunk(number) for number in range(world.n_chunks)]
    table = pa.concat_tables([log_table(world, chunk) for chunk in chunks])
    truth = pa.concat_tables([truth_table(chunk) for chunk in chunks])
    wanted = own_features(features, FEATURES)
    train = Log.from_frame(
        table, click="click", space="impressions", features=wanted, ignore=ignore, **shared
    )
    shown = world.random(test_rows)
    cell = shown["user"].astype(np.int64) * world.n_items + shown["item"]
    leaked = np.isin(cell, train.cell[train.clicked])
    if protocol == "honest":
        shown = {name: column[~leaked] for name, column in shown.items()}
    declared = None if train.features is None else train.features.declared
    # Every listed row is known: a log of pairs. Its rows are impressions none the less.
    test = Log.from_frame(test_table(world, shown), features=declared, **shared)
    truth = truth.append_column("conversion_time", table.column("conversion_time"))
    truths = {"train": truth, "test": truth_table(shown)}
    return Dataset(
        name="impressions",
        train=train,
        test=replace(test, space="impressions"),
        test_is="random",
        facts={
            "protocol": protocol,
            "leaked_cells_found": int(leaked.sum()),
            "leaked_cells_dropped": int(leaked.sum()) if protocol == "honest" else 0,
            "options": {**asdict(world), "test_rows": test_rows},
            "users_in_train": len(np.unique(train.user)),
            "test_rows_of_new_users": int((~np.isin(test.user, train.user)).sum()),
            "note": "drawn from a known model; no real people",
        },
        row_truth={
            log: {name: rows.column(name).to_numpy() for name in rows.column_names}
            for log, rows in truths.items()
        },
    )


def log_table(world: ImpressionWorld, rows: Columns) -> Any:
    """Return the rows as a log has them, with the columns :data:`COLUMNS`."""
    converted = (rows["click"] == 1) & (rows["label"] == 1)
    when = START + (rows["time"] + rows["delay"]).astype("timedelta64[ms]")
    if world.censored:
        converted &= when < world.end
    outcomes = {"click": rows["click"], "conversion": converted.view(np.uint8)}
    columns = _shown(world, rows) | outcomes | {"conversion_time": pa.array(when, mask=~converted)}
    return pa.table({name: columns[name] for name in COLUMNS})


def test_table(world: ImpressionWorld, rows: Columns) -> Any:
    """Return rows shown at random: every conversion is known, whatever was clicked, so there is no click."""
    columns = _shown(world, rows) | {"conversion": rows["label"]}
    return pa.table({name: columns[name] for name in COLUMNS if name in columns})


def truth_table(rows: Columns) -> Any:
    """Return what a real log never tells, with the columns of :data:`TRUTH`."""
    return pa.table({truth: rows[name] for truth, name in TRUTH.items()})


def _shown(world: ImpressionWorld, rows: Columns) -> dict[str, Any]:
    user, item = (
        {name: column[rows[role]] for name, column in values.items() if name not in OUTCOMES}
        for role, values in (("user", world.users), ("item", world.items))
    )
    return {
        **{name: rows[name] for name in ("user", "item", "session", "position", "discount")},
        **{name: item[name] for name in ("brand", "price")},
        "time": pa.array(START + rows["time"].astype("timedelta64[ms]")),
        "country": pa.DictionaryArray.from_arrays(user["country"], COUNTRY),
        "category": pa.DictionaryArray.from_arrays(item["category"], CATEGORY),
        "device": pa.DictionaryArray.from_arrays(rows["device"], DEVICE),
        "age": pa.array(user["age"], mask=np.isnan(user["age"])),
        "interests": _bags(user["interests"]),
        "tags": _bags(item["tags"]),
    }


def _bags(masks: Column) -> Any:
    """Return lists of topics from a bit for each topic."""
    bits = (masks[:, None] >> np.arange(TOPICS, dtype=np.uint16)) & 1
    offsets = np.concatenate([[0], np.cumsum(bits.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, np.nonzero(bits)[1].astype(np.int8))


def write_world(
    world: ImpressionWorld,
    folder: str | Path,
    *,
    test_rows: int = 100_000,
    truth: bool = True,
    progress: Progress = SILENT,
) -> dict[str, int]:
    """Write ``log/part-*.parquet``, ``truth/part-*.parquet`` (the same rows), ``test.parquet`` and its truth.

    Memory is bounded, and the folder is whole or not there. Return its rows, files of the log and bytes.

    Parameters
    ----------
    test_rows
        Pairs shown at random, at most; 0 writes none.
    truth
        Write the truth too.
    """
    require_whole(0, test_rows=test_rows)
    files = -(-world.n_chunks // CHUNKS_PER_FILE)
    kinds = ("log", "truth")[: 1 + truth]
    tracker = progress.task("impressions", world.n_rows)
    with whole_folder(Path(folder), overwrite=False) as target:
        for kind in kinds:
            (target / kind).mkdir()
        for number in range(files):
            chunks = range(number * CHUNKS_PER_FILE, min((number + 1) * CHUNKS_PER_FILE, world.n_chunks))
            drawn = [world.chunk(chunk) for chunk in chunks]
            for kind in kinds:
                tables = [log_table(world, rows) if kind == "log" else truth_table(rows) for rows in drawn]
                path = target / kind / f"part-{number:05d}-of-{files:05d}.parquet"
                _write(path, pa.concat_tables(tables), world.chunk_rows)
            tracker.advance(sum(len(rows["user"]) for rows in drawn))
        if test_rows:
            shown = world.random(test_rows)
            _write(target / "test.parquet", test_table(world, shown), test_rows)
            if truth:
                _write(target / "test_truth.parquet", truth_table(shown), test_rows)
        write_json(target / "world.json", {"test_rows": test_rows, "truth": truth, **asdict(world)})
        size = sum(path.stat().st_size for path in target.rglob("*.parquet"))
    tracker.finish()
    return {"rows": world.n_rows, "files": files, "bytes": size}


def _write(path: Path, table: Any, rows: int) -> None:
    pq.write_table(table, path, row_group_size=rows, compression="lz4")
