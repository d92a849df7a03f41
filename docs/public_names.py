"""Every public name has one page of the site; here is which, and what a reference in a docstring leads to."""

from __future__ import annotations

import builtins
import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

SECTIONS = {
    "unskew": "Everything most people need; `import unskew as us`. Loaded when first used.",
    "unskew.debias.losses": "Losses of tensors, [for your own model](../guides/own-model.md).",
    "unskew.propensity": "Propensities by any model; [guide](../guides/propensities.md).",
    "unskew.calibration": "Calibrators, NumPy in and NumPy out; [a page each](../calibrators/index.md).",
    "unskew.metrics": "Calibration, ranking, weights, significance; [one page](../reference/metrics.md).",
    "unskew.theory": "Bias, its parts and bounds; [what holds](../explanation/theory.md).",
    "unskew.audit": "What `unskew audit` and `unskew weights` do, from Python.",
}
"""Modules in the order of the site, with what they are for."""


def names_of(module: str) -> list[str]:
    """Return what a module exports, in the order of its page."""
    return sorted(import_module(module).__all__, key=str.lower)


@cache
def homes() -> dict[int, str]:
    """By identity, the full name under which a thing is described: that of the first module to export it."""
    found: dict[int, str] = {}
    for module in SECTIONS:
        for name in names_of(module):
            found.setdefault(id(getattr(import_module(module), name)), f"{module}.{name}")
    return found


def home(module: str, name: str) -> str:
    """Return the full name under which an exported name is described."""
    return homes()[id(getattr(import_module(module), name))]


def found_at(target: str, module: str, owner: str) -> str | None:
    """Where a reference leads: a full name, ``""`` for what exists without a page, None for what does not.

    A target is read as in the docstring of ``owner`` in ``module``: a full name, or one of the module, of
    the class, of anything public, or of a file of the library.
    """
    around = [owner, f"{module}.{owner}", module, *SECTIONS]
    tried = [target, *(f"{place}.{target}" for place in around if place.strip("."))]
    reached = [each for each in map(_reach, tried) if each is not None]
    first = target.split(".")[0]
    # Some files import the package itself; what is not in it is not in them either.
    if not reached and first != "unskew" and any(hasattr(each, first) for each in _files()):
        return ""
    return next((each for each in reached if each), reached[0] if reached else None)


def _files() -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("unskew.")]


def _reach(dotted: str) -> str | None:
    """As :func:`found_at`, of a full name."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: Any = import_module(".".join(parts[:cut]))
        except (ImportError, ValueError):  # Not a module; an empty part is no name at all.
            continue
        return _walk(thing, parts[cut:])
    return "" if hasattr(builtins, dotted) else None


def _walk(thing: Any, parts: list[str]) -> str | None:
    full = homes().get(id(thing), "")
    for place, part in enumerate(parts):
        is_field = part in getattr(thing, "__dataclass_fields__", ()) or part in _annotated(thing)
        if not hasattr(thing, part):
            return "" if is_field and place == len(parts) - 1 else None
        thing = getattr(thing, part)
        full = homes().get(id(thing), f"{full}.{part}" if full else "")
    return full


def _annotated(thing: Any) -> set[str]:
    return {name for kind in getattr(thing, "__mro__", ()) for name in getattr(kind, "__annotations__", ())}


def resolve_reference(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Sphinx's hook for a target that no page has: link the public name that it is, or leave plain text.

    What does not exist stays unresolved, which fails the build.
    """
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    full = found_at(target, node.get("py:module") or "", node.get("py:class") or "")
    if full is None:
        return None
    if full and full != target:
        domain = env.domains["py"]
        linked = domain.resolve_xref(env, node["refdoc"], app.builder, "obj", full, node, contnode)
        if linked is not None:
            return linked
    return contnode
