"""The base of all estimators: parameters that are stored as given, read back, changed and cloned."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from math import inf
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self

from unskew.base.errors import NotFittedError, ParameterError


class Estimator:
    """A dataclass whose fields are its parameters; what ``fit`` learns ends in an underscore.

    Subclasses are dataclasses with keyword-only fields. scikit-learn's ``clone`` works on them.
    ``name`` is what tables, files and the command line call the kind.
    """

    name: ClassVar[str]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters by name; with ``deep``, also those of nested estimators as ``outer__inner``."""
        params: dict[str, Any] = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            params[field.name] = value
            if deep and isinstance(value, Estimator):
                params.update({f"{field.name}__{name}": inner for name, inner in value.get_params().items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Change parameters, nested ones as ``outer__inner=value``; unknown names are an error."""
        known = self.get_params(deep=False)
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if outer not in known:
                raise ParameterError(
                    f"{type(self).__name__} has no parameter {outer!r}",
                    remedy=f"use one of {', '.join(known)}",
                )
            if inner:
                nested = getattr(self, outer)
                require(
                    isinstance(nested, Estimator),
                    f"{type(self).__name__}'s {outer} is {nested!r}, which has no parameter {inner!r}",
                    "set the parameter itself first",
                )
                nested.set_params(**{inner: value})
            else:
                setattr(self, outer, value)
        return self

    def _require_fitted(self, attribute: str) -> None:
        if not hasattr(self, attribute):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet", remedy="call fit first")


def plain_params(estimator: Estimator) -> dict[str, Any]:
    """Return the name of an estimator and its parameters as plain values, the same in every process.

    Examples
    --------
    >>> from unskew.calibration import Histogram
    >>> plain_params(Histogram(bins=7))["bins"]
    7
    """
    params = estimator.get_params(deep=False)
    return {"name": getattr(estimator, "name", type(estimator).__name__)} | {
        name: plain_params(value) if isinstance(value, Estimator) else _plain(value)
        for name, value in params.items()
    }


def _plain(value: Any) -> Any:
    """Return plain values; a function or an object of another library by its name or that of its kind."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "__qualname__", type(value).__qualname__)


def require(holds: bool, problem: str, remedy: str) -> None:
    """Raise :class:`ParameterError` unless a claim about a parameter holds."""
    if not holds:
        raise ParameterError(problem, remedy=remedy)


def require_at_least(least: float, **values: float | None) -> None:
    """Raise :class:`ParameterError` unless parameters, by name, are so much or more; None passes.

    Examples
    --------
    >>> require_at_least(1, epochs=0)
    Traceback (most recent call last):
    unskew.base.errors.ParameterError: epochs must be at least 1, not 0. To fix: give 1 or more.
    """
    for name, value in values.items():
        holds = value is None or value >= least
        require(holds, f"{name} must be at least {least}, not {value!r}", f"give {least} or more")


def require_above(bound: float, **values: float | None) -> None:
    """Raise :class:`ParameterError` unless parameters, by name, are above a number; None passes."""
    for name, value in values.items():
        holds = value is None or value > bound
        require(holds, f"{name} must be above {bound}, not {value!r}", f"give a number above {bound}")


def require_whole(least: int, most: int | None = None, **values: Any) -> None:
    """Raise :class:`ParameterError` unless parameters, by name, are whole numbers of a range.

    Examples
    --------
    >>> require_whole(1, 8, k=2.5)
    Traceback (most recent call last):
    unskew.base.errors.ParameterError: k must be a whole number from 1 to 8, not 2.5. ...
    """
    span = f"of at least {least}" if most is None else f"from {least} to {most:,}"
    for name, value in values.items():
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        holds = whole and least <= value and (most is None or value <= most)
        remedy = _unquoted(value, "give such a number")
        require(holds, f"{name} must be a whole number {span}, not {value!r}", remedy)


def require_in(interval: str, **values: Any) -> None:
    """Raise :class:`ParameterError` unless parameters, by name, are numbers of an interval, as ``"[0, 1)"``.

    Examples
    --------
    >>> require_in("[0, 1)", dropout=1.0)
    Traceback (most recent call last):
    unskew.base.errors.ParameterError: dropout must be in [0, 1), not 1.0. ...
    """
    low, high = map(float, interval[1:-1].split(","))
    one_sided = f"{'at least' if interval[0] == '[' else 'above'} {low:g}"
    span = one_sided if high == inf else f"in {interval}"
    ends = [end for end, bracket in ((low, interval[0] == "["), (high, interval[-1] == "]")) if bracket]
    for name, value in values.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        holds = number and (low < float(value) < high or value in ends)
        remedy = _unquoted(value, "give such a number")
        require(holds, f"{name} must be {span}, not {value!r}", remedy)


def _unquoted(value: Any, remedy: str) -> str:
    """Return the remedy for a wrong number, which is a text where somebody quoted it."""
    return "give a number without quotes" if isinstance(value, str) else remedy


def require_choice(name: str, value: Any, choices: Collection[Any]) -> None:
    """Raise :class:`ParameterError` unless a parameter is one of several words.

    Examples
    --------
    >>> require_choice("rule", "x", ("paper", "netcal"))
    Traceback (most recent call last):
    unskew.base.errors.ParameterError: rule must be 'paper' or 'netcal', not 'x'. To fix: give one of these.
    """
    require(
        value in choices, f"{name} must be {_joined(map(repr, choices))}, not {value!r}", "give one of these"
    )


def require_share(name: str, value: float, example: str) -> None:
    """Raise :class:`ParameterError` unless a parameter is between 0 and 1."""
    remedy = f"give a number between 0 and 1, such as {example}"
    require(0 < value < 1, f"{name} must be between 0 and 1, not {value!r}", remedy)


def require_range(name: str, value: float, low: int, high: int, example: str) -> None:
    """Raise :class:`ParameterError` unless a parameter is a number of a range."""
    require(low <= value <= high, f"{name} must be from {low} to {high:,}, not {value!r}", f"give {example}")


def require_schedule(learning_rate: float, weight_decay: float, patience: int | None) -> None:
    """Raise for parameters with which nothing can be trained, before the work begins."""
    require_in("(0, inf)", learning_rate=learning_rate)
    require_in("[0, inf)", weight_decay=weight_decay)
    require_at_least(1, patience=patience)


def require_types(estimator: Estimator, *, choices: bool = True) -> None:
    """Raise :class:`ParameterError` for a parameter, own or nested, that is not what its annotation says.

    Whole numbers count as numbers, truth values do not; NaN is none. What an annotation leaves open
    (``Any``, a callable) is not looked at. The ranges are each estimator's own to check.

    Parameters
    ----------
    choices
        False takes any text where an annotation lists some: an estimator may know better which suit it.

    Examples
    --------
    >>> from unskew.calibration import Histogram
    >>> require_types(Histogram(bins="x"))
    Traceback (most recent call last):
    unskew.base.errors.ParameterError: Histogram: bins must be a whole number, not 'x'. ...
    """
    kind = type(estimator)
    # mypy takes the hash of a class for that of its objects.
    annotations = _annotations(kind)  # type: ignore[arg-type]
    for field in dataclasses.fields(estimator):  # type: ignore[arg-type]
        value, wanted = getattr(estimator, field.name), annotations.get(field.name, Any)
        if not _fits(value, wanted, choices):
            given = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
            raise ParameterError(
                f"{field.name} must be {_in_words(wanted)}, not {given}",
                where=kind.__name__,
                remedy=_remedy(value, wanted, field),
            )
        if isinstance(value, Estimator):
            require_types(value)


def fits(estimator: Estimator, name: str, value: Any) -> bool:
    """Return whether a value is what the annotation of a parameter says."""
    # mypy takes the hash of a class for that of its objects.
    return _fits(value, _annotations(type(estimator)).get(name, Any), choices=True)  # type: ignore[arg-type]


@cache
def _annotations(kind: type) -> dict[str, Any]:
    """Return annotations by field, without those of classes whose types only their own scope knows."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        try:
            found |= typing.get_type_hints(base)
        except NameError:
            found |= dict.fromkeys(inspect.get_annotations(base), Any)
    return found


def _fits(value: Any, wanted: Any, choices: bool) -> bool:
    origin = typing.get_origin(wanted)
    inner = typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, each, choices) for each in inner)
    if origin is Literal:
        return any(type(value) is type(each) and (value == each or not choices) for each in inner)
    if origin is tuple and len(inner) == 2 and inner[1] is ...:
        return isinstance(value, tuple | list) and all(_fits(each, inner[0], choices) for each in value)
    if wanted is bool:
        # The help, which needs no arrays, imports this file too.
        import numpy as np

        return isinstance(value, bool | np.bool_)
    if wanted is int:
        return not isinstance(value, bool) and isinstance(value, Integral)
    if wanted is float:
        return not isinstance(value, bool) and isinstance(value, Real) and value == value
    # Neither Any nor a protocol can be asked for its objects.
    can_be_checked = (
        isinstance(wanted, type) and origin is None and not getattr(wanted, "_is_protocol", wanted is Any)
    )
    return isinstance(value, wanted) if can_be_checked else True


_WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", type(None): "None"}


def _in_words(wanted: Any) -> str:
    return _joined(_choices(wanted))


def _joined(words: Iterable[str]) -> str:
    *most, last = dict.fromkeys(words)
    return f"{', '.join(most)} or {last}" if most else last


def _choices(wanted: Any) -> Iterator[str]:
    origin, choices = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is Literal:
        yield from map(repr, choices)
    elif origin is tuple:
        yield f"a sequence ({_in_words(choices[0])} each)"
    elif choices:
        for choice in choices:
            yield from _choices(choice)
    else:
        name = wanted.__name__
        yield _WORDS.get(wanted) or f"{'an' if name[0] in 'AEIOU' else 'a'} {name} object"


def _remedy(value: Any, wanted: Any, field: dataclasses.Field[Any]) -> str:
    """Return a remedy: an object for its class or its name, otherwise the default."""
    for choice in typing.get_args(wanted) or (wanted,):
        if isinstance(choice, type) and issubclass(choice, Estimator):
            for kind in _with_subclasses(choice):
                if value is kind or (isinstance(value, str) and value == getattr(kind, "name", None)):
                    return f"give {kind.__name__}()"
    if field.default_factory is not dataclasses.MISSING:
        return f"give one, such as {type(field.default_factory()).__name__}()"
    if field.default is dataclasses.MISSING:
        return f"give {_in_words(wanted)}"
    return f"leave it at {field.default!r}"


def _with_subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _with_subclasses(each)
