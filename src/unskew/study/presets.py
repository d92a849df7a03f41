"""The paper's tables and figures by name: the propensities and methods of their grids. Runs nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from unskew.base.errors import ParameterError
from unskew.debias import METHODS
from unskew.propensity import UNCERTAINTIES
from unskew.run.config import CONSTANT
from unskew.run.protocol import ProtocolName

Kind = Literal["propensities", "methods", "efficiency", "switches", "figure"]


@dataclass(frozen=True)
class PropensitySource:
    """The origin of a row's propensities.

    Parameters
    ----------
    key
        Its name in the paper's tables.
    propensity
        The name of the model: ``"neumf"``, an uncertainty method, or ``"constant"``.
    calibrator
        The calibrator that is fitted on its scores.
    parameters
        Parameters of the uncertainty method.
    """

    key: str
    title: str
    propensity: str = "neumf"
    calibrator: str = "none"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Any]:
        """Return the fields of a run with such propensities."""
        if self.propensity == CONSTANT:
            return {"propensity": {"kind": CONSTANT}}
        uncertainty = self.propensity if self.propensity in UNCERTAINTIES else "none"
        section = {"kind": "neumf", "uncertainty": uncertainty, "calibrator": self.calibrator}
        return {"propensity": section, **self.parameters}


PAPER: dict[str, dict[str, Any]] = tomllib.loads(
    files("unskew.study").joinpath("paper.toml").read_text(encoding="utf-8")
)
"""Sources, presets and switches as data."""

SOURCES = {key: PropensitySource(key, **values) for key, values in PAPER["sources"].items()}

NOISY = PropensitySource(
    "noisy",
    "raw with dropout on",
    "mc-dropout",
    parameters={"uncertainty.samples": 1, "uncertainty.layers": "all"},
)
"""What the published code calibrates: one pass with dropout left on."""

PAPER_SOURCES = ("raw", "mc_dropout", "deep_ensemble", "dual_focal", "platt")
"""The rows of the paper's tables."""


def sources_of(protocol: ProtocolName) -> tuple[str, ...]:
    """Return the rows of a protocol's tables: the paper's, or all."""
    return PAPER_SOURCES if protocol == "paper" else tuple(SOURCES)


def timed_sources(protocol: ProtocolName) -> list[str]:
    """Return the rows of the table of times: those that are trained, and BatchEnsemble."""
    return [key for key in dict.fromkeys((*sources_of(protocol), "batch_ensemble")) if key != "constant"]


ALONE = ""
"""The row of a method without given propensities."""

PAPER_NAMES = {
    "naive": "naive",
    "ips": "ips",
    "dr-jl": "dr_jl",
    "mrdr": "mrdr",
    "gpl": "mrdr_gpl",
    "cdr": "mrdr_cdr",
    "dr-v2": "dr_v2",
    "escm2-dr": "escm2_dr",
}
"""Methods as the paper's tables name them."""


@dataclass(frozen=True)
class Preset:
    """One table or figure.

    Parameters
    ----------
    published
        The table of :mod:`unskew.study.published` beside it.
    methods
        Methods that it needs.
    only_with
        The one row of a method; methods that are not named have all of the protocol's.
    external
        Methods with a click tower of their own that take the rows' propensities from outside instead.
    only
        The dataset that it is about; None is any.
    in_all
        Whether ``all`` has it; what the paper does not have and takes long is to be asked for.
    """

    name: str
    title: str
    kind: Kind
    published: str = ""
    methods: Sequence[str] = ()
    only_with: Mapping[str, str] = field(default_factory=dict)
    external: Sequence[str] = ()
    only: str | None = None
    in_all: bool = True

    def rows_of(self, method: str, protocol: ProtocolName) -> tuple[str, ...]:
        """Return the rows of a method: sources, or ``ALONE`` where it takes no propensities."""
        if method in self.only_with:
            return (self.only_with[method],)
        if METHODS[method].needs_propensity or method in self.external:
            return sources_of(protocol)
        return (ALONE,)


PRESETS = {name: Preset(name, **values) for name, values in PAPER["presets"].items()}
ALL = "all"


def wanted(presets: Sequence[Preset], protocol: ProtocolName) -> list[tuple[str, str]]:
    """Return the rows of some presets, each once: a source and a method, ``""`` for the propensity alone."""
    kinds = {preset.kind for preset in presets}
    sources = sources_of(protocol) if kinds & {"propensities", "methods", "figure"} else ()
    rows = [(source, "") for source in sources]
    if "efficiency" in kinds:
        rows += [(source, "") for source in timed_sources(protocol)]
    for preset in presets:
        # Under the paper protocol, the figure has propensities of its own.
        if preset.kind == "methods" or protocol == "honest":
            rows += [(row, method) for method in preset.methods for row in preset.rows_of(method, protocol)]
    return list(dict.fromkeys(rows))


def chosen_presets(names: list[str], data: str, protocol: ProtocolName) -> tuple[list[Preset], list[str]]:
    """Return presets by name, and what is left out of ``all`` and why."""
    known = [*PRESETS, ALL]
    for name in names:
        if name not in known:
            raise ParameterError(f"there is no preset {name!r}", remedy=f"use one of {', '.join(known)}")
    left_out, chosen = [], []
    for preset in PRESETS.values():
        asked = preset.name in names
        if not asked and not (ALL in names and preset.in_all):
            continue
        reason = remedy = ""
        if preset.only is not None and preset.only != data:
            reason, remedy = f"is about {preset.only}, not {data}", f"give --data {preset.only} --root FOLDER"
        elif preset.kind == "switches" and protocol != "paper":
            reason, remedy = "turns the paper protocol's switches", "give --protocol paper"
        if reason and asked:
            raise ParameterError(f"{preset.name} {reason}", remedy=remedy)
        if reason:
            left_out.append(f"{preset.name} is left out: it {reason}")
        else:
            chosen.append(preset)
    return chosen, left_out
