"""Propensities as plain files, beside the models that used them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast, get_args

from safetensors.torch import save

from unskew.backbones import Network
from unskew.calibration import Calibrator, calibrator_from_dict
from unskew.errors import UnskewError
from unskew.io.files import CONFIG
from unskew.log import Schema, Space
from unskew.propensity.estimator import Propensity
from unskew.propensity.uncertainty import make_uncertainty
from unskew.training import resolve_device
from unskew.training.saved import (
    SavedFolder,
    named,
    params_table,
    sealed_folder,
    write_config,
    write_vocabularies,
)

WEIGHTS = "propensity.safetensors"
CALIBRATORS = "calibrator.json"


def save_propensity(
    propensity: Propensity, folder: str | Path, *, overwrite: bool = False, **further: Any
) -> None:
    """Write a fitted propensity as a folder of plain files; :func:`load_propensity` reads it back.

    Parameters
    ----------
    further
        What else belongs into its ``config.toml``.
    """
    propensity._require_fitted("network_")
    with sealed_folder(Path(folder), overwrite=overwrite) as beside:
        write_vocabularies(beside, propensity.users_, propensity.items_)
        write_config(beside, {**write_propensity(beside, propensity), **further})


def write_propensity(folder: Path, propensity: Propensity) -> dict[str, Any]:
    """Weights and calibrators into a folder; what belongs into its config is returned."""
    weights = named(propensity.network_.state_dict(), "network/")
    # Not save_file, which keeps all but its owner from reading what it wrote.
    (folder / WEIGHTS).write_bytes(save(weights))
    calibrators = [None if each is None else each.to_dict() for each in propensity.calibrators_]
    (folder / CALIBRATORS).write_text(json.dumps(calibrators, indent=1) + "\n", encoding="utf-8")
    return {
        "propensity": {
            "seeds": list(propensity.seeds_),
            "space": propensity.space_,
            "offset": propensity.offset_,
            "params": params_table(propensity),
        }
    }


def load_propensity(folder: str | Path | SavedFolder, *, device: str = "auto") -> Propensity | None:
    """The propensity of a run folder, ready to predict; None if the folder has none."""
    saved = SavedFolder.of(folder)
    if "propensity" not in saved.config:
        return None
    propensity = saved.restored(Propensity, "propensity", "params", uncertainty=make_uncertainty)
    propensity.seeds_ = saved.seeds("propensity", "seeds")
    propensity.space_ = _space(saved)
    propensity.offset_ = saved.told("propensity", "offset", kind=float)
    propensity.device_ = resolve_device(device)
    propensity.design_ = propensity.split_design()

    def build(schema: Schema) -> Network:
        return propensity.trained_backbone().build(schema, propensity.replica_seeds("propensity"))

    saved.check_shapes(lambda schema: {"network/": build(schema)}, WEIGHTS)
    propensity.users_, propensity.items_ = saved.vocabulary("users"), saved.vocabulary("items")
    network = build(saved.schema())
    saved.fill(network, WEIGHTS, "network/")
    propensity.network_ = network.to_device(propensity.device_)
    propensity.calibrators_ = _calibrators(
        saved,
        len(propensity.seeds_) * propensity.design_.replicas,
        calibrated=propensity.calibrator is not None,
    )
    propensity.log_ = None
    return propensity


def _space(saved: SavedFolder) -> Space:
    told = saved.told("propensity", "space", kind=str)
    if told not in get_args(Space):
        raise saved.damaged(CONFIG, f"propensity.space is {told!r}")
    return cast(Space, told)


def _calibrators(saved: SavedFolder, wanted: int, *, calibrated: bool) -> list[Calibrator | None]:
    """One per seed and fold; None each where the scores are left raw."""
    told = saved.json(CALIBRATORS)
    if not isinstance(told, list) or len(told) != wanted:
        raise saved.damaged(CALIBRATORS, f"it is not a list of {wanted}")
    if any((each is None) == calibrated for each in told):
        raise saved.damaged(CALIBRATORS, f"{CONFIG} says otherwise of which scores are calibrated")
    try:
        return [None if each is None else calibrator_from_dict(each) for each in told]
    except UnskewError as error:
        raise saved.damaged(CALIBRATORS, error.problem) from error
