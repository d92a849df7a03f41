"""Counter-based randomness: bijections are bijections, draws are uniform, nothing depends on chunks."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from unskew.training import hashing

KEYS = hashing.keys(torch.tensor([0, 1, 2**62, 17]), salt=3)


@pytest.mark.parametrize("bits", [2, 3, 4, 9, 10, 16, 17])
def test_permute_is_a_bijection_for_every_key(bits):
    everything = torch.arange(1 << bits)
    image = hashing.permute(everything.unsqueeze(0), KEYS.unsqueeze(1), bits)
    for row in image:
        assert torch.equal(row.sort().values, everything)


@pytest.mark.parametrize("bits", [6, 7])
def test_permute_sends_a_position_anywhere_with_equal_chance(bits):
    keys = hashing.keys(torch.arange(64_000), salt=0)
    for position in (0, 1, (1 << bits) - 1):
        image = hashing.permute(torch.tensor([position]), keys, bits)
        assert stats.chisquare(torch.bincount(image, minlength=1 << bits)).pvalue > 1e-3


@pytest.mark.parametrize("size", [2, 7, 24, 1000])
def test_uniform_int_is_uniform_for_every_key(size):
    draws = hashing.uniform_int(torch.arange(200_000).unsqueeze(0), KEYS.unsqueeze(1), size)
    for row in draws:
        assert stats.chisquare(torch.bincount(row, minlength=size)).pvalue > 1e-3


def test_draws_at_neighbouring_counters_and_under_other_keys_are_independent():
    draws = hashing.uniform_int(torch.arange(50_000).unsqueeze(0), KEYS.unsqueeze(1), 8)
    neighbours = torch.bincount(draws[0, 1:] * 8 + draws[0, :-1], minlength=64).view(8, 8)
    other_keys = torch.bincount(draws[0] * 8 + draws[1], minlength=64).view(8, 8)
    for table in (neighbours, other_keys):
        assert stats.chi2_contingency(table).pvalue > 1e-3


def test_shuffled_gives_each_key_a_permutation_of_its_own():
    orders = hashing.shuffled(KEYS, 500)
    for row in orders:
        assert torch.equal(row.sort().values, torch.arange(500))
    assert len(orders.unique(dim=0)) == len(KEYS)
    assert torch.equal(hashing.shuffled(KEYS[2:3], 500)[0], orders[2])
