"""Registries of all that is chosen by name: debiasers, calibrators, learners, propensities, datasets."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from unskew.base.errors import ParameterError

if TYPE_CHECKING:
    from unskew.calibration import Calibrator
    from unskew.data.datasets import Dataset
    from unskew.debias import Debiaser
    from unskew.learners import Learner
    from unskew.propensity.propensity import BasePropensity

Entry = TypeVar("Entry", bound=Callable[..., Any])
NAME = re.compile(r"[a-z0-9]+([_-][a-z0-9]+)*")
MARK = b"@register"
"""Files of a package that hold it are imported when its registry is first read."""


class UnknownNameError(ParameterError, KeyError):
    """No entry of a registry has this name."""

    __str__ = Exception.__str__


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries of one kind by name, in the order of tables; :func:`register` adds to it.

    Parameters
    ----------
    kind
        What an entry is, in messages: ``"method"``.
    package
        Where the built-in entries are, one file each. Its files are imported when the registry is first read.
    base
        The class that all entries extend; empty where entries are functions.

    Examples
    --------
    >>> from unskew.data.datasets import DATASETS
    >>> list(DATASETS)[:4]
    ['synthetic', 'coat', 'yahoo_r3', 'kuairand']
    >>> DATASETS["coats"]
    Traceback (most recent call last):
    ...
    unskew.base.registry.UnknownNameError: unknown dataset 'coats'. To fix: use coat, or one of synthetic, ...
    """

    def __init__(self, kind: str, package: str, base: str = "") -> None:
        self.kind, self.package, self.base = kind, package, base
        self._entries: dict[str, Entry] = {}
        self._orders: dict[str, float] = {}
        self._is_complete = False

    def __getitem__(self, name: str) -> Entry:
        self._complete()
        if name not in self._entries:
            close = difflib.get_close_matches(str(name), self._entries, n=1)
            known = f"one of {', '.join(self)}"
            raise UnknownNameError(
                f"unknown {self.kind} {name!r}",
                remedy=f"use {close[0]}, or {known}" if close else f"use {known}",
            )
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._complete()

        def place(name: str) -> tuple[bool, float, str]:
            """Return a sort key: built-in entries by their order, then a user's own as they were added."""
            built_in = self._is_built_in(self._entries[name])
            return not built_in, self._orders[name], name if built_in else ""

        return iter(sorted(self._entries, key=place))

    def __len__(self) -> int:
        self._complete()
        return len(self._entries)

    def __delitem__(self, name: str) -> None:
        del self._entries[name], self._orders[name]

    def require(self, *names: str) -> None:
        """Raise :class:`UnknownNameError` for the first of some names that is not here."""
        for name in names:
            self[name]

    @property
    def built_in(self) -> dict[str, Entry]:
        """The entries that come with unskew."""
        return {name: entry for name, entry in self.items() if self._is_built_in(entry)}

    def add(self, name: str, entry: Entry, order: float) -> None:
        """Add an entry; one that was written at the same place is replaced, another's name is refused."""
        if not self._is_built_in(entry):
            self._complete()
        known = self._entries.get(name)
        if known is not None and _written_at(known) != _written_at(entry):
            raise ParameterError(
                f"a {self.kind} {name!r} is there already ({known.__name__})", remedy="rename yours"
            )
        self._entries[name], self._orders[name] = entry, order

    def accepts(self, thing: Any) -> bool:
        """Check whether something is of this kind."""
        if not self.base:
            return inspect.isfunction(thing) and {"root", "protocol"} <= set(
                inspect.signature(thing).parameters
            )
        return inspect.isclass(thing) and any(
            kind.__name__ == self.base and kind.__module__.startswith(f"{self.package}.")
            for kind in thing.__mro__[1:]
        )

    def _is_built_in(self, entry: Entry) -> bool:
        return entry.__module__.startswith(f"{self.package}.")

    def _complete(self) -> None:
        """Import every file of the package that registers something."""
        if self._is_complete:
            return
        self._is_complete = True
        try:
            for path in sorted(Path(str(import_module(self.package).__file__)).parent.glob("*.py")):
                if MARK in path.read_bytes():
                    import_module(f"{self.package}.{path.stem}")
        except BaseException:
            self._is_complete = False
            raise


def _written_at(entry: Callable[..., Any]) -> tuple[str, str]:
    return entry.__module__, entry.__qualname__


METHODS: Registry[type[Debiaser]] = Registry("method", "unskew.debias", "Debiaser")
"""Every debiasing method by the name that ``unskew run --method`` knows it by."""

CALIBRATORS: Registry[type[Calibrator]] = Registry("calibrator", "unskew.calibration", "Calibrator")
"""Every calibrator of scores alone by its name, in the order of tables (``Multicalibrated`` needs more)."""

LEARNERS: Registry[type[Learner]] = Registry("learner", "unskew.learners", "Learner")
"""Every learner by the name that ``unskew run --learner`` knows it by."""

PROPENSITIES: Registry[type[BasePropensity]] = Registry("propensity", "unskew.propensity", "BasePropensity")
"""Every propensity without a network by its name; a network's is called by its learner."""

DATASETS: Registry[Callable[..., Dataset]] = Registry("dataset", "unskew.data.datasets")
"""Every loader by the name that :func:`load` and ``unskew run --data`` know it by."""

REGISTRIES: tuple[Registry[Any], ...] = (METHODS, CALIBRATORS, LEARNERS, PROPENSITIES, DATASETS)


@overload
def register(entry: Entry) -> Entry: ...
@overload
def register(*, order: float) -> Callable[[Entry], Entry]: ...
def register(entry: Any = None, *, order: float = float("inf")) -> Any:
    """Make a debiaser, calibrator, learner, propensity or dataset known by its name; a decorator.

    A class is registered by its ``name``: it extends ``Debiaser``, ``Calibrator``, ``Learner`` or
    ``BasePropensity`` (:mod:`unskew.propensity.propensity`), and the decorator stands above ``@dataclass``. A
    function with the parameters ``root`` and ``protocol`` loads a dataset, and is registered by its own name.
    Runs, studies, the command line (``unskew --with FILE.py``) and saved folders then know it. Defining the
    same thing again, in a notebook, replaces it.

    Parameters
    ----------
    order
        The place of a built-in entry in tables, lowest first.

    Examples
    --------
    >>> @register
    ... def nothing(root=None, *, protocol="honest"):
    ...     '''A dataset of nobody.'''
    >>> from unskew.data.datasets import DATASETS
    >>> "nothing" in DATASETS
    True
    >>> del DATASETS["nothing"]
    """
    if entry is None:
        return lambda it: _registered(it, order)
    return _registered(entry, order)


def _registered(entry: Entry, order: float) -> Entry:
    registry = next((each for each in REGISTRIES if each.accepts(entry)), None)
    name = entry.__name__ if registry is DATASETS else getattr(entry, "name", None)
    if registry is None or not isinstance(name, str):
        raise ParameterError(
            f"{entry!r} is neither a Debiaser, Calibrator, Learner or BasePropensity with a name, nor a"
            " function with the parameters root and protocol that loads a dataset",
            remedy="extend one of these classes and set name",
        )
    if not NAME.fullmatch(name):
        raise ParameterError(
            f"{name!r} cannot be the name of a {registry.kind}",
            remedy="use lower-case letters and digits, joined by - or _",
        )
    registry.add(name, entry, order)
    return entry
