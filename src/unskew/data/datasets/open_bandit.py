"""Open Bandit: 26 million items shown on ZOZOTOWN with the probability of showing each, by two policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.base.errors import DataError
from unskew.base.estimator import require_choice
from unskew.base.registry import register
from unskew.data import Category, Number, Wanted
from unskew.data.datasets.dataset import (
    Dataset,
    Protocol,
    csv_blocks,
    event_dataset,
    find_files,
    own_features,
    require_rows,
)
from unskew.data.kinds import TimePart
from unskew.data.vocabulary import Vocabulary

Campaign = Literal["all", "men", "women"]
Policy = Literal["bts", "random"]

CONTEXT = "item_context.csv"
PROPENSITY, OUTCOME, ITEM = "propensity_score", "click", "item_id"
USER_FEATURES = tuple(f"user_feature_{number}" for number in range(4))
ITEM_FEATURES = {"item_feature_0": pa.float64(), **{f"item_feature_{n}": pa.string() for n in (1, 2, 3)}}
AFFINITY = "user-item_affinity_"
TYPES = {
    "timestamp": pa.timestamp("us", "UTC"),
    ITEM: pa.int32(),
    "position": pa.int8(),
    OUTCOME: pa.int8(),
    PROPENSITY: pa.float64(),
    **dict.fromkeys(USER_FEATURES, pa.string()),
}
REMEDY = "download the Open Bandit Dataset again (ZOZO Research, Open Bandit Data) and unpack all of it"


@register(order=43)
def open_bandit(
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    campaign: Campaign = "all",
    policy: Policy = "bts",
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
    rows: int | None = None,
) -> Dataset:
    """Read the Open Bandit Dataset: every row was shown with a known probability, and r = click.

    Training is the log of one policy, by default of Bernoulli Thompson sampling; the test log is that of the
    uniformly random policy, so that its rows were shown at random (with ``policy="random"`` there is no test
    log). The files name no users: people with the same four
    features count as one. Actions are the items of ``item_context.csv``; the probability is that of the item
    *at its position*. Read block by block.

    Parameters
    ----------
    campaign
        ``"all"`` (80 items), ``"men"`` (34) or ``"women"`` (46).
    policy
        Whose log trains: ``"bts"`` or ``"random"``.
    features, ignore
        What networks read beside the ids: ``"auto"`` is position, hour and weekday, the features of users and
        items, and ``affinity``, that of the user and the item shown (one of the 80 columns
        ``user-item_affinity_*``), but for those in ``ignore``. Without it time and position alone are read.
    rows
        Only the first rows of each log; None reads all.
    """
    require_choice("campaign", campaign, get_args(Campaign))
    require_choice("policy", policy, get_args(Policy))
    require_rows(rows)
    policies = (policy,) if policy == "random" else (policy, "random")
    names = [f"{which}/{campaign}/{name}" for which in policies for name in (f"{campaign}.csv", CONTEXT)]
    paths = find_files(root, "open_bandit", [names], REMEDY)
    files, context_file = paths[::2], paths[1]
    context = pa.Table.from_batches(csv_blocks(context_file, {ITEM: pa.int32(), **ITEM_FEATURES}, REMEDY))
    tables = [_table(file, context, features is not None, rows) for file in files]
    items = Vocabulary.of(context.column(ITEM).to_numpy(), name=ITEM)
    own = [
        Category("position", role="row"),
        *TimePart.both("time"),
        *(Category(name, role="user") for name in USER_FEATURES),
        Number("item_feature_0", role="item"),
        *(Category(name, role="item") for name in (*ITEM_FEATURES,)[1:]),
        Number("affinity", role="row"),
    ]
    return event_dataset(
        "open_bandit",
        tables,
        files,
        keep=["time", "position"],
        features=own_features(features, own, ignore),
        test_is="random",
        time="time",
        user="user",
        item=ITEM,
        conversion=OUTCOME,
        known_propensity=PROPENSITY,
        actions=len(items),
        items=items,
        facts={
            "protocol": protocol,
            "campaign": campaign,
            "policy": policy,
            "note": "no user ids: people with the same four features are one user; the test log is that of"
            " the random policy",
        },
    )


def _table(file: Path, context: Any, features: bool, rows: int | None) -> Any:
    """Return the rows of a log with the features of the user and of the item shown."""
    affinities = [f"{AFFINITY}{number}" for number in range(len(context))] if features else []
    types = {**TYPES, **dict.fromkeys(affinities, pa.float32())}
    tables = []
    for block in csv_blocks(file, types, REMEDY, rows):
        item = block.column(ITEM)
        at = pc.index_in(item, value_set=context.column(ITEM).combine_chunks())
        if at.null_count:
            unknown = item.filter(at.is_null())[0]
            raise DataError(f"item_id {unknown} is not in {CONTEXT}", where=str(file), remedy=REMEDY)
        columns = {name: block.column(name) for name in (ITEM, "position", OUTCOME, PROPENSITY)}
        columns["time"] = block.column("timestamp")
        columns["user"] = pc.binary_join_element_wise(*(block.column(name) for name in USER_FEATURES), "|")
        if features:
            columns |= {name: block.column(name) for name in USER_FEATURES}
            columns |= {name: context.column(name).take(at) for name in ITEM_FEATURES}
            # The affinity of item k stands at place k.
            every = np.stack([block.column(name).to_numpy() for name in affinities])
            columns["affinity"] = pa.array(every[item.to_numpy(), np.arange(len(item))])
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)
