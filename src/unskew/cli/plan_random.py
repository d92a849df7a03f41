"""``unskew plan-random``: how many random impressions tell two models apart."""

from __future__ import annotations

from pathlib import Path

from unskew.base.errors import ParameterError
from unskew.base.settings import Settings, option
from unskew.cli import options as shared
from unskew.cli.console import show_findings
from unskew.cli.verb import refuse

FILES = "Columns of scored files"


class PlanOptions(Settings):
    """The options of ``unskew plan-random``."""

    first: Path = option(..., flag="argument", metavar="RUN_OR_FILE")
    """A run folder, or a scored file."""
    second: Path | None = option(None, flag="argument", metavar="RUN_OR_FILE")
    """Another one [the main model of the same run]."""
    model: tuple[str, ...] = option(())
    """Of runs: a model of each [the main one; of one run naive and the main one]."""
    metric: tuple[str, ...] = option(())
    """nll, auc, dcg@K or hits@K; may be repeated [nll, auc, dcg@4]."""
    difference: tuple[str, ...] = option((), metavar="METRIC=NUMBER")
    """The difference to tell [as the logs show]; may be repeated."""
    price: float | None = option(None)
    """What one random impression costs."""
    power: float = option(0.8)
    """The chance to tell a difference that is there."""
    level: float = option(0.95, shown=False)
    """Confidence of the two-sided test."""
    slate: int = option(16)
    """Of run folders: random items shown to a user."""
    user: str = option("user", shown=False, group=FILES)
    """The column of users."""
    item: str = option("item", shown=False, group=FILES)
    """The column of items."""
    score: str = option("conversion", group=FILES)
    """The column of predictions."""
    outcome: str | None = option(None, group=FILES)
    """The column of outcomes [given_conversion, if there]."""
    propensity: str | None = option(None, group=FILES)
    """The column of propensities [rows were shown at random]."""
    seed: shared.Seed = 0
    json_file: shared.JsonFile = None
    markdown: Path | None = option(None, group=shared.OUTPUT, writes="file")
    """Write the tables in Markdown to this file."""
    picture: Path | None = option(None, group=shared.OUTPUT, writes="file")
    """Write a picture (SVG) to this file."""
    device: shared.Device = "auto"


def plan_random(options: PlanOptions) -> None:
    """Say how many random impressions tell two models apart, paired by user; from runs or scored files."""
    inputs = [path for path in (options.first, options.second) if path is not None]
    for path in inputs:
        if not path.exists():
            raise ParameterError(f"{path} is not there", remedy="give a run folder or a scored file")
    columns = ("user", "item", "score", "outcome", "propensity")
    if options.first.is_dir():
        refuse(options, columns, "on run folders")
    else:
        refuse(options, ("model", "slate", "device"), "on scored files")
    shared.check_outputs(options, read=inputs)
    from unskew.base.files import write_text
    from unskew.offpolicy.plan import PLANNED_METRICS, plan_random

    pairs = shared.assigned(options.difference, "--difference", "auc=0.005")
    try:
        differences = {name: float(text) for name, text in pairs.items()}
    except ValueError as error:
        raise ParameterError(f"--difference: {error}", remedy="write for example auc=0.005") from None
    plan = plan_random(
        options.first,
        options.second,
        models=options.model,
        metrics=options.metric or tuple(PLANNED_METRICS),
        differences=differences,
        columns=options.model_dump(include=set(columns), exclude_none=True),
        **options.model_dump(include={"price", "power", "level", "slate", "seed", "device"}),
    )
    shared.write_figures(options.json_file, plan.to_dict())
    if options.markdown is not None:
        write_text(options.markdown, plan.to_markdown() + "\n")
    if options.picture is not None:
        write_text(options.picture, plan.svg())
    show_findings(plan)
