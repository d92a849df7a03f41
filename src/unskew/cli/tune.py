"""``unskew tune``: which parameters of a method held-out clicks, or a random sample, prefer."""

from __future__ import annotations

from pathlib import Path

from unskew.base.settings import Settings, option
from unskew.cli import options as shared


class TuneOptions(Settings):
    """The options of ``unskew tune``."""

    config: Path = option(..., flag="argument", metavar="CONFIG.toml")
    """The configuration of a run: of unskew init, or a run's config.toml. It names the method."""
    set: tuple[str, ...] = option((), metavar="KEY=VALUE")
    """Any option of the run, as model.method=ips; may be repeated."""
    space: tuple[str, ...] = option((), metavar="NAME=LOW:HIGH[:log]")
    """A parameter to search, or NAME=A,B,C; may be repeated [method.learning_rate=3e-4:3e-2:log and
    method.regularisation=0.5:50:log]."""
    trials: int = option(20, ge=1)
    """Trainings."""
    seed: shared.Seed = 0
    json_file: shared.JsonFile = None
    picture: Path | None = option(None, group=shared.OUTPUT, writes="file")
    """Write a picture (SVG) to this file."""


def tune(options: TuneOptions) -> None:
    """Search parameters within bounds; test sets are never looked at."""
    shared.check_outputs(options, read=[options.config])
    from unskew.base.files import write_text
    from unskew.base.progress import progress_bars
    from unskew.cli.console import show
    from unskew.cli.run import config_of
    from unskew.run.files import complete
    from unskew.run.tune import SPACE
    from unskew.run.tune import tune as search

    config, _ = complete(config_of({"config": options.config, "set": options.set}))
    space = shared.assigned(options.space, "--space", "learner.dim=8:64") or dict(SPACE)
    with progress_bars() as progress:
        tuned = search(config, space, trials=options.trials, seed=options.seed, progress=progress)
    shared.write_figures(options.json_file, tuned.to_dict())
    if options.picture is not None:
        write_text(options.picture, tuned.svg())
    show(tuned.table(), tuned.sentence)
