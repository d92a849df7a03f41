"""``unskew audit``: is this propensity honest?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from unskew.cli.options import clip
from unskew.errors import ParameterError
from unskew.plain_text import plain

EXIT_HEALTHY = 0
EXIT_MISCALIBRATED = 1


def audit(
    context: typer.Context,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="CSV, Parquet or Arrow: files, folders or globs.")
    ],
    score: Annotated[str, typer.Option(help="The column of the propensity, a probability in [0, 1].")],
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
) -> int:
    """Check whether a propensity column is honest, what its error costs and what fixes it; write report.html.

    Exit code 0: healthy, or undecided (which the first word says). 1: miscalibrated beyond the tolerance.
    2: bad input.
    """
    # Read by NumPy when it is loaded. Matrices here have ten columns: a second thread only waits, and loudly.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from unskew.cli.options import refuse
    from unskew.cli.places import check_outputs, check_seed, table_files
    from unskew.io.files import AUDIT, check_target, whole_folder, write_json

    if actions is not None:
        refuse(
            context,
            ("outcome", "weight", "segment", "p_min", "out", "overwrite", "no_report", "seed"),
            "with --actions, which audits the probability of showing, and prints alone",
        )
        return _audit_actions(files, score, actions, tolerance, significance, json)
    if outcome is None:
        raise ParameterError(
            "--outcome is missing",
            remedy="name the column that says whether it happened, or for a bandit log give --actions N",
        )
    if no_report:
        refuse(context, ("out", "overwrite"), "with --no-report, which writes no folder")
    check_seed(seed)
    target = out or _free_folder(files[0])
    found = None if no_report else check_target(target, overwrite=overwrite, kind=AUDIT)
    folders = {} if no_report else {"--out": target}
    check_outputs({"--json": json}, folders=folders, read=table_files(files))

    from unskew.audit import audit as run_audit
    from unskew.progress import progress_bars

    with progress_bars() as progress:
        result = run_audit(
            files,
            score=score,
            outcome=outcome,
            weight=weight,
            segments=segment or (),
            tolerance=tolerance,
            significance=significance,
            p_min=clip(p_min),
            seed=seed,
            progress=progress,
        )
    if not no_report:
        from unskew.report.audit_report import render_audit_report

        report = render_audit_report(result)
        with whole_folder(target, overwrite=overwrite, kind=AUDIT, found=found) as beside:
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


def _audit_actions(
    files: list[str],
    score: str,
    actions: int,
    tolerance: float,
    significance: float,
    json: Path | None,
) -> int:
    from unskew.cli.places import check_outputs, table_files
    from unskew.io.files import write_json

    check_outputs({"--json": json}, folders={}, read=table_files(files))

    from unskew.audit import audit_actions
    from unskew.cli.audit_tables import print_actions
    from unskew.progress import progress_bars

    with progress_bars() as progress:
        result = audit_actions(
            files,
            score=score,
            actions=actions,
            tolerance=tolerance,
            significance=significance,
            progress=progress,
        )
    if json is not None:
        write_json(json, result.to_dict())
    print_actions(result)
    return EXIT_MISCALIBRATED if result.healthy is False else EXIT_HEALTHY


def _free_folder(first: str) -> Path:
    """``audits/NAME``, or with the first number from 2 on that is free."""
    from unskew.cli.places import name_of_tables

    name = name_of_tables(first, "audit")
    wanted = Path("audits") / name
    number = 2
    target = wanted
    while target.exists():
        target = wanted.with_name(f"{name}-{number}")
        number += 1
    return target
