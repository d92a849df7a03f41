"""``unskew study``: a grid of datasets × propensities × calibrators × debiasers × seeds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.cli import RESUME, interrupted
from unskew.cli.options import LogJson, MLflow, TensorBoard
from unskew.errors import ParameterError
from unskew.plain_text import plain

if TYPE_CHECKING:
    from unskew.study.engine import StudyResult
    from unskew.study.grid import Grid

OF_BATTERY = ("world", "method", "members", "minutes", "scale", "backbone", "epochs", "jobs")
"""Options of the battery alone."""
OF_GRIDS = ("data", "root", "out", "seeds", "protocol", "device")
"""Options of the studies that train."""


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
    world: Annotated[
        list[str] | None, typer.Option(help="Of battery: a world; may be repeated [all].")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Of battery: a method; may be repeated [those that auto tries, and newer ones]."),
    ] = None,
    members: Annotated[
        int | None, typer.Option(help="Of battery: networks of an ensemble [what the minutes allow].")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Of battery: what the estimate may come to [CPU 45, GPU 7.5].")
    ] = None,
    scale: Annotated[str, typer.Option(help="Of battery: full, or small for a first look.")] = "full",
    backbone: Annotated[str, typer.Option(help="Of battery: the network.")] = "neumf",
    epochs: Annotated[int | None, typer.Option(help="Of battery: epochs at most [the methods' own].")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Of battery: processes that train at once [a CPU's cores, GPU 4].")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the summaries to this file too.")] = None,
    log_json: LogJson = None,
    tensorboard: TensorBoard = None,
    mlflow: MLflow = False,
) -> None:
    """Run a grid, or resume it; write one long table of all numbers, and summaries of it."""
    from unskew.cli.options import refuse
    from unskew.study.named import BATTERY, NAMED, named_grid, show_studies

    if list_:
        refuse(context, ("what", *OF_GRIDS, *OF_BATTERY, "json"), "with --list")
        _print(show_studies())
        return
    if what is None:
        raise ParameterError("study needs a TOML file or a name", remedy="see unskew study --list")
    if what == BATTERY:
        refuse(context, ("data", "protocol"), "on the battery, which has worlds of its own")
        options: dict[str, Any] = {
            "worlds": world,
            "methods": method,
            "members": members,
            "minutes": minutes,
            "scale": scale,
            "backbone": backbone,
            "epochs": epochs,
            "root": root,
            "seeds": seeds,
            "device": device,
            "jobs": jobs,
        }
        logs: dict[str, Any] = {"log_json": log_json, "tensorboard": tensorboard, "mlflow": mlflow}
        _run_battery(out or Path("studies") / BATTERY, json, options, logs)
        return
    refuse(context, OF_BATTERY, f"on the study {what}")
    changes: dict[str, Any] = {
        name: value for name, value in (("seeds", seeds), ("protocol", protocol)) if value is not None
    }
    from unskew.cli.places import check_outputs, plain_name

    check_outputs({"--json": json}, read=[] if what in NAMED else [what])
    if what in NAMED and NAMED[what].grid is None:
        refuse(context, OF_GRIDS, f"on the study {what}, which is no grid")
        _show_table(what, json)
        return
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


def _run_battery(out: Path, json: Path | None, options: dict[str, Any], logs: dict[str, Any]) -> None:
    import warnings

    from unskew.cli.places import check_outputs
    from unskew.errors import CollapseWarning
    from unskew.io.files import write_json
    from unskew.progress import progress_bars
    from unskew.study.battery import run_battery
    from unskew.study.battery_jobs import usual_jobs

    if options["jobs"] is None:
        options["jobs"] = usual_jobs(options["device"])
    check_outputs({"--json": json, "--log-json": logs["log_json"]}, folders={"--out": out})
    try:
        with progress_bars(**logs) as progress, warnings.catch_warnings():
            # What learned nothing shows in its numbers.
            warnings.simplefilter("ignore", CollapseWarning)
            result = run_battery(out, progress=progress, tell=_tell, **options)
    except KeyboardInterrupt:
        if not out.exists():
            raise
        interrupted(f"what was finished is in {out}. {RESUME}")
    if json is not None:
        write_json(json, result.to_dict())
    for note in result.notes:
        print(f"· {plain(note)}")
    for table in result.tables():
        _print(table)
    print(f"\nAs a page: {plain(out / 'tables.html')}; the picture: {plain(out / 'battery.svg')}")


def _tell(line: str) -> None:
    """Before the work, also where no terminal shows bars."""
    print(plain(line), file=sys.stderr, flush=True)


def _run(grid: Grid, out: Path, device: str, json: Path | None, **logs: Any) -> None:
    from unskew.progress import progress_bars
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
        from unskew.io.files import write_json

        figures = {name: summary.to_dict() for name, summary in made.items()}
        write_json(json, {"name": grid.name, "notes": list(result.notes), **figures})
    for note in result.notes:
        print(f"· {plain(note)}")
    for summary in made.values():
        _print(summary.shown())
    print(f"\nThe long table: {plain(out / 'table.parquet')}; as a page: {plain(out / 'tables.html')}")


def _show_table(name: str, json: Path | None) -> None:
    from unskew.study.named import NAMED

    make = NAMED[name].shown
    assert make is not None
    shown = make()
    if json is not None:
        from unskew.io.files import write_json

        rows = [dict(zip(shown.columns, row, strict=True)) for row in shown.rows]
        write_json(json, {"title": shown.title, "caption": shown.caption, "rows": rows})
    _print(shown)


def _print(shown: Any) -> None:
    from unskew.cli.console import plain_console

    console = plain_console()
    for part in shown.fitting(console.width):
        console.print(part.rich())
