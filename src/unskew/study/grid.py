"""What a study is: a grid of datasets, propensities, calibrators, methods and seeds, checked when it is read.

Runs nothing; :mod:`unskew.study.engine` does.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from unskew.backbones import Backbone, make_backbone
from unskew.calibration import Calibrator, make_calibrator
from unskew.datasets import DATASETS, Dataset, load
from unskew.debias import METHODS, Debiaser, make_method
from unskew.errors import ParameterError, UnskewError
from unskew.propensity import Propensity, make_uncertainty
from unskew.seeds import as_seeds
from unskew.study.protocol import ProtocolName, ProtocolSettings, protocol_settings

DEFAULT_FOLDS = 5
DEFAULT_CLIP = 0.01
"""The clip that figures of weights tell of, where the grid sets none."""


def _named(field: str) -> Any:
    """A word stands for a table with that word under ``field``."""
    return BeforeValidator(lambda given: {field: given} if isinstance(given, str) else given)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DatasetEntry(_Table):
    """A dataset: its name, the folder of its files, options of its loader; ``key`` is its name in tables."""

    name: str
    key: str = ""
    root: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> DatasetEntry:
        _known(self.name, DATASETS, "dataset")
        return self

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.key or self.name

    def load(self, protocol: ProtocolName) -> Dataset:
        """Read it."""
        root = None if self.root is None else Path(self.root).expanduser()
        return load(self.name, root, protocol=protocol, **self.options)


class BackboneEntry(_Table):
    """A network by name, with its parameters."""

    name: str = "neumf"
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> BackboneEntry:
        self.make()
        return self

    def make(self) -> Backbone:
        """The backbone."""
        made: Backbone = _made(lambda: make_backbone(self.name, **self.params), self.name)
        return made


class PropensityEntry(_Table):
    """A propensity model.

    ``key = "constant"`` gives every pair the share of clicks, ``key = "true"`` the true propensity of a
    synthetic world; neither is trained nor calibrated.
    """

    key: str
    backbone: Annotated[BackboneEntry, _named("name")] | None = None
    uncertainty: str = "none"
    uncertainty_params: dict[str, Any] = Field(default_factory=dict)
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> PropensityEntry:
        _made(lambda: make_uncertainty(self.uncertainty, **self.uncertainty_params), self.uncertainty)
        _made(lambda: Propensity().set_params(**self.params), self.key)
        return self

    @property
    def is_trained(self) -> bool:
        """Whether there is a model to train and to calibrate."""
        return self.key not in ("constant", "true")

    def make(self, settings: ProtocolSettings, backbone: BackboneEntry) -> Propensity:
        """The estimator under a protocol, without a calibrator."""
        propensity = settings.propensity((self.backbone or backbone).make(), None)
        uncertainty = settings.uncertainty(self.uncertainty)
        if uncertainty is not None:
            propensity.set_params(uncertainty=uncertainty.set_params(**self.uncertainty_params))
        return propensity.set_params(**self.params)


class CalibratorEntry(_Table):
    """A calibrator by name, with its parameters; ``"none"`` leaves the scores."""

    name: str
    key: str = ""
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> CalibratorEntry:
        self.make()
        return self

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.key or self.name

    def make(self) -> Calibrator | None:
        """The calibrator; None for ``"none"``."""
        made = _made(lambda: make_calibrator(self.name, **self.params), self.name)
        return None if self.name == "none" else made


class MethodEntry(_Table):
    """A debiaser by name, with its parameters; ``propensity = false`` runs it without given propensities."""

    method: str
    key: str = ""
    backbone: Annotated[BackboneEntry, _named("name")] | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    propensity: bool = True

    @model_validator(mode="after")
    def _check(self) -> MethodEntry:
        _known(self.method, METHODS, "method")
        made = _made(lambda: make_method(self.method).set_params(**self.params), self.method)
        if made.needs_propensity and not self.propensity:
            raise ValueError(f"{self.method} cannot do without propensities")
        return self

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.key or self.method

    @property
    def takes_propensity(self) -> bool:
        """Whether it is given the grid's propensities: it needs them, or uses them where there are any."""
        kind = METHODS[self.method]
        if kind.needs_propensity or not self.propensity:
            return kind.needs_propensity
        chosen = self.params.get("calibration", "auto")
        return "external" in getattr(kind, "sources", ()) and chosen in ("auto", "external")

    @property
    def needs_full_space(self) -> bool:
        """Whether it sums over D."""
        return METHODS[self.method].needs_full_space

    def make(
        self, settings: ProtocolSettings, backbone: BackboneEntry, p_min: float | None, density: float
    ) -> Debiaser:
        """The debiaser under a protocol, for a log of which so many of all pairs are clicked."""
        options = settings.method_options(weighted=self.takes_propensity, method=self.method, density=density)
        if settings.name == "honest" and p_min is None:
            # Each method has a clip of its own, which the protocol leaves to it.
            options.pop("p_min", None)
        network = settings.method_backbone((self.backbone or backbone).make())
        method = make_method(self.method, backbone=network, **options)
        return method.set_params(**self.params)


class TuneTable(_Table):
    """Hyper-parameters to choose for each method on validation loss.

    Parameters
    ----------
    values
        The values of each parameter, nested ones as ``backbone__dim``.
    trials
        So many combinations, drawn at random without repetition; None tries all.
    seeds
        Repetitions of each trial, the first of the study's; the loss is averaged over them.
    methods
        Which methods to tune, by their names in the grid; all by default.
    """

    values: dict[str, list[Any]]
    trials: int | None = Field(default=None, ge=1)
    seeds: int = Field(default=1, ge=1)
    methods: list[str] | None = None
    draw: int = Field(default=0, ge=0)


class Grid(_Table):
    """A study: every propensity × calibrator × method × seed on every dataset.

    Examples
    --------
    >>> grid = read_grid({"name": "small", "seeds": 2, "datasets": ["synthetic"], "methods": ["naive", "ips"],
    ...                   "propensities": [{"key": "neumf"}], "calibrators": ["none", "platt"]})
    >>> grid.seed_list, [method.label for method in grid.methods]
    ((0, 1), ['naive', 'ips'])
    """

    name: str = Field(pattern=r"^[\w.\- ]+$")
    protocol: Literal["honest", "paper"] = "honest"
    seeds: int | list[int] = 10
    datasets: list[Annotated[DatasetEntry, _named("name")]] = Field(min_length=1)
    propensities: list[Annotated[PropensityEntry, _named("key")]] = Field(default_factory=list)
    calibrators: list[Annotated[CalibratorEntry, _named("name")]] = Field(
        default_factory=lambda: [CalibratorEntry(name="none")]
    )
    methods: list[Annotated[MethodEntry, _named("method")]] = Field(default_factory=list)
    backbone: Annotated[BackboneEntry, _named("name")] = Field(default_factory=BackboneEntry)
    crossfit: int = Field(default=DEFAULT_FOLDS, ge=0)
    propensity_epochs: int | None = Field(default=None, ge=1)
    p_min: float | None = Field(default=None, gt=0.0, lt=1.0)
    baseline: str = "naive"
    metrics: list[str] | None = None
    most_replicas: int | None = Field(default=None, ge=1)
    tune: TuneTable | None = None

    @model_validator(mode="after")
    def _check(self) -> Grid:
        _made(lambda: as_seeds(self.seeds), "seeds")
        for name, entries in (
            ("datasets", [each.label for each in self.datasets]),
            ("propensities", [each.key for each in self.propensities]),
            ("calibrators", [each.label for each in self.calibrators]),
            ("methods", [each.label for each in self.methods]),
        ):
            twice = sorted({entry for entry in entries if entries.count(entry) > 1})
            if twice:
                raise ValueError(f"{name} has {twice[0]!r} twice; give one of them a key of its own")
        if not self.propensities and any(METHODS[m.method].needs_propensity for m in self.methods):
            raise ValueError("a method needs propensities, and the grid has none")
        if self.tune is not None:
            known = [each.label for each in self.methods]
            for label in self.tune.methods or ():
                _known(label, known, "method of this grid")
        return self

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds."""
        return as_seeds(self.seeds)

    @property
    def clip(self) -> float:
        """The clip that figures of weights tell of."""
        return self.settings.p_min

    @property
    def settings(self) -> ProtocolSettings:
        """What the protocol decides for the first dataset."""
        return self.settings_for(self.datasets[0].name)

    def settings_for(self, data: str) -> ProtocolSettings:
        """What the protocol decides for a dataset."""
        return protocol_settings(
            self.protocol,
            crossfit=self.crossfit or None,
            propensity_epochs=self.propensity_epochs,
            p_min=DEFAULT_CLIP if self.p_min is None else self.p_min,
            data=data,
        )


def read_grid(source: str | Path | Mapping[str, Any], **changes: Any) -> Grid:
    """A grid from a TOML file or from tables.

    Parameters
    ----------
    changes
        Top-level keys to set anew, such as ``seeds=3``.
    """
    where = "the grid"
    if isinstance(source, Mapping):
        told = dict(source)
    else:
        where = str(source)
        try:
            told = tomllib.loads(Path(source).read_text(encoding="utf-8"))
        except OSError as error:
            raise ParameterError(
                "there is no such file", where=where, remedy="give a TOML file, or see unskew study --list"
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ParameterError(f"is not TOML: {error}", where=where) from error
        told.setdefault("name", Path(source).stem)
    try:
        return Grid.model_validate({**told, **changes})
    except ValidationError as error:
        raise _one_line(error, where) from error


def _one_line(error: ValidationError, where: str) -> ParameterError:
    first = error.errors()[0]
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"] if part not in _BRANCHES
    ).lstrip(".")
    if first["type"] == "extra_forbidden":
        return ParameterError("no such key", where=f"{where}, {place}", remedy=_allowed(first["loc"]))
    problem = first["msg"].removeprefix("Value error, ")
    return ParameterError(problem, where=f"{where}, {place}" if place else where)


_BRANCHES = ("int", "list[int]")
"""What pydantic calls the branches of a union, which are no keys."""

_TABLES: dict[str, type[_Table]] = {
    "datasets": DatasetEntry,
    "propensities": PropensityEntry,
    "calibrators": CalibratorEntry,
    "methods": MethodEntry,
    "backbone": BackboneEntry,
    "tune": TuneTable,
}


def _allowed(place: tuple[int | str, ...]) -> str:
    table: type[_Table] = Grid
    for part in place[:-1]:
        table = _TABLES.get(str(part), table)
    return f"use one of {', '.join(table.model_fields)}"


def _known(name: str, names: Any, what: str) -> None:
    if name not in names:
        raise ValueError(f"no {what} is called {name!r}; use one of {', '.join(names)}")


def _made(make: Any, name: str) -> Any:
    try:
        return make()
    except UnskewError as error:
        raise ValueError(str(error)) from error
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from error
