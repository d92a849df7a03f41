"""Cross-entropy on logits, and the stratified estimator of sums over D."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unskew.training import ObservedAndFull, Population, ShuffledRows, cross_entropy, stratified

CPU = torch.device("cpu")


def test_cross_entropy_is_its_formula():
    random = torch.Generator().manual_seed(0)
    logit = 5 * torch.randn(1000, generator=random, dtype=torch.float64)
    target = torch.rand(1000, generator=random, dtype=torch.float64)
    p = torch.sigmoid(logit)
    expected = -(target * p.log() + (1 - target) * (1 - p).log())
    torch.testing.assert_close(cross_entropy(target, logit), expected)


def test_cross_entropy_is_finite_far_out_and_affine_in_the_target():
    logit = torch.tensor([-200.0, -30.0, 0.0, 30.0, 200.0], dtype=torch.float64)
    zero, one = (cross_entropy(torch.full_like(logit, t), logit) for t in (0.0, 1.0))
    torch.testing.assert_close(zero - one, logit)
    torch.testing.assert_close(zero, torch.logaddexp(torch.zeros_like(logit), logit))
    # A target may leave [0, 1], as the effective target of doubly robust losses does.
    torch.testing.assert_close(cross_entropy(torch.full_like(logit, 2.5), logit), zero - 2.5 * logit)


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
            stratified(observed=g[draw.observed], full=f[draw.cells], density=density)
            for epoch in range(30)
            for block in sampler.epoch(epoch)
            for draw in block.steps()
        ]
    )
    by_seed = estimates.mean(0)
    standard_error = by_seed.std() / len(seeds) ** 0.5
    exact = (f.sum() + g.sum()) / population.size
    assert abs(by_seed.mean() - exact) < 3 * standard_error
    assert standard_error < 0.05 * exact


def test_an_estimate_needs_a_term():
    with pytest.raises(ValueError, match="over O, over D, or both"):
        stratified(density=0.1)
