"""Every learner keeps the contract; NeuMF and MF are the networks their formulas say."""

from __future__ import annotations

import math

import pytest
import torch

from contracts.network_contract import ITEMS, SCHEMA, USERS, NetworkContract, pairs
from unskew.base.errors import ParameterError
from unskew.data import Schema
from unskew.learners import LEARNERS, MF, NetworkLearner, NeuMF, make_learner
from unskew.learners.noise import Noise

NETWORKS = [name for name, kind in LEARNERS.items() if issubclass(kind, NetworkLearner)]


class TestEveryNetwork(NetworkContract):
    @pytest.fixture(params=NETWORKS)
    def learner(self, request):
        return LEARNERS[request.param]()


class TestNeuMFWithDroppedEmbeddings(NetworkContract):
    @pytest.fixture
    def learner(self):
        return NeuMF(dim=6, layers=(10, 5), dropout=0.5, emb_dropout=0.3)


def test_neumf_has_86465_parameters_on_coat():
    network = NeuMF().build(Schema.of_ids(290, 300), [0])
    assert sum(parameter.numel() for parameter in network.parameters()) == 86_465


def test_neumf_is_its_formula():
    spec = NeuMF(dim=5, layers=(7, 3), dropout=0.4)
    network = spec.build(SCHEMA, [11]).eval()
    rows = pairs(1, 9)
    x, y = network.user.weight[0, rows.user[0]], network.item.weight[0, rows.item[0]]
    hidden = torch.cat((x[:, 5:], y[:, 5:]), dim=1)
    tower = network.tower["prediction"]
    for linear in tower.mlp:
        hidden = (hidden @ linear.weight[0] + linear.bias[0]).clamp(min=0)
    features = torch.cat((x[:, :5] * y[:, :5], hidden), dim=1)
    expected = features @ tower.head.weight[0] + tower.head.bias[0]
    torch.testing.assert_close(network(rows)[0], expected[:, 0], rtol=0, atol=1e-6)


@torch.no_grad()
def test_neumf_starts_as_the_paper_says():
    network = NeuMF().build(Schema.of_ids(500, 500), [4])
    tower = network.tower["prediction"]
    for table in (network.user.weight, network.item.weight):
        assert float(table.std()) == pytest.approx(0.01, rel=0.02)
    for linear, (fan_in, fan_out) in zip(tower.mlp, ((128, 64), (64, 32), (32, 16)), strict=True):
        bound = math.sqrt(6 / (fan_in + fan_out))
        assert linear.weight.shape == (1, fan_in, fan_out)
        assert 0.95 * bound < float(linear.weight.abs().max()) <= bound
        assert not linear.bias.any()
    assert 0.5 / math.sqrt(80) < float(tower.head.weight.abs().max()) <= 1 / math.sqrt(80)
    assert tower.head.bias.any()


def test_mf_is_its_formula():
    network = MF(dim=4).build(SCHEMA, [11])
    assert sum(parameter.numel() for parameter in network.parameters()) == (USERS + ITEMS) * (4 + 1) + 1
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):
            parameter.normal_(generator=torch.Generator().manual_seed(number))
    rows = pairs(1, 9)
    x, y = network.user.weight[0, rows.user[0]], network.item.weight[0, rows.item[0]]
    affinity = (x[:, :4] * y[:, :4]).sum(1)
    biases = x[:, 4] + y[:, 4] + network.offset["prediction"][0]
    torch.testing.assert_close(network(rows)[0], affinity + biases, rtol=0, atol=1e-5)


def test_a_tower_of_mf_is_its_formula_with_biases_and_weights_of_its_own():
    towers = ("prediction", "imputation", "click")
    network = MF(dim=4).build(SCHEMA, [11], towers)
    count = (USERS + ITEMS) * (4 + len(towers)) + len(towers) * (4 + 1)
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):
            parameter.normal_(generator=torch.Generator().manual_seed(number))
    rows = pairs(1, 9)
    x, y = network.user.weight[0, rows.user[0]], network.item.weight[0, rows.item[0]]
    for column, tower in enumerate(towers, start=4):
        affinity = (network.scale[tower][0] * x[:, :4] * y[:, :4]).sum(1)
        expected = affinity + x[:, column] + y[:, column] + network.offset[tower][0]
        torch.testing.assert_close(network(rows, tower)[0], expected, rtol=0, atol=1e-5)


def test_who_clicks_often_says_nothing_about_who_converts_to_the_biases_of_mf():
    """What the click tower learns of a user's and an item's level leaves the prediction's biases alone."""
    network = MF(dim=4).build(SCHEMA, [11, 12], ("prediction", "click"))
    network(pairs(2, 200), "click").sum().backward()
    for table in (network.user.weight, network.item.weight):
        prediction, click = table.grad[..., 4], table.grad[..., 5]
        assert not prediction.any()
        assert bool((click != 0).any(dim=1).all())
    for parts in (network.offset, network.scale):
        assert parts["prediction"].grad is None
        assert bool(parts["click"].grad.any())


def test_a_seed_gives_mf_the_same_embeddings_whatever_its_towers():
    one, three = (MF(dim=4).build(SCHEMA, [5], towers) for towers in (("prediction",), "abc"))
    for table in ("user", "item"):
        torch.testing.assert_close(
            getattr(one, table).weight[..., :4], getattr(three, table).weight[..., :4], rtol=0, atol=0
        )
        assert not getattr(three, table).weight[..., 4:].any()


@torch.no_grad()
def test_mf_starts_without_biases():
    network = MF(dim=8, init_std=0.5).build(Schema.of_ids(400, 400), [4])
    for table in (network.user.weight, network.item.weight):
        assert not table[..., -1].any()
        assert float(table[..., :-1].std()) == pytest.approx(0.5, rel=0.05)


def test_dropout_is_off_in_evaluation_and_on_in_training():
    network = NeuMF(dropout=0.5, init_std=1.0).build(SCHEMA, [1, 2])
    asked = pairs(2, 30)
    assert not torch.equal(network(asked), network(asked))
    network.eval()
    still = network(asked)
    network.train()
    assert not torch.equal(network(asked), still)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_not_drawn_is_nan_until_it_is_filled(name):
    weights = LEARNERS[name]().build(SCHEMA, [0, 1], drawn=False).state_dict()
    assert weights
    assert all(weight.isnan().all() for weight in weights.values())


class TestNoise:
    SHAPE = (3, 64, 50)
    SEEDS = (5, 6, 7)

    def masks(self, seeds=SEEDS, rate=0.2, calls=3):
        noise = Noise(seeds)
        shape = (len(seeds), *self.SHAPE[1:])
        return torch.stack([noise.keep_mask(shape, rate, torch.float32) for _ in range(calls)])

    @pytest.mark.parametrize("rate", [0.05, 0.2, 0.5, 0.9])
    def test_values_are_0_or_the_inverse_keep_rate_and_the_rate_is_right(self, rate):
        masks = self.masks(rate=rate)
        torch.testing.assert_close(masks.unique(), torch.tensor([0.0, 1 / (1 - rate)]))
        for replica in range(3):
            dropped = (masks[:, replica] == 0).double()
            standard_error = math.sqrt(rate * (1 - rate) / dropped.numel())
            assert abs(float(dropped.mean()) - rate) < 3 * standard_error

    def test_masks_of_calls_and_of_replicas_are_uncorrelated(self):
        kept = (self.masks(rate=0.5) > 0).double().flatten(2) - 0.5
        rows = kept.flatten(0, 1)
        correlation = 4 * rows @ rows.T / rows.shape[1]
        off_diagonal = correlation[~torch.eye(len(rows), dtype=torch.bool)]
        assert float(off_diagonal.abs().max()) < 4.5 / math.sqrt(rows.shape[1])

    def test_neighbouring_elements_are_uncorrelated(self):
        kept = (self.masks(rate=0.5, calls=8) > 0).double().flatten() - 0.5
        for lag in (1, 2, 3, 4, 50):
            correlation = 4 * float((kept[lag:] * kept[:-lag]).mean())
            assert abs(correlation) < 4 / math.sqrt(len(kept)), lag

    def test_restarting_gives_the_same_masks_again(self):
        noise = Noise(self.SEEDS)
        first = [noise.keep_mask(self.SHAPE, 0.3, torch.float32) for _ in range(2)]
        noise.restart()
        again = [noise.keep_mask(self.SHAPE, 0.3, torch.float32) for _ in range(2)]
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("rate", [0.2, 0.77])
def test_a_gpu_drops_what_a_cpu_drops_forward_and_backward(rate):
    here, there = Noise((5, 2**40 + 1)), Noise((5, 2**40 + 1))
    there.to(torch.device("cuda"))
    for shape in ((2, 7, 50), (2, 1), (2, 3, 4, 999)):
        mask = here.keep_mask(shape, rate, torch.float32)
        x = torch.rand(shape, device="cuda", requires_grad=True)
        dropped = there.dropped(x, rate)
        torch.testing.assert_close(dropped.detach().cpu(), x.detach().cpu() * mask)
        dropped.square().sum().backward()
        torch.testing.assert_close(x.grad.cpu(), 2 * x.detach().cpu() * mask.square())


def test_an_unknown_learner_is_told_with_those_there_are():
    with pytest.raises(ParameterError, match=r"unknown learner 'lstm'.*neumf, mf"):
        make_learner("lstm")


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (NeuMF(dim=0), "dim must be at least 1, not 0"),
        (MF(dim=0), "dim must be at least 1, not 0"),
        (NeuMF(layers=()), "layers must name at least one width"),
        (NeuMF(dropout=1.0), r"dropout must be in \[0, 1\), not 1.0"),
        (NeuMF(emb_dropout=-0.1), r"emb_dropout must be in \[0, 1\), not -0.1"),
    ],
)
def test_parameters_out_of_range_are_told(learner, message):
    with pytest.raises(ParameterError, match=message):
        learner.build(Schema.of_ids(3, 3), [0])
