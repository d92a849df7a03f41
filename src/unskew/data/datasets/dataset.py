"""The result of a loader, and what loaders share. Each dataset's own format is in its own file."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require_whole
from unskew.base.plain_text import listed
from unskew.base.seeds import GOLDEN, MIX_1, stream
from unskew.data import Feature, Log, Wanted
from unskew.data.described import AUTO, sources_of, without_auto
from unskew.data.options import names_of
from unskew.data.vocabulary import Vocabulary

if TYPE_CHECKING:
    from unskew.data.datasets.synthetic import Truth

Protocol = Literal["honest", "paper"]

HIGHEST_RATING = 5
"""Of rating logs."""

BLOCK_BYTES = 1 << 23
"""Bytes of a CSV file that are parsed at a time; no line may have more."""

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
        """Give all logs features; what the training log makes of ``"auto"`` holds for all."""
        train = self.train.with_features(features, ignore)
        assert train.features is not None
        declared = train.features.declared
        test, validation, unbiased = (
            None if log is None else log.with_features(declared)
            for log in (self.test, self.validation, self.unbiased)
        )
        return replace(self, train=train, test=test, validation=validation, unbiased=unbiased)


def takes(parameters: type) -> Callable[[Callable[..., Dataset]], Callable[..., Dataset]]:
    """Let a loader take the fields of a dataclass as options; its second argument is the dataclass."""
    fields = inspect.signature(parameters).parameters

    def decorate(loader: Callable[..., Dataset]) -> Callable[..., Dataset]:
        @wraps(loader)
        def load(root: str | Path | None = None, **options: Any) -> Dataset:
            own = {name: options.pop(name) for name in [*options] if name in fields}
            return loader(root, parameters(**own), **options)

        root, _, protocol, *rest = inspect.signature(loader).parameters.values()
        shown = [root.replace(default=None), protocol, *fields.values(), *rest]
        load.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return load

    return decorate


def random_part(log: Log, share: float, seed: int = 0) -> NDArray[np.bool_]:
    """Return which rows belong to a random part of a log, by a hash of their ids.

    A copy, a subset and a re-read file give the same pairs.
    """
    # The constants of splitmix64; users and items must not cancel, so that one is mixed before the other.
    with np.errstate(over="ignore"):
        hashed = np.full(len(log), stream(seed, "random part") & 0x7FFFFFFFFFFFFFFF, dtype=np.uint64)
        for codes, vocabulary in ((log.user, log.users), (log.item, log.items)):
            hashed += vocabulary.hashes[codes].view(np.uint64)
            hashed *= GOLDEN
            hashed ^= hashed >> np.uint64(30)
            hashed *= MIX_1
            hashed ^= hashed >> np.uint64(27)
    chosen: NDArray[np.bool_] = hashed.astype(np.float64) < share * 2.0**64
    return chosen


def with_unbiased_share(dataset: Dataset, share: float, seed: int = 0) -> Dataset:
    """Cut a random test log in two: a share of its pairs becomes ``unbiased``, the rest stays the test.

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
    chosen = random_part(dataset.test, share, seed)
    sample, test = dataset.test.take(chosen), dataset.test.take(~chosen)
    for log, what in ((sample, "sample"), (test, "test")):
        outcome = log.known_conversion() if log.n_clicks else np.empty(0)
        if not len(outcome) or outcome.min() == outcome.max():
            raise DataError(
                f"a share of {share} leaves the {what} without converted and unconverted pairs",
                remedy="give another share",
            )
    truth = {name: dict(of) for name, of in dataset.row_truth.items()}
    if "test" in truth:
        truth["test"] = {name: values[~chosen] for name, values in truth["test"].items()}
    facts = {**dataset.facts, "unbiased_rows": len(sample), "unbiased_share": share}
    return replace(dataset, test=test, unbiased=sample, row_truth=truth, facts=facts)


def without_leaked_cells(train: Log, test: Log, protocol: Protocol) -> tuple[Log, dict[str, Any]]:
    """Leave out test cells that were clicked in training (honest), or keep them (paper); count them.

    A model that has seen the conversion of a test cell can remember it: on Coat, training longer raises
    every metric with the leaked cells and lowers every metric without them.
    """
    # Pairs are listed once in the space "matrix"; saying so spares NumPy two passes over a large log.
    leaked = np.isin(train.cell_of(test), train.cell[train.clicked], assume_unique=True)
    count = int(leaked.sum())
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
        "leaked_cells_found": count,
        "leaked_cells_dropped": count if protocol == "honest" else 0,
    }


def find_files(
    root: str | Path | None, name: str, layouts: Sequence[Sequence[str]], remedy: str
) -> list[Path]:
    """Return the files of a dataset, in the layout that has most of them; refuse an incomplete folder.

    Parameters
    ----------
    layouts
        Paths below the folder, one line for each way to lay the same files out. Messages name the first line.
    """
    if root is None:
        raise ParameterError(
            f"the dataset '{name}' needs the folder of its files", remedy="give root= (--root)"
        )
    top = Path(root)
    if not top.is_dir():
        what = "a file, not a folder" if top.exists() else "missing"
        raise DataError(f"the folder is {what}", where=str(root), remedy=f"give the folder of '{name}'")
    present = [[(top / path).is_file() for path in paths] for paths in layouts]
    best = max(range(len(layouts)), key=lambda number: sum(present[number]))
    missing = [path for path, there in zip(layouts[0], present[best], strict=True) if not there]
    if missing:
        files = sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())
        expected = f"expected {', '.join(layouts[0])}; found {listed(files) or 'no files'}"
        raise DataError(f"{', '.join(missing)} missing; {expected}", where=str(top), remedy=remedy)
    return [top / path for path in layouts[best]]


@contextmanager
def reading(source: object, remedy: str = "") -> Iterator[None]:
    """Raise what goes wrong with a file as an error that names it, with ``remedy`` if there is one."""
    try:
        yield
    except DataError as error:
        where = ", ".join(filter(None, (str(source), error.where)))
        raise DataError(error.problem, where=where, remedy=remedy or error.remedy) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        said = str(error).partition("\n")[0].partition("; use")[0]
        raise DataError(f"cannot be read: {said}", where=str(source), remedy=remedy) from error


def csv_blocks(
    file: Path, types: Mapping[str, Any], remedy: str, rows: int | None = None, *, header: bool = True
) -> Iterator[Any]:
    """Read a CSV file as record batches of some of its columns; refuse one without rows.

    Parameters
    ----------
    remedy
        What every data error advises: to download the file again.
    rows
        Only so many of the first rows; None reads all.
    header
        False for files whose lines begin at once and quote nothing; ``types`` then name all their columns.
    """
    names = None if header else list(types)
    convert = pa.csv.ConvertOptions(
        column_types=dict(types), include_columns=list(types), strings_can_be_null=False
    )
    with (
        reading(file, remedy),
        pa.csv.open_csv(
            file,
            read_options=pa.csv.ReadOptions(column_names=names, block_size=BLOCK_BYTES),
            parse_options=pa.csv.ParseOptions(quote_char='"' if header else False),
            convert_options=convert,
        ) as reader,
    ):
        count = 0
        for block in reader:
            block = block if rows is None else block.slice(0, rows - count)
            count += block.num_rows
            if block.num_rows:
                yield block
            if count == rows:
                break
        if not count:
            raise DataError("the file has no rows", remedy=remedy)


def require_rows(rows: Any) -> None:
    """Raise an error unless ``rows`` is a number of rows, or None for all."""
    if rows is not None:
        require_whole(1, rows=rows)


def own_features(
    wanted: Wanted | None, own: Sequence[Feature | str], ignore: Collection[str] = ()
) -> list[Feature | str] | None:
    """Return the features that are asked for, with a dataset's own in the place of ``"auto"``."""
    if wanted is None:
        return None
    named = without_auto(wanted)
    if AUTO not in wanted:
        return named
    known = {*sources_of(named), *names_of("ignore", ignore)}
    return [*named, *(feature for feature in own if not known.intersection(sources_of([feature])))]


def logs_of(
    tables: Sequence[Any],
    places: Sequence[object],
    *,
    features: Sequence[Feature | str] | None = None,
    **columns: Any,
) -> list[Log]:
    """Make logs of tables, whose ids are coded together; the first is the training log.

    Parameters
    ----------
    places
        What messages name in the place of each table.
    features
        What networks read beside the ids; the other logs are described as the training log is.
    columns
        As in :meth:`unskew.Log.from_frame`: names of ``user``, ``item``, ``click``, ``conversion`` and more.
    """
    for role in ("user", "item"):
        if f"{role}s" not in columns:
            chunks = [chunk for table in tables for chunk in table.column(columns[role]).chunks]
            ids = pa.chunked_array(chunks).unique().to_numpy(zero_copy_only=False)
            columns[f"{role}s"] = Vocabulary.of(ids, name=columns[role])
    logs: list[Log] = []
    for table, source in zip(tables, places, strict=True):
        with reading(source):
            logs.append(Log.from_frame(table, features=features, **columns))
        described = logs[0].features
        features = None if described is None else described.declared
    return logs


def event_dataset(
    name: str,
    tables: Sequence[Any],
    files: Sequence[Path],
    *,
    facts: Mapping[str, Any],
    test_is: TestIs = "logged",
    **columns: Any,
) -> Dataset:
    """Make a dataset of one or two tables of impressions with :func:`logs_of`; count what is new in the test.

    A row is an event of its own: a test row is kept though its pair was clicked in training.
    """
    logs = logs_of(tables, files, space="impressions", **columns)
    train, last = logs[0], logs[-1]
    known = {
        "leaked_cells_found": 0,
        "leaked_cells_dropped": 0,
        "test_rows_of_new_users": int((~np.isin(last.user, train.user)).sum()),
        "test_rows_of_new_items": int((~np.isin(last.item, train.item)).sum()),
    }
    return Dataset(name, train, last if len(logs) > 1 else None, facts={**facts, **known}, test_is=test_is)
