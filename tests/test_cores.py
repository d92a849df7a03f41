"""How many threads work: what the environment and the system say, not what the machine has."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import unskew as us
from unskew.base.cores import usable_cores
from unskew.debias import evaluation


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


def test_no_more_threads_are_started(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    started = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, threads):
            started.append(threads)
            super().__init__(threads)

    monkeypatch.setattr(evaluation, "ThreadPoolExecutor", Pool)
    data = us.load("synthetic", n_users=40, n_items=30, density=0.2)
    us.evaluate(us.Naive(backbone=us.MF(dim=2), epochs=1).fit(data.train, seeds=3), data.test)
    assert started == [2]
