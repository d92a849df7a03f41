"""The paper protocol: every deviation is a switch that is told, does what it says, and can be turned over."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import ParameterError
from unskew.data.splitting import SplitBy
from unskew.learners import MF, NeuMF
from unskew.propensity import DualFocal, MCDropout
from unskew.propensity.crossfit import TRAIN
from unskew.study.legacy_propensity import DualFocalOnProbabilities
from unskew.study.paper_protocol import SWITCHES, Paper

PAPER = Paper()
PUBLISHED = ("naive", "ips", "snips", "dr-jl", "mrdr")


def everything(protocol: Paper) -> dict[str, object]:
    """All that a protocol decides, to see whether a switch changes any of it."""
    propensity = protocol.propensity(NeuMF(), us.Platt()).get_params()
    propensity = {name: repr(value) for name, value in propensity.items()}
    methods = {name: protocol.method_options(name, density=0.08) for name in PUBLISHED}
    return {
        "propensity": propensity,
        "methods": methods,
        "deviations": [protocol.deviations(name) for name in PUBLISHED],
        "test": protocol.test_protocol,
        "learner": repr(protocol.method("ips", NeuMF(), 0.08).learner),
        "uncertainty": [repr(protocol.uncertainty(name)) for name in ("mc-dropout", "dual-focal")],
    }


def published(name: str, density: float) -> us.Debiaser:
    """A method as its published code has it."""
    return PAPER.method(name, NeuMF(), density)


@pytest.mark.parametrize("name", SWITCHES)
def test_every_switch_changes_something_and_is_named(name):
    turned = Paper(reverse=(name,))
    assert everything(turned) != everything(PAPER)
    assert [label for label in turned.labels if "REVERSED" in label] == [
        label for label in turned.labels if f"[{name}]" in label
    ]


def test_an_unknown_switch_is_told():
    with pytest.raises(ParameterError, match=r"no switch 'offset'\. To fix: use one of sampled"):
        Paper(reverse=("offset",))


def test_all_published_methods_accept_their_options(log):
    for name in PUBLISHED:
        made = published(name, 0.08)
        made.set_params(epochs=1).fit(log, propensity=0.5 if made.needs_propensity else None, device="cpu")
        assert made.patience is None
        assert made.validation_share == (0.1 if name == "naive" else 0.0)


def test_epochs_are_those_of_the_scripts():
    epochs = {
        (name, data): Paper(data=data).method_options(name, density=0.1)["epochs"]
        for name in ("naive", "ips", "mrdr")
        for data in ("coat", "yahoo_r3")
    }
    assert epochs[("mrdr", "coat")] == epochs[("ips", "coat")] == 200
    assert (epochs[("mrdr", "yahoo_r3")], epochs[("ips", "yahoo_r3")]) == (4, 1)
    assert PAPER.propensity(NeuMF()).epochs == 100
    assert Paper(data="kuairand").propensity(NeuMF()).epochs == 20


def test_weight_decay_of_a_summed_loss_is_that_of_our_mean():
    # Adam does not see a loss's scale, so that λ beside a sum over B is λ·(our loss ÷ that sum).
    density = 0.08
    assert PAPER.method_options("ips", density=density)["weight_decay"] == pytest.approx(
        1e-3 * density / 1024
    )
    mrdr = PAPER.method_options("mrdr", density=density)
    assert mrdr["weight_decay"] == pytest.approx(1e-2 / 1024)
    assert mrdr["imputation_weight_decay"] == pytest.approx(1e-2 * density / 1024)


def test_the_published_network_drops_embeddings_and_other_learners_stay():
    assert PAPER.propensity(NeuMF(dim=8)).learner == NeuMF(dim=8, emb_dropout=0.2)
    assert PAPER.method("ips", NeuMF(dim=8), 0.1).learner == NeuMF(dim=8)
    assert PAPER.propensity(MF()).learner == MF()
    assert PAPER.uncertainty("mc-dropout") == MCDropout(layers="embedding")
    assert PAPER.uncertainty("dual-focal") == DualFocalOnProbabilities()


@pytest.fixture(scope="module")
def log():
    return us.load("synthetic", n_users=60, n_items=50, density=0.12, seed=1).train


@pytest.fixture(scope="module")
def fitted(log):
    propensity = Paper(propensity_epochs=5).propensity(NeuMF(dim=8, layers=(8,)), us.Platt())
    return propensity.set_params(batch_size=128).fit(log, seeds=2, device="cpu")


def test_a_tenth_is_spared_from_training_and_still_judged(log, fitted):
    plain = Paper(reverse=("spare_tenth",), propensity_epochs=1).propensity(NeuMF(dim=8, layers=(8,)))
    everything = plain.fit(log, device="cpu").held_out_sketches(calibrated=False)[0]
    spared = fitted.held_out_sketches(calibrated=False)[0]
    assert spared.positives == everything.positives == log.n_clicks
    assert spared.total == 2 * log.n_clicks
    assert float((fitted.design_.roles == TRAIN).float().mean()) == pytest.approx(0.9)


def test_the_calibrator_sees_noise_and_raw_scores_do_not(log, fitted):
    quiet = fitted.reread(calibrator_dropout=False)
    assert np.array_equal(
        quiet.predict_each(log, calibrated=False), fitted.predict_each(log, calibrated=False)
    )
    raw = quiet.predict_each(log, calibrated=False)[0]
    order = np.argsort(raw)
    assert (np.diff(quiet.predict_each(log)[0][order]) >= 0).all()
    assert (np.diff(fitted.predict_each(log)[0][order]) < 0).any()


def test_reading_off_does_not_train(log, fitted):
    read = fitted.reread(uncertainty=MCDropout(samples=3), calibrator=None)
    assert read.network_ is fitted.network_
    assert not np.allclose(read.predict_each(log), fitted.predict_each(log, calibrated=False))
    with pytest.raises(ParameterError, match="epochs changes how it is trained"):
        fitted.reread(epochs=7)
    with pytest.raises(ParameterError, match="uncertainty changes how"):
        fitted.reread(uncertainty=DualFocal())


def test_doubly_robust_batches_are_six_to_one_of_pairs_that_stay(log):
    from unskew.debias.setting import Observed
    from unskew.training import ShuffledRows, resolve_device

    imputation, prediction = published("dr-jl", log.density).plan()
    data = Observed(log, None, (0,), resolve_device("cpu"))
    rows, _ = data.split(0, SplitBy(), {})
    clicks = ShuffledRows(rows, [3], 1024)
    assert imputation.sampler(clicks, data.population) is clicks
    sampler = prediction.sampler(clicks, data.population)
    assert (sampler.observed.batch_size, sampler.ratio) == (146, 6.0)
    epochs = [next(sampler.epoch(number)).cells for number in (0, 1)]
    assert all(cells is not None and (data.population.click(cells) == 0).all() for cells in epochs)
    first, second = (cells.flatten().sort().values for cells in epochs)
    assert bool((first == second).all())
    assert not bool((epochs[0] == epochs[1]).all())


def test_dual_focal_on_probabilities_has_no_link_to_invert():
    with pytest.raises(ParameterError, match="use link='none'"):
        DualFocalOnProbabilities(link="inverse").check()


def test_both_terms_of_a_click_see_the_same_noise_of_the_imputer(log):
    import torch

    seen: list[torch.Tensor] = []
    method = published("dr-jl", log.density)
    method.set_params(learner=NeuMF(dim=4, layers=(4,), dropout=0.5), epochs=1)
    read = method.imputer_output

    def spy(setting, batch):
        seen.append(read(setting, batch))
        return seen[-1]

    method.imputer_output = spy
    method.fit(log, propensity=0.5, device="cpu")
    correction, imputed, full = seen[:3]
    assert imputed is correction
    assert full.shape[1] == 6 * correction.shape[1]
    assert seen[3] is not correction
