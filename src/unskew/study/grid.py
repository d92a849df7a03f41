"""What a study is: a grid of datasets, propensities, calibrators, methods and seeds, checked when it is read.

Runs nothing; :mod:`unskew.study.engine` does.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, ValidationError, model_validator

from unskew.debias import METHODS, make_method
from unskew.errors import ParameterError
from unskew.metrics.clip import Clip, require_clip
from unskew.metrics.registry import EVALUATED_METRICS
from unskew.run.protocol import Protocol, ProtocolName, protocol_named
from unskew.seeds import as_seeds
from unskew.study.grid_entries import (
    BackboneEntry,
    CalibratorEntry,
    DatasetEntry,
    MethodEntry,
    PropensityEntry,
    Table,
    TuneTable,
    made_or_told,
    of_right_types,
    require_known,
    word_for,
)

DEFAULT_FOLDS = 5

METRICS = (*EVALUATED_METRICS, "validation_loss", "best_epoch", "diverged")
"""What a study knows of a method, for its table."""
MOST_SEEDS = 1 << 31
"""More is a slip: a list of so many seeds would not fit into memory."""
LONGEST_NAME = 100
"""Of a study, which is a folder's too."""


def _clip(told: Any) -> Any:
    if told is not None:
        made_or_told(lambda: require_clip(told), "p_min")
    return told


def _name(told: Any) -> Any:
    if isinstance(told, str) and re.fullmatch(r"\w[\w.\- ]*", told) and len(told) <= LONGEST_NAME:
        return told
    raise ValueError(
        f"{told!r} cannot be a study's name, which is a folder's too; use up to {LONGEST_NAME} letters,"
        " digits, '_', '-', '.' and spaces, and begin with a letter or digit"
    )


def _seeds(told: Any) -> Any:
    numbers = told if isinstance(told, list | tuple) else [told]
    if all(isinstance(each, int) and not isinstance(each, bool) and each < MOST_SEEDS for each in numbers):
        return told
    raise ValueError(f"{told!r} is no count and no list of seeds; give seeds = 10 or seeds = [0, 1, 2]")


class Grid(Table):
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
    backbone: Annotated[BackboneEntry, word_for("name")] = Field(default_factory=BackboneEntry)
    crossfit: StrictInt = Field(default=DEFAULT_FOLDS, ge=0)
    propensity_epochs: StrictInt | None = Field(default=None, ge=1)
    p_min: Annotated[Clip | Any, AfterValidator(_clip)] = None
    baseline: str = "naive"
    metrics: list[str] | None = Field(default=None, min_length=1)
    most_replicas: StrictInt | None = Field(default=None, ge=1)
    tune: TuneTable | None = None

    @model_validator(mode="after")
    def _check(self) -> Grid:
        made_or_told(lambda: as_seeds(self.seeds), "seeds")
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
            raise ValueError("a method needs propensities, and the grid has none; add [[propensities]]")
        for metric in self.metrics or ():
            require_known(metric, METRICS, "metric")
        known = [each.label for each in self.methods]
        if "baseline" in self.model_fields_set:
            require_known(self.baseline, known, "method of this grid (the baseline)")
        if self.tune is not None:
            for label in self.tune.methods or ():
                require_known(label, known, "method of this grid")
            self._check_values(self.tune)
        return self

    def _check_values(self, tune: TuneTable) -> None:
        for entry in self.methods:
            for params in tune.single_values() if tune.tunes(entry.label) else ():
                backbone = (entry.backbone or self.backbone).make()
                method = make_method(entry.method, backbone=backbone).set_params(**entry.params)
                made_or_told(lambda method=method, params=params: of_right_types(method, **params), "tune")

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds."""
        return as_seeds(self.seeds)

    def protocol_for(self, data: str) -> Protocol:
        """What the protocol decides for a dataset."""
        return protocol_named(
            self.protocol,
            crossfit=self.crossfit or None,
            propensity_epochs=self.propensity_epochs,
            p_min=self.p_min,
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
                "there is no such file" if isinstance(error, FileNotFoundError) else f"{error.strerror}",
                where=where,
                remedy="give a TOML file that may be read, or see unskew study --list",
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ParameterError(
                f"is not TOML: {error}", where=where, remedy="mend the line; strings need quotes"
            ) from error
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
    if first["type"] == "missing":
        return ParameterError("the key is missing", where=f"{where}, {place}", remedy="add it to the file")
    told = first["msg"].removeprefix("Value error, ")
    problem, _, remedy = told.partition(". To fix: " if ". To fix: " in told else "; ")
    return ParameterError(
        problem,
        where=f"{where}, {place}" if place else where,
        remedy=remedy or "mend this key of the grid; docs/studies.md tells what it may be",
    )


_BRANCHES = ("int", "list[int]")
"""What pydantic calls the branches of a union, which are no keys."""

_TABLES: dict[str, type[Table]] = {
    "datasets": DatasetEntry,
    "propensities": PropensityEntry,
    "calibrators": CalibratorEntry,
    "methods": MethodEntry,
    "backbone": BackboneEntry,
    "tune": TuneTable,
}


def _allowed(place: tuple[int | str, ...]) -> str:
    table: type[Table] = Grid
    for part in place[:-1]:
        table = _TABLES.get(str(part), table)
    return f"use one of {', '.join(table.model_fields)}"
