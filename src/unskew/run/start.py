"""A run that starts from an earlier one: which model starts from which, and what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unskew.base.errors import RunFolderError
from unskew.base.manifest import MANIFEST
from unskew.data import Log
from unskew.data.digest import digest_of
from unskew.debias import Debiaser, load_model
from unskew.training.saved import SavedFolder
from unskew.training.warm_start import without_seed


def run_digest(folder: str | Path) -> str:
    """Return the digest of a run folder: of its manifest, which lists all its files."""
    return digest_of(SavedFolder(folder).text(MANIFEST))


def check_start(folder: str | Path, seeds: Sequence[int]) -> None:
    """Raise for a folder from which no run with these seeds can start, before any row is read."""
    saved = SavedFolder(folder)
    has = saved.seeds("methods", next(iter(_models_of(saved, folder))), "seeds")
    missing = [seed for seed in seeds if seed not in has]
    if missing:
        raise without_seed(missing[0], has, str(folder))


def _models_of(saved: SavedFolder, folder: str | Path) -> Mapping[str, Any]:
    """Return what its config says of the conversion models of a run, by key; without any, raise."""
    there = saved.entry("methods", kind=dict) if "methods" in saved.config else {}
    if not there:
        raise RunFolderError(
            "holds no conversion model to start from", where=str(folder), remedy="give another run, or none"
        )
    return there


def start_models(folder: str | Path, keys: Iterable[str], device: str) -> dict[str, Debiaser]:
    """Return the model of an earlier run for each key; its main model where it has none of that key."""
    saved = SavedFolder(folder)
    there = _models_of(saved, folder)
    return {key: load_model(saved, key if key in there else None, device=device) for key in keys}


def start_figures(
    folder: str | Path, models: Mapping[str, Debiaser], main: str, log: Log
) -> tuple[dict[str, Any], list[str]]:
    """Return what changed since the run that models started from, and the same in words."""
    changes = {
        key: model.start_.changes(model, log) for key, model in models.items() if model.start_ is not None
    }
    if not changes:
        return {}, []
    fields = changes[main]["fields"]
    moved = {
        key: {name: value for name, value in change.items() if name != "fields"}
        for key, change in changes.items()
    }
    labels = [_of_fields(folder, fields), *map(_of_model, moved, moved.values())]
    return {"start": {"run": str(folder), "fields": fields, "models": moved}}, labels


def _of_fields(folder: str | Path, fields: Mapping[str, Mapping[str, int]]) -> str:
    words = []
    for name, carried in fields.items():
        is_id = name in ("user", "item")
        if is_id or carried["new"] or carried["gone"]:
            called = f"{name}s" if is_id else f"'{name}'"
            counts = (f"{carried[what]:,} {what}" for what in ("kept", "new", "gone"))
            words.append(f"{called} {', '.join(counts)}")
    return f"started from {folder}: {'; '.join(words)}"


def _of_model(key: str, moved: Mapping[str, Any]) -> str:
    name = key.replace("_", " ")
    if "rows" not in moved:
        return f"{name}: no row is of a user and an item that both models know"
    order = "–" if moved["rank_correlation"] is None else f"{moved['rank_correlation']:.3f}"
    return (
        f"{name}: predictions of {moved['rows']:,} rows moved by {moved['mean_absolute_change']:.2g} on"
        f" average (rank correlation {order}, mean {moved['mean_before']:.3g} → {moved['mean_after']:.3g})"
    )
