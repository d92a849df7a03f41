"""Numbers and names formatted for readers; the sentences are in ``findings`` and ``run_report``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from unskew.metrics.registry import MISSING

COLLAPSED_MARK = "⚠"
"""Stands beside a model with a network that learned nothing."""

SMALLEST_P_VALUE = 1e-4
"""Smaller p-values are "below" this: their digits would claim more than the assumptions hold."""


def real(value: Any) -> float:
    """A number, NaN where it is missing."""
    return math.nan if value is None else float(value)


def number(value: Any, decimals: int = 4) -> str:
    """Fixed decimals, thousands apart, a true minus."""
    figure = real(value)
    if math.isnan(figure):
        return MISSING
    if math.isinf(figure):
        return "∞" if figure > 0 else "−∞"
    text = f"{figure:,.{decimals}f}"
    if not text.strip("-0.,"):
        text = text.lstrip("-")
    return text.replace("-", "−")


def brief(value: Any, digits: int = 3) -> str:
    """As many decimals as give so many significant digits, never an exponent."""
    figure = real(value)
    if not math.isfinite(figure):
        return number(figure)
    if figure == 0:
        return "0"
    exponent = int(f"{figure:.{digits - 1}e}".partition("e")[2])
    return number(figure, max(digits - 1 - exponent, 0))


def signed(value: Any, digits: int = 2) -> str:
    """With its sign."""
    text = brief(value, digits)
    return f"+{text}" if real(value) > 0 else text


def signed_fixed(value: Any, decimals: int = 4) -> str:
    """Fixed decimals with a sign, unless all of them are 0."""
    text = number(value, decimals)
    return f"+{text}" if real(value) > 0 and text.strip("0.,") else text


def percent(value: Any, digits: int = 2) -> str:
    """A share in per cent."""
    figure = real(value)
    return MISSING if math.isnan(figure) else f"{brief(100 * figure, digits)} %"


def p_value(value: Any) -> str:
    """A p-value with its relation."""
    figure = real(value)
    if math.isnan(figure):
        return f"= {MISSING}"
    return f"< {SMALLEST_P_VALUE:g}" if figure < SMALLEST_P_VALUE else f"= {brief(figure, 2)}"


def counted(count: Any, singular: str, plural: str | None = None) -> str:
    """A count with its noun."""
    noun = singular if count == 1 else plural or f"{singular}s"
    return f"{number(count, 0)} {noun}"


def moved(before: Any, after: Any, decimals: int = 4) -> str:
    """Where a number went."""
    if number(before, decimals) == number(after, decimals):
        return f"stays at {number(after, decimals)}"
    verb = "falls" if real(after) < real(before) else "rises"
    return f"{verb} from {number(before, decimals)} to {number(after, decimals)}"


def sentence(text: str) -> str:
    """With a capital at its beginning."""
    return text[:1].upper() + text[1:]


def listed(parts: list[str]) -> str:
    """Words joined as in a sentence."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def filled(entries: Mapping[str, Any] | None) -> dict[str, Any]:
    """The entries that hold something."""
    return {name: entry for name, entry in (entries or {}).items() if entry}


SUFFIXES = {"raw": "raw", "true": "true", "constant": "constant", "known": "known"}
"""Endings of a method's key that say which propensities it used; without one, the calibrated ones."""


def method_parts(key: str) -> tuple[str, str]:
    """The method and the propensities of a key of ``metrics.json``."""
    if key == "naive":
        return key, "naive"
    base, _, ending = key.rpartition("_")
    return (base, SUFFIXES[ending]) if base and ending in SUFFIXES else (key, "calibrated")


def method_name(key: str) -> str:
    """What a method is called in figures and tables."""
    base, propensity = method_parts(key)
    if propensity == "naive":
        return "Naive"
    if key == "auto":
        return "Auto"
    return f"{base.replace('_', '-').upper()}, {propensity}"


def method_phrase(key: str) -> str:
    """What a method is called in a sentence."""
    if key == "auto":
        return "what auto chose"
    name, _, propensity = method_name(key).partition(", ")
    return f"{name} with {propensity} propensities" if propensity else "the naive model"
