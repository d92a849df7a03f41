"""What every estimator shares: parameters that are stored as given, read back, changed and cloned."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

from unskew.errors import NotFittedError, ParameterError


class Estimator:
    """A dataclass whose fields are its parameters; what ``fit`` learns ends in an underscore.

    Subclasses are dataclasses with keyword-only fields. scikit-learn's ``clone`` works on them.
    ``name`` is what tables, files and the command line call the kind.
    """

    name: ClassVar[str]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; with ``deep``, also those of nested estimators as ``outer__inner``."""
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
                )
                nested.set_params(**{inner: value})
            else:
                setattr(self, outer, value)
        return self

    def _require_fitted(self, attribute: str) -> None:
        if not hasattr(self, attribute):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet", remedy="call fit first")


def require(holds: bool, problem: str, remedy: str | None = None) -> None:
    """Raise :class:`ParameterError` unless a claim about a parameter holds."""
    if not holds:
        raise ParameterError(problem, remedy=remedy)
