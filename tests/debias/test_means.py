"""Cross-entropy on logits, and means over O and D."""

from __future__ import annotations

import pytest
import torch

from unskew.debias.losses import cross_entropy, stratified


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


def test_an_estimate_needs_a_term():
    with pytest.raises(ValueError, match="over O, over D, or both"):
        stratified(density=0.1)
