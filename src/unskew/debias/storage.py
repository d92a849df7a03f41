"""Conversion models as plain files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count, pairwise, takewhile
from pathlib import Path
from typing import Any

from unskew.base import processes
from unskew.base.errors import ParameterError, RunFolderError
from unskew.base.files import CONFIG
from unskew.base.registry import METHODS
from unskew.base.tensors import Tensor
from unskew.calibration.recalibration import Recalibration
from unskew.data.splitting import SplitBy
from unskew.debias.method import Debiaser
from unskew.metrics.collapse import REMEDIES, Collapsed
from unskew.training import resolve_device
from unskew.training.held_out import Split
from unskew.training.saved import (
    Reads,
    SavedFolder,
    named,
    params_table,
    sealed_folder,
    write_config,
    write_inputs,
)
from unskew.training.tensor_files import write_tensors

WEIGHTS = "model.safetensors"
RECALIBRATION = "recalibration.json"
BESIDE = "beside"
"""The entry of a model for the first beside it; of others, with their number."""


def save_model(model: Debiaser, folder: str | Path, *, overwrite: bool = False) -> None:
    """Write a fitted model as a folder of plain files; :func:`load_model` reads it back."""

    def write() -> None:
        with sealed_folder(Path(folder), overwrite=overwrite) as beside:
            config = write_models(beside, {model.name: model})
            write_config(beside, {"main": model.name, **config})

    processes.write(write)


def write_models(folder: Path, models: Mapping[str, Debiaser], *beside: Reads) -> dict[str, Any]:
    """Write weights and vocabularies into a folder; return what belongs into its config.

    Parameters
    ----------
    beside
        What else of the same log will be read from the folder: a propensity.
    """
    weights: dict[str, Tensor] = {}
    for key, model in models.items():
        for at, one in _with_beside(key, model):
            for name, network in one.networks_.items():
                weights |= named(network.state_dict(), f"{at}/{name}/")
    write_tensors(folder / WEIGHTS, weights)
    write_inputs(folder, *models.values(), *beside)
    recalibrated = {
        key: model.recalibration_.to_dict()
        for key, model in models.items()
        if model.recalibration_ is not None
    }
    if recalibrated:
        (folder / RECALIBRATION).write_text(json.dumps(recalibrated, indent=1) + "\n", encoding="utf-8")
    return {"methods": {key: _described(model) for key, model in models.items()}}


def _with_beside(key: str, model: Debiaser) -> list[tuple[str, Debiaser]]:
    """Return a model by its key, and those beside it by others."""
    return [(key, model), *((f"{key}/{name}", each) for name, each in _beside(model).items())]


def _beside(model: Debiaser) -> dict[str, Debiaser]:
    """Return the models beside one, by their entries."""
    return {_entry(number): each for number, each in enumerate(model.beside_, start=1)}


def _entry(number: int) -> str:
    return BESIDE if number == 1 else f"{BESIDE} {number}"


def _described(model: Debiaser) -> dict[str, Any]:
    """Return what the config says of a model."""
    split = model.split_
    return {
        "method": model.name,
        "seeds": list(model.seeds_),
        "collapsed": [list(each) for each in model.collapsed_],
        "split": {
            "held_out": split.held_out,
            "ends": [list(each) for each in split.ends],
            "by": str(split.by),
            "lines": split.lines,
        },
        "params": params_table(model),
        **{name: _described(each) for name, each in _beside(model).items()},
    }


def load_model(
    folder: str | Path | SavedFolder, method: str | None = None, *, device: str = "auto"
) -> Debiaser:
    """Return the model of a run folder, ready to predict; by default the run's main method.

    Examples
    --------
    >>> model = load_model("runs/demo")                        # doctest: +SKIP
    >>> model.predict_pairs_each(["u1"], ["i7"])               # doctest: +SKIP
    """
    saved = SavedFolder.of(folder)
    methods = saved.entry("methods", kind=dict) if "methods" in saved.config else {}
    key = str(saved.config.get("main")) if method is None else method
    if not methods:
        raise RunFolderError("holds no conversion model", where=str(saved.folder), remedy="give a run folder")
    if key not in methods:
        raise RunFolderError(
            f"this run has no method {key!r}",
            where=str(saved.folder),
            remedy=f"use one of {', '.join(methods)}",
        )
    model = _loaded(saved, key, device, "methods", key)
    model.recalibration_ = _recalibration(saved, key, len(model.seeds_))
    names = list(takewhile(methods[key].__contains__, map(_entry, count(1))))
    model.beside_ = tuple(_loaded(saved, f"{key}/{name}", device, "methods", key, name) for name in names)
    return model


def _loaded(saved: SavedFolder, key: str, device: str, *at: str) -> Debiaser:
    """Return the model that the config describes there, with its weights by a key."""
    model = _restored(saved, *at)
    model.seeds_ = saved.seeds(*at, "seeds")
    model.split_ = _split(saved, model.members, *at)
    model.collapsed_ = _collapsed(saved, *at)
    model.device_ = resolve_device(device)
    model.recalibration_, model.beside_ = None, ()
    own = [each.own for each in model.replicas()]
    saved.check_shapes(
        lambda schema: {f"{key}/{name}/": network for name, network in model.untrained(schema, own).items()},
        WEIGHTS,
    )
    model.users_, model.items_ = saved.vocabulary("users"), saved.vocabulary("items")
    encoders = saved.encoders() if model.reads_features else None
    model.encoders_ = None if encoders is None else encoders.select(model.fields)
    model.networks_ = model.untrained(saved.schema(), own, model.device_, drawn=False)
    for name, network in model.networks_.items():
        saved.fill(network, WEIGHTS, f"{key}/{name}/")
    return model


def _recalibration(saved: SavedFolder, key: str, seeds: int) -> Recalibration | None:
    """Return the map of a model; None where it has none."""
    if not (saved.folder / RECALIBRATION).is_file():
        return None
    records = saved.json(RECALIBRATION)
    if not isinstance(records, dict):
        raise saved.damaged(RECALIBRATION, f"it holds {records!r}")
    if key not in records:
        return None
    recalibration = Recalibration.from_dict(records[key])
    if len(recalibration.calibrators) != seeds:
        raise saved.damaged(RECALIBRATION, f"{len(recalibration.calibrators)} maps of {seeds} seeds")
    return recalibration


def _restored(saved: SavedFolder, *at: str) -> Debiaser:
    """Return the untrained method that the config tells of."""
    name = saved.entry(*at, "method", kind=str)
    if name not in METHODS:
        raise RunFolderError(
            f"its method {name!r} is none of unskew's",
            where=str(saved.folder),
            remedy="give the file that registers it by --with (in Python: import it first)",
        )
    return saved.restored(METHODS[name], *at, "params")


def _collapsed(saved: SavedFolder, *at: str) -> tuple[Collapsed, ...]:
    records = saved.entry(*at, "collapsed", kind=list)
    for record in records:
        kinds = [type(value) for value in record] if isinstance(record, list) else []
        if kinds != [str, int, str] or record[2] not in REMEDIES:
            raise saved.damaged(CONFIG, f"{'.'.join(at)}.collapsed is {records!r}")
    return tuple(Collapsed(*each) for each in records)


def _split(saved: SavedFolder, members: int, *at: str) -> Split:
    """Return which clicks a model of so many trained members held out."""
    at = (*at, "split")
    held_out = saved.entry(*at, "held_out", kind=int)
    lines = saved.entry(*at, "lines", kind=int)
    ends = saved.entry(*at, "ends", kind=list)
    wanted = len(saved.seeds(*at[:-1], "seeds")) if held_out else 0
    if len(ends) != wanted or not all(_is_ends(each, lines) for each in ends):
        raise saved.damaged(CONFIG, f"{'.'.join(at)}.ends is {ends!r}")
    by = saved.entry(*at, "by", kind=str)
    try:
        parsed = SplitBy.parse(by)
    except ParameterError:
        raise saved.damaged(CONFIG, f"{'.'.join(at)}.by is {by!r}") from None
    one = 1 if parsed.kind == "time" else members
    if held_out < 0 or lines not in (1, one):
        raise saved.damaged(CONFIG, f"{'.'.join(at)} has {held_out} held-out clicks and {lines} lines")
    return Split(held_out, tuple(tuple(each) for each in ends), parsed, lines)


def _is_ends(value: Any, lines: int) -> bool:
    """Return whether a value can be the ends of a seed's parts."""
    return (
        isinstance(value, list)
        and 1 <= len(value) <= lines
        and all(type(each) is int for each in value)
        and all(first < second for first, second in pairwise(value))
    )
