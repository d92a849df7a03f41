"""Tables that are stored as bfloat16: rounding without bias, one second moment a row, half of the memory."""

from __future__ import annotations

import warnings

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors import safe_open

import unskew as us
from unskew.backbones import Custom, threads
from unskew.backbones.layers import ReplicaEmbedding, normal, release, settle, store_tables, tables_of
from unskew.errors import ParameterError
from unskew.log import Field, Rows, Schema
from unskew.training import half_loops, half_table, lazy_adam
from unskew.training.half_table import HalfTable, rounded
from unskew.training.lazy_adam import LazyTable
from unskew.training.memory import size_of
from unskew.training.table_loops import BETA_1, BETA_2, EPSILON

LR = 0.01
FEW = {"epochs": 2, "batch_size": 200, "learning_rate": 0.02}


def table_of(rows: int, widths=(4, 1), replicas: int = 2) -> ReplicaEmbedding:
    generators = [torch.Generator().manual_seed(seed) for seed in range(replicas)]
    table = ReplicaEmbedding(Field("user", "id", "user", rows), sum(widths), normal(0.3), generators)
    table.widths = widths
    store_tables(table, "bf16", range(replicas))
    return table


def reads(steps: int, rows: int, count: int, replicas: int = 2, seed: int = 0):
    """Codes that each step looks up, some rows often and most seldom, and a weight for each."""
    random = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        codes = (torch.rand(replicas, count, generator=random) ** 3 * rows).long()
        yield codes, torch.randn(replicas, count, 1, generator=random)


def trained(kind, table, steps, decay=0.0, settled_every=None):
    """What trained the table by a loss of Σ weight · sin(row) in each step."""
    state = kind(table, LR, decay)
    for number, (codes, weight) in enumerate(steps):
        state.forget()
        (weight * table(codes).sin()).sum().backward()
        assert table.weight.grad is None
        state.step()
        if settled_every and number % settled_every == 0:
            settle(table)
    release(table)
    return state


class TestRounding:
    def test_the_mean_of_many_roundings_is_the_number(self):
        generator = torch.Generator().manual_seed(0)
        random = torch.randint(-(1 << 31), 1 << 31, (40_000,), generator=generator).to(torch.int32)
        for value in (1.0 + 2**-9, -0.3, 1e-3, 7e-30):
            found = rounded(torch.full((40_000,), value), random).double()
            below, above = found.unique().tolist()
            assert below < value < above
            error = float(found.std()) / 200
            assert abs(float(found.mean()) - value) < 4 * error

    def test_what_is_a_bfloat16_stays_and_so_does_what_is_no_number(self):
        random = torch.full((4,), 0xFFFF, dtype=torch.int32)
        value = torch.tensor([1.5, -0.0, torch.inf, torch.nan])
        assert torch.equal(rounded(value, random)[:3], value[:3].bfloat16())
        # All bits of a GPU's NaN are set; another 1 would make it 0.
        of_gpu = torch.tensor([0x7FFFFFFF], dtype=torch.int32).view(torch.float32)
        assert rounded(of_gpu, random[:1]).isnan().all()

    def test_loops_and_tensor_operations_round_alike_by_key_step_row_and_column(self):
        table = table_of(300, (8,), replicas=1)
        state = HalfTable(table, LR, 0.0)
        values = torch.full((300, 8), 1.0 + 2**-9)
        at, (key,) = torch.arange(300), table.keys
        by_step = []
        for call in (6, 7):
            found = np.zeros((300, 8), dtype=np.uint16)
            for row in range(300):
                half_loops.store(
                    values[row].numpy().view(np.uint32), found[row], half_loops.key_of_step(key, call), row
                )
            theirs = state.round_rows(values, at, torch.tensor([call], dtype=torch.int32))
            assert torch.equal(torch.from_numpy(found).view(torch.bfloat16), theirs)
            by_step.append(found)
        up = np.stack(by_step) > found.min()
        # Half of all goes up, in every row's and column's own order, and in another in each step.
        assert abs(up.mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / up.size)
        assert 0.3 < (up[0] != up[1]).mean() < 0.45
        assert len(np.unique(up[0], axis=0)) > 40

    def test_steps_that_the_nearest_would_lose_add_up(self):
        """100 steps of 10⁻⁴ on weights of 1, whose neighbour below is 0.004 away."""
        table = table_of(2_000, (1,), replicas=1)
        with torch.no_grad():
            table.weight.fill_(1.0)
        state = LazyTable(table, 1e-4, 0.0)
        every = torch.arange(2_000)[None]
        for _ in range(100):
            state.forget()
            table(every).sum().backward()
            state.step()
        assert (torch.tensor(1.0) - 1e-4).bfloat16() == 1.0
        moved = 1.0 - table.weight.detach().float()
        assert abs(float(moved.mean()) - 0.01) < 4 * float(moved.std()) / np.sqrt(2_000)


class TestTheUpdate:
    def test_moments_are_by_the_stated_formula_and_weights_but_for_rounding(self):
        """In float64 and step by step: one second moment for each of two tables side by side; rows wait."""
        widths, steps, decay = (3, 2), list(reads(250, 60, 4, seed=4)), 0.0
        table = table_of(60, widths)
        start = table.weight.detach().double()
        state = LazyTable(table, LR, decay)
        p, m = start.clone(), torch.zeros_like(start)
        v = torch.zeros(2, 60, 2, dtype=torch.float64)
        for t, (codes, weight) in enumerate(steps, start=1):
            state.forget()
            scale = torch.linspace(0.2, 2.0, 5)
            (weight * scale * table(codes)).sum().backward()
            state.step()
            gradient = torch.zeros_like(p)
            for replica, line in enumerate(codes):
                gradient[replica].index_add_(0, line, (weight[replica] * scale).double())
            m = BETA_1 * m + (1 - BETA_1) * gradient
            squares = torch.stack([each.square().mean(-1) for each in gradient.split(widths, -1)], -1)
            v = BETA_2 * v + (1 - BETA_2) * squares
            denominator = (v / (1 - BETA_2**t)).sqrt() + EPSILON
            by_column = denominator.repeat_interleave(torch.tensor(widths), -1)
            p -= LR / (1 - BETA_1**t) * m / by_column
        release(table)
        for replica, (_, first, second, seen, _, _) in enumerate(state.replicas):
            now = seen == len(steps)
            assert now.sum() > 10
            torch.testing.assert_close(torch.from_numpy(second[now]), v[replica, now].float())
            torch.testing.assert_close(
                torch.from_numpy(first[now]), m[replica, now].float(), rtol=1e-4, atol=1e-7
            )
        off, moved = table.weight.detach().double() - p, p - start
        assert float(moved.norm()) > 1.0
        assert float(off.norm()) < 0.05 * float(moved.norm())
        touched = off[moved != 0]
        assert abs(float(touched.mean())) < 4 * float(touched.std()) / np.sqrt(len(touched))

    @pytest.mark.parametrize(("decay", "settled_every"), [(0.0, None), (0.1, 7), (0.02, 150)])
    def test_tensor_operations_do_what_the_loops_do(self, decay, settled_every):
        tables, states = [], []
        for kind in (LazyTable, HalfTable):
            tables.append(table_of(200))
            states.append(trained(kind, tables[-1], reads(200, 200, 20), decay, settled_every))
        # Where they differ in the last bit of float32, a weight may be rounded to the other neighbour.
        ours, theirs = (table.weight.detach().float() for table in tables)
        assert (ours != theirs).float().mean() < 0.01
        torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=1e-6)
        of_loops = states[0].tensors()
        for name, other in (("first moment", "first"), ("second moment", "second")):
            ours = torch.cat([of_loops[f"{replica}/{name}"] for replica in range(2)])
            torch.testing.assert_close(ours, states[1].tensors()[other], rtol=1e-4, atol=1e-7)

    @pytest.mark.gpu
    def test_on_a_gpu_it_is_what_it_is_on_a_cpu(self):
        ours, theirs = table_of(200), table_of(200)
        trained(LazyTable, ours, reads(200, 200, 20), 0.02, 60)
        theirs.cuda()
        on_gpu = ((codes.cuda(), weight.cuda()) for codes, weight in reads(200, 200, 20))
        trained(HalfTable, theirs, on_gpu, 0.02, 60)
        found, wanted = theirs.weight.detach().cpu().float(), ours.weight.detach().float()
        assert (found != wanted).float().mean() < 0.05
        torch.testing.assert_close(found, wanted, rtol=2**-6, atol=1e-4)

    def test_idle_steps_are_added_up_in_parts_where_a_batch_is_large(self, monkeypatch):
        whole, parts = table_of(60), table_of(60)
        trained(HalfTable, whole, reads(60, 60, 8), 0.02)
        monkeypatch.setattr(half_table, "AT_ONCE", 50 * 16)
        trained(HalfTable, parts, reads(60, 60, 8), 0.02)
        assert (whole.weight != parts.weight).float().mean() < 0.01
        torch.testing.assert_close(whole.weight, parts.weight, rtol=2**-7, atol=1e-6)

    def test_threads_and_other_replicas_do_not_change_a_bit(self, monkeypatch):
        monkeypatch.setattr(lazy_adam, "SMALLEST_PART", 4)
        steps, results = list(reads(40, 60, 32)), []
        for count in (1, 5):
            monkeypatch.setattr(threads, "count", lambda count=count: count)
            table = table_of(60)
            trained(LazyTable, table, steps, settled_every=9)
            results.append(table.weight.detach())
        assert torch.equal(*results)
        alone = table_of(60)
        alone.weight = torch.nn.Parameter(alone.weight.detach()[1:].clone())
        alone.keys = alone.keys[1:]
        trained(LazyTable, alone, [tuple(each[1:] for each in step) for step in steps], settled_every=9)
        assert torch.equal(alone.weight[0], results[0][1])

    def test_a_state_that_was_taken_goes_on_to_the_same_bits(self):
        for kind in (LazyTable, HalfTable):
            steps = list(reads(30, 50, 8))
            whole, table = table_of(50), table_of(50)
            trained(kind, whole, steps)
            before = kind(table, LR, 0.0)
            for codes, weight in steps[:13]:
                before.forget()
                (weight * table(codes).sin()).sum().backward()
                before.step()
            kept = {name: part.clone() for name, part in before.tensors().items()}
            after = kind(table, LR, 0.0)
            after.restore(kept)
            for codes, weight in steps[13:]:
                after.forget()
                (weight * table(codes).sin()).sum().backward()
                after.step()
            release(table)
            assert torch.equal(table.weight, whole.weight)


class TestMemory:
    @pytest.mark.parametrize("kind", [LazyTable, HalfTable])
    def test_a_weight_takes_six_bytes_and_a_row_sixteen(self, kind):
        table = table_of(1_000, (32,), replicas=1)
        tensors = kind(table, LR, 0.0).tensors()
        state = sum(
            part.numel() * part.element_size() for part in tensors.values() if part.dim() > 1 or len(part) > 2
        )
        weights = table.weight.numel() * table.weight.element_size()
        # Both keep a number of each row beside what a checkpoint has: its place in a batch.
        assert weights + state + 4 * 1_000 == (2 + 4) * 32_000 + (4 + 3 * 4) * 1_000

    def test_what_replicas_take_is_estimated_by_it(self):
        of = {
            dtype: size_of(
                lambda schema, dtype=dtype: [us.NeuMF(dim=32).build(schema, [0], table_dtype=dtype)],
                Schema.of_ids(90_000, 10_000),
                64,
            )
            for dtype in ("fp32", "bf16")
        }
        tables = 64 * 100_000
        rest = of["fp32"].parameters - tables
        assert of["fp32"].in_training == 4 * tables + 5 * rest + 3 * 100_000
        assert of["bf16"].in_training == 2 * tables + 5 * rest + (3 + 2) * 100_000
        assert of["bf16"].weights == tables / 2 + rest


@pytest.fixture(scope="module")
def log():
    return us.load("synthetic", n_users=60, n_items=40, density=0.2, seed=1).train


@pytest.fixture(scope="module")
def model(log):
    method = us.IPS(backbone=us.NeuMF(dim=8, layers=(8, 4)), table_dtype="bf16", **FEW)
    return method.fit(log, propensity=0.2, seeds=2, device="cpu")


class TestModels:
    @pytest.mark.parametrize(
        "backbone",
        [us.MF(dim=8), us.NeuMF(dim=8, layers=(16, 8)), us.DCN(dim=8)],
        ids=lambda each: each.name,
    )
    def test_they_are_as_good_as_those_of_float32(self, backbone):
        """Paired seeds: no worse than by noise, and far better than before training."""
        data = us.load("synthetic", n_users=200, n_items=150, density=0.08, seed=2)
        found = {}
        for dtype in ("fp32", "bf16"):
            method = us.IPS(
                backbone=backbone,
                table_dtype=dtype,
                epochs=6,
                batch_size=128,
                learning_rate=0.01,
                patience=None,
            )
            model = method.fit(data.train, propensity=0.1, seeds=6, device="cpu")
            found[dtype] = np.array(us.evaluate(model, data.test)["auc"])
        difference = found["bf16"] - found["fp32"]
        error = max(difference.std(ddof=1) / np.sqrt(6), 1e-3)
        assert found["fp32"].mean() > 0.6
        assert abs(difference.mean()) < 4 * error
        assert abs(difference.mean()) < 0.02

    def test_every_table_is_stored_so_and_nothing_else(self, model):
        network = model.networks_["prediction"]
        tables = {id(table.weight) for table in tables_of(network)}
        assert len(tables) == 2
        for weight in network.parameters():
            assert weight.dtype == (torch.bfloat16 if id(weight) in tables else torch.float32)

    def test_the_same_seeds_give_the_same_bits_and_in_another_order_the_same_to_rounding(self, log, model):
        """PyTorch may round a loss by where in a batch a row stands, which stochastic rounding must not
        amplify: what it draws does not depend on the order."""
        same, turned = (
            us.IPS(**model.get_params(deep=False)).fit(log, propensity=0.2, seeds=seeds, device="cpu")
            for seeds in ([0, 1], [1, 0])
        )
        predicted = model.predict_each(log)
        np.testing.assert_array_equal(same.predict_each(log), predicted)
        np.testing.assert_allclose(turned.predict_each(log)[::-1], predicted, rtol=1e-6)

    def test_one_by_one_and_in_one_go_are_the_same_function(self, model, log):
        """NeuMF's loops read looked-up rows; the layers read the tables."""
        network = model.networks_["prediction"]
        pairs = Rows(user=torch.arange(40)[None], item=torch.arange(40)[None])
        network.eval()
        with torch.no_grad():
            ours = network(pairs)
            theirs = network.read(network.embed(pairs), "prediction")
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs)

    def test_a_saved_model_is_half_as_large_and_predicts_the_same(self, model, log, tmp_path):
        model.save(tmp_path / "model")
        loaded = us.load_model(tmp_path / "model")
        assert loaded.table_dtype == "bf16"
        np.testing.assert_array_equal(loaded.predict_each(log), model.predict_each(log))
        with safe_open(tmp_path / "model" / "model.safetensors", "pt") as file:
            types = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
        assert {kind for name, kind in types.items() if name.endswith(("user.weight", "item.weight"))} == {
            "BF16"
        }

    def test_an_exported_model_predicts_the_same(self, model, log, tmp_path):
        pytest.importorskip("onnx")
        runtime = pytest.importorskip("onnxruntime")
        from unskew.export import export_run

        model.save(tmp_path / "model")
        path = tmp_path / "model.onnx"
        export_run(tmp_path / "model", path)
        session = runtime.InferenceSession(path)
        given = {"user": log.users.ids[log.user], "item": log.items.ids[log.item]}
        (answer,) = session.run(
            ["conversion"], {each.name: given[each.name] for each in session.get_inputs()}
        )
        np.testing.assert_allclose(answer, model.predict(log), atol=1e-5)

    def test_yesterdays_model_may_have_been_stored_otherwise(self, model, log):
        before = us.IPS(backbone=us.NeuMF(dim=8, layers=(8, 4)), **FEW).fit(
            log, propensity=0.2, seeds=2, device="cpu"
        )
        for start, dtype in ((before, "bf16"), (model, "fp32"), (model, "bf16")):
            method = us.IPS(
                backbone=us.NeuMF(dim=8, layers=(8, 4)), epochs=1, learning_rate=1e-9, table_dtype=dtype
            )
            after = method.fit(log, propensity=0.2, seeds=2, device="cpu", start=start)
            np.testing.assert_allclose(after.predict_each(log), start.predict_each(log), atol=0.01)

    @pytest.mark.parametrize("crossfit", [None, 2])
    def test_a_propensity_and_what_it_saves(self, log, tmp_path, crossfit):
        both = {
            dtype: us.Propensity(backbone=us.MF(dim=4), crossfit=crossfit, table_dtype=dtype, **FEW).fit(
                log, device="cpu"
            )
            for dtype in ("fp32", "bf16")
        }
        assert all(table.weight.dtype == torch.bfloat16 for table in tables_of(both["bf16"].network_))
        np.testing.assert_allclose(both["bf16"].predict(log), both["fp32"].predict(log), atol=0.1)
        from unskew.propensity.storage import load_propensity, save_propensity

        save_propensity(both["bf16"], tmp_path / "p")
        loaded = load_propensity(tmp_path / "p")
        np.testing.assert_array_equal(loaded.predict(log), both["bf16"].predict(log))

    def test_weights_of_rows_are_close_to_those_of_float32(self, log):
        frame = pa.table({"u": log.user, "i": log.item})
        given = {"user": "u", "item": "i", "propensity": "mf", "folds": 2, "device": "cpu"}
        found = [us.weights(frame, **given, table_dtype=dtype) for dtype in ("fp32", "bf16")]
        full, half = (each["propensity_calibrated"].to_numpy() for each in found)
        assert not np.array_equal(full, half)
        assert np.corrcoef(full, half)[0, 1] > 0.9
        assert half.mean() == pytest.approx(full.mean(), rel=0.05)

    def test_groups_where_memory_is_short_and_all_at_once_are_the_same(self, log, model, monkeypatch):
        from unskew.debias import fit

        monkeypatch.setattr(fit, "replicas_at_once", lambda *given, **named: 1)
        again = us.IPS(**model.get_params(deep=False)).fit(log, propensity=0.2, seeds=2, device="cpu")
        np.testing.assert_allclose(again.predict_each(log), model.predict_each(log), rtol=1e-5)

    def test_snapshots_and_means_of_weights(self, log):
        for ensemble in ("snapshot", "swa"):
            method = us.Naive(backbone=us.MF(dim=4), members=2, ensemble=ensemble, table_dtype="bf16", **FEW)
            found = method.fit(log, device="cpu").predict(log)
            assert np.isfinite(found).all()
            assert found.std() > 0


@pytest.mark.gpu
@pytest.mark.parametrize(
    "backbone",
    [us.MF(dim=8), us.NeuMF(dim=16, layers=(16, 16, 16), dropout=0.2), us.DCN(dim=8)],
    ids=lambda each: each.name,
)
def test_captured_steps_on_a_gpu_train_as_good_a_model(backbone):
    data = us.load("synthetic", n_users=200, n_items=150, density=0.08, seed=2)
    found = []
    for dtype in ("fp32", "bf16"):
        method = us.IPS(backbone=backbone, table_dtype=dtype, epochs=10, batch_size=128, learning_rate=0.003)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*captured")
            model = method.fit(data.train, propensity=0.1, seeds=6, device="cuda")
        found.append(np.mean(us.evaluate(model, data.test)["auc"]))
    assert min(found) > 0.6
    assert abs(found[0] - found[1]) < 0.02


class TestRefused:
    def test_a_type_that_is_none(self, log):
        with pytest.raises(ParameterError, match="table_dtype must be 'fp32' or 'bf16', not 'fp16'"):
            us.Naive(table_dtype="fp16").fit(log)
        with pytest.raises(ParameterError, match="table_dtype must be"):
            us.Propensity(table_dtype="fp16").fit(log)
        with pytest.raises(ParameterError, match="table_dtype must be"):
            us.RunConfig(table_dtype="fp16")

    def test_a_module_of_ones_own_stores_its_weights_itself(self, log):
        own = Custom(module=lambda users, items: torch.nn.Bilinear(users, items, 1))
        with pytest.raises(ParameterError, match="stores its weights itself"):
            us.Naive(backbone=own, table_dtype="bf16").fit(log, device="cpu")

    def test_the_papers_protocol(self):
        with pytest.raises(ParameterError, match="published code stores tables as fp32"):
            us.RunConfig(protocol="paper", table_dtype="bf16")

    def test_weights_by_a_propensity_without_tables(self):
        frame = pa.table({"u": [0, 1, 2] * 20, "i": [0, 1] * 30, "o": [0, 1, 1, 0, 0, 1] * 10})
        with pytest.raises(ParameterError, match="'popularity' has no embedding tables to store as bf16"):
            us.weights(frame, user="u", item="i", outcome="o", propensity="popularity", table_dtype="bf16")
