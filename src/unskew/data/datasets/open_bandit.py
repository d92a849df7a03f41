"""Open Bandit: 26 million items shown on ZOZOTOWN with the probability of showing each, by two policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unskew.base.errors import DataError
from unskew.base.estimator import require_choice
from unskew.base.registry import register
from unskew.base.tables import read_file
from unskew.data import Category, Feature, Number, Wanted
from unskew.data.datasets.dataset import Dataset, Protocol, find_files
from unskew.data.datasets.events import csv_blocks, event_dataset, own_features, require_rows
from unskew.data.kinds import TimePart
from unskew.data.vocabulary import Vocabulary

Campaign = Literal["all", "men", "women"]
Policy = Literal["bts", "random"]

CONTEXT = "item_context.csv"
PROPENSITY, OUTCOME, ITEM = "propensity_score", "click", "item_id"
USER_FEATURES = tuple(f"user_feature_{number}" for number in range(4))
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
    features: Wanted | bool | None = None,
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
        ``user-item_affinity_*``), but for those in ``ignore``. Otherwise they are columns of the log; False
        leaves all but time and position out.
    rows
        Only the first rows of each log; None reads all.
    """
    require_choice("campaign", campaign, get_args(Campaign))
    require_choice("policy", policy, get_args(Policy))
    require_rows(rows)
    policies = (policy,) if policy == "random" else (policy, "random")
    names = [f"{each}/{campaign}/{name}" for each in policies for name in (f"{campaign}.csv", CONTEXT)]
    paths = find_files(root, "open_bandit", [names], REMEDY)
    files, context_file = paths[::2], paths[1]
    context = read_file(context_file, numbers=None)
    if ITEM not in context.column_names:
        raise DataError(f"column '{ITEM}' is missing", where=str(context_file), remedy=REMEDY)
    # The features of the items, a row for each.
    context = context.select(
        [ITEM, *sorted(name for name in context.column_names if name.startswith("item_feature_"))]
    )
    tables = [_table(file, context, features is not False, rows) for file in files]
    items = Vocabulary.of(context.column(ITEM).to_numpy(), name=ITEM)
    wanted = own_features(features, _declared(context), ignore)
    named = [*USER_FEATURES, *context.column_names[1:], "affinity"]
    if features is False or wanted is not None:
        named = []
    data = event_dataset(
        "open_bandit",
        tables,
        files,
        keep=["time", "position", *named],
        features=wanted,
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
    return replace(data, test=None if policy == "random" else data.test, test_is="random")


def _declared(context: Any) -> list[Feature]:
    """Declare the kinds of the columns; the first feature of the items is a number."""
    return [
        Category("position", role="row"),
        *TimePart.both("time"),
        *(Category(name, role="user") for name in USER_FEATURES),
        *(
            (Number if pa.types.is_floating(context.schema.field(name).type) else Category)(name, role="item")
            for name in context.column_names[1:]
        ),
        Number("affinity", role="row"),
    ]


def _table(file: Path, context: Any, features: bool, rows: int | None) -> Any:
    """Return the rows of a log with the features of the user and of the item shown."""
    # The affinity of item k stands at place k.
    affinities = [f"{AFFINITY}{number}" for number in range(len(context))] if features else []
    types = {**TYPES, **dict.fromkeys(affinities, pa.float32())}
    parts = []
    for block in csv_blocks(file, types, REMEDY, rows):
        at = pc.index_in(block.column(ITEM), value_set=context.column(ITEM).combine_chunks().cast(pa.int32()))
        if at.null_count:
            raise DataError(
                f"item_id {block.column(ITEM)[int(np.flatnonzero(at.is_null())[0])]} is not in {CONTEXT}",
                where=str(file),
                remedy=REMEDY,
            )
        columns = {name: block.column(name) for name in (ITEM, "position", OUTCOME, PROPENSITY)}
        columns["time"] = block.column("timestamp")
        columns["user"] = pc.binary_join_element_wise(*(block.column(name) for name in USER_FEATURES), "|")
        if features:
            columns |= {name: block.column(name) for name in USER_FEATURES}
            columns |= {name: context.column(name).take(at) for name in context.column_names[1:]}
            every = np.stack([block.column(name).to_numpy() for name in affinities])
            item = block.column(ITEM).to_numpy()
            columns["affinity"] = pa.array(every[item, np.arange(len(item))])
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)
