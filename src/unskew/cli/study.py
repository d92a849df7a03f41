"""``unskew study``: a grid of datasets × propensities × calibrators × debiasers × seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain
from unskew.base.settings import Settings, option
from unskew.cli import resumable
from unskew.cli.options import OUTPUT, Device, JsonFile, LogJson
from unskew.cli.verb import refuse

if TYPE_CHECKING:
    from unskew.study.engine import StudyResult
    from unskew.study.grid import Grid

OF_GRIDS = ("data", "root", "out", "seeds", "protocol", "device")
"""Options of a study."""


class StudyOptions(Settings):
    """The options of ``unskew study``."""

    what: str | None = option(None, flag="argument", metavar="FILE.toml_OR_NAME")
    """A grid, or a name from --list."""
    list_all: bool = option(False, flag="--list")
    """List the named studies."""
    data: str | None = option(None)
    """With a name: the dataset [synthetic]."""
    root: str | None = option(None)
    """With a name: the folder of the dataset's files."""
    out: Path | None = option(None, group=OUTPUT)
    """The study's folder [studies/NAME]."""
    seeds: int | None = option(None)
    """Repetitions, instead of the grid's."""
    protocol: str | None = option(None)
    """honest or paper, instead of the grid's."""
    device: Device = "auto"
    json_file: JsonFile = None
    log_json: LogJson = None
    tensorboard: Path | None = option(None, shown=False, group=OUTPUT)
    """Write losses for TensorBoard into this folder, if it is installed."""
    mlflow: bool = option(False, shown=False, group=OUTPUT)
    """Log losses to MLflow's active run, if it is installed."""


def study(options: StudyOptions) -> None:
    """Run a grid, or resume it; write one long table of all numbers, and summaries of it."""
    from unskew.cli.places import check_outputs, plain_name
    from unskew.study.named import NAMED, named_grid, show_studies

    if options.list_all:
        refuse(options, ("what", *OF_GRIDS, "json_file"), "with --list")
        _print(show_studies())
        return
    what = options.what
    if what is None:
        raise ParameterError("study needs a TOML file or a name", remedy="see unskew study --list")
    changes: dict[str, Any] = options.model_dump(include={"seeds", "protocol"}, exclude_none=True)
    check_outputs({"--json": options.json_file}, read=[] if what in NAMED else [what])
    if what in NAMED:
        grid = named_grid(what, options.data or "synthetic", options.root, **changes)
    else:
        from unskew.study.grid import read_grid

        if Path(what).suffix != ".toml":
            raise ParameterError(
                f"no study is called {what!r}", remedy=f"give a TOML file or one of {', '.join(NAMED)}"
            )
        refuse(options, ("data", "root"), f"on {what}, which names its datasets", "leave it out, or edit it")
        grid = read_grid(what, **changes)
    target = options.out or Path("studies") / plain_name(grid.name, "the study's name")
    logs = options.model_dump(include={"log_json", "tensorboard", "mlflow"})
    folders = {"--out": target} | (
        {} if logs["tensorboard"] is None else {"--tensorboard": logs["tensorboard"]}
    )
    check_outputs({"--json": options.json_file, "--log-json": options.log_json}, folders=folders)
    _run(grid, target, options.device, options.json_file, **logs)


def _run(grid: Grid, out: Path, device: str, json: Path | None, **logs: Any) -> None:
    from unskew.base.progress import progress_bars
    from unskew.study.engine import run_study

    with resumable(out, "what was finished is in"), progress_bars(**logs) as progress:
        result: StudyResult = run_study(grid, out, device=device, progress=progress)
    summaries = result.summaries()
    result.write_pages()
    if json is not None:
        from unskew.base.files import write_json

        figures = {name: summary.to_dict() for name, summary in summaries.items()}
        write_json(json, {"name": grid.name, "notes": list(result.notes), **figures})
    for note in result.notes:
        print(f"· {plain(note)}")
    for summary in summaries.values():
        _print(summary.shown())
    print(f"\nThe long table: {plain(out / 'table.parquet')}; as a page: {plain(out / 'tables.html')}")


def _print(shown: Any) -> None:
    from unskew.cli.console import plain_console

    console = plain_console()
    for table in shown.fitting(console.width):
        console.print(table.rich())
