"""Two logs that every kind of propensity is tried on: all pairs of a synthetic world, and impressions."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us


@pytest.fixture(scope="session")
def data():
    return us.load("synthetic", n_users=80, n_items=60, density=0.12, seed=1)


@pytest.fixture(scope="session")
def log(data):
    return data.train


@pytest.fixture(scope="session")
def impressions():
    random = np.random.default_rng(0)
    user, item = random.integers(50, size=4000), random.integers(20, size=4000)
    click = (random.random(4000) < 0.05 + 0.4 * (user < 20)).astype(int)
    return us.Log.from_arrays(user=user, item=item, click=click, space="impressions")
