"""Synthetic impressions, 100,000 by default: sessions, positions, times, features; the truth is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.errors import ParameterError
from unskew.base.estimator import require_whole
from unskew.base.registry import register
from unskew.data import Log, Wanted
from unskew.data.datasets.dataset import Dataset, Protocol
from unskew.data.datasets.events import own_features
from unskew.data.datasets.impression_tables import COLUMNS, OUTCOMES, log_table, test_table, truth_table
from unskew.data.datasets.impression_world import Columns, ImpressionWorld, take
from unskew.data.vocabulary import Vocabulary

NO_FEATURES = ("user", "item", "session", *OUTCOMES)
"""Columns that ``features="auto"`` leaves out."""

NOT_KEPT = ("user", "item", "interests", "tags", *OUTCOMES)
"""Columns with a place of their own, and lists."""


@register(order=45)
def impressions(
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    n_rows: int = 100_000,
    n_users: int = 2_000,
    n_items: int = 500,
    test_rows: int = 20_000,
    positions: int = 8,
    days: int = 14,
    click_rate: float = 0.1,
    conversion_rate: float = 0.1,
    bias: float = 1.0,
    position_bias: float = 1.0,
    confounding: float = 0.0,
    arriving: float = 0.5,
    delay_days: float = 1.0,
    censored: bool = False,
    seed: int = 0,
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
    world = ImpressionWorld(
        n_rows=n_rows,
        n_users=n_users,
        n_items=n_items,
        positions=positions,
        days=days,
        click_rate=click_rate,
        conversion_rate=conversion_rate,
        bias=bias,
        position_bias=position_bias,
        confounding=confounding,
        arriving=arriving,
        delay_days=delay_days,
        censored=censored,
        seed=seed,
    )
    shared: dict[str, Any] = {
        "users": Vocabulary.range(n_users, name="user"),
        "items": Vocabulary.range(n_items, name="item"),
    }
    chunks = [world.chunk(number) for number in range(world.n_chunks)]
    table = pa.concat_tables([log_table(world, chunk) for chunk in chunks])
    columns = own_features(features, [name for name in COLUMNS if name not in NO_FEATURES])
    train = _log(table, columns, click="click", space="impressions", ignore=ignore, **shared)
    declared = None if train.features is None else train.features.declared
    test_chunk, leak = _test_rows(world, train, test_rows, protocol)
    # Every listed row is known: a log of pairs. Its rows are impressions none the less.
    test = replace(_log(test_table(world, test_chunk), declared, **shared), space="impressions")
    truth = pa.concat_tables([truth_table(chunk) for chunk in chunks])
    truth = truth.append_column("conversion_time", table.column("conversion_time"))
    return Dataset(
        name="impressions",
        train=train,
        test=test,
        test_is="random",
        facts={
            **leak,
            "options": {**asdict(world), "test_rows": test_rows},
            "users_in_train": len(np.unique(train.user)),
            "test_rows_of_new_users": int((~np.isin(test.user, train.user)).sum()),
            "note": "drawn from a known model; no real people",
        },
        row_truth={"train": _arrays(truth), "test": _arrays(truth_table(test_chunk))},
    )


def _log(table: Any, features: Wanted | None, **options: Any) -> Log:
    keep = [name for name in COLUMNS if name in table.column_names and name not in NOT_KEPT]
    return Log.from_frame(table, conversion="conversion", keep=keep, features=features, **options)


def _arrays(table: Any) -> dict[str, NDArray[Any]]:
    return {name: table.column(name).to_numpy() for name in table.column_names}


def _test_rows(
    world: ImpressionWorld, train: Log, rows: int, protocol: Protocol
) -> tuple[Columns, dict[str, Any]]:
    """Draw pairs shown at random; under the honest protocol leave out those clicked in training."""
    chunk = world.random(rows)
    cell = chunk["user"].astype(np.int64) * world.n_items + chunk["item"]
    leaked = np.isin(cell, train.cell[train.clicked])
    return take(chunk, ~leaked) if protocol == "honest" else chunk, {
        "protocol": protocol,
        "leaked_cells_found": int(leaked.sum()),
        "leaked_cells_dropped": int(leaked.sum()) if protocol == "honest" else 0,
    }
