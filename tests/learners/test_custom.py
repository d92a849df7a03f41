"""A user's own module as a learner: the numbers of the same modules, trained one by one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import unskew as us
from unskew.base.errors import ParameterError
from unskew.base.progress import SILENT
from unskew.base.seeds import stream
from unskew.data import Rows, Schema
from unskew.debias.losses import cross_entropy
from unskew.learners import Custom
from unskew.learners.custom import CustomNetwork
from unskew.training import Pass, Schedule, ShuffledRows, Step, train

USERS, ITEMS = 12, 9
SCHEMA = Schema.of_ids(USERS, ITEMS)
SEEDS = (4, 7, 9)
EPOCHS = 4


class TwoTowers(nn.Module):
    """Embeddings, a hidden layer and, on request, dropout: nothing of unskew in it."""

    def __init__(self, n_users: int, n_items: int, dropout: float = 0.0, embedding_dropout: float = 0.0):
        super().__init__()
        self.user, self.item = nn.Embedding(n_users, 6), nn.Embedding(n_items, 6)
        self.embedding_dropout = nn.Dropout(embedding_dropout)
        self.hidden = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 1))

    def forward(self, user, item):
        x = torch.cat((self.user(user), self.item(item)), dim=-1)
        return self.hidden(self.embedding_dropout(x)).squeeze(-1)


def label_of(cell):
    return ((cell * 7919) % 11 < 4).float()


def pairs(cells):
    return Rows(user=cells // ITEMS, item=cells % ITEMS)


def sampler(seeds):
    cells = torch.arange(USERS * ITEMS)
    return ShuffledRows(cells.expand(len(seeds), -1), seeds, 25)


def trained(learner, seeds=SEEDS):
    network = learner.build(SCHEMA, seeds)

    def loss(draw):
        rows = draw.observed
        return cross_entropy(label_of(rows), network(pairs(rows))).mean(-1)

    train(
        {"network": network},
        [Pass(sampler(seeds), (Step("fit", loss, ("network",)),))],
        Schedule(epochs=EPOCHS, learning_rate=0.01, weight_decay=1e-3, patience=None),
        replicas=len(seeds),
        validate=None,
        tracker=SILENT.task("training", 1),
    )
    return network


def trained_plainly(seed):
    """The same module, the same batches, PyTorch's Adam, and nothing else."""
    torch.manual_seed(stream(seed, "weights"))
    module = TwoTowers(USERS, ITEMS)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=1e-3)
    batches = sampler([seed])
    for epoch in range(EPOCHS):
        for block in batches.epoch(epoch):
            for rows in block.observed[0]:
                logit = module(rows // ITEMS, rows % ITEMS)
                optimiser.zero_grad()
                nn.functional.binary_cross_entropy_with_logits(logit, label_of(rows)).backward()
                optimiser.step()
    return module


@pytest.fixture(params=["one by one", "at once"])
def way(request, monkeypatch):
    """On a CPU copies run one by one; ``at once`` takes the way of a GPU."""
    if request.param == "at once":
        monkeypatch.setattr(CustomNetwork, "one_by_one", CustomNetwork.at_once)
    return request.param


def test_a_stack_is_the_same_modules_trained_in_a_plain_loop(way):
    network = trained(Custom(module=TwoTowers)).eval()
    cells = torch.arange(USERS * ITEMS)
    logits = network(pairs(cells[None]))
    for seed, logit in zip(SEEDS, logits, strict=True):
        plain = trained_plainly(seed)
        torch.testing.assert_close(logit, plain(cells // ITEMS, cells % ITEMS), rtol=0, atol=1e-5)
        torch.manual_seed(stream(seed, "weights"))
        untrained = TwoTowers(USERS, ITEMS)(cells // ITEMS, cells % ITEMS)
        assert (logit - untrained).abs().max() > 0.05


class TestDropout:
    learner = Custom(module=lambda users, items: TwoTowers(users, items, 0.5, 0.3))
    asked = pairs(torch.arange(30).view(3, 10))

    def test_it_is_off_in_evaluation_and_on_in_training(self, way):
        network = self.learner.build(SCHEMA, SEEDS).eval()
        assert torch.equal(network(self.asked), network(self.asked))
        network.train()
        assert not torch.equal(network(self.asked), network(self.asked))

    def test_on_a_cpu_a_replica_has_the_masks_of_its_own_seed(self):
        stacked = trained(self.learner)
        for position, seed in enumerate(SEEDS):
            alone = trained(self.learner, [seed])
            for name, weight in stacked.state_dict().items():
                torch.testing.assert_close(weight[position], alone.state_dict()[name][0], rtol=0, atol=1e-5)

    def test_a_call_leaves_torchs_own_generator_as_it_was(self):
        network = self.learner.build(SCHEMA, SEEDS)
        before = torch.get_rng_state()
        network(self.asked)
        assert torch.equal(torch.get_rng_state(), before)

    @pytest.mark.parametrize(("layers", "names"), [("all", [0.3, 0.5]), ("embedding", [0.3]), ("mlp", [0.5])])
    def test_its_modules_are_found_by_their_names(self, layers, names):
        network = self.learner.build(SCHEMA, SEEDS)
        assert [module.p for module in network.dropouts(layers)] == names


def test_mc_dropout_works_with_a_module_of_ones_own():
    log = us.load("synthetic", n_users=40, n_items=30, density=0.2, seed=1).train
    learner = Custom(module=lambda users, items: TwoTowers(users, items, 0.3))
    propensity = us.Propensity(
        learner=learner, crossfit=None, epochs=2, uncertainty=us.MCDropout(samples=5)
    ).fit(log)
    assert (propensity.predict_spread_each(log) > 0).all()
    again = us.Propensity(learner=learner, crossfit=None, epochs=2).fit(log)
    assert not again.predict_spread_each(log).any()


class WithStatistics(TwoTowers):
    def __init__(self, n_users, n_items):
        super().__init__(n_users, n_items)
        self.norm = nn.BatchNorm1d(8)


class TwoLogits(TwoTowers):
    def forward(self, user, item):
        return super().forward(user, item).unsqueeze(-1)


class RandomWidth(nn.Module):
    def __init__(self, n_users, n_items):
        super().__init__()
        self.user = nn.Embedding(n_users, int(torch.randint(2, 1000, ())))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (WithStatistics, r"modules with buffers .* cannot be replicated.*LayerNorm"),
        (TwoLogits, r"one logit per pair, \[5\], not \[5, 1\].*squeeze"),
        (RandomWidth, "modules of different shapes"),
    ],
)
def test_modules_that_cannot_be_replicated_are_told(module, message):
    cells = torch.zeros(3, 5, dtype=torch.int64)
    with pytest.raises(ParameterError, match=message):
        Custom(module=module).build(SCHEMA, SEEDS)(pairs(cells))


def test_several_towers_are_told():
    with pytest.raises(ParameterError, match=r"one tower.*NeuMF or MF"):
        Custom(module=TwoTowers).build(SCHEMA, SEEDS, towers=("prediction", "click"))
