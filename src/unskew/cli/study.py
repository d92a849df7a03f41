"""``unskew study``: a grid of datasets × propensities × calibrators × debiasers × seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain
from unskew.cli import RESUME, interrupted
from unskew.cli.options import LogJson, MLflow, TensorBoard

if TYPE_CHECKING:
    from unskew.study.engine import StudyResult
    from unskew.study.grid import Grid

OF_GRIDS = ("data", "root", "out", "seeds", "protocol", "device")
"""Options of a study."""


def study(
    context: typer.Context,
    what: Annotated[
        str | None, typer.Argument(metavar="FILE.toml | NAME", help="A grid, or a name from --list.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the named studies.")] = False,
    data: Annotated[str | None, typer.Option(help="With a name: the dataset [synthetic].")] = None,
    root: Annotated[str | None, typer.Option(help="With a name: the folder of the dataset's files.")] = None,
    out: Annotated[Path | None, typer.Option(help="The study's folder [studies/NAME].")] = None,
    seeds: Annotated[int | None, typer.Option(help="Repetitions, instead of the grid's.")] = None,
    protocol: Annotated[str | None, typer.Option(help="honest or paper, instead of the grid's.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    json: Annotated[Path | None, typer.Option(help="Write the summaries to this file too.")] = None,
    log_json: LogJson = None,
    tensorboard: TensorBoard = None,
    mlflow: MLflow = False,
) -> None:
    """Run a grid, or resume it; write one long table of all numbers, and summaries of it."""
    from unskew.cli.options import refuse
    from unskew.study.named import NAMED, named_grid, show_studies

    if list_:
        refuse(context, ("what", *OF_GRIDS, "json"), "with --list")
        _print(show_studies())
        return
    if what is None:
        raise ParameterError("study needs a TOML file or a name", remedy="see unskew study --list")
    changes: dict[str, Any] = {
        name: value for name, value in (("seeds", seeds), ("protocol", protocol)) if value is not None
    }
    from unskew.cli.places import check_outputs, plain_name

    check_outputs({"--json": json}, read=[] if what in NAMED else [what])
    if what in NAMED:
        grid = named_grid(what, data or "synthetic", root, **changes)
    else:
        from unskew.study.grid import read_grid

        if Path(what).suffix != ".toml":
            raise ParameterError(
                f"no study is called {what!r}", remedy=f"give a TOML file or one of {', '.join(NAMED)}"
            )
        refuse(context, ("data", "root"), f"on {what}, which names its datasets", "leave it out, or edit it")
        grid = read_grid(what, **changes)
    target = out or Path("studies") / plain_name(grid.name, "the study's name")
    folders = {"--out": target} | ({} if tensorboard is None else {"--tensorboard": tensorboard})
    check_outputs({"--json": json, "--log-json": log_json}, folders=folders)
    _run(grid, target, device, json, log_json=log_json, tensorboard=tensorboard, mlflow=mlflow)


def _run(grid: Grid, out: Path, device: str, json: Path | None, **logs: Any) -> None:
    from unskew.base.progress import progress_bars
    from unskew.study.engine import run_study

    try:
        with progress_bars(**logs) as progress:
            result: StudyResult = run_study(grid, out, device=device, progress=progress)
    except KeyboardInterrupt:
        if not out.exists():
            raise
        interrupted(f"what was finished is in {out}. {RESUME}")
    made = result.summaries()
    result.write_pages()
    if json is not None:
        from unskew.base.files import write_json

        figures = {name: summary.to_dict() for name, summary in made.items()}
        write_json(json, {"name": grid.name, "notes": list(result.notes), **figures})
    for note in result.notes:
        print(f"· {plain(note)}")
    for summary in made.values():
        _print(summary.shown())
    print(f"\nThe long table: {plain(out / 'table.parquet')}; as a page: {plain(out / 'tables.html')}")


def _print(shown: Any) -> None:
    from unskew.cli.console import plain_console

    console = plain_console()
    for part in shown.fitting(console.width):
        console.print(part.rich())
