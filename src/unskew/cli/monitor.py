"""``unskew monitor``: is this propensity still honest, for whom not, and since when?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.base.errors import DataError, ParameterError
from unskew.base.plain_text import plain
from unskew.cli.audit import EXIT_HEALTHY, EXIT_MISCALIBRATED

if TYPE_CHECKING:
    import numpy as np

    from unskew.audit.monitor_store import MonitorSettings

OF_ADDING = ("score", "outcome", "weight", "segment", "by", "time", "zone", "maturity", "as_of", "latest")
OF_LOOKING = ("tolerance", "significance", "value", "report", "json")

GENERATOR = '<meta name="generator" content="unskew">'
"""What a report has in its head: no other file is replaced by one."""


def monitor(
    context: typer.Context,
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store: one Parquet file.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...",
            help="With --add: files, folders or globs of rows, or cells of unskew audit --sql.",
        ),
    ] = None,
    add: Annotated[
        bool, typer.Option("--add", help="Add FILE... to the store; the first time with the columns below.")
    ] = False,
    score: Annotated[
        str | None, typer.Option(help="The column of the propensity, a probability in [0, 1].")
    ] = None,
    outcome: Annotated[str | None, typer.Option(help="The column of outcomes (clicks), 0 or 1.")] = None,
    weight: Annotated[
        str | None, typer.Option(help="The column of sample weights: how many rows each row stands for.")
    ] = None,
    segment: Annotated[
        list[str] | None, typer.Option(help="Watch each value of this column too; may be repeated.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Periods: hour, day or week of --time, or the values of a column.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="The column of times.")] = None,
    zone: Annotated[
        str,
        typer.Option(
            help="Hours, days and weeks are those of this zone, such as Europe/Paris. Times without a zone"
            " are its local times."
        ),
    ] = "UTC",
    maturity: Annotated[
        str | None,
        typer.Option(
            help="How long outcomes may come in after a period's end, such as 7d; until then it is open."
        ),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(help="When the outcomes of FILE... were as they are [when each file was written, UTC]."),
    ] = None,
    latest: Annotated[
        bool,
        typer.Option("--latest", help="Periods of FILE... are known from them alone: drop what was there."),
    ] = False,
    tolerance: Annotated[
        float, typer.Option(help="Largest relative error of the weights that counts as healthy.")
    ] = 0.05,
    significance: Annotated[
        float,
        typer.Option(help="Probability that honest scores are ever called off, however often one looks."),
    ] = 0.05,
    value: Annotated[float | None, typer.Option(help="What a click is worth, for the cost in money.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="The report to write [STORE's name, with -report.html at its end].")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Only print.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file too.")] = None,
) -> int:
    """Watch a propensity over time: which period and segment broke, since when, in which way, at what cost.

    Exit code 0: healthy, or undecided (which the first word says). 1: miscalibrated now beyond the tolerance.
    2: bad input.
    """
    # Read by NumPy when it is loaded. Matrices here are small: a second thread only waits, and loudly.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from unskew.cli.options import refuse

    if add:
        refuse(context, OF_LOOKING, "with --add, which adds files and judges nothing")
        columns = {"score": score, "outcome": outcome, "weight": weight, "segment": segment}
        settings = _settings(store, by, time, zone, maturity, **columns)
        return _add(store, files, settings, as_of, latest)
    if files:
        raise ParameterError("FILE has no effect without --add", remedy="give --add")
    refuse(context, OF_ADDING, "without --add FILE...")
    limits = {"tolerance": tolerance, "significance": significance, "value": value}
    return _look(store, report, no_report, json, **limits)


def _settings(
    store: Path, by: str | None, time: str | None, zone: str, maturity: str | None, **columns: Any
) -> MonitorSettings | None:
    """Return what was asked for, or None where the store exists and nothing was named."""
    from unskew.audit.monitor_store import MonitorSettings, MonitorStore
    from unskew.audit.periods import By
    from unskew.data.stream import Roles

    known = MonitorStore.load(store).settings if store.exists() else None
    if known is not None and not any((*columns.values(), by, time, maturity, zone != "UTC")):
        return None
    score, outcome, weight, segment = columns.values()
    if known is not None:
        score, outcome = score or known.roles.score, outcome or known.roles.outcome
        weight, segment = weight or known.roles.weight, segment or list(known.roles.segments)
        maturity = maturity or known.maturity
        zone = known.zone if zone == "UTC" else zone
        wanted = By.of(by, time or (known.by.column if known.by.unit else None)) if by else known.by
        return MonitorSettings(Roles(score, outcome, weight, tuple(segment)), wanted, zone, maturity)
    for flag, given in (("--score", score), ("--outcome", outcome), ("--by", by)):
        if not given:
            raise ParameterError(
                f"{flag} is missing, which a new store needs",
                remedy="give --score, --outcome and --by (day, hour or week with --time, or a column)",
            )
    roles = Roles(str(score), str(outcome), weight, tuple(dict.fromkeys(segment or ())))
    return MonitorSettings(roles, By.of(str(by), time), zone, maturity)


def _add(
    store: Path, files: list[str] | None, settings: MonitorSettings | None, as_of: str | None, latest: bool
) -> int:
    from unskew.audit.monitor_add import add
    from unskew.base.progress import progress_bars
    from unskew.cli.places import table_files
    from unskew.data.splitting import moment

    if not files:
        raise ParameterError("there is nothing to add", remedy="give FILE... after --add")
    when: np.datetime64 | None = None if as_of is None else moment(as_of)
    given = table_files(files)
    with progress_bars() as progress:
        done = add(store, given, settings=settings, as_of=when, latest=latest, progress=progress)
    known = f"; {done.known:,} known already" if done.known else ""
    left = f"; {done.closed:,} closed periods stay as they were" if done.closed else ""
    print(f"Added {done.rows:,} rows of {done.files:,} files{known}{left}.")
    print(f"{plain(store)}: {done.periods:,} periods, {done.open:,} of them open.")
    return EXIT_HEALTHY


def _look(store: Path, report: Path | None, no_report: bool, json: Path | None, **limits: Any) -> int:
    from unskew.base.files import whole_file, write_json
    from unskew.cli.places import check_outputs

    if report is not None and no_report:
        raise ParameterError("--report has no effect with --no-report", remedy="leave one of them out")
    target = None if no_report else report or store.with_name(f"{store.stem}-report.html")
    check_outputs({"--json": json, "--report": target}, folders={}, read=[store])
    if target is not None and target.is_file():
        with target.open(encoding="utf-8", errors="replace") as file:
            head = file.read(2000)
        if GENERATOR not in head:
            raise DataError("is there and is no report", where=str(target), remedy="give another --report")

    from unskew.audit.monitor import monitor
    from unskew.cli.monitor_tables import print_monitor

    result = monitor(store, **limits)
    if target is not None:
        from unskew.report.monitor_report import render_monitor_report

        page = render_monitor_report(result)
        with whole_file(target) as beside:
            beside.write_text(page, encoding="utf-8", errors="replace")
    if json is not None:
        write_json(json, result.to_dict())
    print_monitor(result)
    if target is not None:
        print(f"\nThe report: {plain(target)}")
    return EXIT_MISCALIBRATED if result.healthy is False else EXIT_HEALTHY
