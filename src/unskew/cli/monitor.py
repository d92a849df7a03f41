"""``unskew monitor``: is this propensity still honest, for whom not, and since when?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from unskew.base.errors import DataError, ParameterError
from unskew.base.plain_text import plain
from unskew.base.settings import Settings, option
from unskew.cli import options as shared
from unskew.cli.audit import COLUMNS, ENGINE, EXIT_HEALTHY, EXIT_MISCALIBRATED
from unskew.cli.console import show, verdict_of

if TYPE_CHECKING:
    from unskew.audit.monitor_store import MonitorSettings

NAMED = ("score", "outcome", "weight", "segments", "by", "time", "zone", "maturity")
"""Named once, when the store is made."""

SEGMENTS_SHOWN = 10

GENERATOR = '<meta name="generator" content="unskew">'
"""What a report has in its head: no other file is replaced by one."""


class MonitorOptions(Settings):
    """The options of ``unskew monitor``."""

    effects: ClassVar[Mapping[str, str]] = {
        "with sql": (
            "score outcome weight segments by time zone maturity tolerance significance value report"
            " json_file no_report add files as_of latest"
        ),
        "without sql": "table",
        "with add": "tolerance significance value report json_file",
        "without add": "files score outcome weight segments by time zone maturity as_of latest",
        "with no_report": "report",
    }

    store: Path = option(..., flag="argument", metavar="STORE")
    """The store: one Parquet file."""
    files: tuple[str, ...] = option((), flag="argument", metavar="FILE...")
    """With --add: files, folders or globs of rows, or cells of unskew audit --sql."""
    add: bool = option(False)
    """Add FILE... to the store; the first time with the columns below."""
    score: str | None = option(None, group=COLUMNS)
    """The column of the propensity, a probability in [0, 1]."""
    outcome: str | None = option(None, group=COLUMNS)
    """The column of outcomes (clicks), 0 or 1."""
    weight: str | None = option(None, shown=False, group=COLUMNS)
    """The column of sample weights: how many rows each row stands for."""
    segments: tuple[str, ...] = option((), group=COLUMNS)
    """Watch each value of this column too; may be repeated."""
    by: str | None = option(None, group=COLUMNS)
    """Periods: hour, day or week of --time, or the values of a column."""
    time: str | None = option(None, group=COLUMNS)
    """The column of times."""
    zone: str = option("UTC", shown=False, group=COLUMNS)
    """Hours, days and weeks are those of this zone, such as Europe/Paris. Times without a zone are its
    local times."""
    maturity: str | None = option(None)
    """How long outcomes may come in after a period's end, such as 7d; until then it is open."""
    as_of: str | None = option(None, shown=False)
    """When the outcomes of FILE... were as they are [when each file was written, UTC]."""
    sql: str | None = option(None, metavar="ENGINE", shown=False, group=ENGINE)
    """Print the query that counts --table for the store, where the table lies: duckdb, spark, bigquery,
    snowflake or postgres. Its result goes to --add."""
    table: str | None = option(None, shown=False, group=ENGINE)
    """With --sql, the table; for DuckDB files and globs too."""
    latest: bool = option(False, shown=False)
    """Periods of FILE... are known from them alone: drop what was there."""
    tolerance: float = option(0.05)
    """Largest relative error of the weights that counts as healthy."""
    significance: float = option(0.05, shown=False)
    """Probability that honest scores are ever called off, however often one looks."""
    value: float | None = option(None)
    """What a click is worth, for the cost in money."""
    report: Path | None = option(None, group=shared.OUTPUT, writes="file")
    """The report to write [STORE's name, with -report.html at its end]."""
    no_report: bool = option(False, group=shared.OUTPUT)
    """Only print."""
    json_file: shared.JsonFile = None


def monitor(options: MonitorOptions) -> int:
    """Watch a propensity over time: which period and segment broke, since when, in which way, at what cost.

    Exit code 0: healthy, or undecided (which the first word says). 1: miscalibrated now beyond the tolerance.
    2: bad input.
    """
    # Read by NumPy when it is loaded. Matrices here are small: a second thread only waits, and loudly.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if options.sql is not None:
        from unskew.audit.monitor_store import MonitorStore

        if options.table is None:
            raise ParameterError("--table is missing", remedy="name the table as the engine knows it")
        print(MonitorStore.load(options.store).query(options.table, options.sql))  # type: ignore[arg-type]
        return EXIT_HEALTHY
    return _add(options) if options.add else _look(options)


def _settings(options: MonitorOptions) -> MonitorSettings | None:
    """Return what was asked for, or None where the store exists and nothing was named."""
    from unskew.audit.monitor_store import MonitorSettings
    from unskew.audit.periods import By
    from unskew.data.stream import Roles

    if options.store.exists() and not options.model_fields_set & {*NAMED}:
        return None
    for name in ("score", "outcome", "by"):
        if not getattr(options, name):
            raise ParameterError(
                f"--{name} is missing, which a new store needs",
                remedy="give --score, --outcome and --by (day, hour or week with --time, or a column); where"
                " the store exists, give all columns or none",
            )
    segments = tuple(dict.fromkeys(options.segments))
    roles = Roles(str(options.score), str(options.outcome), options.weight, segments)
    return MonitorSettings(roles, By.of(str(options.by), options.time), options.zone, options.maturity)


def _add(options: MonitorOptions) -> int:
    from unskew.audit.monitor_add import add
    from unskew.base.progress import progress_bars
    from unskew.data.splitting import moment

    settings = _settings(options)
    if not options.files:
        raise ParameterError("there is nothing to add", remedy="give FILE... after --add")
    when = None if options.as_of is None else moment(options.as_of)
    files = shared.table_files(options.files)
    with progress_bars() as progress:
        added = add(
            options.store, files, settings=settings, as_of=when, latest=options.latest, progress=progress
        )
    known = f"; {added.known:,} known already" if added.known else ""
    left = f"; {added.closed:,} closed periods stay as they were" if added.closed else ""
    print(f"Added {added.rows:,} rows of {added.files:,} files{known}{left}.")
    print(f"{plain(options.store)}: {added.periods:,} periods, {added.open:,} of them open.")
    return EXIT_HEALTHY


def _look(options: MonitorOptions) -> int:
    from unskew.audit.monitor import monitor
    from unskew.base.files import whole_file
    from unskew.report.audit_tables import histories_table

    store = options.store
    target = None if options.no_report else options.report or store.with_name(f"{store.stem}-report.html")
    shared.check_outputs(options.model_copy(update={"report": target}), read=[store])
    if target is not None and target.is_file():
        with target.open(encoding="utf-8", errors="replace") as file:
            if GENERATOR not in file.read(2000):
                raise DataError(
                    "is there and is no report", where=str(target), remedy="give another --report"
                )
    result = monitor(store, **options.model_dump(include={"tolerance", "significance", "value"}))
    if target is not None:
        from unskew.report.monitor_report import render_monitor_report

        page = render_monitor_report(result)
        with whole_file(target) as beside:
            beside.write_text(page, encoding="utf-8", errors="replace")
    shared.write_figures(options.json_file, result.to_dict())
    judged = [period for period in result.periods if period not in result.open]
    counted = f"{result.whole.rows:,} rows in {len(judged):,} closed periods"
    ends = " to ".join(plain(period) for period in (judged[0], judged[-1]))
    show(
        f"{plain(result.store)}: {counted}, {ends}\n",
        verdict_of(result),
        histories_table(result, SEGMENTS_SHOWN + 1),
    )
    if target is not None:
        print(f"\nThe report: {plain(target)}")
    return EXIT_MISCALIBRATED if result.healthy is False else EXIT_HEALTHY
