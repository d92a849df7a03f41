"""Tables trained by the rows that steps touch: the weights of dense Adam, at a cost without the tables."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import unskew as us
from unskew.base.progress import SILENT
from unskew.data import Field, Rows, Schema
from unskew.debias.losses import cross_entropy
from unskew.learners import DCN, MF, BatchEnsemble, DeepFM, NetworkLearner, NeuMF
from unskew.learners.layers import ReplicaEmbedding, normal, release, settle
from unskew.training import Pass, Sample, Schedule, ShuffledRows, Step, adam, train
from unskew.training.adam import BETA_1, BETA_2, EPSILON, Adam, TouchedRows, rows_table

LR = 0.01


@pytest.fixture
def lazily(monkeypatch):
    """Train tables by touched rows whatever their size, or never."""

    def choose(lazy: bool) -> None:
        monkeypatch.setattr(adam, "FEWEST_ROWS", 0 if lazy else 1 << 40)

    choose(True)
    return choose


def table_of(rows: int, width: int = 5, replicas: int = 2) -> ReplicaEmbedding:
    generators = [torch.Generator().manual_seed(seed) for seed in range(replicas)]
    return ReplicaEmbedding(Field("user", "id", "user", rows), width, normal(0.3), generators)


def reads(steps: int, rows: int, count: int, replicas: int = 2, seed: int = 0):
    """Codes that each step looks up, some rows often and most seldom, and a weight for each."""
    random = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        codes = (torch.rand(replicas, count, generator=random) ** 3 * rows).long()
        yield codes, torch.randn(replicas, count, 1, generator=random)


def lazy_steps(table, steps, decay=0.0, settled_every=None):
    """The table after a loss of Σ weight · sin(row) in each step, by touched rows."""
    rows = rows_table(table, LR, decay)
    for number, (codes, weight) in enumerate(steps):
        codes, weight = codes.to(table.weight.device), weight.to(table.weight.device)
        rows.forget()
        (weight * table(codes).sin()).sum().backward()
        assert table.weight.grad is None
        rows.step()
        if settled_every and number % settled_every == 0:
            settle(table)
    release(table)
    assert table.lazy is None
    return table.weight.detach().cpu()


def dense_steps(table, steps, decay=0.0):
    dense = torch.optim.Adam([table.weight], lr=LR, weight_decay=decay)
    for codes, weight in steps:
        dense.zero_grad()
        (weight * table(codes).sin()).sum().backward()
        dense.step()
    return table.weight.detach()


class TestTheUpdate:
    @pytest.mark.parametrize("decay", [0.0, 0.1])
    def test_it_is_adam_where_every_row_is_touched_in_every_step(self, decay):
        every = torch.arange(7).repeat(2, 3)
        steps = [(every, weight) for _, weight in reads(60, 7, 21)]
        ours, theirs = lazy_steps(table_of(7), steps, decay), dense_steps(table_of(7), steps, decay)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)

    @pytest.mark.parametrize("settled_every", [None, 7])
    @pytest.mark.parametrize("count", [2, 30])
    def test_without_decay_it_is_adam_also_where_rows_wait(self, count, settled_every):
        """Rows wait up to all 500 steps, longer than their momentum lasts; all bins of waiting occur."""
        start = table_of(200).weight.detach()
        ours = lazy_steps(table_of(200), reads(500, 200, count), settled_every=settled_every)
        theirs = dense_steps(table_of(200), reads(500, 200, count))
        moved = (theirs - start).abs().max()
        assert moved > 10 * LR
        assert float((ours - theirs).norm() / (theirs - start).norm()) < 3e-4
        assert float((ours - theirs).abs().max()) < 2e-3 * moved

    def test_a_row_that_is_not_touched_stays_as_it_is(self):
        table = table_of(50)
        start = table.weight.detach().clone()
        codes = torch.tensor([[3, 3, 9], [4, 3, 4]])
        after = lazy_steps(table, [(codes, torch.ones(2, 3, 1))] * 3, decay=0.5, settled_every=1)
        changed = (after != start).any(-1)
        assert [line.nonzero().flatten().tolist() for line in changed] == [[3, 9], [3, 4]]

    def test_decay_comes_with_the_gradient_for_all_the_steps_that_a_row_waited(self):
        """By the stated formula, in float64 and step by step."""
        decay, steps = 0.02, list(reads(300, 40, 3, seed=4))
        ours = lazy_steps(table_of(40), steps, decay, settled_every=90)
        p = table_of(40).weight.detach().double()
        m, v, last = torch.zeros_like(p), torch.zeros_like(p), torch.zeros(p.shape[:2])
        for t, (codes, weight) in enumerate(steps, start=1):
            gradient = torch.zeros_like(p)
            for replica, line in enumerate(codes):
                each = weight[replica].double() * p[replica, line].cos()
                gradient[replica].index_add_(0, line, each)
                touched = line.unique()
                waited = (t - last[replica, touched]).unsqueeze(1)
                gradient[replica, touched] += decay * waited * p[replica, touched]
                last[replica, touched] = t
            m = BETA_1 * m + (1 - BETA_1) * gradient
            v = BETA_2 * v + (1 - BETA_2) * gradient.square()
            denominator = (v / (1 - BETA_2**t)).sqrt() + EPSILON
            p -= LR / (1 - BETA_1**t) * m / denominator
        start = table_of(40).weight.detach()
        assert float((ours - p).norm() / (p - start).norm()) < 3e-4

    def test_replicas_do_not_depend_on_one_another(self):
        steps = list(reads(40, 60, 8, replicas=3))
        together = lazy_steps(table_of(60, replicas=3), steps)
        for replica in range(3):
            alone = table_of(60, replicas=3)
            alone.weight = torch.nn.Parameter(alone.weight.detach()[replica : replica + 1].clone())
            own = [tuple(part[replica : replica + 1] for part in step) for step in steps]
            assert torch.equal(lazy_steps(alone, own)[0], together[replica])

    def test_look_ups_of_one_step_add_up(self):
        """Of one table, the same rows among them, with one gradient for two of them."""
        codes, weight = next(reads(1, 20, 9))

        def loss(table):
            return (weight * (table(codes) + table(codes.flip(1))) * table(codes[:, :1]).detach()).sum()

        ours, theirs = table_of(20), table_of(20)
        rows = TouchedRows(ours, LR, 0.0)
        loss(ours).backward()
        rows.step()
        release(ours)
        adam = torch.optim.Adam([theirs.weight], lr=LR)
        loss(theirs).backward()
        adam.step()
        torch.testing.assert_close(ours.weight, theirs.weight, rtol=0, atol=1e-6)

    def test_codes_that_are_not_there_are_an_error(self):
        table = table_of(9)
        TouchedRows(table, LR, 0.0)
        for code in (-1, 9):
            with pytest.raises(IndexError, match="do not fit 9 rows"):
                table(torch.tensor([[0, code]]))


@pytest.mark.gpu
class TestOnGPU:
    @pytest.mark.parametrize("settled_every", [None, 1, 7, 150])
    @pytest.mark.parametrize("decay", [0.0, 0.02])
    @pytest.mark.parametrize("count", [2, 30, 3000])
    def test_a_table_becomes_what_it_becomes_on_a_cpu(self, settled_every, decay, count):
        steps = list(reads(400, 200, count, seed=3))
        start = table_of(200).weight.detach()
        on_gpu = lazy_steps(table_of(200).cuda(), steps, decay, settled_every)
        on_cpu = lazy_steps(table_of(200), steps, decay, settled_every)
        assert float((on_gpu - on_cpu).norm() / (on_cpu - start).norm()) < 1e-3

    def test_a_row_that_is_looked_up_many_times_at_once_is_brought_up_to_date_once(self):
        """Some 60,000 look-ups a step, by programs that run at the same time."""
        steps = list(reads(45, 20_000, 60_000, seed=4))
        on_gpu, on_cpu = (
            lazy_steps(table, steps, 0.0, None) for table in (table_of(20_000).cuda(), table_of(20_000))
        )
        start = table_of(20_000).weight.detach()
        assert float((on_gpu - on_cpu).norm() / (on_cpu - start).norm()) < 1e-3

    @pytest.mark.parametrize(
        "learner",
        [MF(dim=4), NeuMF(dim=16, layers=(32, 16, 16), dropout=0.0), DCN(dim=4, layers=(8,)), DeepFM(dim=4)],
        ids=["mf", "neumf in one go", "dcn", "deepfm"],
    )
    def test_networks_learn_what_they_do_with_dense_adam(self, learner, monkeypatch):
        """With steps that are captured and replayed."""
        found = []
        for fewest in (0, 1 << 40):
            monkeypatch.setattr(adam, "FEWEST_ROWS_ON_GPU", fewest)
            found.append(fitted(learner, epochs=2, device="cuda")[1])
        torch.testing.assert_close(found[0], found[1], rtol=0, atol=5e-3)
        assert float(found[0][1].mean()) < float(found[0][0].mean())


USERS, ITEMS, BATCH = 300, 200, 32


def fitted(learner: NetworkLearner, seeds=(0, 1), *, decay=0.0, epochs=3, device="cpu"):
    """A network after some epochs on random pairs, and its losses."""
    random = torch.Generator().manual_seed(5)
    user = torch.randint(USERS, (1500,), generator=random)
    item = (torch.rand(1500, generator=random) ** 2 * ITEMS).long()
    label = ((user * 7 + item) % 3 == 0).float()
    user, item, label = (each.to(device) for each in (user, item, label))
    network = learner.build(Schema.of_ids(USERS, ITEMS), seeds)
    network.to_device(torch.device(device))

    def loss(sample: Sample):
        rows = sample.observed
        return cross_entropy(label[rows], network(Rows(user=user[rows], item=item[rows]))).mean(-1)

    rows = torch.arange(1500, device=device).expand(len(seeds), -1)
    history = train(
        {"network": network},
        [Pass(ShuffledRows(rows, seeds, BATCH), (Step("fit", loss, ("network",)),))],
        Schedule(epochs, LR, decay, None),
        replicas=len(seeds),
        validate=None,
        tracker=SILENT.task("training", 1),
    )
    return network, torch.tensor(history.train["fit"])


class TestNetworks:
    @pytest.mark.parametrize(
        "learner",
        [
            NeuMF(dim=4, layers=(8, 4), dropout=0.0),
            NeuMF(dim=4, layers=(8,), emb_dropout=0.1),
            BatchEnsemble(base=MF(dim=4), members=2),
            DCN(dim=4, layers=(8,)),
        ],
        ids=["neumf in one go", "neumf by layers", "batch ensemble", "dcn"],
    )
    def test_every_learner_learns_what_it_does_with_dense_adam(self, learner, lazily):
        # One epoch: later, a unit of a ReLU near 0 may be active in the one and not in the other.
        ours, losses = fitted(learner, epochs=1)
        lazily(False)
        theirs, expected = fitted(learner, epochs=1)
        torch.testing.assert_close(losses, expected, rtol=0, atol=2e-3)
        start = learner.build(Schema.of_ids(USERS, ITEMS), [0, 1])
        for one, other, first in zip(ours.parameters(), theirs.parameters(), start.parameters(), strict=True):
            one, other, first = (each.detach() for each in (one, other, first))
            assert float((one - other).norm()) < 0.01 * float((other - first).norm()) + 1e-6

    def test_only_tables_that_are_large_beside_a_batch_are_lazy(self, monkeypatch):
        monkeypatch.setattr(adam, "FEWEST_ROWS", 8)
        network = MF(dim=4).build(Schema.of_ids(8 * 32 + 1, 8 * 32), [0])
        assert len(Adam(network, LR, 0.0, 32).tables) == 1
        assert network.user.lazy is not None
        assert network.item.lazy is None
        release(network)
        assert Adam(network, LR, 0.0, 33).tables == []
        assert network.user.lazy is None
        double = MF(dim=4).build(Schema.of_ids(500, 500), [0]).double()
        assert Adam(double, LR, 0.0, 32).tables == []

    @pytest.mark.usefixtures("lazily")
    def test_what_validation_sees_is_up_to_date_and_its_best_weights_come_back(self):
        """Rows are settled before they are read as a whole: scores by look-up and by weight agree."""
        network = MF(dim=3).build(Schema.of_ids(90, 80), [0])
        pairs = Rows(user=torch.arange(80)[None], item=torch.arange(80)[None])
        seen = []

        def validate():
            whole = network.user.weight.detach().clone()
            network(pairs)
            assert torch.equal(network.user.weight, whole)
            seen.append(whole)
            return torch.tensor([abs(len(seen) - 2.0)])

        def loss(sample):
            rows = sample.observed
            return network(Rows(user=rows, item=rows)).square().mean(-1) - network.user.weight.new_ones(1)

        history = train(
            {"network": network},
            [Pass(ShuffledRows(torch.arange(80)[None], [0], 5), (Step("fit", loss, ("network",)),))],
            Schedule(6, LR, 0.0, 2),
            replicas=1,
            validate=validate,
            tracker=SILENT.task("training", 1),
        )
        assert history.best_epoch == [1]
        assert torch.equal(network.user.weight, seen[1])
        assert not torch.equal(seen[1], seen[-1])


class TestWhatAStepTouches:
    """Bytes instead of a clock: what a step allocates and writes does not grow with the table."""

    @pytest.mark.parametrize("learner", [MF(dim=8), NeuMF(dim=8, layers=(16, 8))], ids=["mf", "neumf"])
    def test_a_step_allocates_no_more_on_a_table_a_hundred_times_as_large(self, learner, lazily):
        taken = [self.largest_allocation(learner, size) for size in (1_000, 100_000)]
        assert taken[0] == taken[1] < 1_000_000
        lazily(False)
        assert self.largest_allocation(learner, 100_000) > 100_000 * 8 * 4

    def largest_allocation(self, learner, size):
        network = learner.build(Schema.of_ids(size, size), [0])
        optimiser = Adam(network, LR, 0.0, 16)
        pairs = Rows(user=torch.arange(16)[None], item=torch.arange(16)[None])

        def step():
            optimiser.zero_grad()
            network(pairs).sum().backward()
            optimiser.step()

        step()
        with warnings.catch_warnings():
            # Of what the profiler lacks on this machine, by its version.
            warnings.simplefilter("ignore")
            with torch.profiler.profile(profile_memory=True) as profile:
                step()
        release(network)
        return max(event.cpu_memory_usage for event in profile.events())


@pytest.mark.parametrize("method", [us.StableDR, us.ESCM2DR])
def test_methods_with_tables_by_rows_predict_as_with_dense_adam(method, lazily):
    """Several networks, towers, steps and look-ups in a step; few epochs, so that rounding stays small."""
    log = us.load("synthetic", n_users=60, n_items=40, density=0.15, seed=1).train

    def fitted():
        model = method(learner=us.MF(dim=4), epochs=3, learning_rate=0.02, weight_decay=0.0, batch_size=32)
        return model.fit(log, propensity=0.2, seeds=2) if method.needs_propensity else model.fit(log, seeds=2)

    ours = fitted()
    lazily(False)
    np.testing.assert_allclose(ours.predict_each(log), fitted().predict_each(log), atol=2e-3)
