"""MC dropout, deep ensembles, BatchEnsemble and the dual focal loss, each against its formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

import unskew as us
from unskew.base.errors import ParameterError
from unskew.data import Schema
from unskew.learners import BatchEnsemble, NeuMF
from unskew.learners.batch_ensemble import member_of
from unskew.propensity import UNCERTAINTIES, make_uncertainty
from unskew.propensity import network as network_module
from unskew.training import LookedUp, inference

SMALL = NeuMF(dim=6, layers=(8, 4), dropout=0.3, init_std=0.1)
SEEDS = (4, 7)


def quick(uncertainty=None, **options):
    defaults = {"learner": SMALL, "crossfit": None, "learning_rate": 0.01, "epochs": 4, "batch_size": 256}
    return us.Propensity(uncertainty=uncertainty, **{**defaults, **options})


@pytest.fixture(scope="module")
def log():
    return us.load("synthetic", n_users=60, n_items=40, density=0.15, seed=1).train


@pytest.fixture(scope="module")
def dropped(log):
    return quick(us.MCDropout(samples=5)).fit(log, seeds=SEEDS)


@pytest.fixture(scope="module")
def ensemble(log):
    return quick(us.DeepEnsemble(members=3)).fit(log, seeds=SEEDS)


@pytest.fixture(scope="module")
def batch_ensemble(log):
    return quick(us.BatchEnsembleMembers(members=3), epochs=8).fit(log, seeds=SEEDS)


@pytest.fixture(scope="module")
def dual_focal(log):
    return quick(us.DualFocal(), learner=us.MF(dim=4), learning_rate=0.03, epochs=20).fit(log, seeds=SEEDS)


def all_pairs(propensity):
    population = propensity.cells_.population
    return population.rows(torch.arange(population.size)[None])


@pytest.fixture
def samplers(monkeypatch):
    """What draws the training cells of all networks, for each fit."""
    found = []

    def looked_up(sampler, population):
        found.append(sampler)
        return LookedUp(sampler, population)

    monkeypatch.setattr(network_module, "LookedUp", looked_up)
    return found


def raw(propensity):
    """Raw propensities of all cells, ``[seeds, n]``."""
    return propensity.predict_matrix_each(calibrated=False).reshape(len(propensity.seeds_), -1)


def spread(propensity, log):
    """Spread of all cells, ``[seeds, n]``: every cell as a row of a log."""
    cells = np.arange(log.population_size)
    everything = us.Log.from_arrays(
        user=cells // log.n_items,
        item=cells % log.n_items,
        click=(cells == 0).astype(int),
        users=log.users,
        items=log.items,
    )
    return propensity.predict_spread_each(everything)


class TestMCDropout:
    def test_it_is_the_mean_and_the_spread_of_t_stochastic_passes(self, dropped, log, monkeypatch):
        monkeypatch.setattr(inference, "BUDGET", 1 << 20)  # All pairs at once, as here.
        network = dropped.network_.eval()
        network.noise.restart()
        for module in network.dropouts("all"):
            module.train()
        passes = all_pairs(dropped).repeat(5)
        with torch.no_grad():
            p = torch.sigmoid(network(passes).double()).view(len(SEEDS), 5, -1).numpy()
        network.train()
        assert np.ptp(p, axis=1).min() > 0, "every pass has masks of its own"
        np.testing.assert_allclose(raw(dropped), p.mean(1), atol=1e-7)
        np.testing.assert_allclose(spread(dropped, log), p.std(1), atol=1e-7)

    @pytest.mark.parametrize(
        ("layers", "on"),
        [
            ("all", {"embedding_dropout", "tower.prediction.dropouts.0", "tower.prediction.dropouts.1"}),
            ("mlp", {"tower.prediction.dropouts.0", "tower.prediction.dropouts.1"}),
            ("embedding", {"embedding_dropout"}),
        ],
    )
    def test_only_the_dropout_of_the_chosen_layers_is_active(self, log, layers, on, monkeypatch):
        learner = NeuMF(dim=6, layers=(8, 4), dropout=0.3, emb_dropout=0.2)
        propensity = quick(us.MCDropout(samples=3, layers=layers), learner=learner, epochs=1).fit(log)
        network, active = propensity.network_, []
        original = network.forward

        def watched(*args):
            active.append({name for name, module in network.named_modules() if module.training})
            return original(*args)

        monkeypatch.setattr(network, "forward", watched)
        assert (propensity.predict_spread_each(log) > 0).all()
        assert active == [on]

    @pytest.mark.parametrize(
        ("learner", "layers", "message"),
        [
            (us.MF(dim=4), "all", r"mc-dropout needs a learner with dropout, and this one has none.*NeuMF"),
            (NeuMF(dropout=0.0), "all", "needs a learner with dropout"),
            (NeuMF(), "embedding", r"dropout in layers='embedding', and this one has none.*emb_dropout"),
            (NeuMF(dropout=0.0, emb_dropout=0.1), "mlp", "dropout in layers='mlp'"),
        ],
    )
    def test_a_learner_without_dropout_is_told_before_training(self, log, learner, layers, message):
        with pytest.raises(ParameterError, match=message):
            quick(us.MCDropout(layers=layers), learner=learner).fit(log)

    def test_rereading_a_propensity_without_dropout_is_told_too(self, dual_focal, log):
        plain = quick(learner=us.MF(dim=4), epochs=1).fit(log)
        with pytest.raises(ParameterError, match="needs a learner with dropout"):
            plain.reread(uncertainty=us.MCDropout())


class TestDeepEnsemble:
    def members(self, propensity):
        """Probabilities ``[seeds, members, n]``, each member read alone."""
        network = propensity.network_.eval()
        with torch.no_grad():
            p = torch.sigmoid(network(all_pairs(propensity)).double()).numpy()
        network.train()
        return p.reshape(len(propensity.seeds_), -1, p.shape[1])

    def test_it_is_the_mean_and_the_spread_of_its_members(self, ensemble, log):
        p = self.members(ensemble)
        assert p.shape[1] == 3
        np.testing.assert_allclose(raw(ensemble), p.mean(1), atol=1e-7)
        np.testing.assert_allclose(spread(ensemble, log), p.std(1), atol=1e-7)

    def test_members_have_weights_and_data_orders_of_their_own(self, log, samplers):
        p = self.members(quick(us.DeepEnsemble(members=3)).fit(log, seeds=SEEDS))
        (sampler,) = samplers
        (block,) = sampler.epoch(0)
        for one in range(3):
            for other in range(one):
                assert np.abs(p[:, one] - p[:, other]).max() > 0.01
                assert not torch.equal(block.cells[one], block.cells[other])
        # An epoch is the share of D that trains in expectation; a few cells may have to wait for the next.
        epochs = [next(sampler.epoch(number)).cells for number in range(4)]
        trained_on = [torch.cat([cells[row].flatten() for cells in epochs]).unique() for row in range(3)]
        assert all(torch.equal(each, trained_on[0]) for each in trained_on), "members share their split"

    def test_the_first_member_is_the_propensity_without_an_ensemble(self, ensemble, log):
        plain = quick().fit(log, seeds=SEEDS)
        for name, weight in plain.network_.state_dict().items():
            own = ensemble.network_.state_dict()[name][::3]
            torch.testing.assert_close(own, weight, rtol=0, atol=1e-5)

    def test_with_folds_each_cell_is_read_by_the_members_that_held_it_out(self, log):
        propensity = quick(us.DeepEnsemble(members=2), crossfit=3, epochs=2).fit(log, seeds=SEEDS)
        assert propensity.network_.replicas == len(SEEDS) * 3 * 2
        p = self.members(propensity).reshape(len(SEEDS), 3, 2, -1)
        fold = propensity.fold_of_pairs_each(*np.divmod(np.arange(log.population_size), log.n_items))
        for seed in range(len(SEEDS)):
            own = np.take_along_axis(p[seed], fold[seed][None, None], axis=0)[0]
            np.testing.assert_allclose(raw(propensity)[seed], own.mean(0), atol=1e-7)
            np.testing.assert_allclose(spread(propensity, log)[seed], own.std(0), atol=1e-7)


class TestBatchEnsemble:
    def test_a_member_is_the_dense_layer_with_its_rank_one_weights(self):
        network = (
            BatchEnsemble(base=SMALL, members=4, init="normal").build(Schema.of_ids(9, 9), SEEDS).double()
        )
        layer = network.tower["prediction"].mlp[0]
        x = torch.randn(2, 4 * 5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        y = layer(x)
        for replica in range(2):
            for member in range(4):
                r, s = layer.input_side[replica, member], layer.output_side[replica, member]
                dense = layer.weight[replica] * torch.outer(r, s)
                part = slice(5 * member, 5 * member + 5)
                expected = x[replica, part] @ dense + layer.bias[replica, member]
                torch.testing.assert_close(y[replica, part], expected)

    def test_a_member_of_the_network_is_a_network_with_dense_weights(self, batch_ensemble, log):
        p = np.stack([self.dense_member(batch_ensemble, member) for member in range(3)], axis=1)
        assert np.ptp(p, axis=1).max() > 0.01
        np.testing.assert_allclose(raw(batch_ensemble), p.mean(1), atol=1e-6)
        np.testing.assert_allclose(spread(batch_ensemble, log), p.std(1), atol=1e-5)

    def dense_member(self, propensity, member):
        """Probabilities of a plain NeuMF whose weights are W ∘ (r sᵀ), with the tables times s."""
        shared = propensity.network_
        dense = SMALL.build(Schema.of_ids(60, 40), SEEDS).eval()
        with torch.no_grad():
            for table in ("user", "item"):
                own = getattr(shared, table)
                rows = own.shared.weight * own.output_side[:, member].unsqueeze(1)
                getattr(dense, table).weight.copy_(rows)
            ours, theirs = shared.tower["prediction"], dense.tower["prediction"]
            for own, plain in zip((*ours.mlp, ours.head), (*theirs.mlp, theirs.head), strict=True):
                outer = own.input_side[:, member].unsqueeze(2) * own.output_side[:, member].unsqueeze(1)
                plain.weight.copy_(own.weight * outer)
                plain.bias.copy_(own.bias[:, member].unsqueeze(1))
            return torch.sigmoid(dense(all_pairs(propensity)).double()).numpy()

    @pytest.mark.parametrize(("batch", "members"), [(12, 3), (13, 3), (2, 5), (1024, 10)])
    def test_parts_are_as_equal_as_they_can_be(self, batch, members):
        of = member_of(batch, members, torch.device("cpu"))
        assert (of.diff() >= 0).all()
        counts = torch.bincount(of, minlength=members)
        assert len(counts) == members
        assert counts.max() - counts.min() <= 1

    def test_it_starts_at_random_signs_or_around_one(self):
        signs = BatchEnsemble(base=SMALL, members=4).build(Schema.of_ids(9, 9), SEEDS)
        for parameter in (p for name, p in signs.named_parameters() if name.endswith("_side")):
            assert set(parameter.unique().tolist()) <= {-1.0, 1.0}
            assert parameter.flatten(1).unique(dim=0).shape[0] == len(SEEDS)
        wide = BatchEnsemble(base=NeuMF(), members=20, init="normal").build(Schema.of_ids(9, 9), SEEDS)
        sides = wide.tower["prediction"].mlp[0].input_side.detach()
        assert float(sides.mean()) == pytest.approx(1.0, abs=0.03)
        assert float(sides.std()) == pytest.approx(0.5, abs=0.03)


def general_dual_focal(target, logits, gamma):
    """The published form on two logits: p_j is the largest probability strictly below p_y, 0 if none is."""
    p = torch.softmax(logits, dim=-1)
    p_y = p.gather(-1, target.long().unsqueeze(-1))
    below = torch.where(p < p_y, p, torch.zeros_like(p))
    p_j = below.max(dim=-1).values
    p_y = p_y.squeeze(-1)
    return -((1 - p_y + p_j) ** gamma) * torch.log(p_y)


class TestDualFocal:
    @pytest.mark.parametrize("gamma", [1.0, 2.0, 3.5])
    def test_the_closed_form_is_the_general_one_gradients_included(self, gamma):
        z = torch.linspace(-6, 6, 241, dtype=torch.float64).repeat(2)
        target = torch.arange(2.0).repeat_interleave(241).double()
        ours, theirs = z.clone().requires_grad_(), z.clone().requires_grad_()
        loss = us.DualFocal(gamma=gamma).loss(target, ours)
        both = torch.stack((torch.zeros_like(theirs), theirs), dim=-1)
        general = general_dual_focal(target, both, gamma)
        torch.testing.assert_close(loss, general)
        loss.sum().backward()
        general.sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)

    def risk(self, eta, p, gamma=2.0):
        z = torch.tensor([logit(p)], dtype=torch.float64)
        method = us.DualFocal(gamma=gamma)
        clicked, unclicked = (float(method.loss(torch.full_like(z, o), z)) for o in (1.0, 0.0))
        return eta * clicked + (1 - eta) * unclicked

    def minimiser(self, eta, gamma=2.0):
        found = minimize_scalar(
            lambda p: self.risk(eta, p, gamma), bounds=(1e-9, 0.5 - 1e-9), method="bounded",
            options={"xatol": 1e-10},
        )  # fmt: skip
        return found.x

    @pytest.mark.parametrize(
        ("eta", "inflated"), [(0.01, 0.099), (0.02, 0.124), (0.08, 0.194), (0.2, 0.262), (0.3, 0.303)]
    )
    def test_small_propensities_are_inflated_as_the_specification_says(self, eta, inflated):
        assert self.minimiser(eta) == pytest.approx(inflated, abs=6e-4)

    def test_one_half_exactly_beats_the_smooth_branch_for_middling_rates(self):
        assert self.risk(0.5, 0.5) < self.risk(0.5, self.minimiser(0.5))
        assert self.risk(0.05, 0.5) > self.risk(0.05, self.minimiser(0.05))

    @pytest.mark.parametrize("gamma", [1.0, 2.0, 3.0])
    @pytest.mark.parametrize("eta", [0.001, 0.01, 0.08, 0.2, 0.4])
    def test_the_inverse_link_finds_the_rate_behind_a_minimiser(self, eta, gamma):
        method, p = us.DualFocal(gamma=gamma), self.minimiser(eta, gamma)
        assert method.probability(np.array([p]))[0] == pytest.approx(eta, rel=1e-3)
        assert method.probability(np.array([1 - p]))[0] == pytest.approx(1 - eta, rel=1e-3)

    def test_the_link_never_turns_and_stays_between_0_and_1(self):
        p = np.concatenate([[0.0, 1e-30], np.linspace(1e-6, 1 - 1e-6, 2001), [1.0]])
        eta = us.DualFocal().probability(p)
        assert (np.diff(eta) >= 0).all()
        assert eta.min() >= 0
        assert eta.max() <= 1

    def test_with_the_link_propensities_have_the_right_level_and_without_they_have_not(self, log, dual_focal):
        options = {"learner": us.MF(dim=4), "learning_rate": 0.03, "epochs": 20}
        paper = quick(us.DualFocal(link="none"), **options).fit(log, seeds=SEEDS)
        assert raw(dual_focal).mean() == pytest.approx(log.density, rel=0.35)
        assert raw(paper).mean() > 1.3 * log.density

    def test_the_offset_of_sampled_negatives_comes_after_the_link(self, log):
        options = {"learner": us.MF(dim=4), "learning_rate": 0.03, "epochs": 20, "negatives": 3}
        propensity = quick(us.DualFocal(), **options).fit(log)
        with torch.no_grad():
            output = torch.sigmoid(propensity.network_.eval()(all_pairs(propensity)).double()).numpy()
        eta = us.DualFocal().probability(output)
        np.testing.assert_allclose(raw(propensity), expit(logit(eta) + propensity.offset_), rtol=1e-6)
        assert raw(propensity).mean() == pytest.approx(log.density, rel=0.3)

    def test_training_stops_on_the_likelihood_of_the_linked_output(self):
        z, click = torch.tensor([[-3.0, -1.0, 0.5]]), torch.tensor([[0.0, 1.0, 1.0]])
        method = us.DualFocal()
        p = expit(logit(method.probability(expit(z.double().numpy()))) - 0.7)
        expected = -np.where(click == 1, np.log(p), np.log1p(-p))
        np.testing.assert_allclose(method.held_out_loss(click, z, -0.7), expected, rtol=1e-6)


class TestSpread:
    def test_one_network_read_once_has_none(self, dual_focal, log):
        assert not dual_focal.predict_spread_each(log).any()


@pytest.mark.parametrize("name", ["dropped", "ensemble", "batch_ensemble", "dual_focal"])
def test_a_saved_propensity_predicts_the_same(name, request, log, tmp_path):
    propensity = request.getfixturevalue(name)
    propensity.save(tmp_path / "saved")
    loaded = us.load_propensity(tmp_path / "saved")
    assert loaded.uncertainty == propensity.uncertainty
    for calibrated in (False, True):
        np.testing.assert_array_equal(
            loaded.predict_each(log, calibrated=calibrated),
            propensity.predict_each(log, calibrated=calibrated),
        )
    np.testing.assert_array_equal(loaded.predict_spread_each(log), propensity.predict_spread_each(log))


@pytest.mark.parametrize("name", ["none", *UNCERTAINTIES])
@pytest.mark.parametrize("calibrator", ["platt", "isotonic"])
def test_every_method_goes_with_folds_seeds_and_any_calibrator(log, name, calibrator):
    from unskew.calibration import make_calibrator

    small = {} if name in ("none", "dual-focal") else {"samples" if name == "mc-dropout" else "members": 2}
    propensity = quick(
        make_uncertainty(name, **small), crossfit=2, epochs=20, calibrator=make_calibrator(calibrator)
    ).fit(log, seeds=SEEDS)
    p = propensity.predict_each(log)
    assert p.shape == (2, len(log))
    assert propensity.diagnose()["calibrated"]["mean_over_base_rate"] == pytest.approx(1.0, abs=0.2)


def test_an_unknown_method_is_told_with_those_there_are():
    with pytest.raises(ParameterError, match=r"unknown uncertainty 'swag'.*none, mc-dropout, deep-ensemble"):
        make_uncertainty("swag")


@pytest.mark.parametrize(
    ("uncertainty", "message"),
    [
        (us.MCDropout(samples=0), "samples must be at least 1, not 0"),
        (us.MCDropout(layers="head"), "layers must be 'all', 'mlp' or 'embedding'"),
        (us.DeepEnsemble(members=0), "members must be at least 1, not 0"),
        (us.BatchEnsembleMembers(members=0), "members must be at least 1, not 0"),
        (us.BatchEnsembleMembers(init="ones"), "'signs' or 'normal'"),
        (us.DualFocal(gamma=0.0), "gamma must be above 0"),
        (us.DualFocal(link="logit"), "link must be 'inverse' or 'none'"),
    ],
)
def test_parameters_out_of_range_are_told(log, uncertainty, message):
    with pytest.raises(ParameterError, match=message):
        quick(uncertainty).fit(log)
