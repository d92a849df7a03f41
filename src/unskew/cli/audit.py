"""``unskew audit``: is this propensity honest?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain
from unskew.base.settings import Settings, option
from unskew.cli import options as shared
from unskew.cli.console import Shown, show, verdict_of
from unskew.cli.verb import refuse

if TYPE_CHECKING:
    from unskew.audit import ActionsResult, AuditResult

EXIT_HEALTHY, EXIT_MISCALIBRATED = 0, 1

SEGMENTS_SHOWN = 10

COLUMNS, ENGINE = "Columns", "Where the rows are in an engine"


class AuditOptions(Settings):
    """The options of ``unskew audit``."""

    effects: ClassVar[Mapping[str, str]] = {
        "with cells": "files actions sql table run",
        "with sql": "files actions",
        "without sql": "table run by time boolean_outcome fold_by",
        "with run": "by time boolean_outcome fold_by",
        "without by": "time",
        "with no_report": "out overwrite",
        "with actions": "outcome weight segments p_min seed out overwrite no_report",
    }

    files: shared.Rows = ()
    score: str | None = option(None, group=COLUMNS)
    """The column of the propensity, a probability in [0, 1]."""
    outcome: str | None = option(None, group=COLUMNS)
    """The column of outcomes (clicks), 0 or 1."""
    weight: str | None = option(None, group=COLUMNS)
    """The column of sample weights: how many rows each row stands for."""
    segments: tuple[str, ...] = option((), group=COLUMNS)
    """Audit each value of this column too; may be repeated."""
    actions: int | None = option(None, shown=False)
    """Instead of --outcome, for a bandit log: --score is the probability of the action that was shown
    among so many, and mean(1/p) must be their number."""
    tolerance: float = option(0.05)
    """Largest relative error of the weights that counts as healthy."""
    significance: float = option(0.01, shown=False)
    """Probability that honest scores are called miscalibrated by chance."""
    p_min: shared.Clip = option("auto", shown=False)
    """The clip whose cost is reported: auto (the least error) or a number."""
    out: Path | None = option(None, group=shared.OUTPUT, writes="folder")
    """The folder to write [audits/FILE, with a number if it exists]."""
    overwrite: shared.Overwrite = False
    no_report: bool = option(False, group=shared.OUTPUT)
    """Only print, in half the time: write no report and no folder."""
    json_file: shared.JsonFile = None
    seed: shared.Seed = 0
    sql: str | None = option(None, metavar="ENGINE", group=ENGINE)
    """Print the query that counts the cells of --table where it lies: duckdb, spark, bigquery, snowflake
    or postgres. Its result goes to --cells."""
    table: str | None = option(None, group=ENGINE)
    """With --sql, the table; for DuckDB files and globs too."""
    run: bool = option(False, shown=False, group=ENGINE)
    """With --sql duckdb, run the query here and audit its result."""
    cells: Path | None = option(None, group=ENGINE)
    """Audit the result of such a query, a Parquet, Arrow or CSV file."""
    by: str | None = option(None, shown=False, group=ENGINE)
    """With --sql, cells of each hour, day or week of --time, or of each value of a column: for unskew
    monitor."""
    time: str | None = option(None, shown=False, group=ENGINE)
    """The column of times of --by."""
    boolean_outcome: bool = option(False, shown=False, group=ENGINE)
    """With --sql, the outcome is true and false."""
    fold_by: str | None = option(None, shown=False, group=ENGINE)
    """With --sql, count by fold too, of the ids in this column: calibrators are judged on other ids."""
    log_json: shared.LogJson = None


def audit(options: AuditOptions) -> int:
    """Check whether a propensity column is honest, what its error costs and what fixes it; write report.html.

    Exit code 0: healthy, or undecided (which the first word says). 1: miscalibrated beyond the tolerance.
    2: bad input.
    """
    # Read by NumPy when it is loaded. Matrices here have ten columns: a second thread only waits, and loudly.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _check(options)
    if options.sql is not None and not options.run:
        print(_query(options))
        return EXIT_HEALTHY
    from unskew.audit import AuditResult
    from unskew.base.files import AUDIT, check_target, whole_folder, write_json

    rows = _rows_of(options)
    target = None if options.no_report or options.actions else options.out or _free_folder(rows[0])
    if target is not None:
        check_target(target, overwrite=options.overwrite, kind=AUDIT)
    shared.check_outputs(options, read=[] if options.run else shared.table_files(rows), out=target)
    result = _audited(options, rows) if options.actions is None else _audited_actions(options, rows)
    if isinstance(result, AuditResult) and target is not None:
        from unskew.report.audit_report import render_audit_report

        report = render_audit_report(result)
        with whole_folder(target, overwrite=options.overwrite, kind=AUDIT) as beside:
            (beside / "report.html").write_text(report, encoding="utf-8", errors="replace")
            result.sketch.save(beside / "sketch.npz")
            write_json(beside / AUDIT.marker, result.to_dict())
    shared.write_figures(options.json_file, result.to_dict())
    show(*(_shown(result) if isinstance(result, AuditResult) else _shown_actions(result)))
    if target is not None:
        print(f"\nThe report: {plain(target / 'report.html')}")
    return EXIT_MISCALIBRATED if result.healthy is False else EXIT_HEALTHY


def _check(options: AuditOptions) -> None:
    """Refuse options that have no effect on the kind of rows that are audited."""
    sql = options.sql is not None
    for name in ("score", "outcome") if options.actions is None else ("score",):
        _column(options, name)
    if sql and not options.run:
        refuse(options, ("json_file", "out", "overwrite", "no_report"), "with --sql, which prints a query")
    if sql and options.table is None:
        raise ParameterError("--table is missing", remedy="name the table as the engine knows it, or files")


def _column(options: AuditOptions, name: str) -> str:
    """Return the name of a column; cells, which have no such columns, have them by the name of the option."""
    column: str | None = getattr(options, name)
    if column is not None or options.cells is not None:
        return column or name
    outcomes = "outcomes, 0 or 1 (--outcome COLUMN), or for a bandit log give --actions N"
    what = "probabilities (--score COLUMN)" if name == "score" else outcomes
    raise ParameterError(f"--{name} is missing", remedy=f"name the column of {what}")


def _rows_of(options: AuditOptions) -> list[str]:
    """Return what is read: files, the table of an engine, or the file of cells."""
    engine = options.table if options.cells is None else str(options.cells)
    if engine is None and not options.files:
        raise ParameterError(
            "there is nothing to audit", remedy="give FILE..., or --sql ENGINE --table T, or --cells FILE"
        )
    return list(options.files) if engine is None else [engine]


def _query(options: AuditOptions) -> str:
    """Return the query that counts the cells of a table."""
    from unskew.audit.periods import By
    from unskew.audit.sql import cells_query

    columns = options.model_dump(include={"score", "outcome", "weight", "boolean_outcome", "fold_by"})
    by = None if options.by is None else By.of(options.by, options.time)
    return cells_query(str(options.table), **columns, segments=options.segments, by=by, dialect=options.sql)  # type: ignore[arg-type]


def _audited(options: AuditOptions, rows: list[str]) -> AuditResult:
    """Audit files, the table of an engine, or cells."""
    from unskew.audit import audit
    from unskew.audit.reading import counted_cells
    from unskew.audit.sql import require_runnable, run_query
    from unskew.base.progress import progress_bars

    columns: dict[str, Any] = {name: _column(options, name) for name in ("score", "outcome")}
    columns |= {"weight": options.weight, "segments": options.segments}
    limits = options.model_dump(include={"tolerance", "significance", "p_min", "seed"})
    if options.run:
        require_runnable(options.sql)  # type: ignore[arg-type]
    if options.run or options.cells is not None:
        counted = run_query(rows[0], **columns) if options.run else options.cells
        return replace(audit(counted_cells(counted), **columns, **limits), files=tuple(rows))
    with progress_bars(log_json=options.log_json) as progress:
        return audit(rows, **columns, **limits, progress=progress)


def _audited_actions(options: AuditOptions, rows: list[str]) -> ActionsResult:
    """Audit the probability of showing, of a bandit log."""
    from unskew.audit import audit_actions
    from unskew.base.progress import progress_bars

    asked = options.model_dump(include={"score", "actions", "tolerance", "significance"})
    with progress_bars(log_json=options.log_json) as progress:
        return audit_actions(rows, **asked, progress=progress)


def _free_folder(first: str) -> Path:
    """Return ``audits/NAME``, or with the first number from 2 on that is free."""
    name = shared.name_of_tables(first, "audit")
    folders = (Path("audits") / f"{name}-{number}" for number in count(2))
    return next(folder for folder in chain([Path("audits") / name], folders) if not folder.exists())


def _shown(result: AuditResult) -> Iterator[Shown]:
    """Yield the verdict, the figures, the worst segments and the calibrators."""
    from unskew.report import audit_tables as tables

    yield f"{tables.data_line(result)}\n"
    yield verdict_of(result)
    yield tables.figures_table(result)
    if result.judged_segments:
        yield tables.segments_table(result, SEGMENTS_SHOWN)
    if small := len(result.segments) - len(result.judged_segments):
        yield f"{small:,} of {len(result.segments):,} segments have too few rows to be judged."
    if result.calibrators:
        yield tables.calibrators_table(result)
    if result.repair is not None:
        yield tables.repair_table(result.repair)
        yield result.repair.sentence
    if result.command is not None:
        yield f"Write the weights: {plain(result.command)}"


def _shown_actions(result: ActionsResult) -> Iterator[Shown]:
    """Yield the verdict on probabilities of showing, and its figures."""
    from unskew.report.audit_tables import actions_table

    files = result.files[0] if len(result.files) == 1 else f"{len(result.files):,} files"
    yield f"{files}: {result.rows:,} rows, {result.actions:,} actions\n"
    yield verdict_of(result)
    yield actions_table(result)
