"""Compiled loops of the impression world: tables of users and items, sessions, and what became of their rows.

All that is random is a hash of (a key of the seed, a number of the thing): any rows can be drawn alone.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.compiled import compiled

COUNTRIES, CATEGORIES, DEVICES, TOPICS = 20, 24, 3, 16
"""Values of the category and bag features; :mod:`unskew.datasets.impression_world` names them."""

DAY = 86_400_000
"""Milliseconds."""

AGE_MEAN, AGE_STD, YOUNGEST, OLDEST = 40.0, 14.0, 16.0, 90.0
UNKNOWN_AGES = 0.05
"""Share of users whose age is missing; a missing age has no effect, or it would be a hidden one."""

LOG_PRICE_MEAN, LOG_PRICE_STD = 3.0, 0.9
DISCOUNTED, LEAST_DISCOUNT, MOST_DISCOUNT = 0.4, 0.05, 0.5
DISCOUNT_MEAN, DISCOUNT_STD = 0.11, 0.16
USUAL_DEVICE = 0.8
"""Share of a user's sessions on the one device that is theirs."""

MATCH_MEAN = 0.3
"""Mean number of topics that are both among a user's interests and an item's tags."""

DAILY_SWING = 0.7
"""How much denser than the mean traffic is at noon, and thinner at midnight."""

# Weights in the preference, which drives clicks and conversions alike; its standard deviation is about 1.
OF_MATCH, OF_COUNTRY, OF_AGE, OF_BRAND, OF_DEVICE_PRICE = 0.9, 0.7, 0.5, 0.4, 0.35
# Weights in the click alone, and in the conversion alone.
CLICK_PREFERENCE, CLICK_DISCOUNT, CLICK_HOUR, CLICK_USER, CLICK_ITEM = 0.9, 0.3, 0.2, 0.4, 0.4
CONVERSION_DEVICE, CONVERSION_DEAL, CONVERSION_PRICE, CONVERSION_USER, CONVERSION_ITEM = (
    0.4,
    0.3,
    0.3,
    0.3,
    0.4,
)
POLICY_NOISE = 1.0
"""Standard deviation of what the policy that orders a session adds to the logit of the click."""

DELAY_BY_PRICE = 0.3
"""Dear items are bought later: log of the mean delay by standard deviations of the log price."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_THIRTY, _TWENTY_SEVEN, _THIRTY_ONE, _ELEVEN = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_STEPS = np.uint64(64)
"""Draws of one purpose for one thing."""


class Users(NamedTuple):
    """One value for each user; users are numbered in the order in which they arrive."""

    country: NDArray[np.int8]
    age: NDArray[np.float32]
    device: NDArray[np.int8]
    interests: NDArray[np.uint16]
    """A bit for each topic."""
    click: NDArray[np.float32]
    """What the user adds to clicks that no feature shows; drawn apart from what they add to conversions."""
    conversion: NDArray[np.float32]
    traffic: NDArray[np.float64]
    """Running sum of activities."""


class Items(NamedTuple):
    """One value for each item."""

    category: NDArray[np.int8]
    brand: NDArray[np.int32]
    price: NDArray[np.float32]
    tags: NDArray[np.uint16]
    click: NDArray[np.float32]
    conversion: NDArray[np.float32]
    traffic: NDArray[np.float64]


class Tastes(NamedTuple):
    """What values of features are worth together."""

    country_category: NDArray[np.float32]
    age_category: NDArray[np.float32]
    device_category: NDArray[np.float32]
    brand: NDArray[np.float32]


class ShownColumns(NamedTuple):
    """Rows before anything happened, and the logits (without intercept) of what may."""

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    session: NDArray[np.int64]
    position: NDArray[np.int16]
    time: NDArray[np.int64]
    device: NDArray[np.int8]
    discount: NDArray[np.float32]
    taste: NDArray[np.float32]
    click_logit: NDArray[np.float64]
    conversion_logit: NDArray[np.float64]


class OutcomeColumns(NamedTuple):
    """What became of rows, and with which probabilities."""

    examined: NDArray[np.uint8]
    click: NDArray[np.uint8]
    label: NDArray[np.uint8]
    """The conversion that follows, or would have followed, a click."""
    delay: NDArray[np.int64]
    """Milliseconds from the click to that conversion; 0 where there is none."""
    examination: NDArray[np.float32]
    p_click: NDArray[np.float32]
    p_conversion: NDArray[np.float32]


@compiled(inline="always")
def _mixed(key: Any, number: Any) -> Any:
    x = np.uint64(key) + np.uint64(number) * _GOLDEN
    x = (x ^ (x >> _THIRTY)) * _MIX_1
    x = (x ^ (x >> _TWENTY_SEVEN)) * _MIX_2
    return x ^ (x >> _THIRTY_ONE)


@compiled()
def _uniform(key: Any, number: Any, step: Any) -> Any:
    """In (0, 1): draw ``step`` of one purpose for one thing."""
    hashed = _mixed(key, np.uint64(number) * _STEPS + np.uint64(step))
    return (np.float64(hashed >> _ELEVEN) + 0.5) / 9007199254740992.0


@compiled()
def _normal(key: Any, number: Any, step: Any) -> Any:
    """Standard normal, from two uniform draws (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(_uniform(key, number, step)))
    return radius * math.cos(2.0 * math.pi * _uniform(key, number, step + 1))


@compiled()
def _skewed(key: Any, number: Any, step: Any, size: Any) -> Any:
    """One of ``size`` codes, the first the most frequent."""
    return min(int(size * _uniform(key, number, step) ** 2.0), size - 1)


@compiled()
def _topics(key: Any, number: Any, step: Any, least: Any, most: Any) -> Any:
    """Bits of ``least`` to ``most`` topics; one that is drawn twice counts once."""
    mask = 0
    for place in range(least + int((most - least + 1) * _uniform(key, number, step))):
        mask |= 1 << int(TOPICS * _uniform(key, number, step + 1 + place))
    return mask


@compiled()
def fill_tastes(key: Any, tastes: Any) -> None:
    """Standard normal values."""
    number = 0
    for table in (tastes.country_category, tastes.device_category):
        for row in range(table.shape[0]):
            for column in range(table.shape[1]):
                table[row, column] = _normal(key, number, 0)
                number += 1
    for line in (tastes.age_category, tastes.brand):
        for place in range(len(line)):
            line[place] = _normal(key, number, 0)
            number += 1


@compiled()
def fill_users(key: Any, activity_std: Any, users: Any) -> None:
    """Users by their numbers; their features do not depend on how many there are."""
    total = 0.0
    for user in range(len(users.country)):
        users.country[user] = _skewed(key, user, 0, COUNTRIES)
        age = AGE_MEAN + AGE_STD * _normal(key, user, 1)
        age = math.floor(min(max(age, YOUNGEST), OLDEST))
        users.age[user] = np.nan if _uniform(key, user, 3) < UNKNOWN_AGES else age
        users.device[user] = _skewed(key, user, 4, DEVICES)
        users.interests[user] = _topics(key, user, 5, 1, 4)
        users.click[user] = _normal(key, user, 11)
        users.conversion[user] = _normal(key, user, 13)
        total += math.exp(activity_std * _normal(key, user, 15))
        users.traffic[user] = total


@compiled()
def fill_items(key: Any, popularity_std: Any, brands: Any, items: Any) -> None:
    """Items by their numbers."""
    total = 0.0
    for item in range(len(items.category)):
        category = _skewed(key, item, 0, CATEGORIES)
        items.category[item] = category
        items.brand[item] = _skewed(key, item, 1, brands)
        log_price = LOG_PRICE_MEAN + LOG_PRICE_STD * _normal(key, item, 2)
        items.price[item] = math.floor(100.0 * math.exp(log_price) + 0.5) / 100.0
        items.tags[item] = _topics(key, item, 4, 0, 4)
        items.click[item] = _normal(key, item, 10)
        items.conversion[item] = _normal(key, item, 12)
        total += math.exp(popularity_std * _normal(key, item, 14))
        items.traffic[item] = total


@compiled()
def _bits(mask: Any) -> Any:
    count = 0
    left = np.int64(mask)
    while left != 0:
        left = left & np.int64(left - 1)
        count += 1
    return count


@compiled()
def _logits(
    user: Any,
    item: Any,
    device: Any,
    discount: Any,
    time: Any,
    bias: Any,
    users: Any,
    items: Any,
    tastes: Any,
) -> Any:
    """Logits of click and conversion from what is shown, and from the residues of the ids; no intercept."""
    category = items.category[item]
    age = users.age[user]
    age_scaled = 0.0 if math.isnan(age) else (age - AGE_MEAN) / AGE_STD
    price = (math.log(items.price[item] + 0.01) - LOG_PRICE_MEAN) / LOG_PRICE_STD
    deal = (discount - DISCOUNT_MEAN) / DISCOUNT_STD
    preference = (
        OF_MATCH * (_bits(users.interests[user] & items.tags[item]) - MATCH_MEAN)
        + OF_COUNTRY * tastes.country_category[users.country[user], category]
        + OF_AGE * tastes.age_category[category] * age_scaled
        + OF_BRAND * tastes.brand[items.brand[item]]
        + OF_DEVICE_PRICE * (device - 1.0) * price
    )
    hour = math.sin(2.0 * math.pi * ((time % DAY) / DAY - 0.25))
    click = (
        bias * CLICK_PREFERENCE * preference
        + CLICK_DISCOUNT * deal
        + CLICK_HOUR * hour
        + CLICK_USER * users.click[user]
        + CLICK_ITEM * items.click[item]
    )
    conversion = (
        preference
        + CONVERSION_DEVICE * tastes.device_category[device, category]
        + CONVERSION_DEAL * deal * price
        - CONVERSION_PRICE * price
        + CONVERSION_USER * users.conversion[user]
        + CONVERSION_ITEM * items.conversion[item]
    )
    return click, conversion


@compiled()
def _drawn(traffic: Any, size: Any, share: Any) -> Any:
    """The first of ``size`` things whose running sum exceeds a share of all."""
    wanted = share * traffic[size - 1]
    low, high = 0, size - 1
    while low < high:
        middle = (low + high) // 2
        if traffic[middle] > wanted:
            high = middle
        else:
            low = middle + 1
    return low


@compiled()
def _time_of(share: Any, days: Any) -> Any:
    """Milliseconds from the start at a share of the traffic; most of a day's is around noon."""
    day = math.floor(share * days)
    part = share * days - day
    return int((day + part + DAILY_SWING * math.sin(2.0 * math.pi * part) / (2.0 * math.pi)) * DAY)


@compiled()
def _discount(key: Any, number: Any, step: Any) -> Any:
    if _uniform(key, number, step) >= DISCOUNTED:
        return 0.0
    share = LEAST_DISCOUNT + (MOST_DISCOUNT - LEAST_DISCOUNT) * _uniform(key, number, step + 1)
    return math.floor(100.0 * share + 0.5) / 100.0


@compiled()
def _device(key: Any, number: Any, step: Any, usual: Any) -> Any:
    if _uniform(key, number, step) < USUAL_DEVICE:
        return usual
    return int(DEVICES * _uniform(key, number, step + 1))


@compiled()
def _write(
    row: Any,
    user: Any,
    item: Any,
    session: Any,
    position: Any,
    time: Any,
    device: Any,
    discount: Any,
    key_of_taste: Any,
    click: Any,
    conversion: Any,
    confounding: Any,
    shown: Any,
) -> None:
    pair = np.uint64(user) * np.uint64(0x100000000) + np.uint64(item)
    # The pair is mixed first: pairs of neighbours would share draws.
    taste = _normal(key_of_taste, _mixed(key_of_taste, pair) >> _ELEVEN, 0)
    shown.user[row] = user
    shown.item[row] = item
    shown.session[row] = session
    shown.position[row] = position
    shown.time[row] = time
    shown.device[row] = device
    shown.discount[row] = discount
    shown.taste[row] = taste
    shown.click_logit[row] = click + confounding * taste
    shown.conversion_logit[row] = conversion + confounding * taste


@compiled()
def fill_sessions(
    numbers: Any,
    n_sessions: Any,
    days: Any,
    arriving: Any,
    bias: Any,
    confounding: Any,
    key_of_session: Any,
    key_of_row: Any,
    key_of_taste: Any,
    users: Any,
    items: Any,
    tastes: Any,
    positions: Any,
    shown: Any,
) -> None:
    """Sessions by their numbers: a user who has arrived by then, and items in the order of the policy."""
    n_users, n_items = len(users.country), len(items.category)
    item = np.empty(positions, np.int64)
    discount = np.empty(positions)
    click = np.empty(positions)
    conversion = np.empty(positions)
    policy = np.empty(positions)
    order = np.empty(positions, np.int64)
    for place in range(len(numbers)):
        session = numbers[place]
        share = (session + _uniform(key_of_session, session, 0)) / n_sessions
        time = _time_of(share, days)
        arrived = min(max(math.ceil(n_users * (1.0 - arriving * (1.0 - share))), 1), n_users)
        user = _drawn(users.traffic, arrived, _uniform(key_of_session, session, 1))
        device = _device(key_of_session, session, 2, users.device[user])
        for each in range(positions):
            number = session * positions + each
            item[each] = _drawn(items.traffic, n_items, _uniform(key_of_row, number, 0))
            before = 0
            while before < each:
                if item[before] == item[each]:
                    item[each] = (item[each] + 1) % n_items
                    before = 0
                else:
                    before += 1
            discount[each] = _discount(key_of_row, number, 1)
            click[each], conversion[each] = _logits(
                user, item[each], device, discount[each], time, bias, users, items, tastes
            )
            policy[each] = click[each] + POLICY_NOISE * _normal(key_of_row, number, 3)
            at = each
            while at > 0 and policy[order[at - 1]] < policy[each]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = each
        for position in range(positions):
            each = order[position]
            _write(
                place * positions + position,
                user,
                item[each],
                session,
                position,
                time,
                device,
                discount[each],
                key_of_taste,
                click[each],
                conversion[each],
                confounding,
                shown,
            )


@compiled()
def fill_random(
    days: Any,
    bias: Any,
    confounding: Any,
    key: Any,
    key_of_taste: Any,
    users: Any,
    items: Any,
    tastes: Any,
    positions: Any,
    shown: Any,
) -> None:
    """Rows shown at random on the day after the log: any user, any item, any position."""
    n_users, n_items = len(users.country), len(items.category)
    for row in range(len(shown.user)):
        user = int(n_users * _uniform(key, row, 0))
        item = int(n_items * _uniform(key, row, 1))
        position = int(positions * _uniform(key, row, 2))
        time = (days + _uniform(key, row, 3)) * DAY
        device = _device(key, row, 4, users.device[user])
        discount = _discount(key, row, 6)
        click, conversion = _logits(user, item, device, discount, int(time), bias, users, items, tastes)
        _write(
            row,
            user,
            item,
            -1 - row,
            position,
            int(time),
            device,
            discount,
            key_of_taste,
            click,
            conversion,
            confounding,
            shown,
        )


@compiled()
def fill_outcomes(
    first_row: Any,
    key: Any,
    examination: Any,
    click_intercept: Any,
    conversion_intercept: Any,
    mean_delay: Any,
    items: Any,
    shown: Any,
    outcome: Any,
) -> None:
    """Draw what became of rows; ``examination`` is by position, ``mean_delay`` in milliseconds."""
    for row in range(len(shown.user)):
        number = first_row + row
        theta = examination[shown.position[row]]
        relevant = 1.0 / (1.0 + math.exp(-(click_intercept + shown.click_logit[row])))
        eta = 1.0 / (1.0 + math.exp(-(conversion_intercept + shown.conversion_logit[row])))
        examined = _uniform(key, number, 0) < theta
        outcome.examined[row] = examined
        outcome.click[row] = examined and _uniform(key, number, 1) < relevant
        outcome.label[row] = _uniform(key, number, 2) < eta
        outcome.delay[row] = 0
        if outcome.label[row]:
            price = (math.log(items.price[shown.item[row]] + 0.01) - LOG_PRICE_MEAN) / LOG_PRICE_STD
            mean = mean_delay * math.exp(DELAY_BY_PRICE * price)
            outcome.delay[row] = int(-mean * math.log(_uniform(key, number, 3)))
        outcome.examination[row] = theta
        outcome.p_click[row] = theta * relevant
        outcome.p_conversion[row] = eta


@compiled()
def unpack_topics(masks: Any, offsets: Any, topics: Any) -> Any:
    """Lists from bits: where each begins in ``topics``; gives how many there are in all."""
    end = 0
    for row in range(len(masks)):
        offsets[row] = end
        left = np.int64(masks[row])
        for topic in range(TOPICS):
            if left & (1 << topic):
                topics[end] = topic
                end += 1
    offsets[len(masks)] = end
    return end
