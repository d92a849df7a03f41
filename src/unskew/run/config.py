"""The configuration of a run: the one place where its options, their types, limits and help texts stand.

The options of ``unskew run``, TOML files, ``--set``, the grids of studies, ``config.toml`` of a run folder
and the JSON schema come from :class:`Config`. A new option is a field here,
the place that uses it, and a test.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ValidationError, model_validator
from pydantic.fields import FieldInfo

from unskew.base.errors import ParameterError
from unskew.base.settings import FORMER, Settings, option, refusal

Effort = Literal["quick", "standard", "thorough"]

EFFORTS: Mapping[Effort, Mapping[str, int]] = {
    "quick": {"seeds": 1, "crossfit": 2},
    "standard": {"seeds": 1, "crossfit": 2},
    "thorough": {"seeds": 10, "crossfit": 5},
}
"""The repetitions and the folds of each effort. ``quick`` also leaves out networks and blends as
propensities, the model with raw propensities, and what fields are to the models."""

PAPER_SEEDS = 10
"""Repetitions of the paper's tables."""

MOST_SEEDS, MOST_EPOCHS = 10_000, 100_000
"""Numbers beyond which a training would not end while anybody waits for it."""

NO_METHOD = "none"
"""The method of a run that trains the propensity alone."""
AUTO = "auto"
"""The method of a run that ships the mean of several, less those that a random sample rules out."""
NO_PROPENSITY, CONSTANT, TRUE = "none", "constant", "true"
UNTRAINED = (NO_PROPENSITY, CONSTANT, TRUE)
"""Kinds of propensities that are not trained."""


def _names(value: Any) -> Any:
    """Read names parted by commas."""
    if not isinstance(value, str):
        return value
    return tuple(name.strip() for name in value.split(",") if name.strip())


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class DataConfig(Settings):
    """The log, its columns, and what is tested on."""

    source: str | tuple[str, ...] = option("synthetic", flag="--data", shown=False)
    """A dataset (unskew methods lists them), or files: CSV, Parquet or Arrow, a folder or a glob."""
    root: str | None = option(None, shown=False)
    """The folder of the dataset's files."""
    options: dict[str, Any] = option({}, flag="--option", shown=False)
    """KEY=VALUE for the dataset's loader, as n_users=200; may be repeated."""
    user: str | None = option(None)
    """The column of user ids [guessed by its name]."""
    item: str | None = option(None)
    """The column of item ids [guessed by its name]."""
    click: str | None = option(None)
    """The click column [guessed; without one every listed pair was clicked]."""
    conversion: str | None = option(None)
    """The conversion column [guessed by its name]."""
    time: str | None = option(None, shown=False)
    """The column of times [of Parquet: the first whose type says so]."""
    space: Literal["auto", "matrix", "impressions"] = option("auto")
    """The population: matrix (all pairs), impressions (the rows), or auto: impressions where the click
    column has zeros or pairs repeat."""
    test: str | None = option(None, min_length=1)
    """Pairs with their conversions to test on: files, a folder or a glob."""
    test_is: Literal["random", "logged"] | None = option(None)
    """Whether the pairs of --test were shown at random, or are as biased as the log [logged]."""
    unbiased: str | None = option(None, shown=False)
    """A small sample of pairs shown at random, which chooses the method (--method auto) and sets levels
    right (then, or with --recalibrate); none of them in --test."""
    unbiased_share: float | None = option(None, shown=False)
    """Instead of --unbiased: take this share of the random test pairs as that sample, as 0.05."""
    known_propensity: str | None = option(None, shown=False)
    """In files of shown rows (a bandit log): the column with the probability that each was shown. The
    outcome is --conversion; no propensity is trained."""
    actions: int | None = option(None, shown=False)
    """With --known-propensity: how many items the policy chose from [all listed]."""
    duplicates: Literal["error", "max"] = option("error", shown=False)
    """A pair that is listed twice is an error, or counts once (max)."""
    unclicked: Literal["error", "drop", "click"] = option("error", shown=False)
    """Rows that converted without a click: an error (of impressions their conversion is left out), dropped,
    or counted as clicked (click)."""
    cache: str | None = option(None, shown=False)
    """The folder that large logs are mapped from and found in again, or none [the user's cache folder]."""
    maturity: str | None = option(None, shown=False)
    """Leave out rows younger than this at the last row, as 7d: they may yet convert."""

    @property
    def is_named(self) -> bool:
        """Return whether the data are a registered dataset, not files."""
        from unskew.base.registry import DATASETS

        return isinstance(self.source, str) and self.source in DATASETS


class FeaturesConfig(Settings):
    """The columns that models read beside the ids."""

    columns: Names | None = option(None, flag="--features")
    """Columns that the network reads beside the ids, parted by commas, or auto: all others, by their
    types. The network is then dcn unless --learner says otherwise."""
    numeric: Names = option((), shown=False)
    """Columns to read as numbers, parted by commas."""
    bag: Names = option((), shown=False)
    """Columns of lists to read, parted by commas."""
    vector: Names = option((), shown=False)
    """Columns of vectors, or prefixes of numbered columns (emb_ is emb_0, emb_1, ...), parted by commas."""
    ignore: Names = option((), shown=False)
    """With --features auto: columns to leave out."""
    propensity: Names | None = option(None, flag="--propensity-features", shown=False)
    """Which of the features the propensity reads, parted by commas; -NAME is all but NAME [all]."""
    model: Names | None = option(None, flag="--model-features", shown=False)
    """Which of the features the conversion models read, as --model-features=-position [all]."""
    allow_leak: tuple[str, ...] = option((), shown=False)
    """A feature that may give the outcome away, because it is known before; may be repeated."""

    @property
    def asked(self) -> dict[str, Any]:
        """The features that :func:`unskew.load` is asked for."""
        if self.columns is None and not (self.numeric or self.bag or self.vector):
            return {}
        read: Any = "auto" if self.columns == ("auto",) else self.columns
        found = {"features": read, "ignore": self.ignore}
        found |= {name: getattr(self, name) for name in ("numeric", "bag", "vector")}
        return {name: value for name, value in found.items() if value}


class PropensityConfig(Settings):
    """The propensity, its calibrator and its folds."""

    kind: str = option("auto", flag="--propensity")
    """auto (the best of linear, popularity, the learner and, with features, trees and their blend on
    held-out clicks), linear, trees, blend, a network, popularity, position, naive-bayes, or a column of
    the files. With auto, methods with a click tower, such as escm2-dr, use their own. For comparison:
    constant (the share of clicks), true (the truth of a synthetic world), none (no propensity)."""
    calibrator: str | None = option(None)
    """The calibrator, or none [auto; with --protocol paper platt]."""
    uncertainty: str = option("none", shown=False)
    """none, mc-dropout, deep-ensemble, batch-ensemble or dual-focal."""
    crossfit: int | None = option(None, shown=False, ge=0, le=100)
    """Folds of the propensity; 0 for a single split into 80/10/10 [by --effort: 2, 2 or 5]."""
    exact_epochs: int | None = option(None, flag="--propensity-epochs", shown=False, ge=1, le=MOST_EPOCHS)
    """Train the propensity for exactly this many epochs, without early stopping."""
    p_min: float | Literal["auto"] = option("auto", shown=False)
    """The clip, to which lower propensities are raised: auto or a number."""


class ModelConfig(Settings):
    """The conversion model."""

    method: str | None = option(None)
    """The debiaser (unskew methods lists them), auto (the mean of several, less those that a random sample
    rules out), or none for the propensity alone [auto; ips with --from, --known-propensity or the paper's
    protocol; none for files without conversions]."""
    learner: str | None = option(None, shown=False)
    """The network or learner; unskew methods lists them [neumf; dcn with --features; several with auto]."""
    members: int = option(1, shown=False, ge=1, le=1000)
    """Networks of each repetition, whose mean is the model."""
    recalibrate: str = option("none", shown=False)
    """Mend the level of the models by weighted held-out clicks: none, auto (a shift of the logit, as far
    as the weights can be trusted), shift (all of it), or a calibrator."""
    start: Path | None = option(None, flag="--from", shown=False)
    """An earlier run folder, whose models these start from: ids and values that it knows keep their
    embeddings, new ones get new ones."""
    parameters: dict[str, Any] = option({}, flag="--set")
    """SECTION.NAME=VALUE for any option, or PART.NAME=VALUE for a parameter of the method, learner,
    propensity, calibrator or uncertainty, or of training (unskew methods NAME lists them); may be
    repeated."""


class EvaluationConfig(Settings):
    """The protocol, the repetitions, and the rows that choose the epoch."""

    protocol: Literal["honest", "paper"] = option("honest", shown=False)
    """paper does what the published code did."""
    reverse: Names = option((), shown=False)
    """With --protocol paper: deviations of the published code to leave out, parted by commas."""
    beside: Names = option(("naive", "raw"), shown=False)
    """Models to train beside the method, to compare it with: naive, raw (the method with raw
    propensities), both, or none."""
    seeds: int | None = option(None, shown=False, ge=1, le=MOST_SEEDS)
    """Repetitions, trained together [by --effort: 1, 1 or 10; 10 with --protocol paper]."""
    seed: int = option(0, shown=False, ge=0, le=2**32 - 1)
    """Number of the first repetition."""
    split: str | None = option(None, shown=False)
    """Which clicks choose the epoch: time:0.8 (train on the first 80 %), user:0.2, group:COLUMN,
    pair:0.1 or auto [auto: the latest 10 % of impressions with times, if some of them converted and
    some did not; else 10 % of the pairs]."""
    valid_from: str | None = option(None, shown=False)
    """Choose the epoch on the clicks from this date on, as 2026-01-17."""


class OutputConfig(Settings):
    """Where results and progress are written."""

    out: Path | None = option(None, writes="folder")
    """The run folder [runs/DATA-METHOD]."""
    overwrite: bool = option(False)
    """Replace an earlier run."""
    json_file: Path | None = option(None, flag="--json", shown=False, writes="file")
    """Write the metrics to this file too."""
    log_json: Path | None = option(None, shown=False, writes="file")
    """Append the progress to this file: a JSON object a line, with rows/s, loss, memory."""
    tensorboard: Path | None = option(None, shown=False, writes="folder")
    """Write losses for TensorBoard into this folder, if it is installed."""
    mlflow: bool = option(False, shown=False)
    """Log the run, its figures, files and ONNX model to MLflow, if it is installed."""


class ComputeConfig(Settings):
    """How much is computed, and where."""

    effort: Effort = option("standard")
    """quick (no network or blend as propensity, no model with raw ones, no importance of fields), standard,
    or thorough (ten repetitions and five folds instead of one and two)."""
    device: str = option("auto", shown=False)
    """auto, cpu, cuda or cuda:1."""
    checkpoint: Path | None = option(None, shown=False, writes="folder")
    """A folder for the states of the training: the same command goes on from there after it was killed."""
    every: str = option("5m", shown=False)
    """With --checkpoint: the time between two states, as 5m, 90s or 1h."""


SECTIONS: Mapping[str, type[Settings]] = {
    "data": DataConfig,
    "features": FeaturesConfig,
    "propensity": PropensityConfig,
    "model": ModelConfig,
    "evaluation": EvaluationConfig,
    "output": OutputConfig,
    "compute": ComputeConfig,
}


def option_name(name: str, info: FieldInfo) -> str:
    """Return the name of a field without its section: that of its option, with underscores."""
    flag = str((info.json_schema_extra or {}).get("flag", name))  # type: ignore[union-attr]
    return flag.removeprefix("--").replace("-", "_")


FIELDS: dict[str, tuple[str, str]] = {
    option_name(name, info): (section, name)
    for section, kind in SECTIONS.items()
    for name, info in kind.model_fields.items()
}
"""The section and the name of each field, by the name of its option."""

BY_NAME = {name: (section, name) for section, kind in SECTIONS.items() for name in kind.model_fields} | FIELDS
"""The same by all names that a field may be given by without its section."""


def named(path: Any) -> str:
    """Return what a message calls a field: its option and its place in the file."""
    place = tuple(path[:2])
    flags = {where: f"--{name.replace('_', '-')}" for name, where in FIELDS.items()}
    return f"{flags[place]} ({'.'.join(place)})" if place in flags else repr(".".join(path))


def in_sections(values: Mapping[str, Any], *, parameters: bool = False) -> dict[str, Any]:
    """Put fields, by ``section.name`` or without a section, into their sections.

    A word for a section is its first field. Other names are an error, or those of ``parameters``.
    """
    sections: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        if section not in SECTIONS or (name and name not in SECTIONS[section].model_fields):
            section, name = BY_NAME.get(key, ("model", "parameters"))
            if (section, name) == ("model", "parameters") and key not in BY_NAME:
                if not parameters:
                    near = difflib.get_close_matches(FORMER.get(key, key), [*SECTIONS, *BY_NAME], n=1)
                    remedy = f"use {near[0]}" if near else "see what unskew config lists"
                    raise ParameterError(f"there is no option {key!r}", remedy=remedy)
                value = {**sections.get(section, {}).get(name, {}), key: value}
        fields = value.model_dump(exclude_unset=True) if isinstance(value, Settings) else value
        if name or not isinstance(fields, Mapping):
            fields = {name or next(iter(SECTIONS[section].model_fields)): value}
        sections[section] = {**sections.get(section, {}), **fields}
    return sections


def merged(sections: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return sections with changes; tables inside them, such as parameters, are merged too."""
    result = dict(sections)
    for name, value in changes.items():
        inside = result.get(name)
        both = isinstance(inside, Mapping) and isinstance(value, Mapping)
        result[name] = merged(inside, value) if both else value  # type: ignore[arg-type]
    return result


class Config(Settings):
    """The configuration of a run, in sections.

    A field may be given in its section, or by the name of its option; a word that stands for a section is its
    first field: ``Config(data="clicks/*.parquet", method="dr")`` is
    ``Config(data={"source": "clicks/*.parquet"}, model={"method": "dr"})``.

    Examples
    --------
    >>> config = Config(data="coat", root="data/coat", method="dr-jl", seeds=3)
    >>> config.model.method, config.evaluation.seeds
    ('dr-jl', 3)
    >>> config.changed({"model.method": "ips", "propensity.p_min": 0.01}).model.method
    'ips'
    """

    data: DataConfig = DataConfig()
    features: FeaturesConfig = FeaturesConfig()
    propensity: PropensityConfig = PropensityConfig()
    model: ModelConfig = ModelConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    output: OutputConfig = OutputConfig()
    compute: ComputeConfig = ComputeConfig()

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise refusal(error, type(self), named) from None

    @model_validator(mode="before")
    @classmethod
    def _in_sections(cls, values: Any) -> Any:
        return in_sections(values)

    @model_validator(mode="after")
    def _check(self) -> Config:
        """Check what fields say together, and the names of methods and their parameters."""
        from unskew.run.parameters import check_names

        checked = check_names(self)
        # A frozen record may still be completed while it is made.
        object.__setattr__(self, "model", self.model.model_copy(update={"parameters": checked}))
        return self

    def changed(self, changes: Mapping[str, Any]) -> Config:
        """Return the configuration with other values: by ``section.name``, by the names of options, or by the
        parameter of a part (``method.learning_rate``)."""
        values = merged(self.to_dict(output=True), in_sections(changes, parameters=True))
        for key, value in changes.items():
            if isinstance(value, Mapping) and key in BY_NAME:
                section, name = BY_NAME[key]
                values[section][name] = value
        return Config(**values)

    def resolved(self) -> Config:
        """Return the configuration with the numbers and names that it leaves to its defaults."""
        names: dict[str, Any] = {"method": self.method, "seeds": len(self.seeds)}
        if self.method != AUTO:
            names["learner"] = self.learner
        if self.data.known_propensity is None and self.evaluation.protocol == "honest":
            names |= {"crossfit": self.crossfit or 0, "calibrator": self.calibrator}
        return self.changed(names)

    def to_dict(self, *, output: bool = False) -> dict[str, Any]:
        """Return the sections as plain values, without what is not set; without ``output`` also without where
        states and results are written."""
        places: Any = {"output": True, "compute": {"checkpoint", "every"}}
        plain = self.model_dump(mode="json", exclude_none=True, exclude=None if output else places)
        return {name: fields for name, fields in plain.items() if fields}

    def flat(self) -> dict[str, Any]:
        """Return the values by the names of their options, without where states and results are written."""
        return {
            name: getattr(getattr(self, section), field)
            for name, (section, field) in FIELDS.items()
            if section != "output" and field not in ("checkpoint", "every")
        }

    @property
    def seeds(self) -> range:
        """The seeds of the repetitions."""
        usual = EFFORTS[self.compute.effort]["seeds"]
        many = self.evaluation.seeds or (PAPER_SEEDS if self.evaluation.protocol == "paper" else usual)
        return range(self.evaluation.seed, self.evaluation.seed + many)

    @property
    def crossfit(self) -> int | None:
        """The folds of the propensity; None for a single split."""
        folds = self.propensity.crossfit
        return (EFFORTS[self.compute.effort]["crossfit"] if folds is None else folds) or None

    @property
    def method(self) -> str:
        """The method."""
        if self.model.method is not None:
            return self.model.method
        one = self.model.start is not None or self.data.known_propensity is not None
        return "ips" if one or self.evaluation.protocol == "paper" else AUTO

    @property
    def learner(self) -> str:
        """The network: one that reads features where there are some."""
        return self.model.learner or ("dcn" if self.features.asked else "neumf")

    @property
    def calibrator(self) -> str:
        """The map of the propensities."""
        return self.propensity.calibrator or ("platt" if self.evaluation.protocol == "paper" else "auto")

    @property
    def needs_network(self) -> str | None:
        """The first option that only a propensity by a network has; None if none is asked for."""
        asked = {
            "protocol 'paper'": self.evaluation.protocol == "paper",
            "propensity_epochs": self.propensity.exact_epochs is not None,
            "uncertainty": self.propensity.uncertainty != "none",
        }
        return next((name for name, wanted in asked.items() if wanted), None)
