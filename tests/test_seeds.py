"""One seed for each repetition, one stream for each purpose."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.base.errors import ParameterError
from unskew.base.seeds import as_seed, as_seeds, stream


def test_streams_differ_by_seed_purpose_and_what_follows():
    streams = {
        stream(seed, purpose, *further)
        for seed in range(50)
        for purpose in ("weights", "order", "dropout")
        for further in ((), (1,), (2,), (1, 2))
    }
    assert len(streams) == 50 * 3 * 4
    assert all(0 <= each < 2**63 for each in streams)


def test_a_stream_is_always_the_same():
    assert stream(3, "weights") == stream(3, "weights")
    assert stream(np.int64(3), "weights") == stream(3, "weights")


@pytest.mark.parametrize("seeds", [3, np.int64(3), range(3), [0, 1, 2], np.arange(3), (0, 1, 2)])
def test_a_count_or_the_seeds_themselves(seeds):
    assert as_seeds(seeds) == (0, 1, 2)


@pytest.mark.parametrize("seeds", [0, -2, [], [1, 1], [-1], range(0), "a", None, 1.5, [1.5], True, ["a"]])
def test_what_is_no_seed_is_told(seeds):
    told = "seeds must be (a positive count or distinct non-negative|from 1 to 10,000)"
    with pytest.raises(ParameterError, match=told):
        as_seeds(seeds)


@pytest.mark.parametrize("seed", [-1, 1.5, None, "a", True])
def test_what_is_not_one_seed_is_told(seed):
    for use in (as_seed, lambda seed: stream(seed, "weights")):
        with pytest.raises(ParameterError, match=f"seed must be a whole number of 0 or more, not {seed!r}"):
            use(seed)
