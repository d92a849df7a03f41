"""One dataset under one protocol: grids of the paper's rows and methods, run by the engine of studies.

All keep their results in one folder, so that nothing is trained twice and a killed reproduction resumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from unskew.base.estimator import require, require_choice
from unskew.base.progress import SILENT, Progress
from unskew.base.seeds import require_count
from unskew.data.datasets import DATASETS
from unskew.run.protocol import ProtocolName
from unskew.study.engine import Engine
from unskew.study.grid import Grid, read_grid
from unskew.study.paper_protocol import Paper
from unskew.study.presets import ALONE, NOISY, SOURCES, Source, propensities_of
from unskew.study.results import ResultStore
from unskew.study.table import Part, Row, seeds_of


@dataclass(frozen=True)
class ReproduceConfig:
    """What to reproduce.

    Parameters
    ----------
    data, root
        The dataset and its folder; None looks for Coat and else takes the synthetic world.
    reversed
        Switches of the paper protocol to turn over.
    options, learner_params, propensity_epochs, method_params
        For small tests: options of the dataset's loader, a smaller NeuMF, shorter training.
    """

    presets: tuple[str, ...]
    out: Path
    data: str | None = None
    root: Path | None = None
    protocol: ProtocolName = "honest"
    seeds: int = 10
    seed: int = 0
    device: str = "auto"
    reversed: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    learner_params: Mapping[str, Any] = field(default_factory=dict)
    propensity_epochs: int | None = None
    method_params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_count(self.seeds)
        require(self.seed >= 0, f"seed must be 0 or more, not {self.seed}", "give a seed from 0 on")
        require_choice("protocol", self.protocol, ("honest", "paper"))
        require(
            not self.reversed or self.protocol == "paper",
            "only the paper protocol has switches to reverse",
            "give --protocol paper",
        )
        if self.data is not None:
            DATASETS.require(self.data)
        Paper(reverse=self.reversed)

    @property
    def seed_list(self) -> list[int]:
        """The seeds."""
        return list(range(self.seed, self.seed + self.seeds))


@dataclass(frozen=True)
class Reproduction:
    """What all grids of a reproduction share: what is asked for, the dataset, and where results are kept."""

    config: ReproduceConfig
    data: str
    root: Path | None
    store: ResultStore
    progress: Progress = SILENT

    def grid(
        self, sources: Iterable[str], methods: Mapping[str, bool | list[str]] | None = None, **changes: Any
    ) -> Grid:
        """A grid of rows and methods.

        Parameters
        ----------
        methods
            The rows of each, with ``ALONE`` for itself alone; True is all.
        changes
            Other keys of the grid.
        """
        config, root = self.config, None if self.root is None else str(self.root)
        tables: dict[str, Any] = {
            "name": f"reproduce-{config.protocol}",
            "protocol": config.protocol,
            "reverse": list(config.reversed),
            "both_tests": True,
            "seeds": config.seed_list,
            "datasets": [{"name": self.data, "root": root, "options": config.options}],
            "learner": {"name": "neumf", "params": config.learner_params},
            "propensity_epochs": config.propensity_epochs,
            "propensities": propensities_of(source_named(key) for key in sources),
            "methods": [
                {"method": name, "params": config.method_params, "propensity": _given(rows)}
                for name, rows in (methods or {}).items()
            ],
        }
        return read_grid(tables, **changes)

    def engine(self, grid: Grid, kind: type[Engine] = Engine) -> Engine:
        """What runs such a grid."""
        return kind(grid, self.store, self.config.device)

    def run(self, grid: Grid, kind: type[Engine] = Engine) -> pa.Table:
        """The long table of such a grid; what is missing of it is run."""
        return self.engine(grid, kind).run(self.progress)


def source_named(key: str) -> Source:
    """A source by its key."""
    return NOISY if key == NOISY.key else SOURCES[key]


def _given(rows: bool | list[str]) -> bool | list[str]:
    if isinstance(rows, bool) or rows == [ALONE]:
        return rows is True
    return [key if key == ALONE else source_named(key).name for key in rows]


class Values:
    """Values of a long table by source and method, on the dataset's own test set."""

    def __init__(self, table: pa.Table, work: Reproduction, part: Part) -> None:
        self._rows, self._work = seeds_of(table, part), work

    def of(self, source: str, method: str = "") -> dict[str, list[float]]:
        """By metric, one for each seed."""
        found = source_named(source)
        row = Row(self._work.data, self._work.config.protocol, found.propensity, found.calibrator, method)
        return {metric: list(by_seed.values()) for metric, by_seed in self._rows[row].items()}
