"""``unskew run``: the main job, with the fields of :class:`unskew.Config` as its options."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.base import processes
from unskew.base.errors import CollapseWarning, DataError, ParameterError
from unskew.base.plain_text import plain
from unskew.base.settings import Settings, option
from unskew.cli import options as shared
from unskew.cli import resumable
from unskew.cli.console import Shown, show
from unskew.cli.verb import Verb
from unskew.run.config import FIELDS, SECTIONS, Config, in_sections, merged

if TYPE_CHECKING:
    from unskew.data.datasets import Dataset
    from unskew.report.finding import Answer

EXAMPLES = (
    "unskew run clicks.parquet",
    "unskew run 'logs/*.parquet' --features auto --test shown.csv --test-is random --out runs/today",
    "unskew run --config run.toml --effort thorough --set evaluation.split=time:0.8",
)

MARKS = {"good": "✓", "bad": "✗", "open": "?"}


class OwnOptions(Settings):
    """Where the configuration of a run comes from."""

    files: tuple[str, ...] = option((), flag="argument", metavar="FILE...")
    """CSV, Parquet or Arrow: files, folders or globs; or the name of a dataset."""
    config: Path | None = option(None, group="Data")
    """Options from TOML: yours, of unskew init, or a run's config.toml. Options given here win."""


def config_of(given: Mapping[str, Any]) -> Config:
    """Return the configuration of a command line: its options win over ``--set``, and this over the file."""
    asked = dict(given)
    path = asked.pop("config", None)
    sections = {} if path is None else read_sections(path)
    pairs = shared.assigned(asked.pop("set", ()), "--set", "method.learning_rate=0.01")
    values = {name: shared.plain_value(text) for name, text in pairs.items()}
    sections = merged(sections, in_sections(values, parameters=True))
    if files := asked.pop("files", None):
        if "data" in asked:
            raise ParameterError("--data and FILE... are both given", remedy="leave --data out")
        asked["data"] = files[0] if len(files) == 1 else tuple(files)
    options: Sequence[str] = asked.pop("option", ())
    sections = merged(sections, in_sections(asked))
    if options:
        source = sections.get("data", {}).get("source", "synthetic")
        sections = merged(sections, {"data": {"options": _loader_options(options, source)}})
    return Config(**sections)


def read_sections(path: str | Path) -> dict[str, Any]:
    """Return the sections of a TOML file, which are not checked yet."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError("there is no such file", where=str(path), remedy="give --config a file") from None
    except (OSError, ValueError, RecursionError) as error:
        remedy = "see what unskew init writes"
        raise DataError(f"cannot be read as TOML: {error}", where=str(path), remedy=remedy) from error
    tables = content.get("run", content)
    if not isinstance(tables, Mapping):
        raise DataError("run is no table", where=str(path), remedy="write [run.data] and the like")
    try:
        return in_sections({key.replace("-", "_"): value for key, value in tables.items()})
    except ParameterError as error:
        raise ParameterError(error.problem, where=str(path), remedy=error.remedy) from None


def _loader_options(options: Sequence[str], source: Any) -> dict[str, Any]:
    """Read ``--option KEY=VALUE`` as the loader of the dataset, or of files, expects it."""
    from unskew.data.datasets import DATASETS

    flags = {"name": "--data", "root": "--root", "protocol": "--protocol"}
    loader = source if isinstance(source, str) and source in DATASETS else "files"
    if loader == "files":
        own = [name for name, (section, _) in FIELDS.items() if section == "data"]
        flags |= {name: f"--{name.replace('_', '-')}" for name in own} | {"train": "FILE..."}
    return shared.loader_options(options, DATASETS[loader], flags)


def _run(config: Config) -> None:
    import unskew as us
    from unskew.base.files import check_target, write_json, write_text
    from unskew.base.progress import progress_bars
    from unskew.run.files import complete
    from unskew.training.checkpoint import JobDoneError

    output, compute = config.output, config.compute
    read = _inputs(config)
    shared.check_outputs(output, compute, read=read)
    if output.out is not None:
        check_target(output.out, overwrite=output.overwrite or _wrote(config, output.out))
    config, guesses = complete(config)
    first = config.data.source if isinstance(config.data.source, str) else config.data.source[0]
    called = first if config.data.is_named else shared.name_of_tables(first, "files")
    name = shared.plain_name(f"{called}-{config.method}", "the dataset and the method,")
    target = output.out or Path("runs") / name
    shared.check_outputs(output, compute, read=read, **({} if output.out else {"out": target}))
    # What the same command left before it was killed is known when the data are read.
    own = _wrote(config, target)
    check_target(target, overwrite=output.overwrite or own)

    def before_training(dataset: Dataset) -> None:
        if own:
            check_target(target, overwrite=output.overwrite)
        _announce(config, dataset, guesses)

    logs: dict[str, Any] = output.model_dump(include={"log_json", "tensorboard", "mlflow"})
    with resumable(compute.checkpoint, "the last state is in"):
        with progress_bars(**logs) as progress, warnings.catch_warnings():
            # Networks that learned nothing are marked in the tables, the verdict and the report.
            warnings.simplefilter("ignore", CollapseWarning)
            try:
                result = us.run(config, progress, before_training)
            except JobDoneError as done:
                print(done.problem)
                if (file := output.json_file) is not None:
                    metrics = target / "metrics.json"
                    processes.write(lambda: write_text(file, metrics.read_text(encoding="utf-8")))
                return
        result.save(target, overwrite=output.overwrite)
    if output.mlflow:
        from unskew.serve.mlflow_log import log_run

        processes.write(partial(log_run, target))
    if output.json_file is not None:
        processes.write(partial(write_json, output.json_file, result.metrics))
    show(*_shown_data(result.metrics))
    show(f"protocol: {result.metrics['protocol']}", dim=True)
    show(*(f"  · {label}" for label in result.metrics["labels"]), "", dim=True)
    show(*_shown(result.metrics, result.findings))
    print(f"\nThe report: {plain(target / 'report.html')}")
    if result.models and len(config.seeds) == 1 and config.model.members == 1:
        print("Each model was trained once. For a paper's table: --effort thorough --members 10")


def _inputs(config: Config) -> list[str | Path]:
    """Return the files that a run reads."""
    from unskew.run.files import are_files

    data = config.data
    found: list[str | Path] = [] if config.model.start is None else [config.model.start]
    if not data.is_named and are_files(config):
        source = [data.source] if isinstance(data.source, str) else data.source
        names = [str(Path(data.root or "") / name) for name in (*source, data.test, data.unbiased) if name]
        found += shared.table_files([name for name in names if "://" not in name])
    return found


def _wrote(config: Config, target: Path) -> bool:
    """Return whether the same job wrote the folder before it was killed."""
    from unskew.training.checkpoint import Checkpoint

    compute = config.compute
    return compute.checkpoint is not None and Checkpoint(compute.checkpoint, compute.every).wrote(target)


def _announce(config: Config, dataset: Dataset, guesses: Sequence[str]) -> None:
    """Say what is read, where a killed job goes on, and about how long it will take."""
    from unskew.cli import say
    from unskew.report.run_tables import schema_table
    from unskew.run.sizes import SAID_SECONDS, estimate_in_words, estimated_seconds
    from unskew.training.checkpoint import checkpoint_in_effect

    if not processes.is_writer():
        return
    for sentence in guesses:
        print(f"· {sentence}")
    if processes.world() > 1:
        say(f"unskew: {processes.world()} processes, which talk by gloo")
    journal = checkpoint_in_effect()
    if journal is not None and journal.goes_on:
        say(f"unskew: going on from {config.compute.checkpoint}: {journal.so_far}")
    if config.features.asked:
        show(schema_table(dataset.train.schema_table()))
        left_out = {} if dataset.train.features is None else dataset.train.features.left_out
        show(*(f"  · {plain(name)} is left out: {reason}" for name, reason in left_out.items()), dim=True)
    seconds = estimated_seconds(config, dataset.train)
    if seconds > SAID_SECONDS:
        say(f"unskew: {estimate_in_words(config, dataset.train, seconds)}")


def _shown_data(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was read, and what may be wrong with it."""
    data = metrics["data"]
    seen = f"{data['clicks']:,} clicks, density {data['density']:.4g}"
    if data.get("known_propensity") is not None:
        seen = f"{data['rows']:,} shown rows, each one of {data['actions']:,} actions"
    yield f"{data['name']}: {data['users']:,} users × {data['items']:,} items, {seen}; {_test_rows(data)}"
    unclicked = data["rows"] - data["clicks"]
    if data["space"] == "matrix" and unclicked:
        yield (
            f"  ! {unclicked:,} listed rows are not clicked, and pairs that are not listed count as not"
            f" clicked too. If the {data['rows']:,} rows are all that was shown, give --space impressions."
        )
    if data["conversion_rate_of_clicks"] is None:
        yield (
            "  ! The log has no conversions: the propensity alone is trained, which gives weights and scores,"
            " but no conversion model. If a column holds conversions, give --conversion COLUMN."
        )
    if data["test_is"] == "logged":
        yield (
            "  ! The test set is taken as logged: its clicks are as biased as those of training. If its pairs"
            " were shown at random, give --test-is random."
        )


def _shown(metrics: Mapping[str, Any], findings: Sequence[Answer]) -> Iterator[Shown]:
    """Yield the tables of a run, and what it found in a few sentences."""
    from unskew.metrics.registry import SHOWN_METRICS
    from unskew.report.facts import COLLAPSED_MARK, collapsed_sentences, tested_on, units
    from unskew.report.run_tables import methods_table, propensity_table, truth_table

    yield propensity_table(metrics["propensity"], units(metrics))
    if metrics["methods"]:
        yield methods_table(metrics, f"Conversion models on {tested_on(metrics)}", SHOWN_METRICS)
    if "truth" in metrics:
        yield truth_table(metrics["truth"])
    yield from (f"{COLLAPSED_MARK} {line}" for line in collapsed_sentences(metrics))
    yield from (f"{MARKS[finding.tone]} {finding.short}" for finding in findings)
    if any(finding.tone == "open" for finding in findings):
        yield f"({MARKS['open']}: these data do not decide it)"


def _test_rows(data: Mapping[str, Any]) -> str:
    if not data["test_rows"]:
        return "no test set"
    return (
        f"{data['test_rows']:,} test rows ({data['test_rows_judged']:,} clicked, and judged by); dropped:"
        f" {data['leaked_cells_dropped']:,} leaked cells, {data.get('unseen_rows_dropped', 0):,} unseen ids"
    )


run = Verb(
    "run",
    "Train, calibrate, debias and evaluate; write a run folder with report.html.",
    lambda given, _: _run(config_of(given)),
    [
        *((name, field, "") for name, field in OwnOptions.model_fields.items()),
        *(
            (name, SECTIONS[section].model_fields[field], section.capitalize())
            for name, (section, field) in FIELDS.items()
        ),
    ],
    EXAMPLES,
)
