"""What the cells of a study say, as rows of the long table, and what a reader must know beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from unskew.report.words import COLLAPSED_MARK
from unskew.study import propensities as kept
from unskew.study.cells import CellStore
from unskew.study.collapsed import PREFIX, learned_nothing, sentences
from unskew.study.grid import Grid
from unskew.study.propensities import Given


def propensity_rows(
    store: CellStore, propensities: Sequence[Given], seeds: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Figures of each set of propensities, and what it took to make it; training is told once."""
    timed: set[str] = set()
    for given in propensities:
        cell = store.read(given.key)
        assert cell is not None
        names = {"propensity": given.propensity, "calibrator": given.calibrator, "method": ""}
        for metric, values in cell.facts["figures"].items():
            for seed, value in zip(seeds, values, strict=True):
                yield {**names, "seed": seed, "metric": metric, "value": value, "part": "propensity"}
        timing = dict(cell.facts["timing"])
        if given.raw_key and given.raw_key not in timed:
            timed.add(given.raw_key)
            yield from _timing({**names, "calibrator": ""}, kept.raw_timing(store.subfolder(given.raw_key)))
        yield from _timing(names, timing)


def notes(grid: Grid, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The protocol's labels, what diverged, and which networks learned nothing."""
    yield from grid.protocol_for(grid.datasets[0].name).labels
    diverged: dict[str, int] = {}
    collapsed: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        if row["metric"] == "diverged" and row["part"] == "method" and row["value"]:
            diverged[_name(row)] = diverged.get(_name(row), 0) + 1
        if row["metric"].startswith(PREFIX) and row["part"] in ("method", "propensity"):
            of_row = collapsed.setdefault(f"{_name(row)} on {row['dataset']}", {})
            of_row.setdefault(row["metric"], {})[row["seed"]] = row["value"]
    for name, count in diverged.items():
        yield f"{name}: {count} of {len(grid.seed_list)} seeds diverged and are left out"
    for name, by_metric in collapsed.items():
        yield from (
            f"{COLLAPSED_MARK} {sentence}" for sentence in sentences(name, learned_nothing(by_metric))
        )


def _name(row: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (row["method"], row["propensity"], row["calibrator"])))


def _timing(names: Mapping[str, Any], timing: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    for metric, value in timing.items():
        yield {**names, "seed": None, "metric": metric, "value": float(value), "part": "timing"}
