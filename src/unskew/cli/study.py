"""``unskew study``: a list of runs, by the fields that vary."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain
from unskew.base.settings import Settings, option
from unskew.cli import options as shared
from unskew.cli import resumable
from unskew.cli.console import plain_console, show
from unskew.cli.verb import refuse

if TYPE_CHECKING:
    from unskew.report.table import Table


class StudyOptions(Settings):
    """The options of ``unskew study``."""

    effects: ClassVar[Mapping[str, str]] = {
        "with list_all": "what data root out seeds protocol jobs device json_file"
    }

    what: str | None = option(None, flag="argument", metavar="FILE.toml_OR_NAME")
    """A study, or a name from --list."""
    list_all: bool = option(False, flag="--list")
    """List the named studies."""
    data: str | None = option(None)
    """With a name: the dataset [synthetic]."""
    root: str | None = option(None)
    """With a name: the folder of the dataset's files."""
    out: Path | None = option(None, group=shared.OUTPUT, writes="folder")
    """The study's folder [studies/NAME]."""
    seeds: int | None = option(None)
    """Repetitions, instead of the study's."""
    protocol: str | None = option(None)
    """honest or paper, instead of the study's."""
    jobs: int = option(1, ge=1)
    """Processes that run configurations side by side."""
    device: shared.Device = "auto"
    json_file: shared.JsonFile = None
    log_json: shared.LogJson = None
    tensorboard: Path | None = option(None, shown=False, group=shared.OUTPUT, writes="folder")
    """Write losses for TensorBoard into this folder, if it is installed."""
    mlflow: bool = option(False, shown=False, group=shared.OUTPUT)
    """Log losses to MLflow's active run, if it is installed."""


def study(options: StudyOptions) -> None:
    """Run a study, or resume it; write one long table of all numbers, and summaries of it."""
    from unskew.base.progress import progress_bars
    from unskew.study.grid import NAMED, named_study, read_study, show_studies

    if options.list_all:
        _print(show_studies())
        return
    what = options.what
    if what is None:
        raise ParameterError("study needs a TOML file or a name", remedy="see unskew study --list")
    changes: dict[str, Any] = options.model_dump(include={"seeds", "protocol", "root"}, exclude_none=True)
    changes |= {} if options.device == "auto" else {"device": options.device}
    shared.check_outputs(options, read=[] if what in NAMED else [what])
    if what in NAMED:
        found = named_study(what, data=options.data or "synthetic", **changes)
    else:
        if Path(what).suffix != ".toml":
            raise ParameterError(
                f"no study is called {what!r}", remedy=f"give a TOML file or one of {', '.join(NAMED)}"
            )
        refuse(options, ("data", "root"), f"on {what}, which names its datasets")
        found = read_study(what, **changes)
    target = options.out or Path("studies") / shared.plain_name(found.name, "the study's name")
    shared.check_outputs(options, out=target)

    from unskew.study.engine import run_study

    logs: dict[str, Any] = options.model_dump(include={"log_json", "tensorboard", "mlflow"})
    with resumable(target, "what was finished is in"), progress_bars(**logs) as progress:
        result = run_study(found, target, jobs=options.jobs, progress=progress)
    summaries = result.summaries()
    result.write_pages()
    figures = {name: summary.to_dict() for name, summary in summaries.items()}
    shared.write_figures(options.json_file, {"name": found.name, "notes": list(result.notes), **figures})
    show(*(f"· {plain(note)}" for note in result.notes))
    _print(*(summary.shown() for summary in summaries.values()))
    print(f"\nThe long table: {plain(target / 'table.parquet')}; as a page: {plain(target / 'tables.html')}")


def _print(*shown: Table) -> None:
    width = plain_console().width
    show(*(table for whole in shown for table in whole.fitting(width)))
