"""``unskew compare``: which of a run's models is better, without a random test set."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    context: typer.Context,
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    model: Annotated[
        list[str] | None, typer.Option(help="One of the run's models [all]; may be repeated.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="nll, auc, dcg@K or hits@K; may be repeated [nll, auc, dcg@4, hits@4]."),
    ] = None,
    estimator: Annotated[str, typer.Option(help="balanced, snips, ips or dr.")] = "balanced",
    baseline: Annotated[
        str | None, typer.Option(help="Compare every model with this one [every pair].")
    ] = None,
    slate: Annotated[int, typer.Option(help="Items per user in the random test set that is estimated.")] = 16,
    gamma: Annotated[
        float | None,
        typer.Option(help="Γ: the factor by which the odds of a click may be off [measured]."),
    ] = None,
    resamples: Annotated[int, typer.Option(help="Resamples of the bootstrap over users.")] = 2000,
    level: Annotated[float, typer.Option(help="Confidence level of intervals and verdicts.")] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the resampling.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file too.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a table in Markdown to this file.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
) -> None:
    """Compare the models of a run on held-out clicks: which is better, by how much and how surely."""
    from unskew.cli.options import refuse
    from unskew.cli.places import check_outputs, check_seed, run_files

    if metric and not any("@" in each for each in metric):
        refuse(context, ("slate",), f"on {', '.join(metric)}, which rank no slates")

    check_seed(seed)
    check_outputs({"--json": json, "--markdown": markdown}, read=run_files(run))
    from unskew.base.files import write_json, write_text
    from unskew.offpolicy import compare_run

    comparison = compare_run(
        run,
        models=tuple(model or ()),
        metrics=metric,
        estimator=estimator,
        baseline=baseline,
        slate=slate,
        gamma=gamma,
        resamples=resamples,
        level=level,
        seed=seed,
        device=device,
    )
    if json is not None:
        write_json(json, comparison.to_dict())
    if markdown is not None:
        write_text(markdown, comparison.to_markdown() + "\n")
    from unskew.cli.console import plain_console

    console = plain_console()
    console.print(comparison.rich())
    if comparison.balance:
        console.print(comparison.rich_balance())
    for verdict in comparison.verdicts():
        console.print(f"· {verdict}")
    for note in comparison.notes:
        console.print(f"Note: {note}", style="dim")
