"""Models made ready for the tests of the service: one that reads ids alone, one that reads features."""

from __future__ import annotations

from pathlib import Path

import pytest

import unskew as us
from contracts.feature_world import log_of, part, table

QUICK = {"epochs": 2, "batch_size": 512, "learning_rate": 0.02}


def save_ids_run(folder: Path, seed: int = 0) -> Path:
    """A model of a small world with whole numbers as ids."""
    log = us.load("synthetic", n_users=50, n_items=40, density=0.2, seed=3).train
    us.Naive(backbone=us.MF(dim=4), **QUICK).fit(log, seeds=[seed, seed + 1]).save(folder)
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
    us.Naive(backbone=us.MLP(dim=4, layers=(6,)), **QUICK).fit(log, seeds=2).save(folder)
    return folder


def make_ready(run: Path, folder: Path) -> Path:
    from unskew.io.manifest import digest_of
    from unskew.serve.prepare import model_name, prepare

    target = folder / model_name(digest_of(run), "conversion", None)
    prepare(run, target, "conversion", None)
    return target


@pytest.fixture(scope="session")
def ids_ready(ids_run, tmp_path_factory) -> Path:
    return make_ready(ids_run, tmp_path_factory.mktemp("ready"))


@pytest.fixture(scope="session")
def other_ready(other_run, tmp_path_factory) -> Path:
    return make_ready(other_run, tmp_path_factory.mktemp("ready"))


@pytest.fixture(scope="session")
def features_ready(features_run, tmp_path_factory) -> Path:
    return make_ready(features_run, tmp_path_factory.mktemp("ready"))
