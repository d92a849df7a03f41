"""A dataset while the cells of a study are made for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.datasets import Dataset
from unskew.errors import ParameterError
from unskew.study.cells import dataset_hash
from unskew.study.grid import Grid
from unskew.study.grid_entries import DatasetEntry
from unskew.study.propensities import Given


@dataclass
class StudyData:
    """A dataset, its hash, and the propensities that methods are given on it."""

    entry: DatasetEntry
    dataset: Dataset
    hash: str
    given: list[Given] = field(default_factory=list)


def read_data(entry: DatasetEntry, grid: Grid) -> StudyData:
    """Load a dataset, and refuse what could not be run on it."""
    dataset = entry.load(grid.protocol)
    if grid.methods:
        dataset.train.known_conversion()
    sampled = [
        each.key
        for each in grid.propensities
        if each.is_trained and each.params.get("population") == "sampled"
    ]
    full = [each.label for each in grid.methods if each.needs_full_space and each.takes_propensity]
    if grid.protocol == "honest" and sampled and full:
        raise ParameterError(
            f"propensity {sampled[0]!r} is of a sampled population, and {full[0]} sums over all of D",
            remedy="leave population at 'D', which adds the logit offset",
        )
    return StudyData(entry, dataset, dataset_hash(dataset))
