"""Batches of O and D, as samplers sample them, estimate sums over D without bias."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unskew.debias.losses import stratified
from unskew.training import ObservedAndFull, Population, ShuffledRows

CPU = torch.device("cpu")


@pytest.fixture(params=["matrix", "impressions"])
def world(request):
    """A population, a number f for each cell of D, and a number g for each position of O."""
    population = Population(request.getfixturevalue(f"{request.param}_log"), CPU)
    random = np.random.default_rng(8)
    f = torch.as_tensor(random.gamma(2.0, size=population.size))
    g = torch.as_tensor(5 * random.standard_normal(population.n_clicks))
    return population, f, g


def test_full_batches_give_the_sums_exactly(world):
    population, f, g = world
    exact = (f.sum() + g.sum()) / population.size
    density = population.n_clicks / population.size
    estimate = stratified(observed=g[None], full=f[None], density=density)
    torch.testing.assert_close(estimate, exact[None], rtol=1e-12, atol=0)
    parts = stratified(observed=g[None], density=density) + stratified(full=f[None], density=density)
    torch.testing.assert_close(parts, exact[None], rtol=1e-12, atol=0)


@pytest.mark.parametrize(("batch_size", "ratio"), [(8, 1.0), (37, 0.5), (16, 5.0)])
def test_batches_of_any_sizes_estimate_the_sums_without_bias(world, batch_size, ratio):
    population, f, g = world
    seeds = range(20)
    rows = torch.arange(population.n_clicks).expand(len(seeds), -1)
    sampler = ObservedAndFull(ShuffledRows(rows, seeds, batch_size), population, ratio)
    density = population.n_clicks / population.size
    estimates = torch.stack(
        [
            stratified(observed=g[sample.observed], full=f[sample.cells], density=density)
            for epoch in range(30)
            for block in sampler.epoch(epoch)
            for sample in block.steps()
        ]
    )
    by_seed = estimates.mean(0)
    standard_error = by_seed.std() / len(seeds) ** 0.5
    exact = (f.sum() + g.sum()) / population.size
    assert abs(by_seed.mean() - exact) < 3 * standard_error
    assert standard_error < 0.05 * exact
