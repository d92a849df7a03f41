"""The long table of a study, one row per number; its summary with intervals and paired tests; both as files.

How a summary looks is decided by :class:`unskew.report.table.Table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.base.errors import RunFolderError
from unskew.base.files import whole_file
from unskew.metrics.collapse import REASONS, Reason
from unskew.metrics.judgement import is_significant
from unskew.metrics.registry import SHOWN_METRICS, SHOWN_PROPENSITY
from unskew.metrics.significance import PairedTest, holm, paired_test
from unskew.metrics.user_bootstrap import UserInterval, user_interval
from unskew.report.facts import COLLAPSED_MARK
from unskew.report.table import Cell, Table
from unskew.study.grid import Row

PREFIX = "collapsed:"
"""How the metric ``collapsed:NETWORK:REASON`` begins."""


class LearnedNothing(NamedTuple):
    """A network, why it counts as collapsed, and in how many of the seeds."""

    network: str
    reason: Reason
    seeds: int
    of: int

    def __str__(self) -> str:
        return f"{self.network}, {self.seeds} of {self.of} {'seed' if self.of == 1 else 'seeds'}"


def learned_nothing(by_metric: Mapping[str, Mapping[int, float]]) -> tuple[LearnedNothing, ...]:
    """Return the networks of a row that learned nothing, from its metrics by seed.

    Examples
    --------
    >>> [str(each) for each in learned_nothing({"collapsed:imputation:flat": {3: 0.0, 4: 1.0}})]
    ['imputation, 1 of 2 seeds']
    """
    networks = []
    for metric, by_seed in by_metric.items():
        if metric.startswith(PREFIX):
            network, _, reason = metric.removeprefix(PREFIX).rpartition(":")
            seeds = sum(value == 1.0 for value in by_seed.values() if np.isfinite(value))
            if seeds and reason in REASONS:
                networks.append(LearnedNothing(network, reason, seeds, len(by_seed)))
    return tuple(networks)


Kind = Literal["propensity", "method", "timing", "users"]

FOUND = {
    "config": pa.string(),
    "part": pa.string(),
    "test": pa.string(),
    "metric": pa.string(),
    "seed": pa.int64(),
    "value": pa.float64(),
    "users": pa.list_(pa.float64()),
}
RESULT = pa.schema(FOUND)
"""What is kept of a run, under the hash of its configuration. ``seed`` is null where a number is of all seeds
together. ``users`` is null but in the part of that name, where it holds a metric, averaged over seeds, on
resamples of the test users: the same resamples in all runs on a dataset."""
SCHEMA = pa.schema(
    {name: pa.string() for name in Row._fields}
    | {name: kind for name, kind in FOUND.items() if name != "test"}
)
"""The long table: the same, with the names of the run."""


@dataclass(frozen=True)
class Figure:
    """One metric of one row over seeds."""

    mean: float
    std: float
    """ddof 1; NaN for one seed."""
    seeds: int
    difference: float | None = None
    """To the baseline, paired by seed; None for the baseline itself."""
    p_value: float | None = None
    p_holm: float | None = None
    """Corrected over all comparisons of the summary."""
    users: UserInterval | None = None
    """Of the mean, over test users; None where they were not resampled."""
    users_difference: UserInterval | None = None
    """Of the difference, over the same test users for both."""
    is_of_users: bool = False
    """Whether it was measured on test users, so that a difference must hold for others too."""

    @property
    def is_significant(self) -> bool:
        """Return whether it differs from the baseline at 5 %, corrected.

        Where it was measured on test users, the interval over users must exclude 0 as well.
        """
        return is_significant(self.p_holm, users=self.users_difference, of_users=self.is_of_users)


@dataclass(frozen=True)
class StudySummary:
    """Figures by row and metric."""

    title: str
    rows: Mapping[Row, Mapping[str, Figure]]
    metrics: tuple[str, ...]
    caption: str
    collapsed: Mapping[Row, tuple[LearnedNothing, ...]] = field(default_factory=dict)
    """Networks that learned nothing, of rows that have some."""

    def shown(self, digits: int = 4) -> Table:
        """Return a table to read, without what all rows share.

        Rows with a network that learned nothing are marked, and the caption says which.
        """
        names = [name for name in Row._fields if len({getattr(row, name) for row in self.rows}) > 1]
        names = names or ["method"]
        rows, collapsed = [], []
        for row, figures in self.rows.items():
            words = [getattr(row, name) for name in names]
            networks = self.collapsed.get(row, ())
            collapsed += [f"{' '.join(filter(None, words))} ({network})" for network in networks]
            words = [word or "–" for word in words]
            words[-1] += f" {COLLAPSED_MARK}" if networks else ""
            rows.append((*words, *(figure_cell(figures.get(metric), digits) for metric in self.metrics)))
        footnote = f"{COLLAPSED_MARK} a network learned nothing: {', '.join(collapsed)}" if collapsed else ""
        return Table(
            title=self.title,
            columns=(*names, *self.metrics),
            rows=tuple(rows),
            caption="; ".join(filter(None, (self.caption, footnote))),
            words=len(names),
        )

    def to_dict(self) -> list[dict[str, Any]]:
        """Return one plain record a figure, for JSON."""
        return [
            {
                **row._asdict(),
                "metric": metric,
                **vars(figure),
                "collapsed": [each._asdict() for each in self.collapsed.get(row, ())],
            }
            for row, figures in self.rows.items()
            for metric, figure in figures.items()
        ]


def long_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Make the long table of rows."""
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def write_tables(folder: Path, table: pa.Table) -> None:
    """Write the long table as ``table.parquet``, and its numbers of models and propensities as CSV."""
    with whole_file(folder / "table.parquet") as beside:
        pq.write_table(table, beside)
    numbers = pc.is_in(table["part"], pa.array(["propensity", "method"]))
    with whole_file(folder / "table.csv") as beside:
        pyarrow.csv.write_csv(table.filter(numbers).drop_columns(["users"]), beside)


def read_table(folder: Path) -> pa.Table:
    """Read the long table that a study wrote."""
    path = folder / "table.parquet"
    if not path.is_file():
        raise RunFolderError("holds no study", where=str(folder), remedy="give the --out of unskew study")
    return pq.read_table(path)


def summary(
    table: pa.Table,
    *,
    kind: Kind = "method",
    metrics: Sequence[str] | None = None,
    against: Mapping[str, str] | None = None,
    title: str = "",
) -> StudySummary:
    """Sum up means and deviations (ddof 1) over seeds, paired tests, and intervals over test users.

    A star needs both: p below 5 % over seeds (paired t-tests, Holm's correction), and an interval of the
    difference over users without 0. Seeds alone would only tell that training noise did not make the
    difference on this one test set. Propensities are judged on held-out cells of the log, by seeds alone.

    Parameters
    ----------
    metrics
        Which, in this order; by default those that the registry shows.
    against
        What the baseline of a row has instead: ``{"method": "naive"}`` compares with naive on the same data,
        ``{"calibrator": "none"}`` each row with its own raw propensity. A row without a baseline, or with no
        two seeds in common with it, is not tested. All tests of the summary are one family.

    Examples
    --------
    >>> rows = [{"dataset": "d", "protocol": "honest", "propensity": "", "calibrator": "", "method": method,
    ...          "seed": seed, "metric": "auc", "value": value, "part": "method"}
    ...         for method, values in (("naive", (0.70, 0.72)), ("ips", (0.71, 0.74)))
    ...         for seed, value in enumerate(values)]
    >>> of = summary(long_table(rows), against={"method": "naive"}).rows
    >>> figure = of[Row("d", "honest", "", "", "ips")]["auc"]
    >>> round(figure.mean, 4), round(figure.std, 4), round(figure.difference, 4)
    (0.725, 0.0212, 0.015)
    """
    values = seeds_of(table, kind)
    resampled = _resampled(table) if kind == "method" else {}
    defaults = SHOWN_METRICS if kind == "method" else [m.name for m in SHOWN_PROPENSITY if m.compared]
    measured = {metric for by_metric in values.values() for metric in by_metric}
    chosen = tuple(metric for metric in metrics or defaults if metric in measured)
    rows = {
        row: {
            metric: _figure(by_metric[metric], resampled.get((row, metric)), kind == "method")
            for metric in chosen
            if metric in by_metric
        }
        for row, by_metric in values.items()
    }
    tests = _add_tests(rows, values, resampled, against) if against else 0
    seeds = sorted({figure.seeds for figures in rows.values() for figure in figures.values()})
    caption = f"mean ± standard deviation over {' or '.join(map(str, seeds))} seeds"
    caption += " [95 % interval over test users]" if resampled else ""
    if tests:
        whom = " ".join(f"{name} {value}" for name, value in (against or {}).items())
        how = f"paired t-test over seeds, Holm over {tests} comparisons"
        how += ", and 95 % interval of the difference over test users" if kind == "method" else ""
        caption += f"; * differs from {whom} at 5 % ({how})"
    collapsed = {row: networks for row, by in values.items() if (networks := learned_nothing(by))}
    return StudySummary(title=title, rows=rows, metrics=chosen, caption=caption, collapsed=collapsed)


def seeds_of(table: pa.Table, kind: Kind) -> dict[Row, dict[str, dict[int, float]]]:
    """Return values by row, metric and seed, in the order of the table."""
    values: dict[Row, dict[str, dict[int, float]]] = {}
    for line in table.filter(pc.equal(table["part"], kind)).to_pylist():
        row = Row(*(line[name] for name in Row._fields))
        values.setdefault(row, {}).setdefault(line["metric"], {})[line["seed"]] = line["value"]
    return values


def _add_tests(
    rows: Mapping[Row, dict[str, Figure]],
    values: Mapping[Row, Mapping[str, Mapping[int, float]]],
    resampled: Mapping[tuple[Row, str], NDArray[np.float64]],
    against: Mapping[str, str],
) -> int:
    """Compare the figures of each row with its baseline, over the seeds of both; return how many were."""
    tests: list[tuple[Row, Row, str, PairedTest]] = []
    for row, figures in rows.items():
        same = row._replace(**against)
        # A method without propensities has neither a propensity nor a calibrator in its row.
        for other in (same, same._replace(propensity="", calibrator="")):
            if other in rows and other != row:
                for metric in figures:
                    mine, theirs = values[row][metric], values[other].get(metric, {})
                    shared = [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]
                    pairs = np.reshape(shared, (-1, 2))
                    pairs = pairs[np.isfinite(pairs).all(axis=1)]
                    if len(pairs) > 1:
                        tests.append((row, other, metric, paired_test(*pairs.T)))
                break
    adjusted = holm([test.p_value for *_, test in tests]) if tests else ()
    for (row, other, metric, test), p_holm in zip(tests, adjusted, strict=True):
        ours, its = resampled.get((row, metric)), resampled.get((other, metric))
        rows[row][metric] = replace(
            rows[row][metric],
            difference=test.difference,
            p_value=test.p_value,
            p_holm=float(p_holm),
            users_difference=None
            if ours is None or its is None
            else user_interval(test.difference, ours - its),
        )
    return len(tests)


def _resampled(table: pa.Table) -> dict[tuple[Row, str], NDArray[np.float64]]:
    """Return by row and metric the mean over seeds on resamples of the test users."""
    resampled = {}
    for line in table.filter(pc.equal(table["part"], "users")).to_pylist():
        row = Row(*(line[name] for name in Row._fields))
        resampled[row, line["metric"]] = np.array(line["users"], dtype=np.float64)
    return resampled


def _figure(by_seed: Mapping[int, float], resampled: NDArray[np.float64] | None, is_of_users: bool) -> Figure:
    array = np.array([value for value in by_seed.values() if np.isfinite(value)])
    mean = float(array.mean()) if len(array) else float("nan")
    return Figure(
        mean=mean,
        std=float(array.std(ddof=1)) if len(array) > 1 else float("nan"),
        seeds=len(array),
        users=None if resampled is None else user_interval(mean, resampled),
        is_of_users=is_of_users,
    )


def figure_cell(figure: Figure | None, digits: int = 4) -> Cell:
    """Return the mean, beside it the deviation and the interval over users, and the star."""
    if figure is None or not np.isfinite(figure.mean):
        return Cell("–")
    # Four digits after the point suit rates; counts of rows need none.
    places = digits if abs(figure.mean) < 100 else 0
    spread = "" if np.isnan(figure.std) else f" ± {figure.std:.{places}f}"
    users, ends = "", figure.users
    if ends is not None and ends["low"] is not None and ends["high"] is not None:
        # Their own error is some per cent of their width: one digit less than the mean's is honest.
        fewer = max(0, places - 1)
        users = f" [{ends['low']:.{fewer}f}, {ends['high']:.{fewer}f}]"
    mark = "*" if figure.is_significant else ""
    return Cell(f"{figure.mean:.{places}f}", figure.mean, f"{spread}{users}".strip(), mark)
