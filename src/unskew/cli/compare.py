"""``unskew compare``: which of a run's models is better, without a random test set."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from unskew.base.settings import Settings, option
from unskew.cli import options as shared
from unskew.cli.console import show_findings
from unskew.cli.verb import refuse


class CompareOptions(Settings):
    """The options of ``unskew compare``."""

    run: Path = option(..., flag="argument", metavar="RUN")
    """A run folder."""
    model: tuple[str, ...] = option(())
    """One of the run's models [all]; may be repeated."""
    metric: tuple[str, ...] = option(())
    """nll, auc, dcg@K or hits@K; may be repeated [nll, auc, dcg@4, hits@4]."""
    estimator: Literal["balanced", "snips", "ips", "dr"] = option("balanced")
    """How clicks are weighted."""
    baseline: str | None = option(None)
    """Compare every model with this one [every pair]."""
    slate: int = option(16)
    """Items per user in the random test set that is estimated."""
    gamma: float | None = option(None, shown=False)
    """Γ: the factor by which the odds of a click may be wrong [measured]."""
    resamples: int = option(2000, shown=False)
    """Resamples of the bootstrap over users."""
    level: float = option(0.95)
    """Confidence level of intervals and verdicts."""
    seed: shared.Seed = 0
    json_file: shared.JsonFile = None
    markdown: Path | None = option(None, group=shared.OUTPUT, writes="file")
    """Write a table in Markdown to this file."""
    device: shared.Device = "auto"


def compare(options: CompareOptions) -> None:
    """Compare the models of a run on held-out clicks: which is better, by how much and how surely."""
    if options.metric and not any("@" in each for each in options.metric):
        refuse(options, ("slate",), f"on {', '.join(options.metric)}, which rank no slates")
    shared.check_outputs(options, read=shared.run_files(options.run))
    from unskew.base.files import write_text
    from unskew.offpolicy import compare_run

    asked = options.model_dump(exclude={"run", "model", "metric", "json_file", "markdown"})
    comparison = compare_run(options.run, models=options.model, metrics=options.metric or None, **asked)
    shared.write_figures(options.json_file, comparison.to_dict())
    if options.markdown is not None:
        write_text(options.markdown, comparison.to_markdown() + "\n")
    show_findings(comparison)
