"""Small logs whose cells can be counted by hand; the shapes of all tensors are checked."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from unskew.data import Log
from unskew.data.vocabulary import Vocabulary
from unskew.training import hashing, inference, means, population, samplers

# A bare machine (``pytest -m gpu``) may lack jaxtyping.
if find_spec("jaxtyping"):
    from contracts.shapes import check_shapes

    check_shapes(hashing, inference, means, population, samplers)

N_USERS, N_ITEMS = 40, 30


@pytest.fixture(scope="session")
def matrix_log() -> Log:
    """40 × 30 pairs, 150 clicked and listed in no order, 20 more listed without a click."""
    random = np.random.default_rng(3)
    cells = random.permutation(N_USERS * N_ITEMS)[:170]
    click = (np.arange(170) % 17 > 1).astype(int)
    return Log.from_arrays(
        user=cells // N_ITEMS,
        item=cells % N_ITEMS,
        click=click,
        conversion=np.where(click == 1, cells % 2, np.nan),
        users=Vocabulary.range(N_USERS, name="user"),
        items=Vocabulary.range(N_ITEMS, name="item"),
    )


@pytest.fixture(scope="session")
def impressions_log() -> Log:
    """900 rows, pairs repeated, about a fifth clicked."""
    random = np.random.default_rng(4)
    click = (random.random(900) < 0.2).astype(int)
    return Log.from_arrays(
        user=random.integers(N_USERS, size=900),
        item=random.integers(N_ITEMS, size=900),
        click=click,
        conversion=np.where(click == 1, random.integers(2, size=900), np.nan),
        space="impressions",
    )
