"""What a reproduction measured, as rows of the long table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from unskew.reproduce.presets import ALONE, SOURCES, Source
from unskew.reproduce.reproduction import Reproduction


def propensity_rows(work: Reproduction, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """About propensities."""
    for each in work.estimated(keys).values():
        for metric, values in each.figures.items():
            yield from _long(work, "propensity", work.dataset.name, each.source, "", metric, values)


def method_rows(work: Reproduction, name: str, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """About a method, on each of the test sets."""
    for key, cell in work.scores(name, keys).items():
        source = None if key == ALONE else SOURCES[key]
        for test, metrics in cell.facts["metrics"].items():
            dataset = f"{work.dataset.name} ({test})" if test else work.dataset.name
            for metric, values in metrics.items():
                yield from _long(work, "method", dataset, source, name, metric, values)
                yield {
                    **_names(work, dataset, source, name),
                    "metric": metric,
                    "users": cell.arrays[f"users {metric} {test}"],
                    "part": "users",
                }


def _long(
    work: Reproduction,
    part: str,
    dataset: str,
    source: Source | None,
    method: str,
    metric: str,
    values: Sequence[float],
) -> Iterator[dict[str, Any]]:
    for seed, value in zip(work.seeds, values, strict=True):
        names = _names(work, dataset, source, method)
        yield {**names, "seed": seed, "metric": metric, "value": value, "part": part}


def _names(work: Reproduction, dataset: str, source: Source | None, method: str) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "protocol": work.settings.name,
        "propensity": "" if source is None else source.propensity,
        "calibrator": "" if source is None else source.calibrator,
        "method": method,
    }
