"""A run that starts from an earlier one: which model starts from which, and what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unskew.base.errors import RunFolderError
from unskew.base.manifest import MANIFEST
from unskew.data.digest import digest_of
from unskew.debias import Debiaser, load_model
from unskew.run.run_result import RunResult
from unskew.training.saved import SavedFolder
from unskew.training.warm_start import without_seed

Starts = Mapping[str, Debiaser]
"""Trained models that those of a run start from, by key."""


def run_digest(folder: str | Path) -> str:
    """By which a run folder is known: what its manifest says of all its files."""
    return digest_of(SavedFolder(folder).text(MANIFEST))


def check_start(folder: str | Path, seeds: Sequence[int]) -> None:
    """An error for a folder from which no run with these seeds can start, before any row is read."""
    saved = SavedFolder(folder)
    has = saved.seeds("methods", next(iter(_models_of(saved, folder))), "seeds")
    missing = [seed for seed in seeds if seed not in has]
    if missing:
        raise without_seed(missing[0], has, str(folder))


def _models_of(saved: SavedFolder, folder: str | Path) -> Mapping[str, Any]:
    """What its config says of the conversion models of a run, by key; an error where it has none."""
    there = saved.entry("methods", kind=dict) if "methods" in saved.config else {}
    if not there:
        raise RunFolderError(
            "holds no conversion model to start from", where=str(folder), remedy="give another run, or none"
        )
    return there


def start_models(folder: str | Path, keys: Iterable[str], device: str) -> dict[str, Debiaser]:
    """The model of an earlier run for each key of a run; its main model where it has none of that key."""
    saved = SavedFolder(folder)
    there = _models_of(saved, folder)
    found = {}
    for key in keys:
        found[key] = load_model(saved, key if key in there else None, device=device)
    return found


def with_start(result: RunResult, folder: str | Path) -> RunResult:
    """The result with what changed since the run that its models started from."""
    changes = {
        key: model.start_.changes(model, result.dataset.train)
        for key, model in result.models.items()
        if model.start_ is not None
    }
    if not changes:
        return result
    fields = changes[result.main]["fields"]
    moved = {
        key: {name: value for name, value in each.items() if name != "fields"}
        for key, each in changes.items()
    }
    start = {"run": str(folder), "fields": fields, "models": moved}
    labels = [*result.metrics["labels"], _of_fields(folder, fields), *map(_of_model, moved, moved.values())]
    return replace(result, metrics={**result.metrics, "start": start, "labels": labels})


def _of_fields(folder: str | Path, fields: Mapping[str, Mapping[str, int]]) -> str:
    ids = "; ".join(f"{name}s {_counts(fields[name])}" for name in ("user", "item"))
    others = [
        f"'{name}' {_counts(each)}"
        for name, each in fields.items()
        if name not in ("user", "item") and (each["new"] or each["gone"])
    ]
    return f"started from {folder}: {'; '.join([ids, *others])}"


def _counts(carried: Mapping[str, int]) -> str:
    return f"{carried['kept']:,} kept, {carried['new']:,} new, {carried['gone']:,} gone"


def _of_model(key: str, moved: Mapping[str, Any]) -> str:
    name = key.replace("_", " ")
    if "rows" not in moved:
        return f"{name}: no row is of a user and an item that both models know"
    order = "–" if moved["rank_correlation"] is None else f"{moved['rank_correlation']:.3f}"
    return (
        f"{name}: predictions of {moved['rows']:,} rows moved by {moved['mean_absolute_change']:.2g} on"
        f" average (rank correlation {order}, mean {moved['mean_before']:.3g} → {moved['mean_after']:.3g})"
    )
