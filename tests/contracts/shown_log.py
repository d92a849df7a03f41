"""A log of impressions with known propensities, which tests of several rooms share."""

from __future__ import annotations

import numpy as np

import unskew as us

USERS, ITEMS, ROWS = 20, 15, 600


def impressions(rows: int = ROWS) -> us.Log:
    random = np.random.default_rng(2)
    user, item = random.integers(USERS, size=rows), random.integers(ITEMS, size=rows)
    p = np.where(user < 8, 0.5, 0.2)
    click = (random.random(rows) < p).astype(int)
    return us.Log.from_arrays(
        user=user,
        item=item,
        click=click,
        conversion=np.where(click == 1, item % 3 == 0, np.nan),
        space="impressions",
        columns={"p": p},
    )
