"""Propensities as plain files, beside the models that used them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save

from unskew.calibration import calibrator_from_dict
from unskew.propensity.estimator import Propensity
from unskew.propensity.uncertainty import make_uncertainty
from unskew.saved import SavedFolder, named, params_table, restored_params
from unskew.training import Population, Slots, resolve_device

WEIGHTS = "propensity.safetensors"
CALIBRATORS = "calibrator.json"


def write_propensity(folder: Path, propensity: Propensity) -> dict[str, Any]:
    """Weights and calibrators into a folder; what belongs into its config is returned."""
    weights = named(propensity.network_.state_dict(), "network/")
    # The clicked cells tell which fold a pair was in, so that predictions stay out of fold.
    weights["observed"] = propensity.population_.observed.cpu()
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


def load_propensity(folder: str | Path, *, device: str = "auto") -> Propensity | None:
    """The propensity of a run folder, ready to predict; None if the folder has none."""
    saved = SavedFolder(folder)
    if "propensity" not in saved.config:
        return None
    told = saved.config["propensity"]
    propensity = Propensity(**restored_params(told["params"], uncertainty=make_uncertainty))
    propensity.seeds_ = tuple(told["seeds"])
    propensity.space_, propensity.offset_ = told["space"], told["offset"]
    propensity.device_ = resolve_device(device)
    propensity.users_, propensity.items_ = saved.vocabulary("users"), saved.vocabulary("items")
    propensity.design_ = propensity.split_design()
    network = propensity.trained_backbone().build(
        len(propensity.users_), len(propensity.items_), propensity.replica_seeds("propensity")
    )
    network.load_state_dict(saved.tensors(WEIGHTS, "network/"))
    propensity.network_ = network.to_device(propensity.device_)
    propensity.calibrators_ = [
        None if each is None else calibrator_from_dict(each) for each in saved.json(CALIBRATORS)
    ]
    propensity.log_ = None
    if propensity.space_ == "matrix":
        observed = saved.tensors(WEIGHTS, "observed")[""].to(propensity.device_)
        propensity.population_ = Population.of_cells(observed, len(propensity.users_), len(propensity.items_))
        propensity.slots_ = Slots(
            propensity.population_,
            propensity.replica_split_seeds(),
            propensity.design_.slots,
            propensity.fold_by,
        )
    return propensity
