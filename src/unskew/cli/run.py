"""``unskew run``: the main job, from a log to a report."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from unskew.base import processes
from unskew.base.errors import CollapseWarning, DataError, ParameterError
from unskew.base.plain_text import listed, plain
from unskew.cli.brief_help import HelpAll
from unskew.cli.config_file import defaults_of_file, options_of_file, parameters
from unskew.cli.config_file import save_config as write_config
from unskew.cli.options import LogJson, MLflow, TensorBoard

OF_FILES = (
    "test", "test_is", "unbiased", "user", "item", "click", "conversion", "space", "known_propensity",
    "actions", "duplicates",
)  # fmt: skip
"""Options that say what the columns of a file are; a dataset with a name knows."""

OF_TRAINED = ("propensity", "calibrator", "uncertainty", "crossfit", "propensity_epochs")
"""Options of a propensity that is trained."""


def run(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Options from TOML: a file of yours, of --save-config, or a run's config.toml. What is given"
            " here wins.",
            is_eager=True,
            callback=defaults_of_file,
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="A dataset (unskew methods lists them), or files: CSV, Parquet or Arrow, a folder or a glob."
        ),
    ] = "synthetic",
    root: Annotated[str | None, typer.Option(help="The folder of the dataset's files.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="KEY=VALUE for the dataset's loader, as n_users=200; may be repeated."),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="With files: those of pairs with their conversions to test on; a folder or a glob."
        ),
    ] = None,
    test_is: Annotated[
        str | None,
        typer.Option(
            help="With --test: random (its pairs were shown at random) or logged (biased as the training log"
            " is) [logged]."
        ),
    ] = None,
    unbiased: Annotated[
        str | None,
        typer.Option(
            help="With files: those of a small sample of pairs shown at random, which chooses the method"
            " (--method auto) and sets levels right (then, or with --recalibrate); none of them in --test."
        ),
    ] = None,
    unbiased_share: Annotated[
        float | None,
        typer.Option(
            help="Instead of --unbiased: take this share of the random test pairs as that sample, as 0.05."
        ),
    ] = None,
    user: Annotated[str, typer.Option(help="With files: the column of user ids.")] = "user",
    item: Annotated[str, typer.Option(help="With files: the column of item ids.")] = "item",
    click: Annotated[
        str | None,
        typer.Option(
            help="With files: the click column [click, if it is there; else every listed pair was clicked]."
        ),
    ] = None,
    conversion: Annotated[
        str | None,
        typer.Option(help="With files: the conversion column [conversion, if it is there]."),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            help="With files: the population, matrix (all pairs) or impressions (the rows) [matrix]."
        ),
    ] = None,
    known_propensity: Annotated[
        str | None,
        typer.Option(
            help="With files of shown rows (a bandit log): the column with the probability that each was"
            " shown. Its outcome is --conversion; no propensity is trained."
        ),
    ] = None,
    actions: Annotated[
        int | None,
        typer.Option(help="With --known-propensity: how many items the policy chose from [all listed]."),
    ] = None,
    duplicates: Annotated[
        str, typer.Option(help="With files: a pair listed twice is an error, or kept once (max).")
    ] = "error",
    propensity: Annotated[
        str,
        typer.Option(
            help="auto (the best of logistic, popularity and the backbone on held-out clicks), a backbone,"
            " logistic, popularity, gbm, position, naive-bayes, or with files a column. With auto methods"
            " with a click tower, such as escm2-dr, use their own."
        ),
    ] = "auto",
    features: Annotated[
        str | None,
        typer.Option(
            help="Columns that the network reads beside the ids, parted by commas, or auto: all others, by"
            " their types. The network is then dcn unless --backbone says otherwise."
        ),
    ] = None,
    numeric: Annotated[str, typer.Option(help="Columns to read as numbers, parted by commas.")] = "",
    bag: Annotated[str, typer.Option(help="Columns of lists to read, parted by commas.")] = "",
    ignore: Annotated[str, typer.Option(help="With --features auto: columns to leave out.")] = "",
    propensity_features: Annotated[
        str | None,
        typer.Option(
            help="Which of the features the propensity reads, parted by commas; -NAME is all but NAME [all]."
        ),
    ] = None,
    model_features: Annotated[
        str | None,
        typer.Option(
            help="Which of the features the conversion models read, as --model-features=-position [all]."
        ),
    ] = None,
    allow_leak: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-leak",
            help="A feature that may give the outcome away, because it is known before; may be repeated.",
        ),
    ] = None,
    backbone: Annotated[str, typer.Option(help="The network; unskew methods lists the choices.")] = "neumf",
    calibrator: Annotated[
        str,
        typer.Option(
            help="The calibrator, or none; unskew methods lists the choices [auto; with --protocol paper"
            " platt]."
        ),
    ] = "",
    uncertainty: Annotated[
        str,
        typer.Option(help="none, mc-dropout, deep-ensemble, batch-ensemble or dual-focal."),
    ] = "none",
    method: Annotated[
        str | None,
        typer.Option(
            help="The debiaser (unskew methods lists the choices), auto (a random sample chooses), or none"
            " for the propensity alone [ips; for files without conversions none]."
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Repetitions, trained together [1; 10 with --protocol paper].")
    ] = None,
    seed: Annotated[int, typer.Option(help="Number of the first repetition.")] = 0,
    members: Annotated[int, typer.Option(help="Networks of each repetition, whose mean is the model.")] = 1,
    recalibrate: Annotated[
        str,
        typer.Option(
            help="Mend the level of the models by weighted held-out clicks: none, auto (a shift of the logit,"
            " as far as the weights can be trusted), shift (all of it), or a calibrator."
        ),
    ] = "none",
    protocol: Annotated[str, typer.Option(help="honest, or paper (what the published code did).")] = "honest",
    crossfit: Annotated[
        int, typer.Option(help="Folds of the propensity; 0 for a single split into 80/10/10.")
    ] = 2,
    propensity_epochs: Annotated[
        int | None,
        typer.Option(help="Train the propensity for exactly this many epochs, without early stopping."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="PART.NAME=VALUE for a parameter of the method, backbone, propensity, calibrator or"
            " uncertainty, or of training; unskew methods NAME lists them; may be repeated.",
        ),
    ] = None,
    p_min: Annotated[
        str, typer.Option(help="The clip, to which lower propensities are raised: auto or a number.")
    ] = "auto",
    split: Annotated[
        str | None,
        typer.Option(
            help="Which clicks choose the epoch: time:0.8 (train on the first 80 %), user:0.2, group:COLUMN"
            ", pair:0.1 or auto [auto: the latest 10 % of impressions with times, if some of them converted"
            " and some did not; else 10 % of the pairs]."
        ),
    ] = None,
    valid_from: Annotated[
        str | None, typer.Option(help="Choose the epoch on the clicks from this date on, as 2026-01-17.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="The column of times [of Parquet: the first whose type says so].")
    ] = None,
    maturity: Annotated[
        str | None,
        typer.Option(help="Leave out rows younger than this at the last row, as 7d: they may yet convert."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder [runs/DATA-METHOD].")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="An earlier run folder, whose models these start from: ids and values that it knows keep"
            " their embeddings, new ones get new ones.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="A folder for the states of the training: the same command goes on from there after it was"
            " killed."
        ),
    ] = None,
    every: Annotated[
        str, typer.Option(help="With --checkpoint: the time between two states, as 5m, 90s or 1h.")
    ] = "5m",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    json: Annotated[Path | None, typer.Option(help="Write the metrics to this file too.")] = None,
    log_json: LogJson = None,
    tensorboard: TensorBoard = None,
    mlflow: MLflow = False,
    save_config: Annotated[
        Path | None, typer.Option(help="Write all options to this TOML file, for --config.")
    ] = None,
    help_all: HelpAll = False,
) -> None:
    """Train, calibrate, debias and evaluate; write a run folder with report.html."""
    import unskew as us
    from unskew.base.files import check_target, write_json, write_text
    from unskew.base.tables import column_names, is_place
    from unskew.cli import say
    from unskew.cli.options import FLAGS, clip, feature_options, is_default, loader_options, names_in, refuse
    from unskew.cli.places import check_outputs, check_seed, name_of_tables, plain_name, table_files
    from unskew.data.datasets import DATASETS

    is_file = data not in DATASETS and (is_place(data) or (Path(root or "") / data).exists())
    if not is_file:
        refuse(context, OF_FILES, f"with --data {data}", "leave it out, or give files as --data")
    if known_propensity is None:
        refuse(context, ("actions",), "without --known-propensity")
    else:
        refuse(context, OF_TRAINED, "with --known-propensity: no propensity is trained")
    if protocol == "paper":
        set_by_paper = ("crossfit", "p_min", "split", "valid_from", "time")
        refuse(context, set_by_paper, "with --protocol paper, which sets it as the paper did")
    if checkpoint is None:
        refuse(context, ("every",), "without --checkpoint")
    check_seed(seed)
    if test == "":
        raise ParameterError("--test is empty", remedy="name a file, or leave it out")
    named = [each for each in (data, test, unbiased) if each] if is_file else []
    read = table_files(str(Path(root or "") / each) for each in named) if named else []
    read += [each for each in (config, from_) if each is not None]
    outputs = {"--json": json, "--save-config": save_config, "--log-json": log_json}
    states = {} if checkpoint is None else {"--checkpoint": checkpoint}
    states |= {} if tensorboard is None else {"--tensorboard": tensorboard}
    check_outputs(outputs, folders=states | ({} if out is None else {"--out": out}), read=read)
    there = []
    if is_file:
        there = list(column_names(Path(root or "") / data))
    if is_file and conversion is None:
        # A log of clicks alone trains a propensity; it says so.
        conversion = "conversion" if "conversion" in there or known_propensity is not None else None
        method = method or (None if conversion else "none")
    method = method or "ips"
    if from_ is not None and method == "none":
        raise ParameterError("--from has no effect without a method", remedy="leave it out, or give --method")
    called = name_of_tables(data, "files") if is_file else data
    target = out or Path("runs") / plain_name(f"{called}-{method}", "the dataset and the method,")
    check_outputs(outputs, folders=states | {"--out": target}, read=read)
    journal = None if checkpoint is None else us.Checkpoint(checkpoint, every)
    # What the same command left before it was killed is known when the data are read.
    own = journal is not None and journal.wrote(target)
    check_target(target, overwrite=overwrite or own)
    for named_by, column in (("--user", user), ("--item", item)) if is_file else ():
        if column not in there:
            raise DataError(
                f"column '{column}' is missing",
                where=plain(data),
                remedy=f"name one of the columns that are there with {named_by}: {listed(there)}",
            )
    columns = {
        "train": data,
        "test": test,
        "test_is": test_is or "logged",
        **({} if unbiased is None else {"unbiased": unbiased}),
        "user": user,
        "item": item,
        "click": click,
        "conversion": conversion,
        "space": space or ("matrix" if known_propensity is None else "impressions"),
        "duplicates": duplicates,
        "known_propensity": known_propensity,
        "actions": actions,
        "time": time,
    }
    name = "files" if is_file else data
    flags = dict(FLAGS)
    if is_file:
        flags |= {key: f"--{key.replace('_', '-')}" for key in columns} | {"train": "--data"}
    options: dict[str, Any] = {}
    if name in DATASETS:
        options = options_of_file(context) | loader_options(option or (), DATASETS[name], flags)
    if is_file:
        options |= columns
    read_fields = feature_options(context, features, numeric, bag, ignore)
    options |= read_fields
    if read_fields and is_default(context, "backbone"):
        backbone = "dcn"
    if test_is is not None and test is None:
        raise ParameterError("--test-is has no effect without --test", remedy="leave it out, or give --test")
    if test_is not in (None, "random", "logged"):
        raise ParameterError(f"--test-is must be random or logged, not {test_is!r}", remedy="give either")

    from unskew.base.progress import progress_bars
    from unskew.cli.run_tables import print_run, print_schema
    from unskew.run.sizes import SAID_SECONDS, estimate_in_words, estimated_seconds
    from unskew.training.checkpoint import JobDoneError

    known = us.RunConfig.__dataclass_fields__
    as_given = {key: value for key, value in context.params.items() if key in known}
    job = us.RunConfig(
        **as_given
        | {
            "data": name,
            "options": options,
            "backbone": backbone,
            "method": method,
            "crossfit": crossfit or None,
            "p_min": clip(p_min),
            "parameters": parameters(context, set_ or ()),
            "propensity_features": None if propensity_features is None else names_in(propensity_features),
            "model_features": None if model_features is None else names_in(model_features),
            "allow_leak": tuple(allow_leak or ()),
        }
    )
    if save_config is not None:
        processes.write(partial(write_config, save_config, job))

    def before_training(dataset: Any) -> None:
        if own:
            check_target(target, overwrite=overwrite)
        if processes.world() > 1 and processes.is_writer():
            say(f"unskew: {processes.how()}")
        if journal is not None and journal.goes_on and processes.is_writer():
            say(f"unskew: going on from {checkpoint}: {journal.so_far}")
        if read_fields:
            print_schema(dataset)
        if processes.is_writer():
            seconds = estimated_seconds(job, dataset.train)
            if seconds > SAID_SECONDS:
                say(f"unskew: {estimate_in_words(job, dataset.train, seconds)}")

    logs: dict[str, Any] = {"log_json": log_json, "tensorboard": tensorboard, "mlflow": mlflow}
    with (
        _going_on_from(checkpoint),
        progress_bars(**logs) as progress,
        warnings.catch_warnings(),
    ):
        # Networks that learned nothing are marked in the tables, the verdict and the report.
        warnings.simplefilter("ignore", CollapseWarning)
        try:
            result = us.run(job, progress, before_training, journal, from_)
        except JobDoneError as done:
            print(done.problem)
            if json is not None:
                processes.write(
                    lambda: write_text(json, (target / "metrics.json").read_text(encoding="utf-8"))
                )
            return
    with _going_on_from(checkpoint):
        result.save(target, overwrite=overwrite)
    if mlflow:
        from unskew.serve.mlflow_log import log_run

        processes.write(partial(log_run, target))
    if json is not None:
        processes.write(partial(write_json, json, result.metrics))
    print_run(result.metrics, result.findings)
    print(f"\nThe report: {plain(target / 'report.html')}")
    if result.models and len(job.seed_list) == 1 and job.members == 1:
        print("One network of each model was trained. For a paper's table: --seeds 10 --members 10")


@contextmanager
def _going_on_from(checkpoint: Path | None) -> Iterator[None]:
    """An interrupt inside says where the job goes on from."""
    from unskew.cli import RESUME, interrupted

    try:
        yield
    except KeyboardInterrupt:
        if checkpoint is None:
            raise
        interrupted(f"the last state is in {checkpoint}. {RESUME}")
