"""Datasets by name: each gives a training log and a test log. One file holds one dataset's format."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from unskew.datasets.dataset import Dataset, Protocol
from unskew.datasets.files import read_log
from unskew.datasets.synthetic import Truth
from unskew.errors import ParameterError
from unskew.io.tables import expand_paths, read_table
from unskew.registry import DATASETS

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


def load(
    name: str, root: str | Path | None = None, *, protocol: Protocol = "honest", **options: Any
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
    options
        What the dataset's own loader accepts (its docstring lists it).

    Examples
    --------
    >>> data = load("synthetic", n_users=50, n_items=40, seed=1)
    >>> data.train.n_users, data.train.n_items, data.facts["protocol"]
    (50, 40, 'honest')
    """
    loader = DATASETS[name]
    if protocol not in ("honest", "paper"):
        raise ParameterError(
            f"protocol must be 'honest' or 'paper', not {protocol!r}", remedy="give one of these"
        )
    accepted = [
        option for option in inspect.signature(loader).parameters if option not in ("root", "protocol")
    ]
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        raise ParameterError(
            f"the dataset '{name}' has no option {', '.join(unknown)}",
            remedy=f"its options are {', '.join(accepted)}",
        )
    return loader(root, protocol=protocol, **options)
