"""The long table of a study, one row per number; its summary with intervals and paired tests; both as files.

How a summary looks is decided by :class:`unskew.study.shown_table.Shown`.
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

from unskew.errors import RunFolderError
from unskew.io.files import whole_file
from unskew.metrics.collapse import REASONS, Collapsed, Reason, collapse_message, counts
from unskew.metrics.judgement import is_significant
from unskew.metrics.registry import SHOWN_METRICS, SHOWN_PROPENSITY
from unskew.metrics.significance import holm, paired_test
from unskew.metrics.user_bootstrap import UserInterval, user_interval
from unskew.report.words import COLLAPSED_MARK
from unskew.study.shown_table import Shown

PREFIX = "collapsed:"
"""Of the metric ``collapsed:NETWORK:REASON``."""


class LearnedNothing(NamedTuple):
    """A network, why it counts as collapsed, and in how many of the seeds."""

    network: str
    reason: Reason
    seeds: int
    of: int

    def __str__(self) -> str:
        return f"{self.network}, {self.seeds} of {self.of} {'seed' if self.of == 1 else 'seeds'}"


def collapsed_values(
    collapsed: Iterable[Collapsed], seeds: Sequence[int], members: int = 1
) -> dict[str, list[float]]:
    """By metric, 1 for each seed whose network collapsed and 0 for the others; empty if none did.

    Examples
    --------
    >>> collapsed_values([Collapsed("imputation", 4, "flat")], (3, 4))
    {'collapsed:imputation:flat': [0.0, 1.0]}
    """
    found = list(collapsed)
    return {
        f"{PREFIX}{network}:{reason}": [
            float(bool(_of(counts((each for each in found if each.seed == seed), members), network, reason)))
            for seed in seeds
        ]
        for network, reason, _ in counts(found, members)
    }


def learned_nothing(by_metric: Mapping[str, Mapping[int, float]]) -> tuple[LearnedNothing, ...]:
    """What the metrics of a row, by seed, say of its networks.

    Examples
    --------
    >>> [str(each) for each in learned_nothing({"collapsed:imputation:flat": {3: 0.0, 4: 1.0}})]
    ['imputation, 1 of 2 seeds']
    """
    found = []
    for metric, by_seed in by_metric.items():
        if metric.startswith(PREFIX):
            network, _, reason = metric.removeprefix(PREFIX).rpartition(":")
            seeds = sum(value == 1.0 for value in by_seed.values() if np.isfinite(value))
            if seeds and reason in REASONS:
                found.append(LearnedNothing(network, reason, seeds, len(by_seed)))
    return tuple(found)


def sentences(of: str, networks: Iterable[LearnedNothing]) -> list[str]:
    """What became of each, and the remedy."""
    return [collapse_message(of, each.network, each.reason, each.seeds, each.of) for each in networks]


def _of(found: Iterable[tuple[str, Any, int]], network: str, reason: str) -> int:
    return sum(seeds for name, why, seeds in found if (name, why) == (network, reason))


Part = Literal["propensity", "method", "timing", "search", "users"]

SCHEMA = pa.schema(
    {
        "dataset": pa.string(),
        "protocol": pa.string(),
        "propensity": pa.string(),
        "calibrator": pa.string(),
        "method": pa.string(),
        "seed": pa.int64(),
        "metric": pa.string(),
        "value": pa.float64(),
        "part": pa.string(),
        "users": pa.list_(pa.float64()),
    }
)
"""``seed`` is null where a number is of all seeds together. ``users`` is null but in the part of that name,
where it holds a metric, averaged over seeds, on resamples of the test users: the same resamples in all rows
of a dataset."""

TABLE, TIMINGS, USERS = "table", "timings", "users"
"""Files: all numbers but the other two; timings, which differ from run to run; resamples of test users."""


class Row(NamedTuple):
    """What a line of a summary is about."""

    dataset: str
    protocol: str
    propensity: str
    calibrator: str
    method: str


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
        """Whether it differs from the baseline at 5 %, corrected; of what was measured on test users, whether
        the interval over users excludes 0 as well."""
        return is_significant(self.p_holm, users=self.users_difference, of_users=self.is_of_users)


@dataclass(frozen=True)
class StudySummary:
    """Figures by row and metric."""

    title: str
    rows: Mapping[Row, Mapping[str, Figure]]
    metrics: tuple[str, ...]
    caption: str
    notes: tuple[str, ...] = ()
    collapsed: Mapping[Row, tuple[LearnedNothing, ...]] = field(default_factory=dict)
    """Networks that learned nothing, of rows that have some."""

    def shown(self, digits: int = 4) -> Shown:
        """As a table to read: on a terminal, in Markdown, LaTeX or HTML; what all rows share is left out.
        Rows with a network that learned nothing are marked, and the caption says which."""
        names = [name for name in Row._fields if len({getattr(row, name) for row in self.rows}) > 1]
        names = names or ["method"]
        return Shown(
            title=self.title,
            columns=(*names, *self.metrics),
            rows=tuple(
                (
                    *self._words(row, names),
                    *(_figure_text(figures.get(metric), digits) for metric in self.metrics),
                )
                for row, figures in self.rows.items()
            ),
            caption="; ".join((self.caption, *self.notes, *self._footnote(names))),
            text_columns=len(names),
        )

    def _words(self, row: Row, names: Sequence[str]) -> list[str]:
        words = [getattr(row, name) or "–" for name in names]
        return [*words[:-1], f"{words[-1]} {COLLAPSED_MARK}"] if row in self.collapsed else words

    def _footnote(self, names: Sequence[str]) -> list[str]:
        if not self.collapsed:
            return []
        places = (
            f"{' '.join(filter(None, (getattr(row, name) for name in names)))} ({network})"
            for row, networks in self.collapsed.items()
            for network in networks
        )
        return [f"{COLLAPSED_MARK} a network learned nothing: {', '.join(places)}"]

    def to_dict(self) -> list[dict[str, Any]]:
        """One plain record per figure, for JSON."""
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
    """The long table of rows."""
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def write_tables(folder: Path, table: pa.Table) -> None:
    """``table.parquet``, ``table.csv`` and, apart, ``timings.parquet``, ``timings.csv``, ``users.parquet``.

    Timings are apart because they alone differ when a study is run again; resamples of test users, because
    no table to look at has room for them.
    """
    is_timing, of_users = (pc.equal(table["part"], part) for part in ("timing", "users"))
    numbers = table.drop_columns(["users"])
    plain = pc.invert(pc.or_(is_timing, of_users))
    for name, part in ((TABLE, numbers.filter(plain)), (TIMINGS, numbers.filter(is_timing))):
        with whole_file(folder / f"{name}.parquet") as beside:
            pq.write_table(part, beside)
        with whole_file(folder / f"{name}.csv") as beside:
            pyarrow.csv.write_csv(part, beside)
    with whole_file(folder / f"{USERS}.parquet") as beside:
        pq.write_table(table.filter(of_users).drop_columns(["seed", "value"]), beside)


def read_tables(folder: Path) -> pa.Table:
    """The long table that a study wrote."""
    if not (folder / f"{TABLE}.parquet").is_file():
        raise RunFolderError("holds no study", where=str(folder), remedy="give the --out of unskew study")
    names = [name for name in (TABLE, TIMINGS, USERS) if (folder / f"{name}.parquet").is_file()]
    parts = [pq.read_table(folder / f"{name}.parquet") for name in names]
    return pa.concat_tables([SCHEMA.empty_table(), *parts], promote_options="default")


def summary(
    table: pa.Table,
    *,
    part: Part = "method",
    metrics: Sequence[str] | None = None,
    against: Mapping[str, str] | None = None,
    title: str = "",
) -> StudySummary:
    """Mean and standard deviation (ddof 1) over seeds, paired t-tests with Holm's correction, and intervals
    over test users. A star needs both: p below 5 % over seeds, corrected, and an interval of the difference
    over users without 0. Seeds alone would only tell that training noise did not make the difference on this
    one test set. Of propensities, which are judged on held-out cells of the log, seeds are all there is.

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
    values = seeds_of(table, part)
    resampled = _resampled(table) if part == "method" else {}
    defaults = (
        SHOWN_METRICS if part == "method" else [each.name for each in SHOWN_PROPENSITY if each.compared]
    )
    found = {metric for by_metric in values.values() for metric in by_metric}
    chosen = tuple(metric for metric in metrics or defaults if metric in found)
    tests = {} if against is None else _tests(values, chosen, against)
    p_values = [test.p_value for test in tests.values()]
    adjusted = dict(zip(tests, holm(p_values) if p_values else (), strict=True))
    rows: dict[Row, dict[str, Figure]] = {}
    for row, by_metric in values.items():
        rows[row] = {}
        for metric in chosen:
            if metric in by_metric:
                test = tests.get((row, metric))
                figure = _figure(by_metric[metric], resampled.get((row, metric)), part == "method")
                if test is not None:
                    other = _baseline(row, values, against or {})
                    assert other is not None
                    mine, theirs = (resampled.get((of, metric)) for of in (row, other))
                    figure = replace(
                        figure,
                        difference=test.difference,
                        p_value=test.p_value,
                        p_holm=float(adjusted[row, metric]),
                        users_difference=None
                        if mine is None or theirs is None
                        else user_interval(test.difference, mine - theirs),
                    )
                rows[row][metric] = figure
    counts = sorted({figure.seeds for by_metric in rows.values() for figure in by_metric.values()})
    caption = f"mean ± standard deviation over {' or '.join(map(str, counts))} seeds"
    if resampled:
        caption += " [95 % interval over test users]"
    if tests:
        against_whom = " ".join(f"{name} {value}" for name, value in (against or {}).items())
        how = f"paired t-test over seeds, Holm over {len(tests)} comparisons"
        if part == "method":
            how += ", and 95 % interval of the difference over test users"
        caption += f"; * differs from {against_whom} at 5 % ({how})"
    found_collapsed = {row: learned_nothing(by_metric) for row, by_metric in values.items()}
    return StudySummary(
        title=title,
        rows=rows,
        metrics=chosen,
        caption=caption,
        collapsed={row: networks for row, networks in found_collapsed.items() if networks},
    )


def seeds_of(table: pa.Table, part: Part) -> dict[Row, dict[str, dict[int, float]]]:
    """Values by row, metric and seed, in the order of the table."""
    values: dict[Row, dict[str, dict[int, float]]] = {}
    for line in table.filter(pc.equal(table["part"], part)).to_pylist():
        row = Row(*(line[name] for name in Row._fields))
        values.setdefault(row, {}).setdefault(line["metric"], {})[line["seed"]] = line["value"]
    return values


def _tests(
    values: Mapping[Row, Mapping[str, Mapping[int, float]]],
    metrics: Sequence[str],
    against: Mapping[str, str],
) -> dict[tuple[Row, str], Any]:
    tests = {}
    for row, by_metric in values.items():
        baseline = _baseline(row, values, against)
        if baseline is None:
            continue
        for metric in metrics:
            mine, theirs = by_metric.get(metric, {}), values[baseline].get(metric, {})
            a, b = _paired(mine, theirs)
            if len(a) > 1:
                tests[row, metric] = paired_test(a, b)
    return tests


def _baseline(row: Row, rows: Mapping[Row, Any], against: Mapping[str, str]) -> Row | None:
    same = row._replace(**against)
    # A method without propensities has neither a propensity nor a calibrator in its row.
    for candidate in (same, same._replace(propensity="", calibrator="")):
        if candidate in rows and candidate != row:
            return candidate
    return None


def _paired(
    mine: Mapping[int, float], theirs: Mapping[int, float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shared = [s for s in mine if s in theirs and np.isfinite(mine[s]) and np.isfinite(theirs[s])]
    return np.array([mine[s] for s in shared]), np.array([theirs[s] for s in shared])


def _resampled(table: pa.Table) -> dict[tuple[Row, str], NDArray[np.float64]]:
    """By row and metric, the mean over seeds on resamples of the test users."""
    found = {}
    for line in table.filter(pc.equal(table["part"], "users")).to_pylist():
        row = Row(*(line[name] for name in Row._fields))
        found[row, line["metric"]] = np.array(line["users"], dtype=np.float64)
    return found


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


def _figure_text(figure: Figure | None, digits: int) -> str:
    if figure is None or not np.isfinite(figure.mean):
        return "–"
    # Four digits after the point suit rates; counts of rows need none.
    places = digits if abs(figure.mean) < 100 else 0
    spread = "" if np.isnan(figure.std) else f" ± {figure.std:.{places}f}"
    users = "" if figure.users is None else users_text(figure.users, places)
    return f"{figure.mean:.{places}f}{spread}{users}{'*' if figure.is_significant else ''}"


def users_text(interval: UserInterval, places: int = 4) -> str:
    """An interval over test users, to stand behind a mean; empty if undefined.

    Examples
    --------
    >>> users_text({"low": 0.71204, "high": 0.7688})
    ' [0.712, 0.769]'
    """
    low, high = interval["low"], interval["high"]
    if low is None or high is None:
        return ""
    # Their own error is some per cent of their width: one digit less than the mean's is honest.
    digits = max(0, places - 1)
    return f" [{low:.{digits}f}, {high:.{digits}f}]"
