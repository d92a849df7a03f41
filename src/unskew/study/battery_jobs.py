"""Trainings of the battery in several processes at once, which share a folder of results."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path

import torch

from unskew.errors import CollapseWarning, UnskewError
from unskew.progress import Progress
from unskew.study.battery_plan import Settings, WorldPlan
from unskew.study.battery_world import WorldRun
from unskew.study.results import ResultStore
from unskew.training import resolve_device

SECONDS_BETWEEN_LOOKS = 2.0
"""From one look at what is finished to the next."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""What libraries read, as they are loaded, for the number of their threads."""

MOST_USUAL = 4
"""Processes where their number is not given: each has its own copy of the data, and of libraries on a GPU."""


def usual_jobs(device: str) -> int:
    """How many processes train at once where nobody says: one with small networks does not fill a device."""
    cores = os.cpu_count() or 1
    return max(1, min(MOST_USUAL, cores if resolve_device(device).type == "cpu" else cores // 2))


def train_beside(
    settings: Settings,
    plans: Sequence[WorldPlan],
    store: ResultStore,
    device: str,
    jobs: int,
    progress: Progress,
) -> None:
    """Train what is missing in so many processes, and wait for them.

    Each begins with another world, and helps with the others afterwards; a result is made by the process that
    claims it. What a process that failed left undone is for the caller to train, who then meets its error.
    """
    spawn = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    longest_first = sorted(plans, key=lambda plan: -plan.seconds)
    started = []
    expected = sum(plan.trainings for plan in plans)
    bar = progress.task(f"battery in {jobs} processes", expected)
    before = done = store.count()
    try:
        with _environment(dict.fromkeys(THREADS, str(threads))):
            for number in range(jobs):
                first = number % len(plans)
                order = (*longest_first[first:], *longest_first[:first])
                given = (settings, order, store.folder, device, threads)
                process = spawn.Process(target=_train, args=given, daemon=True)
                process.start()
                started.append(process)
        running = [each.sentinel for each in started]
        while running:
            ended = connection.wait(running, SECONDS_BETWEEN_LOOKS)
            running = [each for each in running if each not in ended]
            now = store.count()
            bar.advance(now - done)
            bar.say(f"{now - before} trained")
            done = now
    finally:
        for each in started:
            each.terminate()
            each.join()
        store.forget_claims()
        bar.finish()


def _train(settings: Settings, plans: Sequence[WorldPlan], folder: Path, device: str, threads: int) -> None:
    """What a process does: train what nobody is at, then wait for the rest and train what that allows."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    # What learned nothing shows in its numbers.
    warnings.simplefilter("ignore", CollapseWarning)
    store = ResultStore(folder)
    try:
        worlds = []
        for plan in plans:
            worlds.append(WorldRun(settings, plan, store, device))
            worlds[-1].train(wait=False)
        for world in worlds:
            world.train()
    except UnskewError:
        # The parent trains what is missing, and says what is wrong.
        raise SystemExit(1) from None


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables of the environment, for processes that are started inside."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
