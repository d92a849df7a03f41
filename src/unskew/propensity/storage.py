"""Propensities of every kind as plain files, beside the models that used them."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, cast, get_args

from unskew.base import processes
from unskew.base.errors import UnskewError
from unskew.base.files import CONFIG
from unskew.base.registry import PROPENSITIES
from unskew.calibration import Calibrator, calibrator_from_dict
from unskew.data import Schema, Space
from unskew.propensity.network import Propensity
from unskew.propensity.propensity import BasePropensity
from unskew.propensity.segments import Segments
from unskew.training.saved import (
    SavedFolder,
    named,
    params_table,
    sealed_folder,
    write_config,
    write_inputs,
)
from unskew.training.tensor_files import write_tensors

WEIGHTS = "propensity.safetensors"
CALIBRATORS = "calibrator.json"
PREFIX = "model/"
"""Of the names of tensors in the file of weights."""

ELSEWHERE = {"legacy-propensity": "unskew.study.legacy_propensity:LegacyPropensity"}
"""Kinds that are defined above this package, and where; loaded when a folder asks for one."""


def save_propensity(
    propensity: BasePropensity, folder: str | Path, *, overwrite: bool = False, **further: Any
) -> None:
    """Write a fitted propensity as a folder of plain files; :func:`load_propensity` reads it back.

    Parameters
    ----------
    further
        What else belongs into its ``config.toml``.
    """
    propensity._require_fitted("scorer_")
    propensity._untrained(
        Schema.of_ids(1, 1)
    )  # Refuses a kind that no file can hold, before anything is written.

    def write() -> None:
        with sealed_folder(Path(folder), overwrite=overwrite) as beside:
            write_inputs(beside, propensity)
            write_config(beside, {**write_propensity(beside, propensity), **further})

    processes.write(write)


def write_propensity(folder: Path, propensity: BasePropensity) -> dict[str, Any]:
    """Write weights and calibrators into a folder; return what belongs into its config."""
    write_tensors(folder / WEIGHTS, named(propensity.scorer_.tensors(), PREFIX))
    calibrators = [None if each is None else each.to_dict() for each in propensity.calibrators_]
    (folder / CALIBRATORS).write_text(json.dumps(calibrators, indent=1) + "\n", encoding="utf-8")
    return {
        "propensity": {
            "kind": propensity.name,
            "seeds": list(propensity.seeds_),
            "space": propensity.space_,
            **{name.rstrip("_"): getattr(propensity, name) for name in propensity.facts},
            "params": params_table(propensity),
        }
    }


def load_propensity(folder: str | Path | SavedFolder, *, device: str = "auto") -> BasePropensity | None:
    """Load the propensity of a run folder, or of one that ``save`` wrote, of whatever kind; None if there
    is none.

    It predicts what it predicted, out of fold, to the last bit. It keeps no data to be diagnosed on.
    """
    saved = SavedFolder.of(folder)
    if "propensity" not in saved.config:
        return None
    name = saved.entry("propensity", "kind", kind=str)
    kind: type[BasePropensity]
    if name in ELSEWHERE:
        module, _, class_name = ELSEWHERE[name].partition(":")
        kind = getattr(importlib.import_module(module), class_name)
    elif name == Propensity.name:
        kind = Propensity
    elif name in PROPENSITIES and PROPENSITIES[name].saves:
        kind = PROPENSITIES[name]
    else:
        raise saved.damaged(CONFIG, f"propensity.kind is {name!r}")
    propensity = saved.restored(kind, "propensity", "params", **kind.makers)
    for fact, type_ in kind.facts.items():
        setattr(propensity, fact, saved.entry("propensity", fact.rstrip("_"), kind=type_))
    seeds, space = saved.seeds("propensity", "seeds"), saved.entry("propensity", "space", kind=str)
    if space not in get_args(Space):
        raise saved.damaged(CONFIG, f"propensity.space is {space!r}")
    propensity.seeds_, propensity.design_ = seeds, propensity._design()
    encoders = saved.encoders() if propensity.reads_features else None
    propensity.encoders_ = None if encoders is None else encoders.select(propensity.fields)
    saved.check_shapes(lambda schema: {PREFIX: propensity._untrained(_schema(propensity, schema))}, WEIGHTS)
    propensity._place(seeds, saved.vocabulary("users"), saved.vocabulary("items"), cast(Space, space), device)
    if propensity.calibrator is not None and propensity.calibrator.reads_features:
        wanted = propensity.calibrator.get_params(deep=False)["segments"]
        propensity.segments_ = Segments.of_encoders(saved.encoders(), wanted)
    models = propensity._untrained(_schema(propensity, saved.schema()))
    saved.fill(models, WEIGHTS, PREFIX)
    propensity.scorer_ = propensity._scorer_of(models)
    propensity.calibrators_ = _calibrators(
        saved, propensity.replicas_, calibrated=propensity.calibrator is not None
    )
    return propensity


def _schema(propensity: BasePropensity, schema: Schema) -> Schema:
    """Return what its models read of a schema."""
    return schema.select(propensity.fields) if propensity.reads_features else schema.ids


def _calibrators(saved: SavedFolder, wanted: int, *, calibrated: bool) -> list[Calibrator | None]:
    """Return one calibrator per seed and fold; None each where the scores are left raw."""
    records = saved.json(CALIBRATORS)
    if not isinstance(records, list) or len(records) != wanted:
        raise saved.damaged(CALIBRATORS, f"it is not a list of {wanted}")
    if any((each is None) == calibrated for each in records):
        raise saved.damaged(CALIBRATORS, f"{CONFIG} says otherwise of which scores are calibrated")
    try:
        return [None if each is None else calibrator_from_dict(each) for each in records]
    except UnskewError as error:
        raise saved.damaged(CALIBRATORS, error.problem) from error
