"""A log of scores whose truth is known, in memory and in files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray


@dataclass(frozen=True)
class ScoredLog:
    """Scores that say too much at the low end: true logit = 0.7 · logit(score) − 1.2."""

    score: NDArray[np.float64]
    honest: NDArray[np.float64]
    outcome: NDArray[np.uint8]
    country: NDArray[Any]

    def table(self) -> pa.Table:
        columns = {"p": self.score, "honest": self.honest, "clicked": self.outcome, "country": self.country}
        return pa.table(columns)

    def write(self, path: Path) -> Path:
        pq.write_table(self.table(), path)
        return path


def scored_log(rows: int, seed: int = 0) -> ScoredLog:
    generator = np.random.default_rng(seed)
    logit = generator.normal(-2.5, 1.0, rows)
    honest = 1 / (1 + np.exp(-(0.7 * logit - 1.2)))
    return ScoredLog(
        score=1 / (1 + np.exp(-logit)),
        honest=honest,
        outcome=(generator.random(rows) < honest).astype(np.uint8),
        country=generator.choice(np.array(["de", "fr", "us"]), rows),
    )


@pytest.fixture(scope="session")
def log() -> ScoredLog:
    return scored_log(40_000)


@pytest.fixture
def log_file(log: ScoredLog, tmp_path: Path) -> Path:
    return log.write(tmp_path / "log.parquet")


@pytest.fixture(scope="session")
def make_log() -> Callable[..., ScoredLog]:
    return scored_log


@pytest.fixture
def psql(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Run queries on a Postgres of the test (``pgserver.psql`` breaks on paths with a space)."""
    pgserver = pytest.importorskip("pgserver", reason="pgserver is not installed")
    server = pgserver.get_server(tmp_path / "postgres")
    command = [Path(pgserver.postgres_server.POSTGRES_BIN_PATH, "psql"), server.get_uri()]

    def run(query: str) -> str:
        return subprocess.run(command, input=query, capture_output=True, text=True, check=True).stdout

    yield run
    server.cleanup()
