"""Intervals over test users and seeds, paired tests, Holm's correction; callers say what forms a family."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from unskew.base.errors import DataError
from unskew.base.estimator import require_choice, require_share
from unskew.metrics.user_bootstrap import DEFAULT_LEVEL

Test = Literal["t", "wilcoxon"]

SAME = 1e-9
"""Differences that vary by less than this share of their mean are equal but for rounding."""


LEAST_SEEDS = 3
"""From which number on seeds are part of an interval: of two, Student's t with one degree of freedom makes
it 6.5 times as wide as a normal one, which says nothing but that they are two."""


class Summary(TypedDict):
    """One metric as in ``metrics.json``: ``low`` and ``high`` are over test users and seeds. None where a
    number is undefined."""

    mean: float | None
    std: float | None
    seeds: list[float | None]
    low: float | None
    high: float | None


class UsersAndSeeds(NamedTuple):
    """The interval of a mean over test users and seeds, and the two-sided p-value of "it is 0"."""

    low: float | None
    high: float | None
    p_value: float | None


@dataclass(frozen=True)
class PairedTest:
    """How much larger a is than b, and how sure that is.

    Attributes
    ----------
    difference
        Mean of a − b.
    low, high
        Student's interval of that mean, whichever test was made.
    p_value
        Two-sided, for "no difference", not yet corrected for the number of comparisons (:func:`holm`).
    pairs
        How many pairs were compared.
    test
        ``"t"`` or ``"wilcoxon"``.
    """

    difference: float
    low: float
    high: float
    p_value: float
    pairs: int
    test: Test

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON."""
        return asdict(self)


def users_and_seeds(values: Any, resampled: Any = None, *, level: float = DEFAULT_LEVEL) -> UsersAndSeeds:
    r"""Return the interval of a mean over other test users and other trainings.

    .. math::
        \bar x \pm t_{\nu,\,(1+level)/2} \sqrt{s_b^2 + s^2/R}, \qquad
        \nu = (R - 1) \left(\frac{s_b^2 + s^2/R}{s^2/R}\right)^2

    s_b is the deviation of the mean over resamples of the test users, s that over the R seeds, ν the degrees
    of freedom of Welch and Satterthwaite. Fewer than :data:`LEAST_SEEDS` seeds do not tell how far training
    varies: the interval is then over test users alone. Use it for a metric, or for a paired difference of two
    models on the same seeds and the same resamples. All is None where the mean is undefined or nothing tells
    how far it varies.

    Parameters
    ----------
    values
        One a seed.
    resampled
        The same on resamples of the test users ``[seeds, resamples]``; None where there are none, as of a
        metric that is not measured on users.

    Examples
    --------
    >>> [round(each, 3) for each in users_and_seeds([0.5], [[0.4, 0.5, 0.6]])]
    [0.304, 0.696, 0.0]
    >>> users_and_seeds([0.5])
    UsersAndSeeds(low=None, high=None, p_value=None)
    """
    array = np.asarray(values, dtype=np.float64)
    mean, seeds = float(array.mean()), len(array)
    of_seeds = float(array.var(ddof=1)) / seeds if seeds >= LEAST_SEEDS else 0.0
    of_users = 0.0
    if resampled is not None:
        draws = np.asarray(resampled, dtype=np.float64).mean(axis=0)
        draws = draws[np.isfinite(draws)]
        of_users = float(draws.var(ddof=1)) if len(draws) > 1 else np.nan
    elif seeds < LEAST_SEEDS:
        of_users = np.nan
    variance = of_users + of_seeds
    if not np.isfinite(mean + variance):
        return UsersAndSeeds(None, None, None)
    error = float(np.sqrt(variance))
    freedom = (seeds - 1) * (variance / of_seeds) ** 2 if of_seeds else np.inf
    margin = float(stdtrit(freedom, (1 + level) / 2)) * error
    return UsersAndSeeds(mean - margin, mean + margin, _student(mean, error, seeds, freedom))


def summarise(values: Iterable[float], resampled: Any = None) -> Summary:
    r"""Return mean and standard deviation over seeds, and the interval of :func:`users_and_seeds`.

    .. math::
        \bar x = \frac1R \sum_r x_r, \qquad s = \sqrt{\frac{1}{R-1} \sum_r (x_r - \bar x)^2}

    with R − 1 below the fraction (ddof = 1): the seeds are a sample. Nothing here is NaN, which JSON does
    not know: ``std`` is None for a single seed, and ``mean`` and ``std`` are None when a seed is NaN.

    Examples
    --------
    >>> summarise([1.0, 3.0])
    {'mean': 2.0, 'std': 1.4142135623730951, 'seeds': [1.0, 3.0], 'low': None, 'high': None}
    """
    array = np.asarray([float(value) for value in values])
    if len(array) == 0:
        raise DataError("there is no value to summarise", remedy="run at least one seed")
    defined = bool(np.isfinite(array).all())
    interval = users_and_seeds(array, resampled)
    return {
        "mean": float(array.mean()) if defined else None,
        "std": float(array.std(ddof=1)) if defined and len(array) > 1 else None,
        "seeds": [float(value) if np.isfinite(value) else None for value in array],
        "low": interval.low,
        "high": interval.high,
    }


def paired_test(a: Any, b: Any, test: Test = "t", *, level: float = DEFAULT_LEVEL) -> PairedTest:
    r"""Compare two methods on the same seeds (splits, users).

    .. math::
        d_r = a_r - b_r, \qquad t = \frac{\bar d}{s_d / \sqrt R}, \qquad
        \bar d \pm t_{R-1,\,(1+level)/2} \; s_d / \sqrt R

    with s_d the standard deviation of d (ddof = 1); where s_d = 0 the p-value is that of the sign test,
    2 · 2⁻ᴿ. ``test="wilcoxon"`` takes the p-value from Wilcoxon's
    signed-rank test instead, which does not assume normal differences but cannot go below 2 · 2⁻ᴿ.
    The interval is Student's in both cases.

    Use it for methods that shared seed r's split and initial weights. For unpaired runs it is not valid.

    Parameters
    ----------
    a, b
        One value per seed, in the same order.
    test
        ``"t"`` or ``"wilcoxon"``.
    level
        Confidence of the interval.

    Examples
    --------
    >>> result = paired_test([0.74, 0.75, 0.76, 0.75], [0.73, 0.73, 0.75, 0.73])
    >>> round(result.difference, 3), round(result.p_value, 4)
    (0.015, 0.0138)
    """
    require_choice("test", test, get_args(Test))
    require_share("level", level, "0.95")
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise DataError(
            f"values of shapes {first.shape} and {second.shape} are not pairs",
            remedy="give one value of each method for every seed, in the same order",
        )
    if len(first) < 2:
        raise DataError(
            f"{len(first)} pair(s) do not show how far differences vary", remedy="run at least two seeds"
        )
    d = first - second
    if not np.isfinite(d).all():
        raise DataError(
            "a value is NaN or infinite",
            where=f"pair {int(np.flatnonzero(~np.isfinite(d))[0])}",
            remedy="compare only seeds on which both methods have a value",
        )
    mean = float(d.mean())
    standard_error = float(d.std(ddof=1) / np.sqrt(len(d)))
    margin = float(stdtrit(len(d) - 1, (1 + level) / 2)) * standard_error
    return PairedTest(
        difference=mean,
        low=mean - margin,
        high=mean + margin,
        p_value=_student(mean, standard_error, len(d), len(d) - 1) if test == "t" else _wilcoxon(d),
        pairs=len(d),
        test=test,
    )


def holm(p_values: Any) -> NDArray[np.float64]:
    r"""Apply Holm's adjustment to a family of p-values.

    .. math::
        \tilde p_{(i)} = \max_{j \le i} \min\bigl(1, (m - j + 1)\, p_{(j)}\bigr)

    for the m values sorted upwards. Reject where the adjusted value is below α: the chance of any false
    rejection in the family is then at most α, whatever the dependence. The family is everything that a
    table compares (metrics × methods), so pass all of it at once; the shape is kept.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, dtype=np.float64)
    flat = p.ravel()
    outside = ~((flat >= 0) & (flat <= 1))
    if outside.any():
        position = int(np.flatnonzero(outside)[0])
        raise DataError(
            f"p-value {flat[position]} does not lie between 0 and 1",
            where=f"position {position}",
            remedy="leave out comparisons without a p-value",
        )
    order = np.argsort(flat, kind="stable")
    factor = np.arange(len(flat), 0, -1)
    adjusted = np.empty_like(flat)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factor * flat[order]))
    return adjusted.reshape(p.shape)


def _student(mean: float, standard_error: float, pairs: int, freedom: float) -> float:
    if standard_error <= SAME * abs(mean):
        # Differences that do not vary have no t; two seeds may agree by chance. The sign test remains.
        return 1.0 if mean == 0 else float(2.0 ** (1 - pairs))
    return float(2 * stdtr(freedom, -abs(mean) / standard_error))


def _wilcoxon(d: NDArray[np.float64]) -> float:
    if not d.any():
        return 1.0
    # It takes a second to import, and a run has no use for it.
    from scipy.stats import wilcoxon

    return float(wilcoxon(d).pvalue)
