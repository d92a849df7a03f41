"""``unskew audit``: is this propensity honest?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain
from unskew.cli.options import LogJson, clip

EXIT_HEALTHY = 0
EXIT_MISCALIBRATED = 1


def audit(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE...", help="CSV, Parquet or Arrow: files, folders or globs."),
    ] = None,
    score: Annotated[
        str | None, typer.Option(help="The column of the propensity, a probability in [0, 1].")
    ] = None,
    outcome: Annotated[str | None, typer.Option(help="The column of outcomes (clicks), 0 or 1.")] = None,
    actions: Annotated[
        int | None,
        typer.Option(
            help="Instead of --outcome, for a bandit log: --score is the probability of the action that"
            " was shown among so many, and mean(1/p) must be their number."
        ),
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="The column of sample weights: how many rows each row stands for.")
    ] = None,
    segment: Annotated[
        list[str] | None, typer.Option(help="Audit each value of this column too; may be repeated.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(help="Largest relative error of the weights that counts as healthy.")
    ] = 0.05,
    significance: Annotated[
        float, typer.Option(help="Probability that honest scores are called miscalibrated by chance.")
    ] = 0.01,
    p_min: Annotated[
        str, typer.Option(help="The clip whose cost is reported: auto (the least error) or a number.")
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="The folder to write [audits/FILE, with a number if it exists].")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier audit.")] = False,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Only print, in half the time: write no report and no folder.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file too.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the folds and of the resampling.")] = 0,
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="Print the query that counts the cells of --table where it lies: duckdb, spark, bigquery,"
            " snowflake or postgres. Its result goes to --cells.",
        ),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="With --sql, the table; for DuckDB files and globs too.")
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="With --sql duckdb, run the query here and audit its result.")
    ] = False,
    cells: Annotated[
        Path | None, typer.Option(help="Audit the result of such a query, a Parquet, Arrow or CSV file.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="With --sql, cells of each hour, day or week of --time, or of each value of a column: for"
            " unskew monitor."
        ),
    ] = None,
    time: Annotated[str | None, typer.Option(help="The column of times of --by.")] = None,
    boolean_outcome: Annotated[
        bool, typer.Option("--boolean-outcome", help="With --sql, the outcome is true and false.")
    ] = False,
    log_json: LogJson = None,
) -> int:
    """Check whether a propensity column is honest, what its error costs and what fixes it; write report.html.

    Exit code 0: healthy, or undecided (which the first word says). 1: miscalibrated beyond the tolerance.
    2: bad input.
    """
    limits: dict[str, Any]
    columns: dict[str, Any]
    # Read by NumPy when it is loaded. Matrices here have ten columns: a second thread only waits, and loudly.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from unskew.base.files import AUDIT, check_target, whole_folder, write_json
    from unskew.cli.options import refuse
    from unskew.cli.places import check_outputs, check_seed, table_files

    score = _required(score, "--score", cells)
    if sql is not None or cells is not None:
        if files:
            raise ParameterError(
                "FILE has no effect with --sql and --cells", remedy="name files by --table, or leave it out"
            )
        refuse(context, ("actions",), "with --sql and --cells")
    else:
        refuse(context, ("table", "run", "by", "time", "boolean_outcome"), "without --sql")
    if sql is not None and not run:
        refuse(context, ("json", "out", "overwrite", "no_report"), "with --sql, which prints a query")
        asked: dict[str, Any] = {"score": score, "weight": weight, "dialect": sql}
        asked["outcome"] = _required(outcome, "--outcome", None)
        print(_query(table, segment, by, time, **asked, boolean_outcome=boolean_outcome))
        return EXIT_HEALTHY
    if run and table is None:
        raise ParameterError("--table is missing", remedy="give files and globs, or FILE.duckdb:TABLE")
    if sql is not None:
        refuse(context, ("by", "time", "boolean_outcome"), "with --run, which audits all rows together")
    if cells is not None:
        refuse(context, ("sql", "table", "run"), "with --cells, the result of a query")
    if actions is not None:
        refuse(
            context,
            ("outcome", "weight", "segment", "p_min", "out", "overwrite", "no_report", "seed"),
            "with --actions, which audits the probability of showing, and prints alone",
        )
        limits = {"tolerance": tolerance, "significance": significance}
        return _audit_actions(_given(files), json, log_json, score=score, actions=actions, **limits)
    outcome = _required(outcome, "--outcome", cells)
    rows = _rows_of(files, table, cells)
    if no_report:
        refuse(context, ("out", "overwrite"), "with --no-report, which writes no folder")
    check_seed(seed)
    target = out or _free_folder(rows[0])
    if not no_report:
        check_target(target, overwrite=overwrite, kind=AUDIT)
    folders = {} if no_report else {"--out": target}
    check_outputs(
        {"--json": json, "--log-json": log_json}, folders=folders, read=[] if run else table_files(rows)
    )

    from unskew.audit import audit as run_audit
    from unskew.audit import audit_cells
    from unskew.base.progress import progress_bars
    from unskew.data.stream import Roles

    limits = {"tolerance": tolerance, "significance": significance, "p_min": clip(p_min), "seed": seed}
    columns = {"score": score, "outcome": outcome, "weight": weight, "segments": tuple(segment or ())}
    if run:
        from unskew.audit.engines import require_runnable, run_query

        require_runnable(sql)  # type: ignore[arg-type]
        counted = run_query(rows[0], **columns)
        result = audit_cells(counted, where=rows[0], roles=Roles(**columns), **limits)
    elif cells is not None:
        result = audit_cells(cells, where=str(cells), roles=Roles(**columns), **limits)
    else:
        with progress_bars(log_json=log_json) as progress:
            result = run_audit(rows, **columns, **limits, progress=progress)
    if not no_report:
        from unskew.report.audit_report import render_audit_report

        report = render_audit_report(result)
        with whole_folder(target, overwrite=overwrite, kind=AUDIT) as beside:
            (beside / "report.html").write_text(report, encoding="utf-8", errors="replace")
            result.sketch.save(beside / "sketch.npz")
            write_json(beside / AUDIT.marker, result.to_dict())
    if json is not None:
        write_json(json, result.to_dict())
    from unskew.cli.audit_tables import print_audit

    print_audit(result)
    if not no_report:
        print(f"\nThe report: {plain(target / 'report.html')}")
    return EXIT_MISCALIBRATED if result.healthy is False else EXIT_HEALTHY


def _required(column: str | None, flag: str, cells: Path | None) -> str:
    """The name of a column; cells, which have no such columns, have them by the name of the option."""
    if column is not None:
        return column
    if cells is not None:
        return flag.removeprefix("--")
    what = "probabilities in [0, 1]" if flag == "--score" else "whether it happened"
    bandit = "" if flag == "--score" else ", or for a bandit log give --actions N"
    raise ParameterError(f"{flag} is missing", remedy=f"name the column that says {what}{bandit}")


def _rows_of(files: list[str] | None, table: str | None, cells: Path | None) -> list[str]:
    """What is read: files, the table of an engine, or the file of cells."""
    if cells is not None:
        return [str(cells)]
    return _given(files) if table is None else [table]


def _given(files: list[str] | None) -> list[str]:
    if not files:
        raise ParameterError(
            "there is nothing to audit", remedy="give FILE..., or --sql ENGINE --table T, or --cells FILE"
        )
    return files


def _query(
    table: str | None, segment: list[str] | None, by: str | None, time: str | None, **asked: Any
) -> str:
    from unskew.audit.periods import By
    from unskew.audit.sql import cells_query

    if table is None:
        raise ParameterError("--table is missing", remedy="name the table as the engine knows it")
    if by is None and time is not None:
        raise ParameterError("--time has no effect without --by", remedy="give --by day, hour or week")
    return cells_query(table, **asked, segments=segment or (), by=None if by is None else By.of(by, time))


def _audit_actions(files: list[str], json: Path | None, log_json: Path | None, **asked: Any) -> int:
    from unskew.base.files import write_json
    from unskew.cli.places import check_outputs, table_files

    check_outputs({"--json": json, "--log-json": log_json}, folders={}, read=table_files(files))

    from unskew.audit import audit_actions
    from unskew.base.progress import progress_bars
    from unskew.cli.audit_tables import print_actions

    with progress_bars(log_json=log_json) as progress:
        result = audit_actions(files, **asked, progress=progress)
    if json is not None:
        write_json(json, result.to_dict())
    print_actions(result)
    return EXIT_MISCALIBRATED if result.healthy is False else EXIT_HEALTHY


def _free_folder(first: str) -> Path:
    """``audits/NAME``, or with the first number from 2 on that is free."""
    from unskew.cli.places import name_of_tables

    name, number = name_of_tables(first, "audit"), 1
    target = Path("audits") / name
    while target.exists():
        number += 1
        target = target.with_name(f"{name}-{number}")
    return target
