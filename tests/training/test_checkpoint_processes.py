"""A checkpoint of several processes: each has states of its own, and all go on after one was killed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import unskew as us
from ranks import together
from unskew.base import processes
from unskew.training.checkpoint import Checkpoint

WORLD = {"n_users": 40, "n_items": 30, "density": 0.2}


class Dying(Checkpoint):
    """Ends its process at a state, as ``kill -9`` does."""

    states = 0

    def write(self, name, facts, tensors):
        written = super().write(name, facts, tensors)
        self.states += 1
        if self.states == 5 and processes.rank() == 1:
            os._exit(9)
        return written


def fitted() -> tuple[us.Log, us.IPS]:
    log = us.load("synthetic", **WORLD).train
    small = us.MF(dim=3)
    propensity = us.Propensity(backbone=small, crossfit=2, epochs=2, batch_size=200)
    propensity.fit(log, seeds=2, device="cpu")
    model = us.IPS(backbone=small, epochs=3, batch_size=40)
    return log, model.fit(log, propensity=propensity, seeds=2, device="cpu")


# What several processes do; each function is called in every one of them.


def dies(folder: Path) -> None:
    with Dying(folder / "states", every=0):
        fitted()


def goes_on(folder: Path) -> None:
    checkpoint = Checkpoint(folder / "states")
    with checkpoint:
        assert checkpoint.goes_on
        fitted()[1].save(folder / "model")


def test_after_one_of_two_processes_was_killed_both_go_on(tmp_path):
    codes = [code for code, _ in together(__file__, "dies", tmp_path)]
    assert codes[1] == 9
    assert codes[0] != 0, "it does not wait for one that is gone"
    for rank in (0, 1):
        assert list((tmp_path / "states" / f"rank-{rank}").glob("training-*.json"))
    assert [code for code, _ in together(__file__, "goes_on", tmp_path)] == [0, 0]
    log, alone = fitted()
    np.testing.assert_allclose(
        us.load_model(tmp_path / "model").predict_each(log), alone.predict_each(log), rtol=1e-5
    )
    for rank in (0, 1):
        assert [path.name for path in (tmp_path / "states" / f"rank-{rank}").iterdir()] == ["job.json"]
