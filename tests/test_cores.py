"""How many threads work: what the environment and the system say, not what the machine has."""

from __future__ import annotations

import os

import pytest

from unskew.base.cores import usable_cores


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.parametrize(("asked", "cores"), [("1", 1), ("12", 12), (" 2 ", 2), ("4,2", 4)])
def test_the_environment_says_how_many(monkeypatch, asked, cores):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert usable_cores() == cores


@pytest.mark.parametrize("asked", [None, "", "0", "-1", "all", "2.5"])
def test_otherwise_the_system_does(monkeypatch, asked):
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert usable_cores() == 3


def test_a_system_without_affinity_has_all_cores(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cores() == 1
