"""A world of impressions with known truth: rows are a function of the parameters, the seed and the chunk.

Every draw is a hash of a key of the seed and the number of the thing drawn, so any rows can be drawn alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unskew.base.errors import ParameterError
from unskew.base.estimator import require_in, require_whole
from unskew.base.seeds import GOLDEN, as_seed, splitmix64, stream

Column = NDArray[Any]
Columns = dict[str, Column]
"""Rows of the world, or the values of its users or items."""

START = np.datetime64("2026-01-05T00:00:00", "ms")
"""The first moment of the log, a Monday (UTC)."""

CHUNK_SESSIONS = 1 << 14
"""Sessions of a chunk: 131,072 rows at eight positions, some 10 MB of columns."""

CALIBRATION_SESSIONS = 1 << 13
"""Sessions, spread over the log, on which the intercepts are found: rates are within 1 % of those asked."""

TABLE_BLOCK = 1 << 20
"""Users or items that are drawn at once, which bounds the memory."""

COUNTRIES, CATEGORIES, DEVICES, TOPICS = 20, 24, 3, 16
DAY = 86_400_000
"""Milliseconds."""

UNKNOWN_AGES = 0.05
"""Share of users whose age is missing. A missing age has no effect, or it would be a hidden one."""

USUAL_DEVICE = 0.8
"""Share of a user's sessions on their usual device."""

DRAWS_OF_ONE = np.uint64(64)
"""Draws that one thing may need for one purpose."""


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
    >>> len(world.chunk(0)["user"]), world.n_chunks
    (1000, 1)
    """

    n_rows: int = 100_000
    n_users: int = 2_000
    n_items: int = 500
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
        require_whole(1, 1 << 31, n_users=self.n_users, n_items=self.n_items)
        require_whole(1, 100, positions=self.positions)
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
        if self.click_rate >= (examined := self.examination.mean()):
            raise ParameterError(
                f"click_rate is {self.click_rate}, but only {examined:.3f} of the rows are examined",
                remedy="give a lower click_rate, fewer positions or a lower position_bias",
            )

    @property
    def chunk_rows(self) -> int:
        """Return the rows of a chunk; the last chunk may have fewer."""
        return CHUNK_SESSIONS * self.positions

    @property
    def n_chunks(self) -> int:
        """Return the number of chunks of the log."""
        return -(-self.n_rows // self.chunk_rows)

    @property
    def end(self) -> np.datetime64:
        """Return the first moment after the log."""
        return START + np.timedelta64(self.days, "D")

    @property
    def examination(self) -> NDArray[np.float64]:
        """Return θ by position: the true probability that a position is examined."""
        return np.asarray((1.0 + np.arange(self.positions)) ** -float(self.position_bias))

    def chunk(self, number: int) -> Columns:
        """Return the rows of a chunk of the log with what became of them, and the truth."""
        first = number * CHUNK_SESSIONS
        sessions = np.arange(first, min(first + CHUNK_SESSIONS, self._n_sessions), dtype=np.int64)
        rows = self._with_outcome(self._sessions(sessions), first * self.positions, "outcome")
        return _take(rows, slice(self.n_rows - first * self.positions))

    def random(self, rows: int) -> Columns:
        """Return pairs shown at random on the day after the log: any user, item and position, equally likely.

        At most ``rows`` of them: a pair that is drawn again is left out.
        """
        key, row = self._key("random rows"), np.arange(rows, dtype=np.int64)
        user = (self.n_users * _uniform(key, row, 0)).astype(np.int64)
        item = (self.n_items * _uniform(key, row, 1)).astype(np.int64)
        shown: Columns = {
            "user": user,
            "item": item,
            "session": -1 - row,
            "position": (self.positions * _uniform(key, row, 2)).astype(np.int16),
            "time": ((self.days + _uniform(key, row, 3)) * DAY).astype(np.int64),
            "device": _device(key, row, 4, self.users["device"][user]),
            "discount": _discount(key, row, 6),
        }
        shown = self._with_taste(shown | self._logits(shown))
        _, first = np.unique(user * self.n_items + item, return_index=True)
        return _take(self._with_outcome(shown, 0, "outcome of random rows"), np.sort(first))

    @cached_property
    def users(self) -> Columns:
        """The users in the order in which they arrive; ``traffic`` is the running sum of their activities."""
        key = self._key("users")

        def draw(user: Column) -> Columns:
            age = np.floor(np.clip(40.0 + 14.0 * _normal(key, user, 1), 16.0, 90.0))
            return {
                "country": _skewed(key, user, 0, COUNTRIES).astype(np.int8),
                "age": np.where(_uniform(key, user, 3) < UNKNOWN_AGES, np.nan, age).astype(np.float32),
                "device": _skewed(key, user, 4, DEVICES).astype(np.int8),
                "interests": _topics(key, user, 5, 1, 4),
                "click": _normal(key, user, 11).astype(np.float32),
                "conversion": _normal(key, user, 13).astype(np.float32),
                "traffic": np.exp(1.2 * _normal(key, user, 15)),
            }

        return _table(self.n_users, draw)

    @cached_property
    def items(self) -> Columns:
        """The items; ``traffic`` is the running sum of how often they are candidates."""
        key = self._key("items")

        def draw(item: Column) -> Columns:
            price = np.exp(3.0 + 0.9 * _normal(key, item, 2))
            price = (np.floor(100.0 * price + 0.5) / 100.0).astype(np.float32)
            return {
                "category": _skewed(key, item, 0, CATEGORIES).astype(np.int8),
                "brand": _skewed(key, item, 1, self._brands).astype(np.int32),
                "price": price,
                "scaled_price": (np.log(price.astype(np.float64) + 0.01) - 3.0) / 0.9,
                "tags": _topics(key, item, 4, 0, 4),
                "click": _normal(key, item, 10).astype(np.float32),
                "conversion": _normal(key, item, 12).astype(np.float32),
                "traffic": np.exp(1.2 * _normal(key, item, 14)),
            }

        return _table(self.n_items, draw)

    @property
    def _n_sessions(self) -> int:
        return -(-self.n_rows // self.positions)

    @property
    def _brands(self) -> int:
        return max(10, self.n_items // 25)

    def _key(self, purpose: str) -> np.uint64:
        return np.uint64(stream(self.seed, f"impressions: {purpose}"))

    @cached_property
    def _tastes(self) -> list[Column]:
        """The worth of values of features together: country × category, device × category, age, brand."""
        shapes = ((COUNTRIES, CATEGORIES), (DEVICES, CATEGORIES), (CATEGORIES,), (self._brands,))
        ends = np.cumsum([np.prod(shape) for shape in shapes])
        values = _normal(self._key("tastes"), np.arange(ends[-1]), 0).astype(np.float32)
        pieces = np.split(values, ends[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    @cached_property
    def _intercepts(self) -> tuple[float, float]:
        """The intercepts of click and conversion, on a sample of the sessions."""
        size = min(self._n_sessions, CALIBRATION_SESSIONS)
        shown = self._sessions(np.linspace(0, self._n_sessions - 1, size).astype(np.int64))
        examination = self.examination[shown["position"]]
        return (
            _intercept(shown["click_logit"], self.click_rate, examination),
            _intercept(shown["conversion_logit"], self.conversion_rate, np.ones(len(examination))),
        )

    def _sessions(self, session: Column) -> Columns:
        """Return the rows of sessions: a user who has arrived, and items in the order of the policy."""
        key, key_of_row = self._key("sessions"), self._key("rows")
        share = (session + _uniform(key, session, 0)) / self._n_sessions
        day = np.floor(share * self.days)
        hour = share * self.days - day
        # Most of a day's traffic is around noon.
        time = np.asarray((day + hour + 0.7 * np.sin(2.0 * np.pi * hour) / (2.0 * np.pi)) * DAY)
        arrived = np.ceil(self.n_users * (1.0 - self.arriving * (1.0 - share))).astype(np.int64)
        traffic = self.users["traffic"]
        wanted = _uniform(key, session, 1) * traffic[np.clip(arrived, 1, self.n_users) - 1]
        user = np.searchsorted(traffic, wanted, side="right")
        device = _device(key, session, 2, self.users["device"][user])

        number = session[:, None] * self.positions + np.arange(self.positions)
        traffic = self.items["traffic"]
        item = np.searchsorted(traffic, _uniform(key_of_row, number, 0) * traffic[-1], side="right")
        for position in range(1, self.positions):
            # An item that the session has already is replaced by the next one that it has not.
            while (twice := (item[:, :position] == item[:, [position]]).any(axis=1)).any():
                item[twice, position] = (item[twice, position] + 1) % self.n_items
        shown = {"user": user, "device": device, "time": time.astype(np.int64), "session": session}
        shown = {name: np.repeat(column[:, None], self.positions, axis=1) for name, column in shown.items()}
        shown |= {"item": item, "discount": _discount(key_of_row, number, 1)}
        shown |= self._logits(shown)
        order = np.argsort(-(shown["click_logit"] + _normal(key_of_row, number, 3)), axis=1, kind="stable")
        for name in ("item", "discount", "click_logit", "conversion_logit"):
            shown[name] = np.take_along_axis(shown[name], order, axis=1)
        shown["position"] = np.broadcast_to(np.arange(self.positions, dtype=np.int16), item.shape)
        return self._with_taste({name: column.ravel() for name, column in shown.items()})

    def _logits(self, shown: Columns) -> Columns:
        """Return the logits of click and conversion from what is shown and who sees it, without intercept."""
        user = {name: column[shown["user"]] for name, column in self.users.items()}
        item = {name: column[shown["item"]] for name, column in self.items.items()}
        country_category, device_category, age_category, brand = self._tastes
        device, category, price = shown["device"], item["category"], item["scaled_price"]
        deal = (shown["discount"] - 0.11) / 0.16
        # The weights give the preference, which drives both, a standard deviation of about 1.
        preference = (
            0.9 * (np.bitwise_count(user["interests"] & item["tags"]) - 0.3)
            + 0.7 * country_category[user["country"], category].astype(np.float64)
            + 0.5 * age_category[category] * np.nan_to_num((user["age"].astype(np.float64) - 40.0) / 14.0)
            + 0.4 * brand[item["brand"]].astype(np.float64)
            + 0.35 * (device - 1.0) * price
        )
        click = (
            self.bias * 0.9 * preference
            + 0.3 * deal
            + 0.2 * np.sin(2.0 * np.pi * ((shown["time"] % DAY) / DAY - 0.25))
            + 0.4 * user["click"].astype(np.float64)
            + 0.4 * item["click"].astype(np.float64)
        )
        conversion = (
            preference
            + 0.4 * device_category[device, category].astype(np.float64)
            + 0.3 * deal * price
            - 0.3 * price
            + 0.3 * user["conversion"].astype(np.float64)
            + 0.4 * item["conversion"].astype(np.float64)
        )
        return {"click_logit": click, "conversion_logit": conversion}

    def _with_taste(self, shown: Columns) -> Columns:
        """Add the hidden taste of the pair to the logits of rows, before anything happened."""
        key = self._key("hidden taste")
        pair = shown["user"].astype(np.uint64) * np.uint64(1 << 32) + shown["item"].astype(np.uint64)
        # The pair is hashed first: neighbouring pairs would share draws.
        taste = _normal(key, _hashed(key, pair) >> np.uint64(11), 0)
        hidden = self.confounding * taste
        types = {"user": np.int32, "item": np.int32, "device": np.int8, "discount": np.float32}
        return {
            **shown,
            **{name: shown[name].astype(kind) for name, kind in types.items()},
            "taste": taste.astype(np.float32),
            "click_logit": shown["click_logit"] + hidden,
            "conversion_logit": shown["conversion_logit"] + hidden,
        }

    def _with_outcome(self, shown: Columns, first_row: int, purpose: str) -> Columns:
        """Add what became of the rows, and with which probabilities."""
        key, row = self._key(purpose), first_row + np.arange(len(shown["user"]))
        theta = self.examination[shown["position"]]
        relevant = expit(self._intercepts[0] + shown["click_logit"])
        eta = expit(self._intercepts[1] + shown["conversion_logit"])
        examined = _uniform(key, row, 0) < theta
        label = _uniform(key, row, 2) < eta
        mean_delay = self.delay_days * DAY * np.exp(0.3 * self.items["scaled_price"][shown["item"]])
        return shown | {
            "examined": examined.astype(np.uint8),
            "click": (examined & (_uniform(key, row, 1) < relevant)).astype(np.uint8),
            # The conversion that follows, or would have followed, a click; and how long after it, in ms.
            "label": label.astype(np.uint8),
            "delay": np.where(label, -mean_delay * np.log(_uniform(key, row, 3)), 0).astype(np.int64),
            "examination": theta.astype(np.float32),
            "p_click": (theta * relevant).astype(np.float32),
            "p_conversion": eta.astype(np.float32),
        }


def _take(columns: Mapping[str, Column], rows: Any) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def _hashed(key: np.uint64, number: Column) -> Column:
    """Return SplitMix64 of numbers."""
    return splitmix64(key + number * GOLDEN - GOLDEN)


def _uniform(key: np.uint64, number: Column, step: int) -> Column:
    """Return uniform numbers in (0, 1): draw ``step`` of one purpose for each thing."""
    bits = _hashed(key, number.astype(np.uint64) * DRAWS_OF_ONE + np.uint64(step)) >> np.uint64(11)
    return np.asarray((bits.astype(np.float64) + 0.5) / (1 << 53))


def _normal(key: np.uint64, number: Column, step: int) -> Column:
    """Return standard normal numbers from two uniform draws (Box and Muller)."""
    radius = np.sqrt(-2.0 * np.log(_uniform(key, number, step)))
    return np.asarray(radius * np.cos(2.0 * np.pi * _uniform(key, number, step + 1)))


def _skewed(key: np.uint64, number: Column, step: int, size: int) -> Column:
    """Return codes below ``size``, the first the most frequent."""
    return np.minimum((size * _uniform(key, number, step) ** 2.0).astype(np.int64), size - 1)


def _topics(key: np.uint64, number: Column, step: int, least: int, most: int) -> Column:
    """Return bits of ``least`` to ``most`` topics; a topic that is drawn twice counts once."""
    count = least + ((most - least + 1) * _uniform(key, number, step)).astype(np.int64)
    mask = np.zeros(len(number), dtype=np.int64)
    for draw in range(most):
        topic = (TOPICS * _uniform(key, number, step + 1 + draw)).astype(np.int64)
        mask |= np.where(draw < count, np.int64(1) << topic, 0)
    return mask.astype(np.uint16)


def _device(key: np.uint64, number: Column, step: int, usual: Column) -> Column:
    other = (DEVICES * _uniform(key, number, step + 1)).astype(np.int64)
    return np.where(_uniform(key, number, step) < USUAL_DEVICE, usual, other)


def _discount(key: np.uint64, number: Column, step: int) -> Column:
    """Return shares of the price in whole percent: none for 60 % of the rows, else 5 to 50 %."""
    share = 0.05 + (0.5 - 0.05) * _uniform(key, number, step + 1)
    return np.where(_uniform(key, number, step) >= 0.4, 0.0, np.floor(100.0 * share + 0.5) / 100.0)


def _table(size: int, draw: Callable[[Column], Columns]) -> Columns:
    """Draw all users or items, a block at a time, and add up their traffic."""
    blocks = [draw(np.arange(first, min(first + TABLE_BLOCK, size))) for first in range(0, size, TABLE_BLOCK)]
    table = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    return table | {"traffic": np.cumsum(table["traffic"])}


def _intercept(logit: Column, mean: float, factor: Column) -> float:
    """Return the c with mean of factor · σ(c + logit) as asked, by bisection."""
    low, high = -40.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        if (factor * expit(middle + logit)).mean() < mean:
            low = middle
        else:
            high = middle
    return high
