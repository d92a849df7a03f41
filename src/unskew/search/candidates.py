"""What is tried: methods with a small grid that follows the density of the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from unskew.debias import METHODS, Debiaser
from unskew.estimator import require
from unskew.log import Log, StreamedLog
from unskew.plain_text import listed
from unskew.search.decision import BASELINE

CANDIDATES = ("ips", "mrdr", "dr-jl", "esmm", "escm2-ips", "ddpo", "dcmt")
"""One to three of each family: weights, doubly robust, all of D, and order alone. By the table of synthetic
worlds in ``docs/defaults.md``, and DCMT by twins of Coat (``docs/choosing.md``); no real test set was looked
at. UIPS stands for nothing that IPS does not: it is in the table of ``benchmarks/battery.py`` alone, as ACDR
and DCE-DR are."""

DENSE = 0.05
"""Share of clicked pairs from which a log counts as dense."""

OTHER_REGULARISATION = {"dense": 15.0, "sparse": 1.0}
"""λ beside the default of 5: more where rows repeat much of each other, less where tables are wide."""


@dataclass(frozen=True)
class Candidate:
    """A method by name with parameters of its own; ``name`` is its name in tables."""

    name: str
    method: str
    params: Mapping[str, Any]

    def make(self, **shared: Any) -> Debiaser:
        """The debiaser, untrained; ``shared`` parameters that it does not have are left out."""
        given = {**shared, **self.params}
        return METHODS[self.method](**{name: given[name] for name in given if name in self.takes})

    @property
    def takes(self) -> frozenset[str]:
        """The parameters that its method has."""
        return frozenset(each.name for each in fields(METHODS[self.method]))


def require_parameters(candidates: Sequence[Candidate], names: Iterable[str]) -> None:
    """An error for a parameter that none of the candidates has."""
    known = frozenset().union(*(each.takes for each in candidates))
    for name in names:
        require(
            name in known, f"no candidate has a parameter {name!r}", f"use some of {listed(sorted(known))}"
        )


def candidates_of(
    log: Log | StreamedLog, methods: Sequence[str] | None = None, *, grid: bool = True
) -> tuple[Candidate, ...]:
    """The baseline first, then every method; with ``grid`` each also with another regularisation.

    Methods that look at pairs which a log with known propensities does not list are left out there.

    Examples
    --------
    >>> from unskew.datasets import load
    >>> [each.name for each in candidates_of(load("synthetic").train, ["ips"])]
    ['naive', 'naive λ=15', 'ips', 'ips λ=15']
    """
    names = dict.fromkeys((BASELINE, *(CANDIDATES if methods is None else methods)))
    METHODS.require(*names)
    if isinstance(log, Log) and log.known_propensity is not None and methods is None:
        names = dict.fromkeys((BASELINE, "ips", "snips"))
    other = OTHER_REGULARISATION["dense" if log.density >= DENSE else "sparse"]
    found = []
    for name in names:
        found.append(Candidate(name, name, {}))
        if grid:
            found.append(Candidate(f"{name} λ={other:g}", name, {"regularisation": other}))
    return tuple(found)
