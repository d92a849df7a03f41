"""Holds functions to the shapes and dtypes in their annotations (``Float[Tensor, "R B"]``) while tests run.

A letter is one size within a call: of arguments, of results and, for ``B``, of the last dimension of rows.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import torch

from unskew.data import Rows
from unskew.training import means

jaxtyping = pytest.importorskip("jaxtyping")

CALLED = ("Float[", "Float64[", "Int[", "Bool[", "OnRows", "PerModel")


class WrongShapeError(AssertionError):
    """A tensor is not what the annotation says."""


def check_shapes(*modules: ModuleType) -> list[str]:
    """From now on check all annotated functions and methods of modules; their names."""
    checked = []
    for module in modules:
        for owner in (module, *(each for each in vars(module).values() if inspect.isclass(each))):
            for name, function in list(vars(owner).items()):
                if (
                    inspect.isfunction(function)
                    and function.__module__ == module.__name__
                    and _told(function)
                ):
                    _replace(owner, name, function)
                    checked.append(f"{module.__name__}.{function.__qualname__}")
    return checked


def _told(function: Callable[..., Any]) -> bool:
    # What is wrapped already keeps its annotations.
    annotations = map(str, function.__annotations__.values())
    return not hasattr(function, "__wrapped__") and any(c in each for each in annotations for c in CALLED)


def _replace(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Wherever it was imported to as well."""
    wrapper = _checked(function)
    setattr(owner, name, wrapper)
    for module in [m for key, m in sys.modules.items() if key.startswith("unskew")]:
        for key in [key for key, value in vars(module).items() if value is function]:
            setattr(module, key, wrapper)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> dict[str, Any]:
        names = vars(jaxtyping) | vars(sys.modules[function.__module__]) | {"Tensor": torch.Tensor}
        aliases = {name: eval(getattr(means, name), names) for name in ("OnRows", "PerModel", "OnBoth")}
        return get_type_hints(function, names | aliases)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        with jaxtyping.jaxtyped("context"):
            for name, value in given.items():
                _require(value, hints().get(name), f"{function.__qualname__}: {name}")
            result = function(*args, **kwargs)
            _require(result, hints().get("return"), f"{function.__qualname__}: what is returned")
        return result

    return call


def _require(value: Any, hint: Any, what: str) -> None:
    if isinstance(value, Rows) and len(value.shape) == 2:
        for name in value:
            _require(value[name], jaxtyping.Shaped[torch.Tensor, "_ B ..."], f"{what} ({name})")
    elif get_origin(hint) is tuple and isinstance(value, tuple) and Ellipsis not in get_args(hint):
        for number, (part, each) in enumerate(zip(value, get_args(hint), strict=True)):
            _require(part, each, f"{what} ({number})")
    elif isinstance(value, torch.Tensor):
        for each in (hint, *get_args(hint)):
            shaped = inspect.isclass(each) and issubclass(each, jaxtyping.AbstractArray)
            if shaped and not isinstance(value, each):
                raise WrongShapeError(f"{what} is {value.dtype} {list(value.shape)}, not {each.__name__}")
