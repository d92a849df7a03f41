"""A world of impressions with known truth: rows as a function of parameters, seed and chunk, never stored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unskew.errors import ParameterError
from unskew.estimator import require_in, require_whole
from unskew.seeds import as_seed, stream

START = np.datetime64("2026-01-05T00:00:00", "ms")
"""The first moment of the log, a Monday (UTC)."""

CHUNK_SESSIONS = 1 << 14
"""Sessions of a chunk: 131,072 rows at eight positions, some 10 MB of columns."""

CALIBRATION_SESSIONS = 1 << 13
"""Sessions, evenly over the log, on which the intercepts are found: rates are within about 1 % of those
asked."""

INTERCEPT_RANGE = 40.0
ACTIVITY_STD, POPULARITY_STD = 1.2, 1.2
"""Standard deviations of the logarithms of how often users come and items are candidates."""

ITEMS_PER_BRAND = 25
MOST_POSITIONS = 100
MOST_IDS = 1 << 31


class WorldChunk(NamedTuple):
    """Rows as plain columns: what was shown, what became of it, and the truth."""

    shown: Any
    outcome: Any

    def __len__(self) -> int:
        return len(self.shown.user)

    def take(self, rows: Any) -> WorldChunk:
        """Some of the rows."""
        return WorldChunk(*(type(part)(*(column[rows] for column in part)) for part in self))


@dataclass(frozen=True, kw_only=True)
class ImpressionWorld:
    """Users see sessions of items in the order of a policy, examine some, click some, convert on some.

    ``p = θ(position) · σ(c₀ + bias·0.9·t + …)`` is P(click) with mean ``click_rate`` over the log, where
    ``θ(k) = (1 + k)^(−position_bias)`` is the probability that position k is examined; ``η = σ(d₀ + t + …)``
    is P(conversion if clicked) with mean ``conversion_rate`` over the log, clicked or not, and does not
    depend on the position. The preference t is a sum of products of features (interests × tags, country ×
    category, age × category, device × price, brand). What else drives clicks (discount, hour) and conversions
    (device × category, discount × price, price) is in the features too, but for residues of users and items,
    drawn independently for clicks and for conversions. So click and conversion are independent given the
    features, unless ``confounding`` adds to both logits that many times a hidden taste: standard normal for
    each pair, in no feature, and no sum or product of something of the user and something of the item.

    Parameters
    ----------
    n_rows
        Impressions of the log, in the order of time.
    n_users, n_items
        Users are numbered in the order in which they arrive; they differ in activity, items in popularity.
    positions
        Items of a session.
    days
        Length of the log; a user comes back in many of its sessions.
    bias
        How much of the preference drives clicks; with 0 clicks tell nothing of conversions.
    position_bias
        0 is none: every position is examined.
    confounding
        Strength of the hidden taste in the logits of click and conversion.
    arriving
        Share of users who arrive during the log, evenly.
    delay_days
        Mean time from a click to its conversion; dear items take longer.
    censored
        Log conversions after the end of the log as none, as they would be if it were read at its end.

    Examples
    --------
    >>> world = ImpressionWorld(n_rows=1000, n_users=100, n_items=50)
    >>> len(world.chunk(0)), world.n_chunks
    (1000, 1)
    """

    n_rows: int
    n_users: int
    n_items: int
    positions: int = 8
    days: int = 14
    click_rate: float = 0.1
    conversion_rate: float = 0.1
    bias: float = 1.0
    position_bias: float = 1.0
    confounding: float = 0.0
    arriving: float = 0.5
    delay_days: float = 1.0
    censored: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        as_seed(self.seed)
        require_whole(1, 1 << 50, n_rows=self.n_rows)
        require_whole(1, MOST_IDS, n_users=self.n_users, n_items=self.n_items)
        require_whole(1, MOST_POSITIONS, positions=self.positions)
        require_whole(1, 10_000, days=self.days)
        require_in("(0, 1)", click_rate=self.click_rate, conversion_rate=self.conversion_rate)
        require_in("[0, 1]", arriving=self.arriving)
        require_in("[0, inf)", bias=self.bias, position_bias=self.position_bias)
        require_in("[0, inf)", confounding=self.confounding, delay_days=self.delay_days)
        if self.n_items < self.positions:
            raise ParameterError(
                f"a session shows {self.positions} items, but there are only {self.n_items}",
                remedy="give more items (n_items, --items), or fewer positions",
            )
        if self.click_rate >= self.examination.mean():
            raise ParameterError(
                f"click_rate is {self.click_rate}, but only {self.examination.mean():.3f} of the rows are"
                " examined",
                remedy="give a lower click_rate, fewer positions or a lower position_bias",
            )

    @property
    def n_sessions(self) -> int:
        """The last may lack its last positions."""
        return -(-self.n_rows // self.positions)

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk; the last may have fewer."""
        return CHUNK_SESSIONS * self.positions

    @property
    def n_chunks(self) -> int:
        """Of the log."""
        return -(-self.n_rows // self.chunk_rows)

    @property
    def end(self) -> np.datetime64:
        """The first moment after the log."""
        return START + np.timedelta64(self.days, "D")

    @property
    def examination(self) -> NDArray[np.float64]:
        """θ by position: the true probability that a position is examined."""
        theta: NDArray[np.float64] = np.power(
            1.0 + np.arange(self.positions), -float(self.position_bias), dtype=np.float64
        )
        return theta

    def chunk(self, number: int) -> WorldChunk:
        """The rows of a chunk of the log: a function of the parameters and the number."""
        first = number * CHUNK_SESSIONS
        sessions = np.arange(first, min(first + CHUNK_SESSIONS, self.n_sessions), dtype=np.int64)
        chunk = self._with_outcome(self._sessions(sessions), first * self.positions, "outcome")
        return chunk.take(slice(self.n_rows - first * self.positions))

    def random(self, rows: int) -> WorldChunk:
        """Pairs shown at random on the day after the log: any user, item and position, equally likely.

        At most ``rows`` of them: a pair that is drawn again is left out.
        """
        from unskew.datasets import impression_kernels as kernels

        shown = _empty(kernels.ShownColumns, rows)
        users, items, tastes = self._tables
        kernels.fill_random(
            float(self.days),
            float(self.bias),
            float(self.confounding),
            self._key("random rows"),
            self._key("hidden taste"),
            users,
            items,
            tastes,
            self.positions,
            shown,
        )
        pair = shown.user.astype(np.int64) * self.n_items + shown.item
        first = np.sort(np.unique(pair, return_index=True)[1])
        return self._with_outcome(shown, 0, "outcome of random rows").take(first)

    def of_users(self, user: NDArray[np.integer[Any]]) -> dict[str, NDArray[Any]]:
        """Codes and values of the features of users; topics as bits."""
        users = self._tables[0]
        return {name: getattr(users, name)[user] for name in ("country", "age", "interests")}

    def of_items(self, item: NDArray[np.integer[Any]]) -> dict[str, NDArray[Any]]:
        """Codes and values of the features of items; topics as bits."""
        items = self._tables[1]
        return {name: getattr(items, name)[item] for name in ("category", "brand", "price", "tags")}

    def prepare(self) -> None:
        """Make the tables and intercepts now, before threads ask for them."""
        assert self._tables
        assert self._intercepts

    def _sessions(self, numbers: NDArray[np.int64]) -> Any:
        from unskew.datasets import impression_kernels as kernels

        shown = _empty(kernels.ShownColumns, len(numbers) * self.positions)
        users, items, tastes = self._tables
        kernels.fill_sessions(
            numbers,
            self.n_sessions,
            float(self.days),
            float(self.arriving),
            float(self.bias),
            float(self.confounding),
            self._key("sessions"),
            self._key("rows"),
            self._key("hidden taste"),
            users,
            items,
            tastes,
            self.positions,
            shown,
        )
        return shown

    def _with_outcome(self, shown: Any, first_row: int, purpose: str) -> WorldChunk:
        from unskew.datasets import impression_kernels as kernels

        outcome = _empty(kernels.OutcomeColumns, len(shown.user))
        kernels.fill_outcomes(
            first_row,
            self._key(purpose),
            self.examination,
            *self._intercepts,
            float(self.delay_days) * kernels.DAY,
            self._tables[1],
            shown,
            outcome,
        )
        return WorldChunk(shown, outcome)

    def _key(self, purpose: str) -> np.uint64:
        return np.uint64(stream(self.seed, f"impressions: {purpose}"))

    @cached_property
    def _tables(self) -> tuple[Any, Any, Any]:
        """Users, items, and what their features are worth together."""
        from unskew.datasets import impression_kernels as kernels

        brands = max(10, self.n_items // ITEMS_PER_BRAND)
        tastes = kernels.Tastes(
            country_category=np.empty((kernels.COUNTRIES, kernels.CATEGORIES), dtype=np.float32),
            age_category=np.empty(kernels.CATEGORIES, dtype=np.float32),
            device_category=np.empty((kernels.DEVICES, kernels.CATEGORIES), dtype=np.float32),
            brand=np.empty(brands, dtype=np.float32),
        )
        users, items = _empty(kernels.Users, self.n_users), _empty(kernels.Items, self.n_items)
        kernels.fill_tastes(self._key("tastes"), tastes)
        kernels.fill_users(self._key("users"), ACTIVITY_STD, users)
        kernels.fill_items(self._key("items"), POPULARITY_STD, brands, items)
        return users, items, tastes

    @cached_property
    def _intercepts(self) -> tuple[float, float]:
        """Those of click and conversion, on a sample of the sessions that the rates hold for."""
        size = min(self.n_sessions, CALIBRATION_SESSIONS)
        numbers = np.linspace(0, self.n_sessions - 1, size).astype(np.int64)
        shown = self._sessions(numbers)
        return (
            _intercept(shown.click_logit, self.click_rate, self.examination[shown.position]),
            _intercept(shown.conversion_logit, self.conversion_rate, np.ones(len(shown.user))),
        )


def _empty(kind: type, rows: int) -> Any:
    """Empty columns of a named tuple, of the types that it is annotated with."""
    columns = {name: np.empty(rows, dtype=_innermost(hint)) for name, hint in get_type_hints(kind).items()}
    return kind(**columns)


def _innermost(hint: Any) -> Any:
    """The number type of ``NDArray[…]``, which NumPy writes in one way or another by its version."""
    while get_args(hint):
        hint = get_args(hint)[-1]
    return hint


def _intercept(logit: NDArray[np.float64], mean: float, factor: NDArray[np.float64]) -> float:
    """The c with mean of factor · σ(c + logit) as asked, by bisection."""
    low, high = -INTERCEPT_RANGE, INTERCEPT_RANGE
    for _ in range(60):
        middle = (low + high) / 2
        if (factor * expit(middle + logit)).mean() < mean:
            low = middle
        else:
            high = middle
    return high
