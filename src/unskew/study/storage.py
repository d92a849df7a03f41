"""Models and propensities as plain files: TOML for what they are, safetensors for weights, no pickle."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unskew import __version__
from unskew.backbones import make_backbone
from unskew.calibration import calibrator_from_dict, make_calibrator
from unskew.debias import Debiaser, make_method
from unskew.errors import RunFolderError
from unskew.files import CONFIG, to_toml, whole_folder
from unskew.propensity import Propensity
from unskew.propensity.design import SplitDesign
from unskew.training import Population, Slots, resolve_device
from unskew.vocabulary import Vocabulary

WEIGHTS = "model.safetensors"
CALIBRATORS = "calibrator.json"
FORMAT = 1


def save_model(model: Debiaser, folder: str | Path, *, overwrite: bool = False) -> None:
    """Write a fitted model as a folder of plain files; :func:`load_model` reads it back."""
    with whole_folder(Path(folder), overwrite=overwrite) as beside:
        write_models(beside, {model.name: model}, main=model.name, propensity=None, further={})


def write_models(
    folder: Path,
    models: Mapping[str, Debiaser],
    *,
    main: str,
    propensity: Propensity | None,
    further: Mapping[str, Any],
) -> None:
    """Config, weights, vocabularies and calibrators of a run's models into an existing folder."""
    weights: dict[str, Tensor] = {}
    config: dict[str, Any] = {"unskew": __version__, "format": FORMAT, "main": main, **further, "methods": {}}
    for key, model in models.items():
        config["methods"][key] = {"method": model.name, "seeds": list(model.seeds_), **_params(model)}
        for name, network in model.networks_.items():
            weights |= _named(network.state_dict(), f"methods/{key}/{name}")
    if propensity is not None:
        config["propensity"] = {
            "seeds": list(propensity.seeds_),
            "space": propensity.space_,
            "offset": propensity.offset_,
            **_params(propensity),
        }
        weights |= _named(propensity.network_.state_dict(), "propensity")
        weights["observed"] = propensity.population_.observed.cpu()
        calibrators = [None if c is None else c.to_dict() for c in propensity.calibrators_]
        (folder / CALIBRATORS).write_text(json.dumps(calibrators, indent=1) + "\n", encoding="utf-8")
    save_file(weights, folder / WEIGHTS)
    any_model = next(iter(models.values()))
    for vocabulary, name in ((any_model.users_, "users"), (any_model.items_, "items")):
        table = pa.table({"id": pa.array(vocabulary.ids)}, metadata={"name": vocabulary.name})
        pq.write_table(table, folder / f"{name}.parquet")
    (folder / CONFIG).write_text(to_toml(config), encoding="utf-8")


def load_model(folder: str | Path, method: str | None = None, *, device: str = "auto") -> Debiaser:
    """The model of a run folder, ready to predict; by default the run's main method.

    Examples
    --------
    >>> model = load_model("runs/demo")                        # doctest: +SKIP
    >>> model.predict_pairs_each(["u1"], ["i7"])               # doctest: +SKIP
    """
    saved = _Saved(Path(folder))
    methods = saved.config["methods"]
    key = saved.config["main"] if method is None else method
    if key not in methods:
        raise RunFolderError(
            f"this run has no method {key!r}", where=str(folder), remedy=f"use one of {', '.join(methods)}"
        )
    params = dict(methods[key])
    model = make_method(params.pop("method"), **_restored(params, drop=("seeds",)))
    model.seeds_ = tuple(params["seeds"])
    model.device_ = resolve_device(device)
    model.users_, model.items_ = saved.vocabulary("users"), saved.vocabulary("items")
    model.networks_ = {}
    for name, backbone in model.networks().items():
        network = backbone.build(len(model.users_), len(model.items_), model.seeds_)
        network.load_state_dict(saved.weights(f"methods/{key}/{name}"))
        model.networks_[name] = network.to_device(model.device_)
    return model


def load_propensity(folder: str | Path, *, device: str = "auto") -> Propensity | None:
    """The propensity of a run folder, ready to predict; None if the folder has none."""
    saved = _Saved(Path(folder))
    if "propensity" not in saved.config:
        return None
    params = dict(saved.config["propensity"])
    calibrators = json.loads(saved.text(CALIBRATORS))
    propensity = Propensity(**_restored(params, drop=("seeds", "space", "offset")))
    propensity.seeds_ = tuple(params["seeds"])
    propensity.space_, propensity.offset_ = params["space"], params["offset"]
    propensity.device_ = resolve_device(device)
    propensity.users_, propensity.items_ = saved.vocabulary("users"), saved.vocabulary("items")
    propensity.design_ = SplitDesign.of(propensity.crossfit, hold_out=propensity.calibrate_on == "held-out")
    replicas = len(propensity.seeds_) * propensity.design_.replicas
    network = propensity.backbone.build(len(propensity.users_), len(propensity.items_), range(replicas))
    network.load_state_dict(saved.weights("propensity"))
    propensity.network_ = network.to_device(propensity.device_)
    propensity.calibrators_ = [None if c is None else calibrator_from_dict(c) for c in calibrators]
    propensity.log_ = None
    if propensity.space_ == "matrix":
        observed = saved.tensors["observed"].to(propensity.device_)
        propensity.population_ = Population.of_cells(observed, len(propensity.users_), len(propensity.items_))
        propensity.slots_ = Slots(
            propensity.population_,
            propensity.replica_split_seeds(),
            propensity.design_.slots,
            propensity.fold_by,
        )
    return propensity


class _Saved:
    """The files of a run folder; what is missing or damaged is an error that says so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise RunFolderError("is not a folder", where=str(folder), remedy="give a run folder")
        try:
            self.config = tomllib.loads(self.text(CONFIG))
        except tomllib.TOMLDecodeError as error:
            raise RunFolderError(f"{CONFIG} is damaged: {error}", where=str(folder)) from error
        if self.config.get("format") != FORMAT:
            raise RunFolderError(
                f"was written in format {self.config.get('format')}, and this version reads {FORMAT}",
                where=str(folder),
                remedy="run it again with this version",
            )
        self._require(WEIGHTS)
        try:
            self.tensors = load_file(folder / WEIGHTS)
        except SafetensorError as error:
            raise RunFolderError(f"{WEIGHTS} is damaged: {error}", where=str(folder)) from error

    def _require(self, name: str) -> None:
        if not (self.folder / name).is_file():
            raise RunFolderError(
                f"{name} is missing", where=str(self.folder), remedy="give a folder that unskew run wrote"
            )

    def text(self, name: str) -> str:
        """A text file."""
        self._require(name)
        return (self.folder / name).read_text(encoding="utf-8")

    def weights(self, prefix: str) -> dict[str, Tensor]:
        """The weights of one network."""
        start = f"{prefix}/"
        return {key[len(start) :]: value for key, value in self.tensors.items() if key.startswith(start)}

    def vocabulary(self, name: str) -> Vocabulary:
        """The ids of users or items."""
        self._require(f"{name}.parquet")
        table = pq.read_table(self.folder / f"{name}.parquet")
        ids = np.array(table.column("id").to_pylist())
        return Vocabulary(ids=ids, name=table.schema.metadata[b"name"].decode())


def _named(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {f"{prefix}/{name}": value.detach().cpu().contiguous() for name, value in state.items()}


def _params(estimator: Debiaser | Propensity) -> dict[str, Any]:
    """Parameters as TOML can hold them; nested estimators as tables with their names."""
    params = estimator.get_params(deep=False)
    return {
        name: {"name": value.name, **value.get_params(deep=False)} if hasattr(value, "get_params") else value
        for name, value in params.items()
    }


def _restored(params: Mapping[str, Any], drop: tuple[str, ...]) -> dict[str, Any]:
    restored: dict[str, Any] = {}
    for name, value in params.items():
        if name in drop:
            continue
        if isinstance(value, Mapping):
            kind = str(value["name"])
            inner = {key: None if v == "none" else v for key, v in value.items() if key != "name"}
            restored[name] = (
                make_backbone(kind, **inner) if name.endswith("backbone") else make_calibrator(kind, **inner)
            )
        else:
            restored[name] = None if value == "none" else value
    return restored
