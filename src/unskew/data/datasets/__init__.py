"""Datasets by name: each gives a training log and a test log. One file holds one dataset's format."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unskew.base.errors import ParameterError
from unskew.base.estimator import require_choice
from unskew.base.progress import SILENT, Progress
from unskew.base.registry import DATASETS
from unskew.data import Bag, Feature, Number, Vector, Wanted
from unskew.data.datasets.dataset import Dataset, Protocol
from unskew.data.datasets.synthetic import Truth
from unskew.data.files import expand_paths
from unskew.data.read import read_log
from unskew.data.source import read_table

__all__ = [
    "DATASETS",
    "Dataset",
    "Protocol",
    "Truth",
    "expand_paths",
    "load",
    "read_log",
    "read_table",
]


SHARED = ("root", "protocol", "progress")
"""What loaders take beside the options of their own."""


def load(
    name: str,
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    features: Wanted | None = None,
    numeric: Sequence[str] = (),
    bag: Sequence[str] = (),
    vector: Sequence[str] = (),
    ignore: Sequence[str] = (),
    progress: Progress = SILENT,
    **options: Any,
) -> Dataset:
    """Load a dataset by its name.

    Parameters
    ----------
    name
        One of ``DATASETS``.
    root
        The folder of its files; ``"synthetic"`` needs none.
    protocol
        ``"honest"`` leaves out test cells that were clicked in training; ``"paper"`` keeps them, as the
        published numbers do.
    features, numeric, bag, vector, ignore
        What networks read beside the ids, as in :meth:`unskew.Log.with_features`: ``"auto"`` or a list; names
        of further columns that are numbers, lists and vectors, and with ``"auto"`` of those to leave out.
    progress
        What shows how far the reading of large files is.
    options
        What the dataset's own loader accepts (its docstring lists it).

    Examples
    --------
    >>> data = load("synthetic", n_users=50, n_items=40, seed=1)
    >>> data.train.n_users, data.train.n_items, data.facts["protocol"]
    (50, 40, 'honest')
    """
    loader = DATASETS[name]
    require_choice("protocol", protocol, ("honest", "paper"))
    parameters = inspect.signature(loader).parameters
    accepted = [option for option in parameters if option not in SHARED]
    if "progress" in parameters:
        options["progress"] = progress
    unknown = sorted(set(options) - {*accepted, "progress"})
    if unknown:
        raise ParameterError(
            f"the dataset '{name}' has no option {', '.join(unknown)}",
            remedy=f"its options are {', '.join(accepted)}",
        )
    named: list[Feature] = [*map(Number, numeric), *map(Bag, bag), *map(Vector, vector)]
    if named:
        features = [*([features] if isinstance(features, str) else features or ()), *named]
    if features is not None and "features" in parameters:
        return loader(root, protocol=protocol, features=features, ignore=ignore, **options)
    dataset: Dataset = loader(root, protocol=protocol, **options)
    return dataset if features is None else dataset.with_features(features, ignore)
