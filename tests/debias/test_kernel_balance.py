"""KB-IPS and KB-DR: weights of mean 1, balance for each anchor, and where gradients stop."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import unskew as us
from contracts.small_setting import WIDE, clicked_batch, full_batch, small_setting
from unskew import losses
from unskew.base.errors import ParameterError
from unskew.debias import DRJL, KBDR, KBIPS, SNIPS, Batch, Setting
from unskew.debias.kb_ips import embeddings

OBSERVED, FULL = clicked_batch(), full_batch()
Balancing = KBIPS | KBDR


def balancing(kind: type[Balancing] = KBIPS, **params: object) -> tuple[Balancing, Setting]:
    method = kind(learner=WIDE, **params)
    return method, small_setting(method)


def flatten_weights(setting: Setting) -> None:
    """Make the weight network say the same of every pair, as it about does at its start."""
    with torch.no_grad():
        for parameter in setting.networks["weight"].parameters():
            parameter.zero_()


def kernels(setting: Setting, observed: Batch, full: Batch, **how) -> tuple[torch.Tensor, torch.Tensor]:
    return losses.kernels(*(embeddings(setting, batch) for batch in (observed, full)), **how)


def gaps(setting: Setting, method: Balancing, observed: Batch, full: Batch) -> torch.Tensor:
    """mean_D K(x, x_j) − mean_O w·K(x, x_j) ``[R, J]``."""
    weight = method.weight(setting, observed)
    at_observed, at_full = kernels(setting, observed, full, kernel=method.kernel, anchors=method.anchors)
    return at_full.mean(1) - (weight.unsqueeze(-1) * at_observed).mean(1)


def test_weights_have_mean_one_and_are_at_most_inverse_propensities_up_to_that_factor():
    logit = torch.randn(2, 20, generator=torch.Generator().manual_seed(0))
    weight = losses.balancing_weight(logit, OBSERVED.propensity)
    torch.testing.assert_close(weight.mean(1), torch.ones(2))
    torch.testing.assert_close(
        weight[:, 1:] / weight[:, :1], _ratio(torch.sigmoid(logit) / OBSERVED.propensity)
    )


def _ratio(values: torch.Tensor) -> torch.Tensor:
    return values[:, 1:] / values[:, :1]


def test_with_flat_weights_kb_ips_is_snips():
    method, setting = balancing()
    flatten_weights(setting)
    torch.testing.assert_close(method.loss(setting, OBSERVED, FULL), SNIPS().loss(setting, OBSERVED, FULL))


def test_with_flat_weights_kb_dr_is_dr_jl_with_normalised_propensities():
    method, setting = balancing(KBDR)
    flatten_weights(setting)
    p = OBSERVED.propensity
    normalised = replace(OBSERVED, propensity=p * setting.density * (1 / p).mean(1, keepdim=True))
    host = DRJL(learner=WIDE)
    torch.testing.assert_close(method.loss(setting, OBSERVED, FULL), host.loss(setting, normalised, FULL))
    for each in (method, host):
        each.set_params(normalise_weights=False)
    torch.testing.assert_close(
        method.imputation_loss(setting, OBSERVED, FULL), host.imputation_loss(setting, normalised, FULL)
    )


@pytest.mark.parametrize("kernel", ["gaussian", "exponential"])
def test_the_weight_loss_is_entropy_and_a_hinge_for_each_anchor(kernel: str):
    method, setting = balancing(kernel=kernel, anchors=15, tolerance=0.002, gamma=7.0)
    weight = method.weight(setting, OBSERVED)
    gap = gaps(setting, method, OBSERVED, FULL)
    hinges = (gap.abs() - 0.002).clamp(min=0).sum(1)
    expected = (weight * weight.log()).mean(1) + 7.0 * hinges
    torch.testing.assert_close(method.weight_loss(setting, OBSERVED, FULL), expected)
    # Public code takes the hinge of the sum, in which anchors above and below cancel.
    assert bool((hinges > (gap.sum(1).abs() - 0.002).clamp(min=0) + 0.05).any())


@pytest.mark.parametrize("kernel", ["gaussian", "exponential"])
def test_kernels_are_one_at_the_anchor_and_do_not_depend_on_the_scale_of_embeddings(kernel: str):
    _, setting = balancing(kernel=kernel)
    at_observed, at_full = kernels(setting, OBSERVED, FULL, kernel=kernel)
    assert at_observed.shape == (2, 20, 3)
    torch.testing.assert_close(torch.diagonal(at_full[:, :3], dim1=1, dim2=2), torch.ones(2, 3))
    user, item = FULL.rows.user, FULL.rows.item
    is_anchor = (user[:, :, None] == user[:, None, :3]) & (item[:, :, None] == item[:, None, :3])
    assert torch.equal(at_full > 1 - 1e-6, is_anchor), "and less elsewhere"
    with torch.no_grad():
        for table in (setting.networks["prediction"].user, setting.networks["prediction"].item):
            table.weight.mul_(1e-3)
    for scaled, plain in zip(
        kernels(setting, OBSERVED, FULL, kernel=kernel), (at_observed, at_full), strict=True
    ):
        torch.testing.assert_close(scaled, plain, rtol=1e-4, atol=1e-6)


def test_training_the_weights_balances_what_wrong_propensities_leave_unbalanced():
    """Clicks lean towards some pairs, the given propensity is constant; weights make up for it."""
    method, setting = balancing(gamma=100.0, tolerance=0.0, anchors=5)
    observed = replace(OBSERVED, propensity=torch.full_like(OBSERVED.propensity, setting.density))
    flatten_weights(setting)
    before = gaps(setting, method, observed, FULL).abs().sum(1)
    optimiser = torch.optim.Adam(setting.networks["weight"].parameters(), lr=0.02)
    with torch.no_grad():
        for table in (setting.networks["weight"].user, setting.networks["weight"].item):
            table.weight.normal_(0, 0.1, generator=torch.Generator().manual_seed(0))
    for _ in range(200):
        optimiser.zero_grad()
        method.weight_loss(setting, observed, FULL).sum().backward()
        optimiser.step()
    after = gaps(setting, method, observed, FULL).abs().sum(1)
    assert bool((after < 0.2 * before).all()), (before, after)


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"kernel": "linear"}, "kernel must be 'gaussian' or 'exponential'"),
        ({"anchors": 0}, "anchors must be at least 1"),
        ({"tolerance": -0.1}, "tolerance must be at least 0"),
        ({"gamma": -1.0}, "gamma must be at least 0"),
    ],
)
def test_parameters_that_cannot_work_are_refused(params: dict[str, object], told: str):
    data = us.load("synthetic", n_users=20, n_items=30)
    with pytest.raises(ParameterError, match=told):
        KBIPS(**params).fit(data.train, propensity=0.1)
