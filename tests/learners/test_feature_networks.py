"""Learners that read features: the contract with every kind of field, and plain PyTorch as an oracle."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from contracts import network_contract
from contracts.feature_world import log_of, table
from contracts.network_contract import SEEDS, NetworkContract
from unskew.base.errors import ParameterError
from unskew.data import Field, Rows, Schema
from unskew.learners import DCN, MLP, BatchEnsemble, DeepFM, MMoE, NeuMF
from unskew.learners.fields import embedding_width, pooled

USERS, ITEMS, WIDTH = 30, 20, 3
SCHEMA = Schema(
    (
        Field("user", "id", "user", USERS + 1, "other"),
        Field("item", "id", "item", ITEMS + 1, "other"),
        Field("country", "category", "user", 7, "other"),
        Field("age", "number", "user", unknown="other", width=2),
        Field("tags", "bag", "item", 9, "other", width=WIDTH),
        Field("hour", "category", "row", 26, "other"),
        Field("price", "number", "row", unknown="other"),
    )
)
FEATURED = (DCN, DeepFM, MLP, MMoE)


def features_of(user, item):
    """Codes and numbers that follow from the ids, so that contracts can say rows by pairs."""
    place = item % (WIDTH + 1)
    bag = torch.stack([torch.where(place >= slot, (user + slot) % 9, -1) for slot in range(WIDTH)], dim=-1)
    codes = torch.cat(((user % 7).unsqueeze(-1), bag, ((user + item) % 26).unsqueeze(-1)), dim=-1)
    numbers = torch.stack((user / 10.0 - 1.5, (user % 4 == 0).float(), torch.sin(item * 1.0)), dim=-1)
    return {"codes": codes.int(), "numbers": numbers.float()}


class RichRows(Rows):
    """Rows of a pair with its features."""

    def __init__(self, /, **columns):
        super().__init__(**(columns if "codes" in columns else columns | features_of(**columns)))


@pytest.fixture
def rich(monkeypatch):
    """The contract's rows and schema, with features."""
    monkeypatch.setattr(network_contract, "SCHEMA", SCHEMA)
    monkeypatch.setattr(network_contract, "Rows", RichRows)


@pytest.mark.usefixtures("rich")
class TestEveryKindOfField(NetworkContract):
    rounding = 5e-5

    @pytest.fixture(params=FEATURED, ids=lambda each: each.name)
    def learner(self, request):
        return request.param()


def test_members_of_an_ensemble_read_features_too():
    network = BatchEnsemble(base=DCN(layers=(8,)), members=2).build(SCHEMA, SEEDS).eval()
    one = rows(replicas=3, count=4)
    first, second = network(one.repeat(2)).split(4, dim=1)
    assert first.shape == (3, 4)
    assert not torch.allclose(first, second)
    nobody = RichRows(
        user=one.user, item=one.item, codes=torch.zeros_like(one["codes"]), numbers=one["numbers"]
    )
    assert not torch.allclose(network(nobody.repeat(2))[:, :4], first)


def rows(replicas=1, count=11, schema=SCHEMA):
    random = torch.Generator().manual_seed(2)
    user = torch.randint(USERS + 1, (replicas, count), generator=random)
    return RichRows(user=user, item=torch.randint(ITEMS + 1, (replicas, count), generator=random))


class Plain(nn.Module):
    """Embeddings, one for each field, as anybody writes them."""

    def __init__(self, table, dim):
        super().__init__()
        sizes = [field.size for field in SCHEMA if field.size]
        parts = torch.split(table[:, :dim], sizes)
        self.tables = nn.ModuleList(nn.Embedding.from_pretrained(part) for part in parts)

    def forward(self, given):
        user, item, country, tags, hour = self.tables
        codes = given["codes"][0].long()
        bags = [tags(line[line >= 0]).mean(0) if (line >= 0).any() else None for line in codes[:, 1:4]]
        assert all(each is not None for each in bags)
        parts = [user(given.user[0]), item(given.item[0]), country(codes[:, 0])]
        return [*parts, torch.stack(bags), hour(codes[:, 4])]


def linear(weights):
    layer = nn.Linear(*weights.weight.shape[1:])
    layer.weight.data, layer.bias.data = weights.weight[0].T, weights.bias[0, 0]
    return layer


def mlp(hidden):
    return nn.Sequential(*(part for each in hidden.layers for part in (linear(each), nn.ReLU())))


def built(learner, towers=("prediction",)):
    network = learner.build(SCHEMA, [5], towers).eval()
    with torch.no_grad():
        for number, parameter in enumerate(network.parameters()):
            parameter.normal_(0, 0.3, generator=torch.Generator().manual_seed(number))
    return network


def count(network):
    return sum(parameter.numel() for parameter in network.parameters())


CODES = USERS + 1 + ITEMS + 1 + 7 + 9 + 26
FIELDS, NUMBERS = 5, 3


class TestOracles:
    given = rows()

    @pytest.fixture(autouse=True)
    def no_gradient(self):
        with torch.no_grad():
            yield

    def inputs(self, network):
        embedded = Plain(network.inputs.fields.tables[0].weight[0], 4)(self.given)
        return torch.cat((*embedded, self.given["numbers"][0]), 1)

    def test_dcn_is_crosses_beside_an_mlp(self):
        network = built(DCN(dim=4, crosses=2, layers=(6, 5)))
        tower, width = network.tower["prediction"], FIELDS * 4 + NUMBERS
        x = self.inputs(network)
        crossed = x
        for layer in tower.crosses:
            crossed = x * linear(layer)(crossed) + crossed
        expected = linear(tower.head)(torch.cat((crossed, mlp(tower.mlp)(x)), 1))[:, 0]
        torch.testing.assert_close(network(self.given)[0], expected)
        cross, deep = 2 * (width + 1) * width, (width + 1) * 6 + 7 * 5
        assert count(network) == CODES * 4 + cross + deep + width + 5 + 1

    def test_mlp_is_its_layers(self):
        network = built(MLP(dim=4, layers=(6,)))
        tower = network.tower["prediction"]
        x = self.inputs(network)
        torch.testing.assert_close(network(self.given)[0], linear(tower.head)(mlp(tower.mlp)(x))[:, 0])
        assert count(network) == CODES * 4 + (FIELDS * 4 + NUMBERS + 1) * 6 + 7

    def test_deepfm_is_pairs_of_fields_weights_and_an_mlp(self):
        network = built(DeepFM(dim=4, layers=(6,)))
        table, numbers = network.inputs.tables[0].weight[0], network.numbers[0]
        x = self.given["numbers"][0]
        v = [*Plain(table, 4)(self.given), *(x[:, j : j + 1] * numbers[j, :4] for j in range(NUMBERS))]
        pairs = sum((v[f] * v[g]).sum(1) for f in range(len(v)) for g in range(f))
        weights = sum(each[:, 0] for each in Plain(table[:, 4:], 1)(self.given)) + x @ numbers[:, 4]
        tower = network.tower["prediction"]
        deep = linear(tower.head)(mlp(tower.mlp)(torch.cat((*v[:FIELDS], x), 1)))[:, 0]
        torch.testing.assert_close(network(self.given)[0], pairs + weights + deep)
        assert count(network) == (CODES + NUMBERS) * 5 + (FIELDS * 4 + NUMBERS + 1) * 6 + 7

    def test_mmoe_mixes_experts_by_each_towers_gate(self):
        network = built(MMoE(dim=4, experts=3, expert_layers=(6,), layers=(5,)), ("prediction", "click"))
        x = self.inputs(network)
        experts = torch.stack([mlp(each)(x) for each in network.experts], dim=1)
        for name in ("prediction", "click"):
            tower = network.tower[name]
            share = torch.softmax(linear(tower.gate)(x), dim=1)
            mixed = (share[:, :, None] * experts).sum(1)
            expected = linear(tower.head)(mlp(tower.mlp)(mixed))[:, 0]
            torch.testing.assert_close(network(self.given, name)[0], expected)
        width = FIELDS * 4 + NUMBERS
        tower = (width + 1) * 3 + 7 * 5 + 6
        assert count(network) == CODES * 4 + 3 * (width + 1) * 6 + 2 * tower


def test_fields_with_a_width_of_their_own_have_a_table_of_their_own():
    changed = [Field(**{**vars(each), "dim": 2}) if each.name == "tags" else each for each in SCHEMA]
    network = MLP(dim=4).build(Schema(tuple(changed)), [1])
    assert [tuple(each.weight.shape[1:]) for each in network.inputs.fields.tables] == [(CODES - 9, 4), (9, 2)]
    assert network(rows()).shape == (1, 11)
    with pytest.raises(ParameterError, match="must have one dimension, and tags has its own"):
        DeepFM().build(Schema(tuple(changed)), [1])


def test_fields_that_share_embeddings_look_up_the_same_rows():
    hour = SCHEMA["hour"]
    fields = [*SCHEMA, Field(**{**vars(hour), "name": "later", "share": "hour"})]
    network = MLP(dim=4).build(Schema(tuple(fields)), [1]).eval()
    assert network.inputs.fields.tables[0].weight.shape == (1, CODES, 4)
    given = rows()
    codes = torch.cat((given["codes"], given["codes"][..., -1:]), dim=-1)
    (found,) = network.inputs.fields(Rows(**{n: given[n] for n in ("user", "item", "numbers")}, codes=codes))
    torch.testing.assert_close(found[:, :, -1], found[:, :, -2])


def test_bags_are_pooled_over_what_they_hold():
    values = torch.arange(12.0).view(1, 2, 3, 2)
    there = torch.tensor([[[True, True, False], [True, False, False]]])
    assert pooled(values, there, "mean").tolist() == [[[[1, 2]], [[6, 7]]]]
    assert pooled(values, there, "sum").tolist() == [[[[2, 4]], [[6, 7]]]]
    assert pooled(values, there, "max").tolist() == [[[[2, 3]], [[6, 7]]]]


class TestDrop:
    def codes(self, schema=SCHEMA, drop=0.3, train=True):
        network = MLP(drop=drop).build(schema, SEEDS).train(train)
        given = RichRows(user=torch.full((1, 4000), 3), item=torch.full((1, 4000), 5))
        return network.inputs.fields.codes(given), given

    def test_a_share_of_the_codes_is_other_in_training(self):
        codes, given = self.codes()
        assert codes.shape == (len(SEEDS), 4000, 7)
        others = torch.tensor([USERS, ITEMS, 0, 0, 0, 0, 0])
        held = torch.cat((given.user[..., None], given.item[..., None], given["codes"]), dim=-1)
        dropped = (codes == others) & (held != others)
        filled = held[0, 0] >= 0
        rate = dropped.float().mean((0, 1))
        seen = rate[filled & (held[0, 0] != others)]
        torch.testing.assert_close(seen, torch.full_like(seen, 0.3), atol=0.02, rtol=0)
        assert (codes[..., ~filled] == -1).all()
        assert not torch.equal(codes[0], codes[1])

    def test_nothing_is_dropped_in_predictions_or_where_there_is_no_other(self):
        assert len(self.codes(train=False)[0]) == 1
        network = MLP(drop=0.3).build(Schema.of_ids(USERS, ITEMS), SEEDS)
        given = Rows(user=torch.full((1, 50), 3), item=torch.full((1, 50), 5))
        assert network.inputs.fields.codes(given).unique().tolist() == [3, 5]


def test_the_width_of_embeddings_follows_the_largest_vocabulary():
    widths = [embedding_width(Schema.of_ids(users, 10)) for users in (2, 100, 290, 10**4, 10**8)]
    assert widths == [8, 12, 16, 32, 32]


def test_networks_of_ids_are_the_same_whatever_the_schema_has_beside():
    alone, beside = (NeuMF(dim=4).build(each, [1]) for each in (Schema.of_ids(USERS, ITEMS), SCHEMA))
    for name, weight in alone.state_dict().items():
        assert torch.equal(weight, beside.state_dict()[name]), name


@pytest.mark.parametrize("learner", FEATURED)
def test_a_step_never_asks_for_a_value_or_makes_shapes_of_data(learner):
    """What a CUDA graph asks for: on a device that holds no numbers, a step runs to its gradient."""
    with torch.device("meta"):
        network = learner().build(SCHEMA, SEEDS, ("prediction", "click")).train()
        shared = {"user": torch.zeros(3, 8, dtype=torch.int64), "item": torch.zeros(3, 8, dtype=torch.int64)}
        shared["codes"] = torch.zeros(3, 8, 5, dtype=torch.int32)
        given = Rows(**shared, numbers=torch.zeros(3, 8, 3))
        network.noise.to(torch.device("meta"))
        embedded = network.embed(given)
        sum(network.read(embedded, tower) for tower in network.towers).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DCN(crosses=0), "crosses must be at least 1, not 0"),
        (lambda: MMoE(experts=0), "experts must be at least 1, not 0"),
        (lambda: MLP(layers=()), "layers must be widths of at least 1"),
        (lambda: DeepFM(dim=0), "dim must be at least 1"),
        (lambda: DCN(drop=1.0), r"drop must be in \[0, 1\), not 1.0"),
    ],
)
def test_parameters_out_of_range_are_named(make, message):
    with pytest.raises(ParameterError, match=message):
        make().build(SCHEMA, [0])


@pytest.mark.gpu
@pytest.mark.parametrize("learner", FEATURED)
def test_steps_are_captured_on_a_gpu_and_give_what_a_cpu_gives(learner):
    """A step that cannot be captured warns, and warnings are errors here."""
    log = log_of(table())
    plain = learner(dropout=0.0, drop=0.0)
    on_gpu, on_cpu = (
        us.Naive(learner=plain, epochs=3, patience=None).fit(log, device=device).predict(log)
        for device in ("cuda", "cpu")
    )
    np.testing.assert_allclose(on_gpu, on_cpu, atol=5e-3)
