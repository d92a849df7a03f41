"""``unskew weights``: calibrated, clipped, cross-fitted propensities and weights back into Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from unskew.base.errors import ParameterError
from unskew.cli.options import LogJson, clip

TO_TRAIN = (
    "user", "item", "propensity", "features", "ignore", "allow_leak", "device",
)  # fmt: skip
"""Options of a propensity that is trained."""


def weights(
    context: typer.Context,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="CSV, Parquet or Arrow: files, folders or globs.")
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", help="The Parquet file to write, or a folder (its name ends in /) of part files."
        ),
    ],
    score: Annotated[
        str | None, typer.Option(help="The column of the propensity; without it one is trained.")
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(help="The column of clicks, 0 or 1; without --score it may be left out."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Without --score: the column of user ids.")] = None,
    item: Annotated[str | None, typer.Option(help="Without --score: the column of item ids.")] = None,
    propensity: Annotated[
        str,
        typer.Option(
            help="Without --score: auto (the best of logistic, popularity and neumf on held-out clicks), a"
            " backbone, logistic, popularity or gbm."
        ),
    ] = "auto",
    features: Annotated[
        str | None,
        typer.Option(
            help="Without --score: columns that the propensity reads beside the ids, parted by commas, or"
            " auto: all others, by their types."
        ),
    ] = None,
    ignore: Annotated[str, typer.Option(help="With --features auto: columns to leave out.")] = "",
    allow_leak: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-leak",
            help="A feature that may give the click away, because it is known before; may be repeated.",
        ),
    ] = None,
    sample_weight: Annotated[
        str | None, typer.Option(help="The column of sample weights: how many rows each row stands for.")
    ] = None,
    calibrator: Annotated[
        str, typer.Option(help="The calibrator; auto chooses one, multicalibrated reads --segment.")
    ] = "auto",
    segment: Annotated[
        list[str] | None,
        typer.Option(
            help="With --score and --calibrator multicalibrated: a column that it reads; may be repeated."
        ),
    ] = None,
    folds: Annotated[int, typer.Option(help="Each row is calibrated without the rows of its fold.")] = 5,
    p_min: Annotated[
        str, typer.Option(help="The clip, to which lower propensities are raised: auto or a number.")
    ] = "auto",
    weight_all: Annotated[
        bool,
        typer.Option("--weight-all", help="Give rows without a click 1/p too; their weight is 0 otherwise."),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file too.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the folds and of training.")] = 0,
    device: Annotated[str, typer.Option(help="Without --score: auto, cpu, cuda or cuda:1.")] = "auto",
    log_json: LogJson = None,
) -> None:
    """Add propensity_calibrated, weight, fold and clipped to every row; other columns stay as they are."""
    from unskew.cli.options import feature_options, refuse

    if score is not None:
        refuse(context, TO_TRAIN, "with --score, which brings a propensity: none is trained")
        if outcome is None:
            raise ParameterError("--score needs --outcome", remedy="name the column of clicks")
    elif user is None or item is None:
        raise ParameterError(
            "there is no propensity", remedy="give --score COLUMN, or --user and --item to train one"
        )
    else:
        refuse(context, ("sample_weight", "segment"), "without --score")
    from unskew.cli.places import check_outputs, check_seed, rows_outputs, table_files

    check_seed(seed)
    file, folder = rows_outputs(out)
    check_outputs({**file, "--json": json, "--log-json": log_json}, folders=folder, read=table_files(files))

    from unskew.audit import write_weights
    from unskew.base.progress import progress_bars

    both: dict[str, Any] = {
        "outcome": outcome,
        "calibrator": calibrator,
        "folds": folds,
        "p_min": clip(p_min),
        "weight_all": weight_all,
        "seed": seed,
        "overwrite": overwrite,
    }
    with progress_bars(log_json=log_json) as progress:
        if score is not None:
            columns: dict[str, Any] = {"sample_weight": sample_weight, "segments": tuple(segment or ())}
            result = write_weights(files, out, score=score, **columns, **both, progress=progress)
        else:
            from unskew.audit.weights_trained import train_weights

            result = train_weights(
                files,
                out,
                user=str(user),
                item=str(item),
                propensity=propensity,
                **feature_options(context, features, "", "", ignore),
                allow_leak=tuple(allow_leak or ()),
                device=device,
                **both,
                progress=progress,
            )
    if json is not None:
        from unskew.base.files import write_json

        write_json(json, result.to_dict())
    from unskew.cli.audit_tables import print_weights

    print_weights(result, out)
