"""The grid of a study: configurations, written as a base and the fields that vary. Runs nothing."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from unskew.base.errors import ParameterError, UnskewError
from unskew.base.settings import Settings, option
from unskew.calibration import CALIBRATORS
from unskew.debias import METHODS
from unskew.metrics.registry import EVALUATED_METRICS
from unskew.propensity import UNCERTAINTIES
from unskew.report.table import Table
from unskew.run.config import (
    AUTO,
    CONSTANT,
    NO_METHOD,
    NO_PROPENSITY,
    SECTIONS,
    UNTRAINED,
    Config,
    in_sections,
    merged,
)

METRICS = (*EVALUATED_METRICS, "validation_loss", "best_epoch", "diverged")
"""What the results of a study have of a method."""
LONGEST_NAME = 100
"""Letters of the name of a study, which is a folder's too."""


def _name(value: str) -> str:
    if re.fullmatch(r"\w[\w.\- ]*", value) and len(value) <= LONGEST_NAME:
        return value
    raise ParameterError(
        f"{value!r} cannot be a study's name, which is a folder's too",
        remedy=f"use up to {LONGEST_NAME} letters, digits, '_', '-', '.' and spaces",
    )


def _metrics(names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    for name in names or ():
        if name not in METRICS:
            raise ParameterError(f"no metric is called {name!r}", remedy=f"use one of {', '.join(METRICS)}")
    return names


class Row(NamedTuple):
    """The key of a line of a summary."""

    dataset: str
    protocol: str
    propensity: str
    calibrator: str
    method: str


class Study(Settings):
    """A study: the runs of a base with every combination of the values of some fields.

    Fields are named as in ``config.toml`` (``"model.method"``), by their option (``method``), as a whole
    section (``propensity``), or as a parameter of a part (``"method.learning_rate"``).

    Examples
    --------
    >>> study = read_study({"name": "small", "base": {"data": "synthetic", "evaluation": {"seeds": 2}},
    ...                     "grid": {"method": ["naive", "ips"], "calibrator": ["none", "platt"]}})
    >>> [row.method + " " + row.calibrator for row in study.rows]
    ['naive ', 'ips none', 'ips platt']
    """

    name: Annotated[str, AfterValidator(_name)] = option(...)
    base: dict[str, Any] = option({})
    """Fields that all runs share, as in the file of a run."""
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = option({})
    """Values of fields, of which every combination is run."""
    runs: tuple[dict[str, Any], ...] = option(())
    """Further runs: what each has beside the base."""
    baseline: str = option("naive")
    """The method that all are compared with."""
    metrics: Annotated[tuple[str, ...] | None, AfterValidator(_metrics)] = option(None)
    """Metrics to show, in this order."""
    both_tests: bool = option(False)
    """Measure models on the other protocol's test log too."""

    @property
    def configs(self) -> list[Config]:
        """Return the runs, each once."""
        combinations = itertools.product(*self.grid.values())
        changes: list[Mapping[str, Any]] = [
            dict(zip(self.grid, values, strict=True)) for values in combinations
        ]
        if not self.grid and self.runs:
            changes = []
        made = [run_of(self.base, change) for change in [*changes, *self.runs]]
        return list({config.model_dump_json(): config for config in made}.values())

    @property
    def rows(self) -> list[Row]:
        """Return the row of each run in tables."""
        return rows_of(self.configs)


def run_of(base: Mapping[str, Any], change: Mapping[str, Any]) -> Config:
    """Return a run of a study: the method alone, without the fields that do not matter to it.

    Runs that differ in nothing else are one: a method without propensities is not trained once for each.
    """
    values: dict[str, Any] = {"evaluation": {"beside": ("none",)}, "compute": {"effort": "thorough"}}
    for changes in (base, change):
        # Whole sections first, then single fields.
        for whole in (True, False):
            some = {name: value for name, value in changes.items() if (name in SECTIONS) == whole}
            values = merged(values, in_sections(some, parameters=True))
    model, propensity = values.setdefault("model", {}), values.get("propensity", {})
    method, parameters = model.get("method"), dict(model.get("parameters", {}))
    unused = set()
    if method == NO_METHOD:
        unused.add("method")
    elif method not in (None, AUTO) and not takes_propensity(method, parameters):
        propensity = {"kind": NO_PROPENSITY, **{k: v for k, v in propensity.items() if k == "p_min"}}
    if propensity.get("kind") in UNTRAINED:
        propensity = {name: value for name, value in propensity.items() if name in ("kind", "p_min")}
        unused |= {"propensity", "calibrator", "uncertainty"}
    if propensity.get("calibrator") == "none":
        unused.add("calibrator")
    if propensity.get("uncertainty", "none") == "none":
        unused.add("uncertainty")
    used = {name: value for name, value in parameters.items() if name.partition(".")[0] not in unused}
    return Config(**{**values, "propensity": propensity, "model": {**model, "parameters": used}})


def takes_propensity(method: str, parameters: Mapping[str, Any]) -> bool:
    """Return whether a method is given propensities: it needs them, or its own tower can use them."""
    METHODS.require(method)
    kind = METHODS[method]
    external = "external" in getattr(kind, "sources", ())
    asked = parameters.get("method.calibration", parameters.get("calibration", "auto"))
    return kind.needs_propensity or (external and asked in ("auto", "external"))


def row_of(config: Config) -> Row:
    """Return the row of a run by what it is made of."""
    propensity = config.propensity
    name = propensity.kind if propensity.uncertainty == "none" else propensity.uncertainty
    calibrator = "none" if propensity.kind in UNTRAINED else config.calibrator
    without = propensity.kind == NO_PROPENSITY
    source = config.data.source
    return Row(
        source if isinstance(source, str) else source[0],
        config.evaluation.protocol,
        "" if without else name,
        "" if without else calibrator,
        "" if config.method == NO_METHOD else config.method,
    )


def rows_of(configs: Sequence[Config]) -> list[Row]:
    """Return a row for each run; what runs of one row differ in is added to the method's name."""
    rows = [row_of(config) for config in configs]
    named = []
    for row, config in zip(rows, configs, strict=True):
        flat = dict(_flat(config))
        others = [dict(_flat(o)) for r, o in zip(rows, configs, strict=True) if r == row and o is not config]
        names = {name for other in others for name in {*flat, *other} if flat.get(name) != other.get(name)}
        words = ", ".join(f"{name}={flat[name]}" for name in sorted(names & {*flat}))
        name = "method" if row.method else "propensity"
        named.append(row._replace(**{name: f"{getattr(row, name)} ({words})"}) if words else row)
    return named


def _flat(config: Config) -> Iterator[tuple[str, Any]]:
    """Yield every option that is set, and every parameter, by its name."""
    for section, fields in config.to_dict().items():
        for name, value in fields.items():
            if (section, name) == ("model", "parameters"):
                yield from value.items()
            else:
                yield name, value


def read_study(source: str | Path | Mapping[str, Any], **base: Any) -> Study:
    """Read a study from a TOML file or from tables.

    Parameters
    ----------
    base
        Fields of the base to set anew, such as ``seeds=3``.
    """
    where = ""
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
    common = tables.get("base", {})
    if isinstance(common, Mapping):
        tables["base"] = {**common, **{name: value for name, value in base.items() if value is not None}}
    study = Study.read(tables, lambda path: ".".join(path), where)
    try:
        study.configs  # noqa: B018
    except UnskewError as error:
        if where and error.where is None:
            raise type(error)(error.problem, where=where, remedy=error.remedy) from None
        raise
    return study


NAMED: dict[str, str] = {
    "methods": "every method with calibrated, cross-fitted propensities",
    "calibrators": "every uncertainty × every calibrator, on held-out cells, beside a constant",
    "small": "five methods with raw, Platt and isotonic propensities",
}
"""What ``unskew study NAME`` knows, and what each compares."""


def named_study(name: str, **base: Any) -> Study:
    """Return a named study on a dataset.

    Examples
    --------
    >>> [config.method for config in named_study("small", data="synthetic", seeds=2).configs][:3]
    ['naive', 'ips', 'ips']
    """
    if name not in NAMED:
        raise ParameterError(f"no study is called {name!r}", remedy=f"use one of {', '.join(NAMED)}")
    network = {"kind": "neumf"}
    uncertain = [{**network, "uncertainty": kind} for kind in UNCERTAINTIES]
    grids: dict[str, dict[str, list[Any]]] = {
        "methods": {"method": list(METHODS), "propensity": [network], "calibrator": ["platt"]},
        "calibrators": {
            "method": [NO_METHOD],
            "propensity": [network, *uncertain, {"kind": CONSTANT}],
            "calibrator": list(CALIBRATORS),
        },
        "small": {
            "method": ["naive", "ips", "snips", "dr-jl", "mrdr"],
            "propensity": [network, {"kind": CONSTANT}],
            "calibrator": ["none", "platt", "isotonic"],
        },
    }
    return read_study({"name": f"{name}-{base.get('data', 'synthetic')}", "grid": grids[name]}, **base)


def show_studies() -> Table:
    """Return the named studies as a table."""
    columns = ("name", "what it compares")
    return Table("Named studies (of a dataset: --data, --root)", columns, tuple(NAMED.items()), words=2)
