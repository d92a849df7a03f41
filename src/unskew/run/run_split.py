"""How a run holds out rows and leaves out young ones, from its configuration to the words of its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.base.errors import ParameterError
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.data.splitting import SplitBy, mature_rows, times_of
from unskew.debias import Debiaser
from unskew.run.protocol import WITHOUT_CLICKED
from unskew.training.held_out import Split
from unskew.training.held_out_check import outcome_words

if TYPE_CHECKING:
    from unskew.run.run_config import RunConfig

BY_PAIRS = tuple(f"epoch chosen on a validation split of the {what}" for what in ("clicks", "rows"))
"""Labels of a split by pairs, which others replace."""


def validation_params(split: str | None, valid_from: str | None, time: str | None) -> dict[str, Any]:
    """Parameters of a debiaser from what ``--split``, ``--valid-from`` and ``--time`` say.

    Examples
    --------
    >>> validation_params("time:0.8", None, "when")
    {'validation_by': 'time:when', 'validation_share': 0.2}
    >>> validation_params("group:session", None, None)
    {'validation_by': 'group:session', 'validation_share': 0.2}
    """
    if valid_from is not None:
        if split is not None:
            raise ParameterError("split and valid_from both say what is held out", remedy="give one of them")
        by = f"from:{valid_from}" + (f"@{time}" if time else "")
        SplitBy.parse(by)
        return {"validation_by": by}
    if split in (None, "auto"):
        return {} if time is None else {"validation_by": f"auto:{time}"}
    assert split is not None
    kind, _, rest = split.partition(":")
    column, colon, text = rest.rpartition(":") if kind == "group" else ("", "", rest)
    if kind == "group" and not (colon and _share(text) is not None):
        column, text = rest, ""
    share = _share(text) if text else 0.2
    if kind not in ("time", "user", "group", "pair") or share is None or (kind == "group") > bool(column):
        raise ParameterError(
            f"{split!r} is not a split",
            remedy="give time:0.8 (train on the first 80 %), user:0.2 (hold out 20 % of users), pair:0.1,"
            " group:COLUMN, group:COLUMN:0.1 or auto",
        )
    if kind == "time":
        by = "time" if time is None else f"time:{time}"
        return {"validation_by": by, "validation_share": round(1.0 - share, 12) if text else share}
    return {"validation_by": f"group:{column}" if column else kind, "validation_share": share}


def _share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0.0 < share < 1.0 else None


def with_group_column(options: Mapping[str, Any], config: RunConfig) -> dict[str, Any]:
    """Options of the loader of files, which keeps the column that groups are split by."""
    by = validation_params(config.split, None, None).get("validation_by", "")
    if config.data != "files" or not by.startswith("group:"):
        return dict(options)
    column = by.removeprefix("group:")
    return {**options, "keep": tuple(dict.fromkeys((*options.get("keep", ()), column)))}


def mature_dataset(dataset: Dataset, maturity: str | None, time: str | None) -> Dataset:
    """A dataset without training rows too young to have converted; ``facts`` say how many these were."""
    if maturity is None:
        return dataset
    truth = dict(dataset.row_truth.get("train", {}))
    found = mature_rows(dataset.train, maturity, time=time, conversion_time=truth.get("conversion_time"))
    return replace(
        dataset,
        train=found.log,
        row_truth={
            **dataset.row_truth,
            **({"train": {name: values[found.kept] for name, values in truth.items()}} if truth else {}),
        },
        facts={
            **dataset.facts,
            "maturity": maturity,
            "immature_rows_dropped": found.dropped,
            "late_conversions_censored": found.censored,
            "mature_until": str(found.until.astype("datetime64[s]")),
        },
    )


def split_labels(labels: list[str], models: Mapping[str, Debiaser], dataset: Dataset) -> list[str]:
    """The labels of a protocol, with what was held out and left out in this run."""
    model = next(iter(models.values()), None)
    if model is not None and model.split_.held_out:
        log = dataset.train
        asked = SplitBy.of(model.validation_by, log)
        split, counted = model.split_, outcome_words(log, model.validation_rows(log))
        labels = [
            f"{split_words(split, log.n_clicks, asked) or each}; {counted}" if each in BY_PAIRS else each
            for each in labels
        ]
    if dataset.train.space == "impressions":
        labels = [each for each in labels if each != WITHOUT_CLICKED]
    if "immature_rows_dropped" in dataset.facts:
        labels = [*labels, maturity_words(dataset.facts)]
    absent = dataset.facts.get("features_left_out")
    if absent:
        labels = [*labels, f"no features, since files to be scored lack them: {', '.join(absent)}"]
    return labels


def split_words(split: Split, clicks: int, asked: SplitBy) -> str:
    """What a split held out of so many clicks, in words; none for pairs that were asked for."""
    share = f"{100 * split.held_out / max(clicks, 1):.2g} % of the clicks"
    each = "" if split.lines == 1 else " of each member"
    if split.by.kind == "pair":
        instead = f"epoch{each} chosen on {share}: by pair, since the latest all had one outcome"
        return instead if asked.kind == "time" else ""
    if split.by.kind == "time":
        first = np.datetime64(-split.ends[0][0], "us").astype("datetime64[s]")
        return f"epoch chosen on the latest {share}: by time, from {first} on (column '{split.by.column}')"
    if split.by.kind == "user":
        return f"epoch{each} chosen on {share}: by user, none of whom trained it"
    return f"epoch{each} chosen on {share}: by groups of column '{split.by.column}', none of which trained it"


def maturity_words(facts: Mapping[str, Any]) -> str:
    """What was left out as too young, in words."""
    late = facts["late_conversions_censored"]
    censored = f"; {late:,} conversions that came later than that count as none" if late else ""
    return (
        f"{facts['immature_rows_dropped']:,} rows after {facts['mature_until']} dropped: less than"
        f" {facts['maturity']} to convert{censored}"
    )


def split_columns(models: Mapping[str, Debiaser], log: Log) -> dict[str, Any]:
    """The column that the split of a run goes by, which tells later what was held out; none without one."""
    split = next(iter(models.values())).split_ if models else None
    if split is None or split.by.column is None:
        return {}
    values = times_of(log, split.by.column) if split.by.kind == "time" else log.columns[split.by.column]
    return {split.by.column: values}
