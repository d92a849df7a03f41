"""The numbers that the paper prints, as data; :mod:`unskew.study.page` sets ours beside them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from unskew.base.errors import ParameterError

TABLES = ("ece", "overall_ips", "dr", "kuairand", "sota", "efficiency")


@dataclass(frozen=True)
class Published:
    """One printed number.

    Attributes
    ----------
    table
        One of :data:`TABLES`.
    dataset
        As in ``unskew.data.datasets.DATASETS``.
    debiaser, calibrator
        As the paper names them (``"dr_jl"``, ``"deep_ensemble"``); debiaser is empty for propensities alone.
    metric
        As :func:`unskew.evaluate` names it; the paper's "Recall@K" is ``hits@K``.
    mean, std
        ``std`` is None where none is printed.
    significant
        Whether the paper marks it as better than raw at p < 0.05; None where it makes no test.
    """

    table: str
    dataset: str
    debiaser: str
    calibrator: str
    metric: str
    mean: float
    std: float | None
    significant: bool | None

    def deviation(self, value: float) -> float | None:
        """(value − mean) ÷ std: how many printed standard deviations a value is away; None without one.

        Examples
        --------
        >>> row = published_row("overall_ips", "coat", "naive", "none", "auc")
        >>> round(row.deviation(0.7645), 6)
        1.0
        """
        return None if not self.std else (value - self.mean) / self.std


@cache
def published() -> tuple[Published, ...]:
    """Return every number of the paper's tables, in their order.

    Examples
    --------
    >>> len(published()) > 400
    True
    """
    text = files("unskew.study").joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(
        Published(
            table=line["table"],
            dataset=line["dataset"],
            debiaser=line["debiaser"],
            calibrator=line["calibrator"],
            metric=line["metric"],
            mean=float(line["mean"]),
            std=float(line["std"]) if line["std"] else None,
            significant=bool(int(line["significant"])) if line["significant"] else None,
        )
        for line in csv.DictReader(text.splitlines())
    )


def published_row(table: str, dataset: str, debiaser: str, calibrator: str, metric: str) -> Published | None:
    """Return the number printed in one place, or None where the paper prints none."""
    if table not in TABLES:
        raise ParameterError(f"the paper has no table {table!r}", remedy=f"use one of {', '.join(TABLES)}")
    return _places().get((table, dataset, debiaser, calibrator, metric))


@cache
def _places() -> dict[tuple[str, str, str, str, str], Published]:
    return {(p.table, p.dataset, p.debiaser, p.calibrator, p.metric): p for p in published()}
