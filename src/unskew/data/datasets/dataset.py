"""What a loader gives, and the checks that loaders share. Each dataset's own format is in its own file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.plain_text import listed
from unskew.base.seeds import stream
from unskew.data import Log, Wanted

if TYPE_CHECKING:
    from unskew.data.datasets.synthetic import Truth

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
    unbiased
        A small sample of pairs shown at random, none of them in ``test``, to choose a method on and to set
        levels right.
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
    unbiased: Log | None = None

    def with_features(self, features: Wanted, ignore: Sequence[str] = ()) -> Dataset:
        """The same with features in all logs; what the training log makes of ``"auto"`` holds for all."""
        train = self.train.with_features(features, ignore)
        assert train.features is not None
        declared = train.features.declared
        test, validation, unbiased = (
            None if log is None else log.with_features(declared)
            for log in (self.test, self.validation, self.unbiased)
        )
        return replace(self, train=train, test=test, validation=validation, unbiased=unbiased)


def random_part(log: Log, share: float, seed: int = 0) -> NDArray[np.bool_]:
    """Which rows belong to a random part of a log, by a hash of their ids.

    A copy, a subset and a re-read file give the same pairs.
    """
    # The constants of splitmix64; users and items must not cancel, so that one is mixed before the other.
    with np.errstate(over="ignore"):
        hashed = np.full(len(log), stream(seed, "random part") & 0x7FFFFFFFFFFFFFFF, dtype=np.uint64)
        for codes, vocabulary in ((log.user, log.users), (log.item, log.items)):
            hashed += vocabulary.hashes[codes].view(np.uint64)
            hashed *= np.uint64(0x9E3779B97F4A7C15)
            hashed ^= hashed >> np.uint64(30)
            hashed *= np.uint64(0xBF58476D1CE4E5B9)
            hashed ^= hashed >> np.uint64(27)
    part: NDArray[np.bool_] = hashed.astype(np.float64) < share * 2.0**64
    return part


def with_unbiased_share(dataset: Dataset, share: float, seed: int = 0) -> Dataset:
    """A random test log as two: a share of its pairs becomes ``unbiased``, the rest stays the test.

    Examples
    --------
    >>> from unskew.data.datasets import load
    >>> data = with_unbiased_share(load("synthetic"), 0.05)
    >>> 0.03 < len(data.unbiased) / (len(data.unbiased) + len(data.test)) < 0.07
    True
    """
    if not 0.0 < share < 1.0:
        raise ParameterError(
            f"the unbiased share must be between 0 and 1, not {share}", remedy="give 0.05, for example"
        )
    if dataset.test is None or dataset.test_is != "random":
        raise ParameterError(
            f"{dataset.name} has no test pairs that were shown at random, of which a share could be taken",
            remedy="give the random sample as a file (--unbiased), or say --test-is random of --test",
        )
    if dataset.unbiased is not None:
        raise ParameterError(f"{dataset.name} has an unbiased sample already", remedy="leave the share out")
    part = random_part(dataset.test, share, seed)
    sample, test = dataset.test.take(part), dataset.test.take(~part)
    for log, what in ((sample, "sample"), (test, "test")):
        outcome = log.known_conversion() if log.n_clicks else np.empty(0)
        if not len(outcome) or outcome.min() == outcome.max():
            raise DataError(
                f"a share of {share} leaves the {what} without converted and unconverted pairs",
                remedy="give another share",
            )
    truth = {name: dict(of) for name, of in dataset.row_truth.items()}
    if "test" in truth:
        truth["test"] = {name: values[~part] for name, values in truth["test"].items()}
    facts = {**dataset.facts, "unbiased_rows": len(sample), "unbiased_share": share}
    return replace(dataset, test=test, unbiased=sample, row_truth=truth, facts=facts)


def without_leaked_cells(train: Log, test: Log, protocol: Protocol) -> tuple[Log, dict[str, Any]]:
    """Leave out test cells that were clicked in training (honest), or keep them (paper); count them.

    A model that has seen the conversion of a test cell can remember it: on Coat, training longer raises
    every metric with the leaked cells and lowers every metric without them.
    """
    # Pairs are listed once in the space "matrix"; saying so spares NumPy two passes over a large log.
    leaked = np.isin(train.cell_of(test), train.cell[train.clicked], assume_unique=True)
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
    """Return the folder of a dataset that cannot be shipped with the library."""
    if root is None:
        raise ParameterError(
            f"the dataset '{name}' needs the folder of its files", remedy="give root= (--root)"
        )
    folder = Path(root)
    if not folder.is_dir():
        what = "a file, not a folder" if folder.exists() else "missing"
        raise DataError(f"the folder is {what}", where=str(root), remedy=f"give the folder of '{name}'")
    return folder


def find_files(
    root: str | Path | None, name: str, layouts: Sequence[Sequence[str]], remedy: str
) -> list[Path]:
    """Return the files of a dataset, in the layout that has most of them; refuse an incomplete folder.

    Parameters
    ----------
    layouts
        Paths below the folder, one line for each way to lay the same files out. Messages name the first line.
    """
    top = require_root(root, name)
    present = [[(top / path).is_file() for path in paths] for paths in layouts]
    best = max(range(len(layouts)), key=lambda number: sum(present[number]))
    missing = [path for path, there in zip(layouts[0], present[best], strict=True) if not there]
    if missing:
        raise missing_files(top, layouts[0], missing, remedy)
    return [top / path for path in layouts[best]]


def missing_files(folder: Path, expected: Sequence[str], missing: Sequence[str], remedy: str) -> DataError:
    """Return the error for a wrong or half-downloaded folder, with the files expected and those present."""
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
