"""What every learner must do. A learner's tests inherit this class and say which one it is."""

from __future__ import annotations

import pytest
import torch

from unskew.base.progress import SILENT
from unskew.data import Rows, Schema
from unskew.debias.losses import cross_entropy
from unskew.learners import Network, NetworkLearner, make_learner
from unskew.training import Pass, Schedule, ShuffledRows, Step, train

USERS, ITEMS = 30, 20
SCHEMA = Schema.of_ids(USERS, ITEMS)
SEEDS = (1, 3, 9)
ROUNDING = 1e-5
"""One replica is a plain matrix product, several are a batched one; they round differently."""


class NetworkContract:
    """Override the fixture ``learner``."""

    rounding = ROUNDING

    @pytest.fixture
    def learner(self) -> NetworkLearner:
        raise NotImplementedError

    def test_logits_have_one_number_for_each_replica_and_pair(self, learner: NetworkLearner):
        network = learner.build(SCHEMA, SEEDS)
        assert network(pairs(len(SEEDS), 7)).shape == (len(SEEDS), 7)
        assert network.replicas == len(SEEDS)

    def test_every_parameter_leads_with_the_replicas(self, learner: NetworkLearner):
        for name, parameter in learner.build(SCHEMA, SEEDS).named_parameters():
            assert len(parameter) == len(SEEDS), name

    @pytest.mark.parametrize("position", range(len(SEEDS)))
    def test_initial_weights_of_a_replica_depend_on_its_own_seed_alone(
        self, learner: NetworkLearner, position
    ):
        alone = learner.build(SCHEMA, [SEEDS[position]]).state_dict()
        stacked = learner.build(SCHEMA, SEEDS).state_dict()
        for name, weight in alone.items():
            assert torch.equal(weight[0], stacked[name][position]), name

    def test_a_network_that_was_not_drawn_is_the_drawn_one_once_it_is_filled(self, learner: NetworkLearner):
        drawn, filled = (learner.build(SCHEMA, SEEDS, drawn=each).eval() for each in (True, False))
        filled.load_state_dict(drawn.state_dict())
        asked = pairs(len(SEEDS), 25)
        assert torch.equal(filled(asked), drawn(asked))

    def test_different_seeds_give_different_weights(self, learner: NetworkLearner):
        network = learner.build(SCHEMA, SEEDS).eval()
        scores = network(pairs(1, 50))
        assert torch.unique(scores, dim=0).shape[0] == len(SEEDS)

    def test_the_loss_of_one_replica_has_no_gradient_in_the_others(self, learner: NetworkLearner):
        network = learner.build(SCHEMA, SEEDS)
        network(pairs(len(SEEDS), 40))[1].square().sum().backward()
        own = 0.0
        for name, parameter in network.named_parameters():
            assert not parameter.grad[[0, 2]].any(), name
            own += float(parameter.grad[1].abs().sum())
        assert own > 0

    def test_a_logit_depends_on_its_own_pair_alone(self, learner: NetworkLearner):
        network = learner.build(SCHEMA, SEEDS).eval()
        rows = pairs(len(SEEDS), 12)
        backward = network(rows.map(lambda values: values.flip(1))).flip(1)
        torch.testing.assert_close(network(rows), backward, rtol=0, atol=1e-6)

    def test_rows_with_one_line_are_shared_by_all_replicas(self, learner: NetworkLearner):
        network = learner.build(SCHEMA, SEEDS).eval()
        shared = pairs(1, 12)
        each = network(shared.map(lambda values: values.expand(len(SEEDS), *values.shape[1:])))
        torch.testing.assert_close(network(shared), each, rtol=0, atol=0)
        towered = network.read(network.embed(shared), network.towers[0])
        torch.testing.assert_close(towered, each, rtol=0, atol=ROUNDING)

    @pytest.mark.parametrize("in_one_go", [False, True])
    def test_a_replica_trained_in_a_stack_equals_the_same_network_trained_alone(
        self, learner: NetworkLearner, in_one_go: bool
    ):
        stacked = trained(learner, SEEDS, in_one_go=in_one_go)
        initial = learner.build(SCHEMA, SEEDS).state_dict()
        for position, seed in enumerate(SEEDS):
            alone = trained(learner, [seed], in_one_go=in_one_go).state_dict()
            for name, weight in stacked.state_dict().items():
                torch.testing.assert_close(weight[position], alone[name][0], rtol=0, atol=self.rounding)
            moved = max(
                float((weight[position] - initial[name][position]).abs().max())
                for name, weight in stacked.state_dict().items()
            )
            assert moved > 1000 * self.rounding

    def test_training_twice_gives_the_same_weights_bit_for_bit(self, learner: NetworkLearner):
        first, second = (trained(learner, SEEDS, epochs=2).state_dict() for _ in range(2))
        for name, weight in first.items():
            assert torch.equal(weight, second[name]), name

    def test_towers_share_embeddings_and_have_weights_of_their_own(self, learner: NetworkLearner):
        network = learner.build(SCHEMA, SEEDS, towers=("prediction", "click")).eval()
        asked = pairs(len(SEEDS), 10)
        embedded = network.embed(asked)
        torch.testing.assert_close(
            network.read(embedded, "prediction"), network(asked), rtol=0, atol=ROUNDING
        )
        single = learner.build(SCHEMA, SEEDS)
        twice, once = (sum(p.numel() for p in each.parameters()) for each in (network, single))
        assert once < twice < 2 * once

    def test_parameters_make_the_same_learner_again_also_as_a_file_has_them(self, learner: NetworkLearner):
        params = learner.get_params()
        as_read = {name: list(value) if isinstance(value, tuple) else value for name, value in params.items()}
        for again in (make_learner(learner.name, **params), make_learner(learner.name, **as_read)):
            assert again == learner
            assert again is not learner


def pairs(replicas: int, count: int) -> Rows:
    random = torch.Generator().manual_seed(0)
    user = torch.randint(USERS, (replicas, count), generator=random)
    return Rows(user=user, item=torch.randint(ITEMS, (replicas, count), generator=random))


def trained(learner: NetworkLearner, seeds, *, in_one_go: bool = True, epochs: int = 4) -> Network:
    """A network after a few epochs on every cell, each replica in its own order, with dropout on."""
    network = learner.build(SCHEMA, seeds)
    network.fusible = network.fusible and in_one_go
    cells = torch.arange(USERS * ITEMS)
    label = ((cells * 7919) % 11 < 3).float()

    def loss(draw):
        rows = draw.observed
        logit = network(Rows(user=rows // ITEMS, item=rows % ITEMS))
        return cross_entropy(label[rows], logit).mean(-1)

    train(
        {"network": network},
        [Pass(ShuffledRows(cells.expand(len(seeds), -1), seeds, 128), (Step("fit", loss, ("network",)),))],
        Schedule(epochs=epochs, learning_rate=0.01, weight_decay=0.0, patience=None),
        replicas=len(seeds),
        validate=None,
        tracker=SILENT.task("training", 1),
    )
    return network
