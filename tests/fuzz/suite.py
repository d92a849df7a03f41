"""The classes of cases, what all of them need, and one case from its class, seed and number."""

from __future__ import annotations

import json
import shutil
import traceback
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import unskew as us
from fuzz import arrays, commands, documents, same, tables
from fuzz.trial import SECONDS, Trial
from unskew.base.errors import CollapseWarning
from unskew.base.files import write_json
from unskew.debias.storage import write_models
from unskew.propensity.storage import write_propensity
from unskew.training.saved import sealed_folder, write_config

WEIGHTED: dict[str, tuple[Callable[[Trial], None], int]] = {
    "tables": (tables.audit_or_weights, 30),
    "log files": (tables.read_as_log, 15),
    "options": (commands.options, 25),
    "run folders": (documents.run_folder, 12),
    "calibrator files": (documents.calibrator_file, 8),
    "grids": (documents.grid, 5),
    "calibrators": (arrays.calibrators, 12),
    "metrics": (arrays.measures, 12),
    "logs": (arrays.logs, 10),
    "ids": (arrays.vocabularies, 6),
    "same audit": (same.audits, 3),
    "same in any order": (same.orders, 2),
    "same weights": (same.weights, 3),
    "same trained weights": (same.trained, 1),
}
"""Classes of cases, and how many of each are made in 144."""

CLASSES = {name: case for name, (case, _) in WEIGHTED.items()}


@dataclass(frozen=True)
class Result:
    """What came of a case."""

    kind: str
    number: int
    problems: list[str]
    codes: dict[str, int]
    story: list[str]


def cases(total: int) -> list[tuple[str, int]]:
    """Classes and numbers of so many cases, in proportion; at least one of each class."""
    whole = sum(share for _, share in WEIGHTED.values())
    return [
        (kind, number)
        for kind, (_, share) in WEIGHTED.items()
        for number in range(max(round(total * share / whole), 1))
    ]


def make_assets(folder: Path) -> None:
    """A log, pairs and a run folder, small ones, for the cases to copy."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    p = rng.beta(1, 4, 400)
    o = rng.random(400) < p
    rows = [f"{a:.6f},{int(b)},u{n % 20},i{n % 18}" for n, (a, b) in enumerate(zip(p, o, strict=True))]
    (folder / "log.csv").write_text("\n".join(["p,o,user,item", *rows, ""]), encoding="utf-8")
    pairs = [f"{u},{i}" for u in range(6) for i in range(5)]
    (folder / "pairs.csv").write_text("\n".join(["user,item", *pairs, ""]), encoding="utf-8")
    with warnings.catch_warnings():
        # One epoch teaches little, which is told.
        warnings.simplefilter("ignore", CollapseWarning)
        make_run(folder / "run")


def make_run(folder: Path) -> None:
    """A run folder as ``unskew run`` leaves it, of models that were trained for one epoch."""
    log = us.load("synthetic", n_users=20, n_items=18, density=0.3, test_per_user=4).train
    learner = us.MF(dim=2)
    propensity = us.Propensity(learner=learner, crossfit=2, epochs=1).fit(log, seeds=2, device="cpu")
    models = {
        "naive": us.Naive(learner=learner, epochs=1).fit(log, seeds=2, device="cpu"),
        "ips": us.IPS(learner=learner, epochs=1).fit(log, propensity=propensity, seeds=2, device="cpu"),
    }
    p = propensity.predict(log)
    columns = {
        log.users.name: log.users.decode(log.user),
        log.items.name: log.items.decode(log.item),
        "click": log.click,
        "conversion": log.conversion,
        "propensity": p,
    }
    with sealed_folder(folder, overwrite=False) as beside:
        told = {**write_models(beside, models), **write_propensity(beside, propensity)}
        write_config(beside, {"main": "ips", **told})
        pq.write_table(pa.table(columns), beside / "propensities.parquet")
        write_json(beside / "metrics.json", {"p_min": 0.01, "data": {"space": log.space}})


def run_case(
    kind: str, number: int, seed: int, folder: Path, assets: Path, seconds: float = SECONDS
) -> Result:
    """Make a case and run it in a folder; all its chance comes from its class, its number and the seed."""
    place = folder / f"{kind.replace(' ', '-')}-{number}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    rng = np.random.default_rng([seed, zlib.crc32(kind.encode()), number])
    trial = Trial(folder=place, rng=rng, assets=assets, seconds=seconds)
    try:
        CLASSES[kind](trial)
    except Exception:
        trial.problems.append(f"what came could not be looked at: {traceback.format_exc(limit=-3)}")
    if not trial.problems:
        shutil.rmtree(place, ignore_errors=True)
    return Result(kind, number, trial.problems, dict(trial.codes), trial.story)


def keep(result: Result, seed: int, folder: Path, kept: Path) -> None:
    """Put a failed case, with what it did and what was wrong, where it can be looked at and run again."""
    name = f"{result.kind.replace(' ', '-')}-{result.number}"
    target = kept / name
    shutil.rmtree(target, ignore_errors=True)
    if (folder / name).is_dir():
        shutil.copytree(folder / name, target, symlinks=True)
    target.mkdir(parents=True, exist_ok=True)
    told = {
        "replay": f"make fuzz SEED={seed} ONLY='{result.kind}:{result.number}'",
        "problems": result.problems,
        "calls": result.story,
    }
    (target / "case.json").write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
