"""What a study is: a grid of datasets, propensities, calibrators, methods and seeds, checked when it is read.

Runs nothing; :mod:`unskew.study.engine` does.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from unskew.debias import METHODS
from unskew.errors import ParameterError
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
    require_known,
    word_for,
)
from unskew.study.protocol import ProtocolSettings, protocol_settings

DEFAULT_FOLDS = 5
DEFAULT_CLIP = 0.01
"""The clip that figures of weights tell of, where the grid sets none."""


class Grid(Table):
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
    datasets: list[Annotated[DatasetEntry, word_for("name")]] = Field(min_length=1)
    propensities: list[Annotated[PropensityEntry, word_for("key")]] = Field(default_factory=list)
    calibrators: list[Annotated[CalibratorEntry, word_for("name")]] = Field(
        default_factory=lambda: [CalibratorEntry(name="none")]
    )
    methods: list[Annotated[MethodEntry, word_for("method")]] = Field(default_factory=list)
    backbone: Annotated[BackboneEntry, word_for("name")] = Field(default_factory=BackboneEntry)
    crossfit: int = Field(default=DEFAULT_FOLDS, ge=0)
    propensity_epochs: int | None = Field(default=None, ge=1)
    p_min: float | None = Field(default=None, gt=0.0, lt=1.0)
    baseline: str = "naive"
    metrics: list[str] | None = None
    most_replicas: int | None = Field(default=None, ge=1)
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
            raise ValueError("a method needs propensities, and the grid has none")
        if self.tune is not None:
            known = [each.label for each in self.methods]
            for label in self.tune.methods or ():
                require_known(label, known, "method of this grid")
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
