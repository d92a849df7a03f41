"""What a loader gives, and the checks that loaders share. Each dataset's own format is in its own file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError, ParameterError
from unskew.log import Log, Wanted
from unskew.plain_text import listed

if TYPE_CHECKING:
    from unskew.datasets.synthetic import Truth

Protocol = Literal["honest", "paper"]

TestIs = Literal["random", "logged"]
"""How the pairs of a test set came to be seen: shown at random, or logged (and so chosen) as in training."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training log, a test log that shares its vocabularies, and what is known about both.

    Attributes
    ----------
    name
        The name in ``DATASETS``.
    train
        The biased log O (missing not at random).
    test
        Pairs with their conversions to judge models by; None if there are none.
    test_is
        ``"random"`` where the test pairs were shown at random (missing at random). On ``"logged"`` ones a
        biased model looks good; nobody's word for random is taken for granted, so that this is the default.
    validation
        Randomly shown pairs to select on, where the published split has them (KuaiRand); otherwise the
        validation split is cut from ``train``.
    truth
        The true propensities and conversions of all pairs, for the synthetic world alone.
    row_truth
        What is true of each row of ``"train"`` and ``"test"``, by name, and no part of the logs: no model may
        see it. For synthetic impressions alone.
    facts
        Counts and notes on how the data were read, ready for JSON: ``protocol``, ``leaked_cells_found``,
        ``leaked_cells_dropped`` and more.
    extra
        Arrays that came with the data and are no part of the logs (Coat's ``shipped_propensities``).
    """

    name: str
    train: Log
    test: Log | None
    validation: Log | None = None
    truth: Truth | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    row_truth: Mapping[str, Mapping[str, NDArray[Any]]] = field(default_factory=dict)
    test_is: TestIs = "logged"

    def with_features(self, features: Wanted, ignore: Sequence[str] = ()) -> Dataset:
        """The same with features in all logs; what the training log makes of ``"auto"`` holds for all."""
        train = self.train.with_features(features, ignore)
        assert train.features is not None
        declared = train.features.declared
        test, validation = (
            None if log is None else log.with_features(declared) for log in (self.test, self.validation)
        )
        return replace(self, train=train, test=test, validation=validation)


def without_leaked_cells(train: Log, test: Log, protocol: Protocol) -> tuple[Log, dict[str, Any]]:
    """Leave out test cells that were clicked in training (honest), or keep them (paper); count them.

    A model that has seen the conversion of a test cell can remember it: on Coat, training longer raises
    every metric with the leaked cells and lowers every metric without them.
    """
    # Pairs are listed once in the space "matrix"; saying so spares NumPy two passes over a large log.
    user = train.users.recode(test.user, test.users, unseen="nan").astype(np.int64)
    item = train.items.recode(test.item, test.items, unseen="nan")
    cell = np.where((user < 0) | (item < 0), -1 - np.arange(len(test)), user * train.n_items + item)
    leaked = np.isin(cell, train.cell[train.clicked], assume_unique=True)
    found = int(leaked.sum())
    if protocol == "honest":
        judged = test.click == 1
        if (leaked | ~judged).all():
            raise DataError(
                f"all {int(judged.sum())} test pairs were clicked in training: nothing is left to test on",
                remedy="give a test set of other pairs, or ask for protocol='paper' to keep them",
            )
        test = test.take(~leaked)
    return test, {
        "protocol": protocol,
        "leaked_cells_found": found,
        "leaked_cells_dropped": found if protocol == "honest" else 0,
    }


def require_root(root: str | Path | None, name: str) -> Path:
    """The folder of a dataset that cannot be shipped with the library."""
    if root is None:
        raise ParameterError(
            f"the dataset '{name}' needs the folder of its files", remedy="give root= (--root)"
        )
    folder = Path(root)
    if not folder.is_dir():
        what = "a file, not a folder" if folder.exists() else "missing"
        raise DataError(f"the folder is {what}", where=str(root), remedy=f"give the folder of '{name}'")
    return folder


def missing_files(folder: Path, expected: Sequence[str], missing: Sequence[str], remedy: str) -> DataError:
    """The error for a wrong or half-downloaded folder: what was expected, and what was found."""
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return DataError(
        f"{', '.join(missing)} missing; expected {', '.join(expected)}; found {listed(found) or 'no files'}",
        where=str(folder),
        remedy=remedy,
    )


@contextmanager
def errors_name(place: str | Path) -> Iterator[None]:
    """Put the file in front of the place that a data error names."""
    try:
        yield
    except DataError as error:
        where = f"{place}, {error.where}" if error.where else str(place)
        raise DataError(error.problem, where=where, remedy=error.remedy) from error
