"""``unskew run``: the main job, with the fields of :class:`unskew.Config` as its options."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from unskew.base import processes
from unskew.base.errors import CollapseWarning, DataError, ParameterError
from unskew.base.plain_text import plain
from unskew.base.settings import Settings, option
from unskew.cli import resumable
from unskew.cli.verb import parameter_of, register, was_given
from unskew.run.config import FIELDS, SECTIONS, Config, in_sections, merged

if TYPE_CHECKING:
    from unskew.data.datasets import Dataset
    from unskew.run.result import Result

EXAMPLES = (
    "unskew run clicks.parquet",
    "unskew run 'logs/*.parquet' --features auto --test shown.csv --test-is random --out runs/today",
    "unskew run --config run.toml --effort thorough --set evaluation.split=time:0.8",
)


class OwnOptions(Settings):
    """Where the configuration of a run comes from."""

    files: tuple[str, ...] = option((), flag="argument", metavar="FILE...")
    """CSV, Parquet or Arrow: files, folders or globs; or the name of a dataset."""
    config: Path | None = option(None, group="Data")
    """Options from TOML: yours, of unskew init, or a run's config.toml. Options given here win."""


def add_run(app: typer.Typer) -> None:
    """Add the verb to the application."""
    parameters = [parameter_of(name, field) for name, field in OwnOptions.model_fields.items()]
    for name, (section, field) in FIELDS.items():
        own = field if iskeyword(name) else name
        parameters.append(parameter_of(own, SECTIONS[section].model_fields[field], section.capitalize()))
    register(app, _command, "run", str(run.__doc__), parameters, EXAMPLES)


def _command(context: typer.Context, **values: Any) -> None:
    given = {name: value for name, value in values.items() if was_given(context, name)}
    run(config_of(given))


def config_of(given: Mapping[str, Any]) -> Config:
    """Return the configuration of a command line: its options win over ``--set``, and this over the file."""
    asked = dict(given)
    path = asked.pop("config", None)
    sections = {} if path is None else read_sections(path)
    sections = merged(sections, in_sections(_settings(asked.pop("set", ())), parameters=True))
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
        sections = in_sections({key.replace("-", "_"): value for key, value in tables.items()})
    except ParameterError as error:
        raise ParameterError(error.problem, where=str(path), remedy=error.remedy) from None
    if isinstance(parameters := sections.get("model", {}).get("parameters"), Mapping):
        sections["model"]["parameters"] = _flat(parameters)
    return sections


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the values of nested tables by names with dots."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found


def _loader_options(options: Sequence[str], source: Any) -> dict[str, Any]:
    """Read ``--option KEY=VALUE`` as the loader of the dataset, or of files, expects it."""
    from unskew.cli.options import FLAGS, loader_options
    from unskew.data.datasets import DATASETS

    named = isinstance(source, str) and source in DATASETS
    of_files = {
        name: f"--{name.replace('_', '-')}" for name, (section, _) in FIELDS.items() if section == "data"
    }
    flags = FLAGS if named else {**FLAGS, **of_files, "train": "FILE..."}
    return loader_options(options, DATASETS[source if named else "files"], flags)


def _settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE``, each value as TOML or else as text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not name or not equals:
            problem = f"--set {pair!r} is not KEY=VALUE"
            raise ParameterError(problem, remedy="write for example method.learning_rate=0.01")
        try:
            value = tomllib.loads(f"value = {text.strip()}")["value"]
        except tomllib.TOMLDecodeError:
            value = {"True": True, "False": False, "None": "none"}.get(text.strip(), text.strip())
        found[name.strip()] = value
    return found


def run(config: Config) -> None:
    """Train, calibrate, debias and evaluate; write a run folder with report.html."""
    import unskew as us
    from unskew.base.files import check_target, write_json, write_text
    from unskew.base.progress import progress_bars
    from unskew.cli.places import check_outputs, name_of_tables, plain_name
    from unskew.cli.run_tables import print_run
    from unskew.run.files import complete
    from unskew.training.checkpoint import JobDoneError

    output, compute = config.output, config.compute
    outputs = {"--json": output.json_file, "--log-json": output.log_json}
    folders = {"--checkpoint": compute.checkpoint, "--tensorboard": output.tensorboard, "--out": output.out}
    read = _inputs(config)
    check_outputs(outputs, folders={flag: path for flag, path in folders.items() if path}, read=read)
    if output.out is not None:
        check_target(output.out, overwrite=output.overwrite or _wrote(config, output.out))
    config, guesses = complete(config)
    first = config.data.source if isinstance(config.data.source, str) else config.data.source[0]
    called = first if config.data.is_named else name_of_tables(first, "files")
    target = output.out or Path("runs") / plain_name(
        f"{called}-{config.method}", "the dataset and the method,"
    )
    folders["--out"] = target
    check_outputs(outputs, folders={flag: path for flag, path in folders.items() if path}, read=read)
    # What the same command left before it was killed is known when the data are read.
    own = _wrote(config, target)
    check_target(target, overwrite=output.overwrite or own)

    def before_training(dataset: Dataset) -> None:
        if own:
            check_target(target, overwrite=output.overwrite)
        _announce(config, dataset, guesses)

    logs: dict[str, Any] = output.model_dump(include={"log_json", "tensorboard", "mlflow"})
    with (
        resumable(compute.checkpoint, "the last state is in"),
        progress_bars(**logs) as progress,
        warnings.catch_warnings(),
    ):
        # Networks that learned nothing are marked in the tables, the verdict and the report.
        warnings.simplefilter("ignore", CollapseWarning)
        try:
            result: Result = us.run(config, progress, before_training)
        except JobDoneError as done:
            print(done.problem)
            if (file := output.json_file) is not None:
                metrics = target / "metrics.json"
                processes.write(lambda: write_text(file, metrics.read_text(encoding="utf-8")))
            return
    with resumable(compute.checkpoint, "the last state is in"):
        result.save(target, overwrite=output.overwrite)
    if output.mlflow:
        from unskew.serve.mlflow_log import log_run

        processes.write(partial(log_run, target))
    if output.json_file is not None:
        processes.write(partial(write_json, output.json_file, result.metrics))
    print_run(result.metrics, result.findings)
    print(f"\nThe report: {plain(target / 'report.html')}")
    if result.models and len(config.seeds) == 1 and config.model.members == 1:
        print("One network of each model was trained. For a paper's table: --effort thorough --members 10")


def _inputs(config: Config) -> list[str | Path]:
    """Return the files that a run reads."""
    from unskew.cli.places import table_files
    from unskew.run.files import are_files

    data = config.data
    found: list[str | Path] = [] if config.model.start is None else [config.model.start]
    if not data.is_named and are_files(config):
        source = [data.source] if isinstance(data.source, str) else data.source
        names = [str(Path(data.root or "") / name) for name in (*source, data.test, data.unbiased) if name]
        found += table_files([name for name in names if "://" not in name])
    return found


def _wrote(config: Config, target: Path) -> bool:
    """Return whether the same job wrote the folder before it was killed."""
    from unskew.training.checkpoint import Checkpoint

    compute = config.compute
    return compute.checkpoint is not None and Checkpoint(compute.checkpoint, compute.every).wrote(target)


def _announce(config: Config, dataset: Dataset, guesses: Sequence[str]) -> None:
    """Say what is read, where a killed job goes on, and about how long it will take."""
    from unskew.cli import say
    from unskew.cli.run_tables import print_schema
    from unskew.run.estimate import SAID_SECONDS, estimate_in_words, estimated_seconds
    from unskew.training.checkpoint import checkpoint_in_effect

    if not processes.is_writer():
        return
    for sentence in guesses:
        print(f"· {sentence}")
    if processes.world() > 1:
        say(f"unskew: {processes.how()}")
    journal = checkpoint_in_effect()
    if journal is not None and journal.goes_on:
        say(f"unskew: going on from {config.compute.checkpoint}: {journal.so_far}")
    if config.features.asked:
        print_schema(dataset)
    seconds = estimated_seconds(config, dataset.train)
    if seconds > SAID_SECONDS:
        say(f"unskew: {estimate_in_words(config, dataset.train, seconds)}")
