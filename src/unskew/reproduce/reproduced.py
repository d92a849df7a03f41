"""What a reproduction is asked for, and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from unskew.datasets import DATASETS
from unskew.estimator import require
from unskew.reproduce.beside import Comparison
from unskew.reproduce.paper_protocol import PaperProtocol
from unskew.run.protocol import ProtocolName
from unskew.seeds import require_count
from unskew.study.shown import Shown


@dataclass(frozen=True)
class ReproduceConfig:
    """What to reproduce.

    Parameters
    ----------
    data, root
        The dataset and its folder; None looks for Coat and else takes the synthetic world.
    reversed
        Switches of the paper protocol to turn over.
    options, backbone_params, propensity_epochs, method_params
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
    backbone_params: Mapping[str, Any] = field(default_factory=dict)
    propensity_epochs: int | None = None
    method_params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_count(self.seeds)
        require(
            self.protocol in ("honest", "paper"),
            f"protocol must be 'honest' or 'paper', not {self.protocol!r}",
            "give one of these",
        )
        require(
            not self.reversed or self.protocol == "paper",
            "only the paper protocol has switches to reverse",
            "give --protocol paper",
        )
        if self.data is not None:
            DATASETS.require(self.data)
        PaperProtocol().reversed(*self.reversed)

    @property
    def seed_list(self) -> list[int]:
        """The seeds."""
        return list(range(self.seed, self.seed + self.seeds))


@dataclass
class Reproduced:
    """What came out; the folder holds the same."""

    config: ReproduceConfig
    dataset: str
    facts: dict[str, str]
    """Command, date, versions, machine."""
    labels: tuple[str, ...]
    notes: list[str]
    tables: dict[str, list[Shown]] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    """SVG by preset."""
    comparisons: dict[str, list[Comparison]] = field(default_factory=dict)
    correlations: list[Any] = field(default_factory=list)
    table: pa.Table | None = None
