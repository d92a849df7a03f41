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
from unskew.base.seeds import as_seed, splitmix64, stream

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

INTERCEPT_RANGE = 40.0
ACTIVITY_STD, POPULARITY_STD = 1.2, 1.2
"""Standard deviations of the logarithms of how often users come and items are candidates."""

ITEMS_PER_BRAND = 25
MOST_POSITIONS = 100
MOST_IDS = 1 << 31

COUNTRIES, CATEGORIES, DEVICES, TOPICS = 20, 24, 3, 16
DAY = 86_400_000
"""Milliseconds."""

AGE_MEAN, AGE_STD, YOUNGEST, OLDEST = 40.0, 14.0, 16.0, 90.0
UNKNOWN_AGES = 0.05
"""Share of users whose age is missing. A missing age has no effect, or it would be a hidden one."""

LOG_PRICE_MEAN, LOG_PRICE_STD = 3.0, 0.9
DISCOUNTED, LEAST_DISCOUNT, MOST_DISCOUNT = 0.4, 0.05, 0.5
DISCOUNT_MEAN, DISCOUNT_STD = 0.11, 0.16
USUAL_DEVICE = 0.8
"""Share of a user's sessions on their usual device."""

MATCH_MEAN = 0.3
"""Mean number of topics that are both among a user's interests and an item's tags."""

DAILY_SWING = 0.7
"""How much denser than the mean traffic is at noon, and thinner at midnight."""

# Weights in the preference, which drives clicks and conversions alike; its standard deviation is about 1.
OF_MATCH, OF_COUNTRY, OF_AGE, OF_BRAND, OF_DEVICE_PRICE = 0.9, 0.7, 0.5, 0.4, 0.35
# Weights in the click alone, and in the conversion alone.
CLICK_PREFERENCE, CLICK_DISCOUNT, CLICK_HOUR, CLICK_USER, CLICK_ITEM = 0.9, 0.3, 0.2, 0.4, 0.4
CONVERSION_DEVICE, CONVERSION_DEAL, CONVERSION_PRICE = 0.4, 0.3, 0.3
CONVERSION_USER, CONVERSION_ITEM = 0.3, 0.4
POLICY_NOISE = 1.0
"""Standard deviation of what the policy that orders a session adds to the logit of the click."""

DELAY_BY_PRICE = 0.3
"""Dear items are bought later: log of the mean delay by standard deviations of the log price."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
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
        """Return the number of sessions; the last may lack its last positions."""
        return -(-self.n_rows // self.positions)

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
        theta: NDArray[np.float64] = np.power(
            1.0 + np.arange(self.positions), -float(self.position_bias), dtype=np.float64
        )
        return theta

    def chunk(self, number: int) -> Columns:
        """Return the rows of a chunk of the log with what became of them, and the truth."""
        first = number * CHUNK_SESSIONS
        sessions = np.arange(first, min(first + CHUNK_SESSIONS, self.n_sessions), dtype=np.int64)
        rows = self._with_outcome(self._sessions(sessions), first * self.positions, "outcome")
        return take(rows, slice(self.n_rows - first * self.positions))

    def random(self, rows: int) -> Columns:
        """Return pairs shown at random on the day after the log: any user, item and position, equally likely.

        At most ``rows`` of them: a pair that is drawn again is left out.
        """
        key, row = self._key("random rows"), np.arange(rows, dtype=np.int64)
        user = (self.n_users * uniform(key, row, 0)).astype(np.int64)
        item = (self.n_items * uniform(key, row, 1)).astype(np.int64)
        shown: Columns = {
            "user": user,
            "item": item,
            "session": -1 - row,
            "position": (self.positions * uniform(key, row, 2)).astype(np.int16),
            "time": ((self.days + uniform(key, row, 3)) * DAY).astype(np.int64),
            "device": _device(key, row, 4, self._users["device"][user]),
            "discount": _discount(key, row, 6),
        }
        shown = self._with_taste(shown | self._logits(shown))
        _, first = np.unique(user * self.n_items + item, return_index=True)
        return take(self._with_outcome(shown, 0, "outcome of random rows"), np.sort(first))

    def of_users(self, user: Column) -> Columns:
        """Return the features of users; topics as bits."""
        return {name: self._users[name][user] for name in ("country", "age", "interests")}

    def of_items(self, item: Column) -> Columns:
        """Return the features of items; topics as bits."""
        return {name: self._items[name][item] for name in ("category", "brand", "price", "tags")}

    def _key(self, purpose: str) -> np.uint64:
        return np.uint64(stream(self.seed, f"impressions: {purpose}"))

    @cached_property
    def _users(self) -> Columns:
        """The users in the order in which they arrive; ``traffic`` is the running sum of their activities."""
        key = self._key("users")

        def draw(user: Column) -> Columns:
            age = np.floor(np.clip(AGE_MEAN + AGE_STD * normal(key, user, 1), YOUNGEST, OLDEST))
            return {
                "country": _skewed(key, user, 0, COUNTRIES).astype(np.int8),
                "age": np.where(uniform(key, user, 3) < UNKNOWN_AGES, np.nan, age).astype(np.float32),
                "device": _skewed(key, user, 4, DEVICES).astype(np.int8),
                "interests": _topics(key, user, 5, 1, 4),
                "click": normal(key, user, 11).astype(np.float32),
                "conversion": normal(key, user, 13).astype(np.float32),
                "traffic": np.exp(ACTIVITY_STD * normal(key, user, 15)),
            }

        return _table(self.n_users, draw)

    @cached_property
    def _items(self) -> Columns:
        """The items; ``traffic`` is the running sum of how often they are candidates."""
        key = self._key("items")

        def draw(item: Column) -> Columns:
            price = np.exp(LOG_PRICE_MEAN + LOG_PRICE_STD * normal(key, item, 2))
            return {
                "category": _skewed(key, item, 0, CATEGORIES).astype(np.int8),
                "brand": _skewed(key, item, 1, self._brands).astype(np.int32),
                "price": (np.floor(100.0 * price + 0.5) / 100.0).astype(np.float32),
                "tags": _topics(key, item, 4, 0, 4),
                "click": normal(key, item, 10).astype(np.float32),
                "conversion": normal(key, item, 12).astype(np.float32),
                "traffic": np.exp(POPULARITY_STD * normal(key, item, 14)),
            }

        return _table(self.n_items, draw)

    @property
    def _brands(self) -> int:
        return max(10, self.n_items // ITEMS_PER_BRAND)

    @cached_property
    def _tastes(self) -> tuple[Column, Column, Column, Column]:
        """The worth of values of features together: country × category, device × category, age, brand."""
        shapes = ((COUNTRIES, CATEGORIES), (DEVICES, CATEGORIES), (CATEGORIES,), (self._brands,))
        ends = np.cumsum([np.prod(shape) for shape in shapes])
        values = normal(self._key("tastes"), np.arange(ends[-1]), 0).astype(np.float32)
        tables = [
            piece.reshape(shape) for piece, shape in zip(np.split(values, ends[:-1]), shapes, strict=True)
        ]
        return tables[0], tables[1], tables[2], tables[3]

    @cached_property
    def _intercepts(self) -> tuple[float, float]:
        """The intercepts of click and conversion, on a sample of the sessions."""
        size = min(self.n_sessions, CALIBRATION_SESSIONS)
        shown = self._sessions(np.linspace(0, self.n_sessions - 1, size).astype(np.int64))
        examination = self.examination[shown["position"]]
        return (
            _intercept(shown["click_logit"], self.click_rate, examination),
            _intercept(shown["conversion_logit"], self.conversion_rate, np.ones(len(examination))),
        )

    def _sessions(self, session: Column) -> Columns:
        """Return the rows of sessions: a user who has arrived, and items in the order of the policy."""
        key, key_of_row = self._key("sessions"), self._key("rows")
        share = (session + uniform(key, session, 0)) / self.n_sessions
        time = _time_at(share, self.days)
        arrived = np.ceil(self.n_users * (1.0 - self.arriving * (1.0 - share))).astype(np.int64)
        traffic = self._users["traffic"]
        wanted = uniform(key, session, 1) * traffic[np.clip(arrived, 1, self.n_users) - 1]
        user = np.searchsorted(traffic, wanted, side="right")
        device = _device(key, session, 2, self._users["device"][user])

        number = session[:, None] * self.positions + np.arange(self.positions)
        traffic = self._items["traffic"]
        item = np.searchsorted(traffic, uniform(key_of_row, number, 0) * traffic[-1], side="right")
        for position in range(1, self.positions):
            # An item that the session has already is replaced by the next one that it has not.
            while (twice := (item[:, :position] == item[:, [position]]).any(axis=1)).any():
                item[twice, position] = (item[twice, position] + 1) % self.n_items
        shown = {"user": user, "device": device, "time": time, "session": session}
        shown = {name: np.repeat(column[:, None], self.positions, axis=1) for name, column in shown.items()}
        shown |= {"item": item, "discount": _discount(key_of_row, number, 1)}
        shown |= self._logits(shown)
        noise = POLICY_NOISE * normal(key_of_row, number, 3)
        order = np.argsort(-(shown["click_logit"] + noise), axis=1, kind="stable")
        for name in ("item", "discount", "click_logit", "conversion_logit"):
            shown[name] = np.take_along_axis(shown[name], order, axis=1)
        shown["position"] = np.broadcast_to(np.arange(self.positions, dtype=np.int16), item.shape)
        return self._with_taste({name: column.ravel() for name, column in shown.items()})

    def _logits(self, shown: Columns) -> Columns:
        """Return the logits of click and conversion from what is shown and who sees it, without intercept."""
        device, discount, time = shown["device"], shown["discount"], shown["time"]
        of_users = {name: column[shown["user"]] for name, column in self._users.items()}
        of_items = {name: column[shown["item"]] for name, column in self._items.items()}
        country_category, device_category, age_category, brand = self._tastes
        category, age = of_items["category"], of_users["age"].astype(np.float64)
        price = _scaled_price(of_items["price"])
        deal = (discount - DISCOUNT_MEAN) / DISCOUNT_STD
        preference = (
            OF_MATCH * (np.bitwise_count(of_users["interests"] & of_items["tags"]) - MATCH_MEAN)
            + OF_COUNTRY * country_category[of_users["country"], category].astype(np.float64)
            + OF_AGE * age_category[category] * np.nan_to_num((age - AGE_MEAN) / AGE_STD)
            + OF_BRAND * brand[of_items["brand"]].astype(np.float64)
            + OF_DEVICE_PRICE * (device - 1.0) * price
        )
        click = (
            self.bias * CLICK_PREFERENCE * preference
            + CLICK_DISCOUNT * deal
            + CLICK_HOUR * np.sin(2.0 * np.pi * ((time % DAY) / DAY - 0.25))
            + CLICK_USER * of_users["click"].astype(np.float64)
            + CLICK_ITEM * of_items["click"].astype(np.float64)
        )
        conversion = (
            preference
            + CONVERSION_DEVICE * device_category[device, category].astype(np.float64)
            + CONVERSION_DEAL * deal * price
            - CONVERSION_PRICE * price
            + CONVERSION_USER * of_users["conversion"].astype(np.float64)
            + CONVERSION_ITEM * of_items["conversion"].astype(np.float64)
        )
        return {"click_logit": click, "conversion_logit": conversion}

    def _with_taste(self, shown: Columns) -> Columns:
        """Add the hidden taste of the pair to the logits of rows, before anything happened."""
        key = self._key("hidden taste")
        pair = shown["user"].astype(np.uint64) * np.uint64(1 << 32) + shown["item"].astype(np.uint64)
        # The pair is hashed first: neighbouring pairs would share draws.
        taste = normal(key, hashed(key, pair) >> np.uint64(11), 0)
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
        examined = uniform(key, row, 0) < theta
        label = uniform(key, row, 2) < eta
        price = _scaled_price(self._items["price"][shown["item"]])
        mean_delay = self.delay_days * DAY * np.exp(DELAY_BY_PRICE * price)
        return shown | {
            "examined": examined.astype(np.uint8),
            "click": (examined & (uniform(key, row, 1) < relevant)).astype(np.uint8),
            # The conversion that follows, or would have followed, a click; and how long after it, in ms.
            "label": label.astype(np.uint8),
            "delay": np.where(label, -mean_delay * np.log(uniform(key, row, 3)), 0).astype(np.int64),
            "examination": theta.astype(np.float32),
            "p_click": (theta * relevant).astype(np.float32),
            "p_conversion": eta.astype(np.float32),
        }


def take(columns: Mapping[str, Column], rows: Any) -> Columns:
    """Return some of the rows."""
    return {name: column[rows] for name, column in columns.items()}


def hashed(key: np.uint64, number: Column) -> Column:
    """Return SplitMix64 of numbers."""
    return splitmix64(key + number * GOLDEN - GOLDEN)


def uniform(key: np.uint64, number: Column, step: int) -> Column:
    """Return uniform numbers in (0, 1): draw ``step`` of one purpose for each thing."""
    bits = hashed(key, number.astype(np.uint64) * DRAWS_OF_ONE + np.uint64(step)) >> np.uint64(11)
    return np.asarray((bits.astype(np.float64) + 0.5) / (1 << 53))


def normal(key: np.uint64, number: Column, step: int) -> Column:
    """Return standard normal numbers from two uniform draws (Box and Muller)."""
    radius = np.sqrt(-2.0 * np.log(uniform(key, number, step)))
    return np.asarray(radius * np.cos(2.0 * np.pi * uniform(key, number, step + 1)))


def _skewed(key: np.uint64, number: Column, step: int, size: int) -> Column:
    """Return codes below ``size``, the first the most frequent."""
    return np.minimum((size * uniform(key, number, step) ** 2.0).astype(np.int64), size - 1)


def _topics(key: np.uint64, number: Column, step: int, least: int, most: int) -> Column:
    """Return bits of ``least`` to ``most`` topics; a topic that is drawn twice counts once."""
    count = least + ((most - least + 1) * uniform(key, number, step)).astype(np.int64)
    mask = np.zeros(len(number), dtype=np.int64)
    for draw in range(most):
        topic = (TOPICS * uniform(key, number, step + 1 + draw)).astype(np.int64)
        mask |= np.where(draw < count, np.int64(1) << topic, 0)
    return mask.astype(np.uint16)


def _device(key: np.uint64, number: Column, step: int, usual: Column) -> Column:
    other = (DEVICES * uniform(key, number, step + 1)).astype(np.int64)
    return np.where(uniform(key, number, step) < USUAL_DEVICE, usual, other)


def _discount(key: np.uint64, number: Column, step: int) -> Column:
    share = LEAST_DISCOUNT + (MOST_DISCOUNT - LEAST_DISCOUNT) * uniform(key, number, step + 1)
    return np.where(uniform(key, number, step) >= DISCOUNTED, 0.0, np.floor(100.0 * share + 0.5) / 100.0)


def _time_at(share: Column, days: int) -> Column:
    """Return milliseconds from the start at shares of the traffic; most of a day's traffic is around noon."""
    day = np.floor(share * days)
    within = share * days - day
    swing = DAILY_SWING * np.sin(2.0 * np.pi * within) / (2.0 * np.pi)
    return np.asarray((day + within + swing) * DAY).astype(np.int64)


def _scaled_price(price: Column) -> Column:
    return np.asarray((np.log(price.astype(np.float64) + 0.01) - LOG_PRICE_MEAN) / LOG_PRICE_STD)


def _table(size: int, draw: Callable[[Column], Columns]) -> Columns:
    """Draw all users or items, a block at a time, and add up their traffic."""
    blocks = [draw(np.arange(first, min(first + TABLE_BLOCK, size))) for first in range(0, size, TABLE_BLOCK)]
    table = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    return table | {"traffic": np.cumsum(table["traffic"])}


def _intercept(logit: Column, mean: float, factor: Column) -> float:
    """Return the c with mean of factor · σ(c + logit) as asked, by bisection."""
    low, high = -INTERCEPT_RANGE, INTERCEPT_RANGE
    for _ in range(60):
        middle = (low + high) / 2
        if (factor * expit(middle + logit)).mean() < mean:
            low = middle
        else:
            high = middle
    return high
