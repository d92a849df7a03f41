"""Exported models for the tests of the service, of ids, of features, of hashed features and times."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import unskew as us
from contracts.feature_world import log_of, part, table
from unskew.data.kinds import TimePart

QUICK = {"epochs": 2, "batch_size": 512, "learning_rate": 0.02}


def save_ids_run(folder: Path, seed: int = 0) -> Path:
    """A model of a small world with whole numbers as ids."""
    log = us.load("synthetic", n_users=50, n_items=40, density=0.2, seed=3).train
    us.Naive(learner=us.MF(dim=4), **QUICK).fit(log, seeds=[seed, seed + 1]).save(folder)
    return folder


@pytest.fixture(scope="session")
def ids_run(tmp_path_factory) -> Path:
    return save_ids_run(tmp_path_factory.mktemp("ids") / "run")


@pytest.fixture(scope="session")
def other_run(tmp_path_factory) -> Path:
    """Another training of the same."""
    return save_ids_run(tmp_path_factory.mktemp("other") / "run", seed=7)


@pytest.fixture(scope="session")
def features_run(tmp_path_factory) -> Path:
    """Text ids, categories, a number and a bag; three users in four are known."""
    folder = tmp_path_factory.mktemp("features") / "run"
    log = log_of(part(table(3000), known=True))
    us.Naive(learner=us.MLP(dim=4, layers=(6,)), **QUICK).fit(log, seeds=2).save(folder)
    return folder


def timed_table() -> pa.Table:
    """The table of features with the hour of a time."""
    frame = table(1000)
    start = datetime(2024, 5, 1)
    times = [start + timedelta(hours=int(hour)) for hour in np.arange(len(frame)) % 100]
    return frame.append_column("time", pa.array(times))


@pytest.fixture(scope="session")
def hashed_run(tmp_path_factory) -> Path:
    """Hashed categories and bags, and an hour."""
    folder = tmp_path_factory.mktemp("hashed") / "run"
    features = (
        us.Category("country", hash=8),
        us.Bag("tags", hash=8),
        TimePart("time.hour", part="hour", of="time"),
    )
    log = log_of(timed_table(), features=features)
    us.Naive(learner=us.MLP(dim=4, layers=(6,)), **QUICK).fit(log, seeds=1).save(folder)
    return folder


def raw_inputs(described, frame) -> dict[str, np.ndarray]:
    """What a server would do with a data frame, by the file's own description of its inputs."""
    kinds = {"text": object, "number": np.float64, "integer": np.int64}
    given = {}
    for each in described:
        values = frame[each["name"]].tolist()
        if isinstance(values[0], list):
            width = max(len(value) for value in values)
            values = [[*value, *[each["missing"]] * (width - len(value))] for value in values]
        elif each["holds"] == "text":
            values = [value if isinstance(value, str) else each["missing"] for value in values]
        given[each["name"]] = np.array(values, dtype=kinds[each["holds"]])
    return given


def export(run: Path, folder: Path) -> Path:
    from unskew.base.manifest import digest_of
    from unskew.serve.onnx_file import export_run
    from unskew.serve.runs import model_name

    target = folder / f"{model_name(digest_of(run), 'all', None)}.onnx"
    export_run(run, target)
    return target


@pytest.fixture(scope="session")
def ids_model(ids_run, tmp_path_factory) -> Path:
    return export(ids_run, tmp_path_factory.mktemp("ready"))


@pytest.fixture(scope="session")
def other_model(other_run, tmp_path_factory) -> Path:
    return export(other_run, tmp_path_factory.mktemp("ready"))


@pytest.fixture(scope="session")
def features_model(features_run, tmp_path_factory) -> Path:
    return export(features_run, tmp_path_factory.mktemp("ready"))


@pytest.fixture(scope="session")
def hashed_model(hashed_run, tmp_path_factory) -> Path:
    return export(hashed_run, tmp_path_factory.mktemp("ready"))
