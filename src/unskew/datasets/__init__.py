"""Datasets by name: each gives a training log and a test log. One file holds one dataset's format."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from unskew.datasets import coat, files, kuairand, synthetic, yahoo_r3
from unskew.datasets.dataset import Dataset, Protocol
from unskew.datasets.files import read_log
from unskew.datasets.synthetic import Truth
from unskew.errors import ParameterError
from unskew.io.tables import expand_paths, read_table

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

DATASETS: dict[str, Callable[..., Dataset]] = {
    "synthetic": synthetic.load,
    "coat": coat.load,
    "yahoo_r3": yahoo_r3.load,
    "kuairand": kuairand.load,
    "files": files.load,
}
"""Every loader by the name that :func:`load` and ``unskew run --data`` know it by."""


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
    if name not in DATASETS:
        raise ParameterError(f"no dataset is called {name!r}", remedy=f"name one of {', '.join(DATASETS)}")
    if protocol not in ("honest", "paper"):
        raise ParameterError(
            f"protocol must be 'honest' or 'paper', not {protocol!r}", remedy="give one of these"
        )
    loader = DATASETS[name]
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
