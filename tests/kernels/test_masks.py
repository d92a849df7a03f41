"""Compiled masks are the plain ones, bit for bit."""

from __future__ import annotations

import pytest
import torch

from unskew.kernels.masks import keep_mask
from unskew.learners.noise import plain_mask


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.77])
@pytest.mark.parametrize("shape", [(2, 7, 50), (2, 1), (2, 3, 4, 5), (2, 0, 4)])
def test_they_are_those_of_tensor_operations(rate, shape):
    seeds = torch.tensor([5, 2**31 - 1], dtype=torch.int32)
    for call in (0, 1, 77_777):
        number = torch.tensor(call, dtype=torch.int32)
        assert torch.equal(keep_mask(shape, seeds, number, rate), plain_mask(shape, seeds, number, rate))
