"""Conversion models as plain files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from unskew.debias.core.base import Debiaser
from unskew.debias.core.fitted import Fitted
from unskew.debias.core.split import Split
from unskew.debias.core.trained import untrained
from unskew.debias.table import make_method
from unskew.errors import RunFolderError
from unskew.files import whole_folder
from unskew.saved import SavedFolder, named, params_table, restored_params, write_config, write_vocabularies
from unskew.training import resolve_device

WEIGHTS = "model.safetensors"


def save_model(model: Fitted, folder: str | Path, *, overwrite: bool = False) -> None:
    """Write a fitted model as a folder of plain files; :func:`load_model` reads it back."""
    with whole_folder(Path(folder), overwrite=overwrite) as beside:
        config = write_models(beside, {model.name: model})
        write_config(beside, {"main": model.name, **config})


def write_models(folder: Path, models: Mapping[str, Fitted]) -> dict[str, Any]:
    """Weights and vocabularies into a folder; what belongs into its config is returned."""
    weights: dict[str, Tensor] = {}
    for key, model in models.items():
        for name, network in model.networks_.items():
            weights |= named(network.state_dict(), f"{key}/{name}/")
    # Not save_file, which keeps all but its owner from reading what it wrote.
    (folder / WEIGHTS).write_bytes(save(weights))
    any_model = next(iter(models.values()))
    write_vocabularies(folder, any_model.users_, any_model.items_)
    return {
        "methods": {
            key: {
                "method": model.name,
                "seeds": list(model.seeds_),
                **({} if model.split_ is None else {"split": asdict(model.split_)}),
                "params": params_table(model),
            }
            for key, model in models.items()
        }
    }


def load_model(folder: str | Path, method: str | None = None, *, device: str = "auto") -> Debiaser:
    """The model of a run folder, ready to predict; by default the run's main method.

    Examples
    --------
    >>> model = load_model("runs/demo")                        # doctest: +SKIP
    >>> model.predict_pairs_each(["u1"], ["i7"])               # doctest: +SKIP
    """
    saved = SavedFolder(folder)
    methods = saved.config.get("methods", {})
    key = saved.config.get("main") if method is None else method
    if not methods:
        raise RunFolderError("holds no conversion model", where=str(folder), remedy="give a run folder")
    if key not in methods:
        raise RunFolderError(
            f"this run has no method {key!r}", where=str(folder), remedy=f"use one of {', '.join(methods)}"
        )
    told = methods[key]
    model = make_method(told["method"], **restored_params(told["params"]))
    model.seeds_ = tuple(told["seeds"])
    model.split_ = Split(**told["split"]) if "split" in told else None
    model.device_ = resolve_device(device)
    model.users_, model.items_ = saved.vocabulary("users"), saved.vocabulary("items")
    model.networks_ = untrained(model, len(model.users_), len(model.items_), model.seeds_, model.device_)
    for name, network in model.networks_.items():
        network.load_state_dict(saved.tensors(WEIGHTS, f"{key}/{name}/"))
    return model
