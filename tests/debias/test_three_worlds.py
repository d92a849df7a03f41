"""Every method at its defaults, with true propensities, on a dense log, a sparse one and rare conversions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import unskew as us
from contracts.worlds import WORLDS, World
from unskew.debias import METHODS, Debiaser

NOISE = 0.03
"""AUC that one seed can lose to the naive model by chance here: two standard deviations over seeds."""

RATES = ("ips", "snips", "dr", "dr-jl", "mrdr", "dr-bias", "dr-mse")
"""Methods whose rates are compared with the truth, too."""

EVERYWHERE = ("naive", "ips", "snips", "dr-jl")
"""Methods that ``make test`` tries in every world: weights, weights over their sum, and an imputer."""

ASKED_MOST = {"dcmt": "impressions", "acdr": "sparse", "uips": "sparse", "dce-dr": "coat-like"}
"""The world that asks most of what is new in a method."""


def cases(methods: Collection[str]) -> Iterator[Any]:
    """These in every world; but for those of ``EVERYWHERE``, ``make thorough`` has two of the three."""
    for number, method in enumerate(METHODS):
        if method not in methods:
            continue
        asked = ASKED_MOST.get(method, list(WORLDS)[number % len(WORLDS)])
        for world in WORLDS:
            always = world == asked or method in EVERYWHERE
            yield pytest.param(method, world, marks=() if always else pytest.mark.thorough)


LATE = ("ddpo", "ips-v2")
"""Methods that get better again after some epochs without improvement, and need their default patience."""


@cache
def fitted(method: str, world: str) -> tuple[Debiaser, World]:
    place = WORLDS[world]()
    # A small network that stops soon, for time; everything else is the method's default.
    short = {} if method in LATE else {"patience": 4}
    model = METHODS[method](learner=us.NeuMF(dim=16, layers=(32, 16)), learning_rate=3e-3, **short)
    propensity = place.propensity if model.needs_propensity else None
    return model.fit(place.log, propensity=propensity, seeds=1), place


@pytest.mark.parametrize(("method", "world"), [*cases(METHODS)])
def test_no_method_collapses_or_loses_to_the_naive_model_beyond_noise(method, world):
    model, place = fitted(method, world)
    naive, _ = fitted("naive", world)
    assert not {each.network for each in model.collapsed_} & {"prediction", "click"}
    assert place.auc(model) > max(0.55, place.auc(naive) - NOISE)


@pytest.mark.parametrize(("method", "world"), [*cases(RATES)])
def test_true_propensities_bring_the_rates_nearer_to_the_truth(method, world):
    model, place = fitted(method, world)
    naive, _ = fitted("naive", world)
    assert place.error(model) < place.error(naive)
    level = np.log(place.predicted(model).mean() / place.rate.mean())
    assert abs(level) < abs(np.log(place.predicted(naive).mean() / place.rate.mean()))
