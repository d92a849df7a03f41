"""How long propensities take to train and to read off, as ratios to the raw ones."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from unskew.log import Log
from unskew.propensity import Propensity
from unskew.reproduce.presets import SOURCES, Source
from unskew.reproduce.published import published_row
from unskew.reproduce.reproduction import Reproduction
from unskew.study.grid import CalibratorEntry
from unskew.study.shown_table import Shown
from unskew.study.trained import as_trained

REPEATS = 5
"""The shortest of so many timings of inference is reported."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one row, for one seed."""

    source: Source
    training: float
    inference: float


def timings(work: Reproduction, keys: Sequence[str]) -> list[Timing]:
    """Time one seed of every row: training with calibration, and propensities of all of D.

    A first, untimed training of one epoch takes what is paid once: compilation, caches, a GPU's start.
    """
    grid = work.grid(keys)
    protocol = grid.protocol_for(work.data)
    log = grid.datasets[0].load(protocol.test_protocol).train
    entries = {entry.key: entry for entry in grid.propensities}
    family: dict[str, tuple[Propensity, float]] = {}
    result = []
    for source in (SOURCES[key] for key in keys):
        entry = entries[source.propensity]
        if not entry.is_trained:
            continue
        wanted = entry.make(protocol, grid.backbone)
        propensity = as_trained(wanted)
        if repr(propensity) not in family:
            fit: dict[str, Any] = {"seeds": [work.config.seed], "device": work.config.device}
            copy.copy(propensity).set_params(epochs=1).fit(log, **fit)
            seconds = _seconds(lambda p=propensity, f=fit: p.fit(log, **f))  # type: ignore[misc]
            family[repr(propensity)] = propensity, seconds
        propensity, training = family[repr(propensity)]
        calibrator = CalibratorEntry(name=source.calibrator).make()
        read_off = partial(propensity.reread, calibrator=calibrator, uncertainty=wanted.uncertainty)
        read = read_off()
        if calibrator is not None:
            training += _seconds(read_off)
        inference = min(_seconds(lambda r=read: _predict_all(r, log)) for _ in range(REPEATS))  # type: ignore[misc]
        result.append(Timing(source, training, inference))
    return result


def _predict_all(propensity: Propensity, log: Log) -> object:
    return propensity.predict_matrix_each() if log.space == "matrix" else propensity.predict_each(log)


def show_efficiency(found: Sequence[Timing], title: str, machine: str) -> Shown:
    """Seconds and ratios to raw, beside the paper's ratios."""
    raw = next(each for each in found if each.source.key == "raw")
    paper = {
        (each.source.key, what): published_row("efficiency", "coat", "", each.source.key, f"{what}_s")
        for each in found
        for what in ("training", "inference")
    }
    rows = []
    for each in found:
        cells = [each.source.title]
        for what in ("training", "inference"):
            seconds, base = getattr(each, what), getattr(raw, what)
            printed, first = paper[each.source.key, what], paper["raw", what]
            cells += [
                f"{seconds:.3g}",
                f"{seconds / base:.2f}",
                f"{printed.mean / first.mean:.2f}" if printed and first else "–",
            ]
        rows.append(tuple(cells))
    return Shown(
        title=title,
        columns=(
            "",
            "training, s",
            "÷ raw",
            "paper's ÷ raw",
            "inference, s",
            "÷ raw",
            "paper's ÷ raw",
        ),
        rows=tuple(rows),
        caption=f"one seed, on {machine}; inference is of all of D; the paper's is of a RTX 3090",
    )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
