"""What a study is: a grid of datasets, propensities, calibrators, methods and seeds, checked when it is read.

Runs nothing; :mod:`unskew.study.engine` does.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    ValidationError,
    model_validator,
)

from unskew.base.errors import ParameterError, UnskewError
from unskew.base.estimator import Estimator, require_types
from unskew.base.seeds import as_seeds
from unskew.calibration import Calibrator, make_calibrator
from unskew.data.datasets import DATASETS, Dataset, load
from unskew.debias import METHODS, Debiaser, make_method
from unskew.learners import Learner, make_learner
from unskew.metrics.clip import Clip, require_clip
from unskew.metrics.registry import EVALUATED_METRICS
from unskew.propensity import Propensity, make_uncertainty
from unskew.run.protocol import Protocol, ProtocolName, protocol_named


def word_for(field: str) -> Any:
    """Let a word stand for a table with that word under ``field``."""
    return BeforeValidator(lambda given: {field: given} if isinstance(given, str) else given)


def require_known(name: str, names: Any, what: str) -> None:
    """Refuse a name that is none of the names."""
    if name not in names:
        raise ValueError(f"no {what} is called {name!r}; use one of {', '.join(names)}")


def made_or_refused(make: Any, name: str) -> Any:
    """Call ``make``; raise our errors as a ValueError, to which pydantic adds the place."""
    try:
        return make()
    except UnskewError as error:
        raise ValueError(str(error)) from error
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from error


def of_right_types(estimator: Estimator, **params: Any) -> Estimator:
    """Set parameters and check their types; the ranges are checked before it runs."""
    require_types(estimator.set_params(**params), choices=False)
    if hasattr(estimator, "p_min"):
        require_clip(estimator.p_min)
    return estimator


def refuse_keys(params: dict[str, Any], places: dict[str, str]) -> None:
    """Refuse parameters that a grid sets elsewhere."""
    for name, place in places.items():
        if name in params:
            raise ValueError(f"{name} is set elsewhere in a grid; {place}")


class GridTable(BaseModel):
    """A table of the file: no other keys than its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NamedTable(GridTable):
    """A table with the name of what it is; ``key`` is its name in tables."""

    name: str
    key: str = ""

    @property
    def label(self) -> str:
        """Return its name in tables."""
        return self.key or self.name


class DatasetEntry(NamedTable):
    """A dataset: its name, the folder of its files, options of its loader."""

    root: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> DatasetEntry:
        made_or_refused(lambda: DATASETS.require(self.name), self.name)
        refuse_keys(
            self.options,
            {
                "protocol": 'write protocol = "…" at the top',
                "root": "write root beside the dataset's name",
                "name": "it is the dataset's, beside its options",
            },
        )
        return self

    def load(self, protocol: ProtocolName) -> Dataset:
        """Read it."""
        root = None if self.root is None else Path(self.root).expanduser()
        return load(self.name, root, protocol=protocol, **self.options)


class LearnerEntry(GridTable):
    """A network by name, with its parameters."""

    name: str = "neumf"
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> LearnerEntry:
        made_or_refused(lambda: require_types(self.make()), self.name)
        return self

    def make(self) -> Learner:
        """Make the learner."""
        made: Learner = made_or_refused(lambda: make_learner(self.name, **self.params), self.name)
        return made


class CalibratorEntry(NamedTable):
    """A calibrator by name, with its parameters; ``"none"`` leaves the scores."""

    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> CalibratorEntry:
        made_or_refused(lambda: make_calibrator(self.name, **self.params)._check_parameters(), self.name)
        return self

    def make(self) -> Calibrator | None:
        """Make the calibrator; None for ``"none"``."""
        made = made_or_refused(lambda: make_calibrator(self.name, **self.params), self.name)
        return None if self.name == "none" else made


class PropensityEntry(GridTable):
    """A propensity model.

    ``key = "constant"`` gives every pair the share of clicks, ``key = "true"`` the true propensity of a
    synthetic world; neither is trained nor calibrated. ``calibrators`` stand instead of the grid's.
    """

    key: str = Field(min_length=1)
    learner: Annotated[LearnerEntry, word_for("name")] | None = None
    uncertainty: str = "none"
    uncertainty_params: dict[str, Any] = Field(default_factory=dict)
    params: dict[str, Any] = Field(default_factory=dict)
    calibrators: list[Annotated[CalibratorEntry, word_for("name")]] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _check(self) -> PropensityEntry:
        beside = "write it beside params, by its name"
        calibrators = "write calibrators = […] at the top, or beside params"
        refuse_keys(self.params, {"learner": beside, "uncertainty": beside, "calibrator": calibrators})
        made_or_refused(self._typed_uncertainty, self.uncertainty)
        made_or_refused(lambda: of_right_types(Propensity(), **self.params), self.key)
        return self

    def _typed_uncertainty(self) -> None:
        named = self.uncertainty_params if self.uncertainty != "none" else {}
        made = make_uncertainty(self.uncertainty, **named)
        if made is not None:
            require_types(made)
        elif self.uncertainty_params:
            raise ValueError("uncertainty_params are of no uncertainty; name one, or leave them out")

    @property
    def is_trained(self) -> bool:
        """Return whether there is a model to train and to calibrate."""
        return self.key not in ("constant", "true")

    def make(self, protocol: Protocol, learner: LearnerEntry) -> Propensity:
        """Make the estimator under a protocol, without a calibrator."""
        made = protocol.propensity((self.learner or learner).make(), uncertainty=self.uncertainty)
        if made.uncertainty is not None:
            made.uncertainty.set_params(**self.uncertainty_params)
        return made.set_params(**self.params)


NOTHING = ""
"""Among the sets of propensities of a method: a run without any."""


class MethodEntry(GridTable):
    """A debiaser by name, with its parameters.

    ``propensity = false`` runs it without given propensities; a list names the sets that it is given, such as
    ``"neumf platt"``, and ``""`` none.
    """

    method: str
    key: str = ""
    learner: Annotated[LearnerEntry, word_for("name")] | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    propensity: bool | list[str] = True

    @model_validator(mode="after")
    def _check(self) -> MethodEntry:
        made_or_refused(lambda: METHODS.require(self.method), self.method)
        refuse_keys(self.params, {"learner": "write it beside params, by its name"})
        made = made_or_refused(lambda: of_right_types(make_method(self.method), **self.params), self.method)
        if made.needs_propensity and (not self.propensity or self.runs_alone):
            raise ValueError(f"{self.method} cannot do without propensities; name some")
        return self

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.key or self.method

    @property
    def runs_alone(self) -> bool:
        """Return whether it is also run without given propensities."""
        return isinstance(self.propensity, list) and NOTHING in self.propensity

    @property
    def takes_propensity(self) -> bool:
        """Return whether it is given the grid's propensities: it needs them, or uses any there are."""
        kind = METHODS[self.method]
        if kind.needs_propensity or self.propensity in (False, [], [NOTHING]):
            return kind.needs_propensity
        chosen = self.params.get("calibration", "auto")
        return "external" in getattr(kind, "sources", ()) and chosen in ("auto", "external")

    def make(self, protocol: Protocol, learner: LearnerEntry, density: float) -> Debiaser:
        """Make the debiaser under a protocol, for a log of this density."""
        made = protocol.method(self.method, (self.learner or learner).make(), density)
        return made.set_params(**self.params)


class TuneTable(GridTable):
    """Hyper-parameters to choose for each method on validation loss.

    Parameters
    ----------
    values
        The values of each parameter, nested ones as ``learner__dim``.
    trials
        So many combinations, drawn at random without repetition; None tries all.
    seeds
        Repetitions of each trial, the first of the study's; the loss is averaged over them.
    methods
        Which methods to tune, by their names in the grid; all by default.
    """

    values: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(min_length=1)
    trials: StrictInt | None = Field(default=None, ge=1)
    seeds: StrictInt = Field(default=1, ge=1)
    methods: list[str] | None = None
    draw: StrictInt = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check(self) -> TuneTable:
        split = next((name for name in ("validation_share", "validation_by") if name in self.values), None)
        if split is not None:
            raise ValueError(
                f"values.{split} cannot be tuned: trials would be judged on different clicks."
                " To fix: set it in the method's params"
            )
        return self

    def tunes(self, label: str) -> bool:
        """Return whether a method of the grid is tuned."""
        return self.methods is None or label in self.methods

    def single_values(self) -> list[dict[str, Any]]:
        """Return every value by itself: a wrong one is seen without trying all combinations."""
        return [{name: value} for name, values in self.values.items() for value in values]


DEFAULT_FOLDS = 5

METRICS = (*EVALUATED_METRICS, "validation_loss", "best_epoch", "diverged")
"""What a study knows of a method, for its table."""
MOST_SEEDS = 1 << 31
"""More is a slip: a list of so many seeds would not fit into memory."""
LONGEST_NAME = 100
"""Of a study, which is a folder's too."""


def _clip(value: Any) -> Any:
    if value is not None:
        made_or_refused(lambda: require_clip(value), "p_min")
    return value


def _name(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"\w[\w.\- ]*", value) and len(value) <= LONGEST_NAME:
        return value
    raise ValueError(
        f"{value!r} cannot be a study's name, which is a folder's too; use up to {LONGEST_NAME} letters,"
        " digits, '_', '-', '.' and spaces, and begin with a letter or digit"
    )


def _seeds(value: Any) -> Any:
    numbers = value if isinstance(value, list | tuple) else [value]
    if all(isinstance(each, int) and not isinstance(each, bool) and each < MOST_SEEDS for each in numbers):
        return value
    raise ValueError(f"{value!r} is no count and no list of seeds; give seeds = 10 or seeds = [0, 1, 2]")


class Grid(GridTable):
    """A study: every propensity × calibrator × method × seed on every dataset.

    Examples
    --------
    >>> grid = read_grid({"name": "small", "seeds": 2, "datasets": ["synthetic"], "methods": ["naive", "ips"],
    ...                   "propensities": [{"key": "neumf"}], "calibrators": ["none", "platt"]})
    >>> grid.seed_list, [method.label for method in grid.methods]
    ((0, 1), ['naive', 'ips'])
    """

    name: Annotated[str, BeforeValidator(_name)]
    protocol: ProtocolName = "honest"
    seeds: Annotated[int | list[int], BeforeValidator(_seeds)] = 10
    datasets: list[Annotated[DatasetEntry, word_for("name")]] = Field(min_length=1)
    propensities: list[Annotated[PropensityEntry, word_for("key")]] = Field(default_factory=list)
    calibrators: list[Annotated[CalibratorEntry, word_for("name")]] = Field(
        default_factory=lambda: [CalibratorEntry(name="none")], min_length=1
    )
    methods: list[Annotated[MethodEntry, word_for("method")]] = Field(default_factory=list)
    learner: Annotated[LearnerEntry, word_for("name")] = Field(default_factory=LearnerEntry)
    crossfit: StrictInt = Field(default=DEFAULT_FOLDS, ge=0)
    propensity_epochs: StrictInt | None = Field(default=None, ge=1)
    p_min: Annotated[Clip | Any, AfterValidator(_clip)] = None
    baseline: str = "naive"
    metrics: list[str] | None = Field(default=None, min_length=1)
    most_replicas: StrictInt | None = Field(default=None, ge=1)
    both_tests: bool = False
    reverse: list[str] = Field(default_factory=list)
    tune: TuneTable | None = None

    @model_validator(mode="after")
    def _check(self) -> Grid:
        made_or_refused(lambda: as_seeds(self.seeds), "seeds")
        for name, entries in (
            ("datasets", [each.label for each in self.datasets]),
            ("propensities", [each.key for each in self.propensities]),
            ("calibrators", [each.label for each in self.calibrators]),
            ("methods", [each.label for each in self.methods]),
        ):
            twice = sorted({entry for entry in entries if entries.count(entry) > 1})
            if twice:
                raise ValueError(f"{name} has {twice[0]!r} twice; give one of them a key of its own")
        if self.reverse and self.protocol != "paper":
            raise ValueError('only the paper protocol has switches to reverse; write protocol = "paper"')
        made_or_refused(lambda: self.protocol_for(self.datasets[0].name).labels, "reverse")
        for metric in self.metrics or ():
            require_known(metric, METRICS, "metric")
        self._check_methods()
        return self

    def _check_methods(self) -> None:
        if not self.propensities and any(METHODS[entry.method].needs_propensity for entry in self.methods):
            raise ValueError("a method needs propensities, and the grid has none; add [[propensities]]")
        known = [entry.label for entry in self.methods]
        if "baseline" in self.model_fields_set:
            require_known(self.baseline, known, "method of this grid (the baseline)")
        tune = self.tune
        for label in (tune and tune.methods) or ():
            require_known(label, known, "method of this grid")
        for entry in self.methods:
            for name in entry.propensity if isinstance(entry.propensity, list) else ():
                require_known(name, (*self.propensity_sets, NOTHING), "propensity of this grid")
            for params in tune.single_values() if tune is not None and tune.tunes(entry.label) else ():
                learner = (entry.learner or self.learner).make()
                method = make_method(entry.method, learner=learner).set_params(**entry.params)
                made_or_refused(lambda method=method, params=params: of_right_types(method, **params), "tune")

    @property
    def seed_list(self) -> tuple[int, ...]:
        """Return the seeds."""
        return as_seeds(self.seeds)

    def calibrators_of(self, entry: PropensityEntry) -> list[CalibratorEntry]:
        """Return the calibrators of a propensity: its own, or the grid's; none if it is not trained."""
        return entry.calibrators or self.calibrators if entry.is_trained else [CalibratorEntry(name="none")]

    @property
    def propensity_sets(self) -> list[str]:
        """Return the names of the sets of propensities that methods may be given."""
        return [
            f"{entry.key} {calibrator.label}"
            for entry in self.propensities
            for calibrator in self.calibrators_of(entry)
        ]

    def protocol_for(self, data: str) -> Protocol:
        """Return the protocol for a dataset."""
        switches = {"reverse": tuple(self.reverse)} if self.reverse else {}
        return protocol_named(
            self.protocol,
            **switches,
            crossfit=self.crossfit or None,
            propensity_epochs=self.propensity_epochs,
            p_min=self.p_min,
            data=data,
        )


def read_grid(source: str | Path | Mapping[str, Any], **changes: Any) -> Grid:
    """Read a grid from a TOML file or from tables.

    Parameters
    ----------
    changes
        Top-level keys to set anew, such as ``seeds=3``.
    """
    where = "the grid"
    if isinstance(source, Mapping):
        tables = dict(source)
    else:
        where = str(source)
        try:
            tables = tomllib.loads(Path(source).read_text(encoding="utf-8"))
        except OSError as error:
            raise ParameterError(
                "there is no such file" if isinstance(error, FileNotFoundError) else f"{error.strerror}",
                where=where,
                remedy="give a TOML file that may be read, or see unskew study --list",
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ParameterError(
                f"is not TOML: {error}", where=where, remedy="fix the line; strings need quotes"
            ) from error
        tables.setdefault("name", Path(source).stem)
    try:
        return Grid.model_validate({**tables, **changes})
    except ValidationError as error:
        raise _one_line(error, where) from error


def _one_line(error: ValidationError, where: str) -> ParameterError:
    first = error.errors()[0]
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"] if part not in _BRANCHES
    ).lstrip(".")
    if first["type"] == "extra_forbidden":
        return ParameterError("no such key", where=f"{where}, {place}", remedy=_allowed(first["loc"]))
    if first["type"] == "missing":
        return ParameterError("the key is missing", where=f"{where}, {place}", remedy="add it to the file")
    message = first["msg"].removeprefix("Value error, ")
    problem, _, remedy = message.partition(". To fix: " if ". To fix: " in message else "; ")
    return ParameterError(
        problem,
        where=f"{where}, {place}" if place else where,
        remedy=remedy or "fix this key of the grid; docs/guides/studies.md lists the keys and their values",
    )


_BRANCHES = ("int", "list[int]", "bool", "list[str]")
"""What pydantic calls the branches of a union, which are no keys."""

_TABLES: dict[str, type[GridTable]] = {
    "datasets": DatasetEntry,
    "propensities": PropensityEntry,
    "calibrators": CalibratorEntry,
    "methods": MethodEntry,
    "learner": LearnerEntry,
    "tune": TuneTable,
}


def _allowed(place: tuple[int | str, ...]) -> str:
    table: type[GridTable] = Grid
    for part in place[:-1]:
        table = _TABLES.get(str(part), table)
    return f"use one of {', '.join(table.model_fields)}"
