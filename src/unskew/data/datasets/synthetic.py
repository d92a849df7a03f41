"""A synthetic world, 300 × 200 by default: true propensities and conversions are known for every pair."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unskew.base.errors import ParameterError
from unskew.base.estimator import require_in, require_whole
from unskew.base.registry import register
from unskew.data import Features, Log
from unskew.data.datasets.dataset import Dataset, Protocol, takes, without_leaked_cells
from unskew.data.vocabulary import Vocabulary

PREFERENCE_SHARES = (0.6, 0.6, 0.6)
"""Standard deviations of taste match, user level and item appeal in the preference, before scaling."""

PREFERENCE_SCALE = 1.5
"""Standard deviation of the conversion logit: conversion probabilities from about 0.01 to 0.95."""

SELECTION_SCALES = (0.8, 0.4, 0.4)
"""Standard deviations of preference, activity and popularity in the click logit, at ``bias=1``.

At the default density some 2 % of the propensities are below 0.01, so that weights are heavy-tailed
but a clip at 0.01 barely changes the IPS estimate.
"""

FEATURE_NOISE = 0.5
"""Standard deviation of the noise on features whose signal has standard deviation 1."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The truth of each pair, which a real log never shows.

    Attributes
    ----------
    propensity
        p[u, i] = P(click), float64.
    conversion
        η[u, i] = P(conversion if clicked), float64.
    labels
        r[u, i], the conversions drawn once from η for all of D, 0 or 1.
    """

    propensity: NDArray[np.float64]
    conversion: NDArray[np.float64]
    labels: NDArray[np.uint8]

    def __post_init__(self) -> None:
        for array in (self.propensity, self.conversion, self.labels):
            array.flags.writeable = False


@dataclass(frozen=True, kw_only=True)
class World:
    """The parameters of the world, as :func:`synthetic` takes them."""

    n_users: int = 300
    n_items: int = 200
    density: float = 0.09
    bias: float = 1.0
    conversion_rate: float = 0.3
    test_per_user: int = 16
    dimension: int = 8
    confounding: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_whole(2, n_users=self.n_users, n_items=self.n_items)
        require_whole(1, test_per_user=self.test_per_user, dimension=self.dimension)
        require_whole(0, seed=self.seed)
        require_in("(0, 1)", density=self.density, conversion_rate=self.conversion_rate)
        require_in("[0, inf)", bias=self.bias, confounding=self.confounding)
        if self.test_per_user > self.n_items:
            raise ParameterError(
                f"test_per_user is {self.test_per_user}, but there are only {self.n_items} items",
                remedy="show at most n_items items to each user",
            )


@register(order=10)
@takes(World)
def synthetic(root: str | Path | None, asked: World, *, protocol: Protocol = "honest") -> Dataset:
    """Draw a world in which people click what they are likely to convert on.

    ``t[u,i] = a·⟨x_u, y_i⟩/√dimension + b·level_u + c·appeal_i``, standardised over D (the preference);
    ``η = σ(c₀ + 1.5·t)`` with mean ``conversion_rate``;
    ``p = σ(d₀ + bias·(0.8·t + 0.4·activity_u + 0.4·popularity_i))`` with mean ``density``;
    ``r ~ Bernoulli(η)`` once for all of D, ``o ~ Bernoulli(p)``, r is logged where o = 1. ``confounding``
    adds that many times a hidden taste to both logits: standard normal for each pair, in no feature, and no
    sum or product of something of the user and something of the item.

    The intercepts c₀ and d₀ are found by bisection, so that the means are exact. With ``bias=0`` every pair
    has the propensity ``density`` and clicks are missing completely at random; the naive estimate is biased
    for every ``bias > 0``. Use it to see what an estimate should be; not to rank methods for real data, which
    are not drawn from this model.

    Parameters
    ----------
    density
        Mean propensity.
    bias
        Strength of selection on preference, activity and popularity; 0 is none.
    test_per_user
        Items shown at random to each user for the test log. Those that the user also clicked in training
        are left out under the honest protocol.
    dimension
        Length of the latent tastes x_u and y_i.
    confounding
        Strength of the hidden taste in the logits of click and conversion.
    seed
        Of everything; the test draw is independent of the training draw.

    Examples
    --------
    >>> data = synthetic(seed=3)
    >>> round(float(data.truth.propensity.mean()), 6)
    0.09
    """
    if root is not None:
        raise ParameterError("the synthetic world is drawn, not read", remedy="leave out root (--root)")
    n_users, n_items = asked.n_users, asked.n_items
    world, label_draw, click_draw, test_draw, hidden_draw = np.random.default_rng(asked.seed).spawn(5)
    taste = world.standard_normal((n_users, asked.dimension))
    style = world.standard_normal((n_items, asked.dimension))
    level, activity = world.standard_normal((2, n_users))
    appeal, popularity = world.standard_normal((2, n_items))

    match, user_share, item_share = PREFERENCE_SHARES
    preference = (
        match * taste @ style.T / math.sqrt(asked.dimension)
        + user_share * level[:, None]
        + item_share * appeal[None, :]
    )
    preference = (preference - preference.mean()) / preference.std()
    by_preference, by_activity, by_popularity = SELECTION_SCALES
    selection = (
        by_preference * preference + by_activity * activity[:, None] + by_popularity * popularity[None, :]
    )

    of_conversion, of_click = PREFERENCE_SCALE * preference, asked.bias * selection
    if asked.confounding:
        hidden = asked.confounding * hidden_draw.standard_normal(preference.shape)
        of_conversion, of_click = of_conversion + hidden, of_click + hidden
    conversion = _with_mean(of_conversion, asked.conversion_rate)
    propensity = _with_mean(of_click, asked.density)
    labels = (label_draw.random(conversion.shape) < conversion).astype(np.uint8)
    clicked = np.flatnonzero(click_draw.random(propensity.shape) < propensity)
    shown = np.concatenate(
        [u * n_items + test_draw.permutation(n_items)[: asked.test_per_user] for u in range(n_users)]
    )

    users, items = Vocabulary.range(n_users, name="user"), Vocabulary.range(n_items, name="item")
    user_features = _features(world, "taste", taste, level=level, activity=activity)
    item_features = _features(world, "style", style, appeal=appeal, popularity=popularity)

    def log_of(cells: NDArray[np.int64]) -> Log:
        return Log.from_arrays(
            user=cells // n_items,
            item=cells % n_items,
            conversion=labels.ravel()[cells],
            users=users,
            items=items,
            user_features=user_features,
            item_features=item_features,
        )

    train = log_of(clicked)
    test, leak = without_leaked_cells(train, log_of(shown), protocol)
    return Dataset(
        name="synthetic",
        train=train,
        test=test,
        truth=Truth(propensity=propensity, conversion=conversion, labels=labels),
        test_is="random",
        facts={**leak, "options": asdict(asked), "note": "drawn from a known model; no real people"},
    )


def _with_mean(logit: NDArray[np.float64], mean: float) -> NDArray[np.float64]:
    """Return σ(c + logit) with the intercept c that gives the mean, by bisection to the last bit of c."""
    # At these ends all probabilities are at most, or at least, the mean.
    middle = math.log(mean / (1.0 - mean))
    low, high = middle - float(logit.max()) - 1.0, middle - float(logit.min()) + 1.0
    while low < (middle := (low + high) / 2) < high:
        if expit(middle + logit).mean() < mean:
            low = middle
        else:
            high = middle
    probability: NDArray[np.float64] = expit(high + logit)
    return probability


def _features(
    random: np.random.Generator, prefix: str, factors: NDArray[np.float64], **named: NDArray[np.float64]
) -> Features:
    """Draw noisy views of the latent quantities, as a real log would have them."""
    signal = np.column_stack([factors, *named.values()])
    noisy = signal + FEATURE_NOISE * random.standard_normal(signal.shape)
    names = (*(f"{prefix}_{k}" for k in range(factors.shape[1])), *named)
    return Features(names=names, values=noisy.astype(np.float32))
