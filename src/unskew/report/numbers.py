"""Formats of numbers, the same in tables, figures and sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unskew.metrics.registry import MISSING

SMALLEST_P_VALUE = 1e-4
"""The digits of smaller p-values would claim more than the assumptions of the tests support."""


def real(value: Any) -> float:
    """Return a number as a float, NaN where it is missing."""
    return math.nan if value is None else float(value)


def number(value: Any, decimals: int = 4) -> str:
    """Format with fixed decimals, thousands separators and a true minus sign."""
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
    """Format with as many decimals as give so many significant digits, never with an exponent."""
    figure = real(value)
    if not math.isfinite(figure):
        return number(figure)
    if figure == 0:
        return "0"
    exponent = int(f"{figure:.{digits - 1}e}".partition("e")[2])
    return number(figure, max(digits - 1 - exponent, 0))


def signed(value: Any, digits: int = 2) -> str:
    """Format with so many significant digits and a sign."""
    text = brief(value, digits)
    return f"+{text}" if real(value) > 0 else text


def signed_fixed(value: Any, decimals: int = 4) -> str:
    """Format with fixed decimals and a sign, unless all decimals are 0."""
    text = number(value, decimals)
    return f"+{text}" if real(value) > 0 and text.strip("0.,") else text


def percent(value: Any, digits: int = 2) -> str:
    """Format a share in per cent."""
    figure = real(value)
    return MISSING if math.isnan(figure) else f"{brief(100 * figure, digits)} %"


def p_value(value: Any) -> str:
    """Format a p-value with its relation."""
    figure = real(value)
    if math.isnan(figure):
        return f"= {MISSING}"
    return f"< {SMALLEST_P_VALUE:g}" if figure < SMALLEST_P_VALUE else f"= {brief(figure, 2)}"


def between(low: Any, high: Any, shown: Callable[[Any], str] = brief) -> str:
    """Format the two ends of an interval; empty where one is unknown."""
    if not (math.isfinite(real(low)) and math.isfinite(real(high))):
        return ""
    return f"{shown(low)} to {shown(high)}"


def counted(count: Any, singular: str, plural: str | None = None) -> str:
    """Format a count with its noun."""
    return f"{number(count, 0)} {singular if count == 1 else plural or f'{singular}s'}"


def moved(before: Any, after: Any, decimals: int = 4) -> str:
    """Say how a number changed."""
    if number(before, decimals) == number(after, decimals):
        return f"stays at {number(after, decimals)}"
    verb = "falls" if real(after) < real(before) else "rises"
    return f"{verb} from {number(before, decimals)} to {number(after, decimals)}"


def sentence(text: str) -> str:
    """Return a text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def listed(words: Sequence[str]) -> str:
    """Join words as in a sentence."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


FORMATS: Mapping[str, Callable[..., str]] = {
    "number": number,
    "count": lambda value: number(value, 0),
    "fixed1": lambda value: number(value, 1),
    "fixed2": lambda value: number(value, 2),
    "fixed3": lambda value: number(value, 3),
    "fixed5": lambda value: number(value, 5),
    "fixed6": lambda value: number(value, 6),
    "brief": brief,
    "brief2": lambda value: brief(value, 2),
    "signed": signed,
    "signed4": signed_fixed,
    "percent": percent,
    "times": lambda value: f"{number(value, 2)} times",
    "p": p_value,
    "q": lambda value: p_value(value).removeprefix("= "),
    "sentence": sentence,
    "between": between,
    "counted": counted,
    "listed": listed,
}
"""Formats by the names of the filters in templates (``{{ wce|percent }}``) and of the units of columns."""
