"""``unskew plan-random``: how many random impressions tell two models apart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.base.errors import ParameterError


def plan_random(
    context: typer.Context,
    first: Annotated[Path, typer.Argument(metavar="RUN | FILE", help="A run folder, or a scored file.")],
    second: Annotated[
        Path | None,
        typer.Argument(metavar="[RUN | FILE]", help="Another one [the main model of the same run]."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(help="Of runs: a model of each [the main one; of one run naive and the main one]."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="nll, auc, dcg@K or hits@K; may be repeated [nll, auc, dcg@4]."),
    ] = None,
    difference: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=NUMBER", help="The difference to tell [as the logs show]; may be repeated."
        ),
    ] = None,
    price: Annotated[float | None, typer.Option(help="What one random impression costs.")] = None,
    power: Annotated[float, typer.Option(help="The chance to tell a difference that is there.")] = 0.8,
    level: Annotated[float, typer.Option(help="Confidence of the two-sided test.")] = 0.95,
    slate: Annotated[int, typer.Option(help="Of run folders: random items shown to a user.")] = 16,
    user: Annotated[str, typer.Option(help="Of files: the column of users.")] = "user",
    item: Annotated[str, typer.Option(help="Of files: the column of items.")] = "item",
    score: Annotated[str, typer.Option(help="Of files: the column of predictions.")] = "conversion",
    outcome: Annotated[
        str | None, typer.Option(help="Of files: the column of outcomes [given_conversion, if there].")
    ] = None,
    propensity: Annotated[
        str | None, typer.Option(help="Of files: the column of propensities [rows were shown at random].")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of what is drawn.")] = 0,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file too.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables in Markdown to this file.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Write a picture (SVG) to this file.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
) -> None:
    """Say how many random impressions tell two models apart, paired by user; from runs or scored files."""
    from unskew.cli.options import refuse
    from unskew.cli.places import check_outputs, check_seed

    check_seed(seed)
    for place in (first, second):
        if place is not None and not place.exists():
            raise ParameterError(f"{place} is not there", remedy="give a run folder or a scored file")
    of_files = ("user", "item", "score", "outcome", "propensity")
    if first.is_dir():
        refuse(context, of_files, "on run folders")
    else:
        refuse(context, ("model", "slate", "device"), "on scored files")
    outputs = {"--json": json, "--markdown": markdown, "--picture": picture}
    check_outputs(outputs, read=[each for each in (first, second) if each is not None])
    from unskew.base.files import write_json, write_text
    from unskew.offpolicy.plan import PLANNED_METRICS, plan_random

    columns = {"user": user, "item": item, "score": score}
    columns |= {name: each for name, each in (("outcome", outcome), ("propensity", propensity)) if each}
    plan = plan_random(
        first,
        second,
        models=tuple(model or ()),
        metrics=tuple(metric or PLANNED_METRICS),
        differences=_differences(difference or ()),
        columns=columns,
        price=price,
        power=power,
        level=level,
        slate=slate,
        seed=seed,
        device=device,
    )
    if json is not None:
        write_json(json, plan.to_dict())
    if markdown is not None:
        write_text(markdown, plan.to_markdown() + "\n")
    if picture is not None:
        write_text(picture, plan.svg())
    from unskew.cli.console import plain_console

    console = plain_console()
    for table in plan.rich():
        console.print(table)
    for verdict in plan.verdicts:
        console.print(f"· {verdict}")
    for note in plan.notes:
        console.print(f"Note: {note}", style="dim")


def _differences(given: list[str] | tuple[str, ...]) -> dict[str, float]:
    found = {}
    for each in given:
        name, equals, text = each.partition("=")
        try:
            found[name] = float(text)
        except ValueError:
            equals = ""
        if not equals:
            raise ParameterError(
                f"--difference {each!r} is not METRIC=NUMBER", remedy="write for example auc=0.005"
            )
    return found
