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
    """Fixed decimals, thousands apart, a true minus.

    Examples
    --------
    >>> number(-0.01234), number(1234.5, 0), number(None), number(float("nan"))
    ('−0.0123', '1,234', '–', '–')
    """
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
    """As many decimals as give so many significant digits, never an exponent.

    Examples
    --------
    >>> brief(0.012345), brief(0.00999, 2), brief(1.8), brief(12345.6), brief(0)
    ('0.0123', '0.010', '1.80', '12,346', '0')
    """
    figure = real(value)
    if not math.isfinite(figure):
        return number(figure)
    if figure == 0:
        return "0"
    exponent = int(f"{figure:.{digits - 1}e}".partition("e")[2])
    return number(figure, max(digits - 1 - exponent, 0))


def signed(value: Any, digits: int = 2) -> str:
    """With its sign.

    Examples
    --------
    >>> signed(0.0123), signed(-2.5)
    ('+0.012', '−2.5')
    """
    text = brief(value, digits)
    return f"+{text}" if real(value) > 0 else text


def signed_fixed(value: Any, decimals: int = 4) -> str:
    """Fixed decimals with a sign, unless all of them are 0.

    Examples
    --------
    >>> signed_fixed(0.01234), signed_fixed(-0.00001), signed_fixed(None)
    ('+0.0123', '0.0000', '–')
    """
    text = number(value, decimals)
    return f"+{text}" if real(value) > 0 and text.strip("0.,") else text


def percent(value: Any, digits: int = 2) -> str:
    """A share in per cent.

    Examples
    --------
    >>> percent(0.0213), percent(0.5), percent(1.0), percent(None)
    ('2.1 %', '50 %', '100 %', '–')
    """
    figure = real(value)
    return MISSING if math.isnan(figure) else f"{brief(100 * figure, digits)} %"


def p_value(value: Any) -> str:
    """A p-value with its relation.

    Examples
    --------
    >>> p_value(0.0312), p_value(1e-9)
    ('= 0.031', '< 0.0001')
    """
    figure = real(value)
    if math.isnan(figure):
        return f"= {MISSING}"
    return f"< {SMALLEST_P_VALUE:g}" if figure < SMALLEST_P_VALUE else f"= {brief(figure, 2)}"


def counted(count: Any, singular: str, plural: str | None = None) -> str:
    """A count with its noun.

    Examples
    --------
    >>> counted(1, "seed"), counted(12000, "seed")
    ('1 seed', '12,000 seeds')
    """
    noun = singular if count == 1 else plural or f"{singular}s"
    return f"{number(count, 0)} {noun}"


def moved(before: Any, after: Any, decimals: int = 4) -> str:
    """Where a number went.

    Examples
    --------
    >>> moved(0.3, 0.25), moved(0.25, 0.25001)
    ('falls from 0.3000 to 0.2500', 'stays at 0.2500')
    """
    if number(before, decimals) == number(after, decimals):
        return f"stays at {number(after, decimals)}"
    verb = "falls" if real(after) < real(before) else "rises"
    return f"{verb} from {number(before, decimals)} to {number(after, decimals)}"


def sentence(text: str) -> str:
    """With a capital at its beginning.

    Examples
    --------
    >>> sentence("the naive model"), sentence("IPS")
    ('The naive model', 'IPS')
    """
    return text[:1].upper() + text[1:]


def listed(parts: list[str]) -> str:
    """Words joined as in a sentence.

    Examples
    --------
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def filled(entries: Mapping[str, Any] | None) -> dict[str, Any]:
    """The entries that hold something.

    Examples
    --------
    >>> filled({"naive": {"auc": 0.7}, "ips": {}, "snips": None}), filled(None)
    ({'naive': {'auc': 0.7}}, {})
    """
    return {name: entry for name, entry in (entries or {}).items() if entry}


SUFFIXES = {"raw": "raw", "true": "true", "constant": "constant", "known": "known"}
"""Endings of a method's key that say which propensities it used; without one, the calibrated ones."""


def method_parts(key: str) -> tuple[str, str]:
    """The method and the propensities of a key of ``metrics.json``.

    Examples
    --------
    >>> method_parts("ips_raw"), method_parts("dr_jl"), method_parts("naive")
    (('ips', 'raw'), ('dr_jl', 'calibrated'), ('naive', 'naive'))
    """
    if key == "naive":
        return key, "naive"
    base, _, ending = key.rpartition("_")
    return (base, SUFFIXES[ending]) if base and ending in SUFFIXES else (key, "calibrated")


def method_name(key: str) -> str:
    """What a method is called in figures and tables.

    Examples
    --------
    >>> method_name("naive"), method_name("ips"), method_name("dr_jl_raw")
    ('Naive', 'IPS, calibrated', 'DR-JL, raw')
    """
    base, propensity = method_parts(key)
    if propensity == "naive":
        return "Naive"
    return f"{base.replace('_', '-').upper()}, {propensity}"


def method_phrase(key: str) -> str:
    """What a method is called in a sentence.

    Examples
    --------
    >>> method_phrase("ips_raw"), method_phrase("naive")
    ('IPS with raw propensities', 'the naive model')
    """
    name, _, propensity = method_name(key).partition(", ")
    return f"{name} with {propensity} propensities" if propensity else "the naive model"
