"""The doubly robust family: its identities, its limits, and where gradients go."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contracts import click_world
from unskew import CDR, DR, DRJL, DRMSE, EIB, IPS, MF, MRDR, TDR, DRBias, Log, UnskewError
from unskew.base.errors import CollapseWarning
from unskew.debias import Debiaser
from unskew.debias.imputation import JointLearning
from unskew.debias.losses import FORMS, cross_entropy
from unskew.debias.tdr import Targeting
from unskew.study.legacy import AveragedTogether, UnweightedImputation, as_published


class World(click_world.World):
    """The shared world with wider logits, after what each stage computes before it starts."""

    def __init__(self, method: Debiaser) -> None:
        super().__init__(method)
        self.conversion, self.propensity = self.everywhere(self.r)[0], self.p.ravel()
        with torch.no_grad():
            for network in self.networks.values():
                for parameter in network.parameters():
                    parameter.mul_(2.5)
            for plan in method.plan():
                if plan.before is not None:
                    plan.before(self.setting)

    def logits(self, tower: str) -> np.ndarray:
        """Return the logits of all pairs, by replica."""
        return self.setting.predicted(self.full, tower).numpy()

    def loss_of(self, method: Debiaser) -> Tensor:
        return method.loss(self.setting, self.observed, self.full)

    def gradient_of(self, method: Debiaser, network: str = "prediction") -> list[Tensor]:
        parameters = list(self.networks[network].parameters())
        return list(torch.autograd.grad(self.loss_of(method).sum(), parameters))


def tiny(cls: type[Debiaser], **params: Any) -> Any:
    return cls(learner=MF(dim=3), **params)


def ce(target: np.ndarray, logit: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, logit) - target * logit


def sigmoid(logit: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-logit))


def assert_same(left: Sequence[Tensor], right: Sequence[Tensor]) -> None:
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b)


# Test (a) of the specification: the identities of §1.2.


def test_doubly_robust_term_is_cross_entropy_with_the_effective_target() -> None:
    world = World(method := tiny(DRJL))
    logit = world.setting.predicted(world.observed).requires_grad_()
    label = torch.sigmoid(world.setting.predicted(world.observed, "imputation"))
    target = label + (world.observed.conversion - label) / world.observed.propensity
    term = method.imputed_error(world.setting, world.observed, logit)
    term = term + method.correction(world.setting, world.observed, logit)
    torch.testing.assert_close(term, cross_entropy(target, logit))
    (gradient,) = torch.autograd.grad(term.sum(), logit)
    torch.testing.assert_close(gradient, (torch.sigmoid(logit) - target).detach())


def test_direct_errors_without_shared_parameters_train_as_ips() -> None:
    world = World(method := tiny(DRJL, imputation_form="P2"))
    assert_same(world.gradient_of(method), world.gradient_of(tiny(IPS)))


def test_residual_form_moves_the_prediction_towards_the_effective_target() -> None:
    world = World(method := tiny(DRJL, imputation_form="P3"))
    logit = world.setting.predicted(world.observed).requires_grad_()
    term = method.imputed_error(world.setting, world.observed, logit)
    term = term + method.correction(world.setting, world.observed, logit)
    (gradient,) = torch.autograd.grad(term.sum(), logit)
    predicted = torch.sigmoid(logit.detach())
    label = predicted + world.setting.predicted(world.observed, "imputation")
    target = label + (world.observed.conversion - label) / world.observed.propensity
    torch.testing.assert_close(gradient, 2 * (predicted - target) * predicted * (1 - predicted))


# The losses are the formulas, summed over all of D.


@pytest.mark.parametrize("cls", [DRJL, MRDR, DRBias, DRMSE, TDR])
def test_prediction_loss_is_the_doubly_robust_sum(cls: type[JointLearning]) -> None:
    world = World(method := tiny(cls))
    logit, label = world.logits("prediction"), sigmoid(world.logits("imputation"))
    imputed, error = ce(label, logit), ce(world.conversion, logit)
    expected = (imputed + world.click * (error - imputed) / world.propensity).mean(-1)
    np.testing.assert_allclose(world.loss_of(method).detach(), expected)


@pytest.mark.parametrize("constant", [None, 0.2])
def test_eib_is_known_errors_on_clicks_and_imputed_ones_elsewhere(constant: float | None) -> None:
    world = World(method := tiny(EIB, constant=constant))
    assert ("imputation" in world.networks) is (constant is None)
    logit = world.logits("prediction")
    label = sigmoid(world.logits("imputation")) if constant is None else np.array(constant)
    expected = np.where(world.click, ce(world.conversion, logit), ce(label, logit)).mean(-1)
    np.testing.assert_allclose(world.loss_of(method).detach(), expected, rtol=1e-6 if constant else 1e-7)


def test_dr_imputes_the_self_normalised_conversion_rate() -> None:
    world = World(method := tiny(DR))
    weight = world.click / world.propensity
    rate = (weight * world.conversion).sum() / weight.sum()
    logit = world.logits("prediction")
    imputed, error = ce(rate, logit), ce(world.conversion, logit)
    expected = (imputed + weight * (error - imputed)).mean(-1)
    np.testing.assert_allclose(world.loss_of(method).detach(), expected)


@pytest.mark.parametrize(
    ("cls", "weight"),
    [
        (EIB, lambda p: np.ones_like(p)),
        (DRJL, lambda p: 1 / p),
        (MRDR, lambda p: (1 - p) / p**2),
        (DRBias, lambda p: (1 - p) ** 2 / p**3),
        (DRMSE, lambda p: 0.5 * (1 - p) ** 2 / p**3 + 0.5 * (1 - p) / p**2),
    ],
)
@pytest.mark.parametrize("imp_loss", ["sq", "ce"])
def test_imputation_loss_is_the_weighted_sum_over_clicks(cls: Any, weight: Any, imp_loss: Any) -> None:
    method = tiny(cls, imp_loss=imp_loss, normalise_weights=False, copy="none")
    world = World(method)
    logit, output = (world.logits(tower)[:, world.click] for tower in ("prediction", "imputation"))
    r, p = world.conversion[world.click], world.propensity[world.click]
    each = ce(r, output) if imp_loss == "ce" else (ce(r, logit) - ce(sigmoid(output), logit)) ** 2
    expected = (weight(p) * each).sum(-1) / len(world.click)
    actual = method.imputation_loss(world.setting, world.observed, world.observed)
    np.testing.assert_allclose(actual.detach(), expected)


def test_normalised_weights_have_mean_one_over_the_training_clicks() -> None:
    method = tiny(DRBias, imp_loss="ce")
    world = World(method)
    p = world.propensity[world.click]
    weight = (1 - p) ** 2 / p**3
    each = ce(world.conversion[world.click], world.logits("imputation")[:, world.click])
    expected = (weight / weight.mean() * each).mean(-1)
    actual = method.imputation_loss(world.setting, world.observed, world.observed)
    np.testing.assert_allclose(actual.detach(), expected)


# Copying, targeting, filtering.


@pytest.mark.parametrize(("copy", "copied"), [("epoch", True), ("batch", False), ("none", False)])
def test_mrdr_copies_before_the_epoch_if_asked(copy: Any, copied: bool) -> None:
    world = World(tiny(MRDR, copy=copy))
    assert np.array_equal(world.logits("prediction"), world.logits("imputation")) == copied


def test_mrdr_copies_before_each_batch_if_asked() -> None:
    world = World(method := tiny(MRDR, copy="batch", imp_loss="ce"))
    method.imputation_loss(world.setting, world.observed, world.observed)
    np.testing.assert_array_equal(world.logits("prediction"), world.logits("imputation"))


@pytest.mark.parametrize("host", ["dr-jl", "mrdr"])
def test_tdr_epsilon_is_least_squares_over_all_clicks(host: str) -> None:
    world = World(tiny(TDR, host=host))
    logit, label = world.logits("prediction"), sigmoid(world.logits("imputation"))
    odds = 1 / world.propensity[world.click] - 1
    for replica, epsilon in enumerate(world.setting.state(Targeting).epsilon[:, 0].tolist()):
        deviation = ce(world.conversion, logit[replica]) - ce(label[replica], logit[replica])
        (expected,), *_ = np.linalg.lstsq(odds[:, None], deviation[world.click])
        assert epsilon == pytest.approx(expected)


def test_tdr_loss_has_the_gradient_of_the_whole_targeted_estimate() -> None:
    world = World(method := tiny(TDR))
    p = torch.as_tensor(world.propensity)
    click, conversion = torch.as_tensor(world.click), torch.as_tensor(world.conversion)
    logit = world.setting.logit(world.full)
    label = torch.sigmoid(world.setting.predicted(world.full, "imputation"))
    targeted = cross_entropy(label, logit) + world.setting.state(Targeting).epsilon * (1 / p - 1)
    estimate = (targeted + click * (cross_entropy(conversion, logit) - targeted) / p).mean(-1)
    whole = torch.autograd.grad(estimate.sum(), list(world.networks["prediction"].parameters()))
    assert world.setting.state(Targeting).epsilon.abs().min() > 1e-3
    assert_same(world.gradient_of(method), whole)


def test_tdr_imputer_learns_what_epsilon_leaves() -> None:
    world = World(method := tiny(TDR, normalise_weights=False))
    host = tiny(DRJL, normalise_weights=False)
    loss = [m.imputation_loss(world.setting, world.observed, world.observed) for m in (method, host)]
    # ε minimises the unweighted sum of squares, so that with equal weights targeting can only lower it.
    for m in (method, host):
        m.imputation_weight = torch.ones_like
    equal = [m.imputation_loss(world.setting, world.observed, world.observed) for m in (method, host)]
    assert not torch.equal(*loss)
    assert (equal[0] < equal[1]).all()


@pytest.mark.parametrize(("host", "cls"), [("mrdr", MRDR), ("dr-jl", DRJL), ("dr-bias", DRBias)])
@pytest.mark.parametrize("form", ["P1", "P3"])
def test_cdr_between_ips_and_its_host(host: str, cls: type[JointLearning], form: Any) -> None:
    copy = "none" if form == "P3" else "host"
    params = {"imputation_form": form, "normalise_weights": False}
    never, always = (tiny(CDR, host=host, threshold=t, copy=copy, **params) for t in (0.0, 1e30))
    alone = tiny(cls, **params, copy="none")
    world = World(never)
    with torch.no_grad():
        world.networks["imputation"].user.weight.mul_(-1.0)
    error = FORMS[form].error(world.observed.conversion, world.setting.predicted(world.observed))
    ips = (error / world.observed.propensity).mean(-1) * world.setting.density
    torch.testing.assert_close(world.loss_of(never), ips)
    if form == "P1":
        assert_same(world.gradient_of(never), world.gradient_of(tiny(IPS)))
    assert_same(world.gradient_of(always), world.gradient_of(alone))
    torch.testing.assert_close(world.loss_of(always), world.loss_of(alone))
    step = [m.imputation_loss(world.setting, world.observed, world.observed) for m in (always, alone)]
    torch.testing.assert_close(*step)
    assert always.copying() == ("none" if form == "P3" else {"mrdr": "epoch"}.get(host, "none"))


def test_cdr_trusts_by_the_spread_of_thinned_imputers() -> None:
    method = tiny(CDR, masks=400)
    world = World(method)
    logit = world.setting.predicted(world.full)
    network = world.networks["imputation"]
    rows = network.embed(world.full.rows)
    random = torch.Generator().manual_seed(0)
    errors = []
    for _ in range(4000):
        masks = [2.0 * torch.bernoulli(torch.full_like(part, 0.5), generator=random) for part in rows]
        output = network.read((rows[0] * masks[0], rows[1] * masks[1]), "imputation")
        errors.append(FORMS["P1"].imputed(output, logit).detach())
    deviation, mean = torch.std_mean(torch.stack(errors), dim=0)
    ratio = deviation / mean
    method.threshold = float(ratio.median())
    clear = (ratio / method.threshold - 1).abs() > 0.2
    trusted = method.trusted(world.setting, world.full, logit)
    assert clear.float().mean() > 0.3
    assert torch.equal(trusted[clear], (ratio < method.threshold)[clear])


# Targets that run away, and the switches of public code.


def test_target_clip_bounds_the_effective_target() -> None:
    world = World(clipped := tiny(DRJL, target_clip=0.0))
    logit = world.setting.predicted(world.observed)
    label = torch.sigmoid(world.setting.predicted(world.observed, "imputation"))
    # With τ = 0 the target of a converted click is at most 1 and of another at least 0: its own label.
    expected = cross_entropy(world.observed.conversion, logit) - cross_entropy(label, logit)
    far = (label + (world.observed.conversion - label) / world.observed.propensity - 0.5).abs() >= 0.5
    actual = clipped.correction(world.setting, world.observed, logit)
    torch.testing.assert_close(actual[far], expected[far])
    assert far.any()


def make_log() -> tuple[Log, np.ndarray]:
    """A little world with true propensities of its rows."""
    random = np.random.default_rng(0)
    user, item = (grid.ravel() for grid in np.meshgrid(np.arange(30), np.arange(20), indexing="ij"))
    taste = random.normal(size=(30, 1)) + random.normal(size=(1, 20))
    p = sigmoid(taste.ravel() - 0.7)
    click = random.random(600) < p
    converted = random.random(600) < sigmoid(1.5 * taste.ravel() - 1.0)
    return Log.from_arrays(user=user[click], item=item[click], conversion=converted[click]), p[click]


def test_far_targets_are_told_once_and_never_at_the_default_clip() -> None:
    log, _ = make_log()
    # One click in twenty has a weight of more than twenty times the mean.
    small = np.where(np.arange(len(log)) % 20 == 0, 1e-4, 0.5)
    with pytest.warns(UserWarning, match=r"dr-jl: .* beyond ±20 times the mean weight.*p_min") as told:
        tiny(DRJL, p_min=1e-5, epochs=2, imp_loss="ce").fit(log, propensity=small)
    assert len([each for each in told if "beyond ±20" in str(each.message)]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", CollapseWarning)
        tiny(DRJL, epochs=2, imp_loss="ce").fit(log, propensity=np.full(len(log), 0.02))
        tiny(DRJL, p_min=1e-5, target_clip=3.0, epochs=2, imp_loss="ce").fit(log, propensity=small)


def test_legacy_correction_leaves_the_imputed_error_unweighted() -> None:
    world = World(method := as_published(tiny(DRJL), UnweightedImputation))
    logit, label = world.logits("prediction"), sigmoid(world.logits("imputation"))
    imputed, error = ce(label, logit), ce(world.conversion, logit)
    expected = (imputed + world.click * (error / world.propensity - imputed)).mean(-1)
    np.testing.assert_allclose(world.loss_of(method).detach(), expected)


def test_legacy_scaling_averages_clicks_and_their_cells_together() -> None:
    world = World(method := as_published(tiny(DRJL, ratio=6.0), AveragedTogether))
    logit, label = world.logits("prediction"), sigmoid(world.logits("imputation"))
    imputed, error = ce(label, logit), ce(world.conversion, logit)
    clicked = (imputed + (error - imputed) / world.propensity)[:, world.click].mean(-1)
    np.testing.assert_allclose(world.loss_of(method).detach(), clicked / 7 + imputed.mean(-1) * 6 / 7)


# Fitting.


def test_p2_with_separate_networks_is_told_to_be_ips() -> None:
    log, p = make_log()
    with pytest.warns(UserWarning, match="trains the prediction exactly as IPS"):
        tiny(DRJL, imputation_form="P2", epochs=1).fit(log, propensity=p)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (DRJL(imputation_form="P4"), "imputation_form must be 'P1', 'P2' or 'P3', not 'P4'"),  # type: ignore[arg-type]
        (DRJL(imputation_form="P3", imp_loss="ce"), "imp_loss 'ce' needs a pseudo-label"),
        (DRJL(imp_loss="mse"), "imp_loss must be 'sq' or 'ce', not 'mse'"),  # type: ignore[arg-type]
        (MRDR(imputation_form="P3"), "copy 'epoch': a prediction's weights mean nothing"),
        (MRDR(copy="host"), "copy must be 'epoch', 'batch' or 'none', not 'host'"),
        (DRJL(target_clip=-1.0), "target_clip -1.0 does not fit imputation P1"),
        (DRJL(ratio=0.0), "ratio must be above 0"),
        (EIB(constant=1.0), r"constant 1.0 does not fit.*probability in \(0, 1\)"),
        (DRMSE(bias_share=1.5), r"bias_share must be in \[0, 1\]"),
        (TDR(host="dr-bias"), "host must be 'dr-jl' or 'mrdr', not 'dr-bias'"),
        (TDR(imp_loss="ce"), "targeting needs e − ê"),
        (CDR(host="ips"), "host must be 'mrdr', 'dr-jl' or 'dr-bias', not 'ips'"),
        (CDR(masks=1), "masks must be at least 2"),
        (CDR(mask_rate=1.0), r"mask_rate must be in \(0, 1\)"),
        (CDR(threshold=-0.1), "threshold must be at least 0"),
    ],
    ids=lambda value: value.name if isinstance(value, Debiaser) else "",
)
def test_impossible_options_are_refused(method: Debiaser, message: str) -> None:
    log, p = make_log()
    with pytest.raises(UnskewError, match=message):
        method.fit(log, propensity=p)
