"""``ensemble="bootstrap"``: members with Poisson weights of the pairs, in memory and on a stream."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import unskew as us
from contracts.streamed_contract import ROUNDING, files_of, impressions
from unskew.debias import METHODS
from unskew.debias.setting import Batch
from unskew.log import Rows
from unskew.seeds import stream
from unskew.training.population import IdHashes, PoissonWeights

QUICK = {"backbone": us.MF(dim=2), "epochs": 3, "learning_rate": 0.05, "p_min": 0.05}
CPU = torch.device("cpu")


def weights_of(log: us.Log, seeds=(1, 2)) -> PoissonWeights:
    return PoissonWeights(IdHashes.of(log.users, log.items, CPU), seeds)


def pairs(log: us.Log, count: int) -> Rows:
    return Rows(
        **{
            name: torch.tensor(getattr(log, name)[:count], dtype=torch.int64)[None]
            for name in ("user", "item")
        }
    )


@pytest.mark.parametrize("count", [64, 1_000, 4_096])
def test_a_row_comes_as_often_as_its_weight_says(count):
    log = impressions(rows=5_000)
    weights = weights_of(log)
    rows = pairs(log, count)
    weight, places = weights.of_rows(rows), weights.resampled(rows)
    for of_replica, at in zip(weight.double(), places, strict=True):
        expected = of_replica * count / of_replica.sum()
        came = torch.bincount(at, minlength=count)
        assert bool(((came - expected).abs() < 1).all())
    assert not torch.equal(*places)


def test_a_batch_in_which_no_pair_counts_stays_a_batch():
    log = impressions()
    weights = weights_of(log, range(200))
    place = weights.resampled(pairs(log, 1))
    assert int((weights.of_rows(pairs(log, 1)) == 0).sum()) > 40
    assert place.shape == (200, 1)
    assert not place.any()


def test_all_that_is_known_of_a_row_goes_with_it():
    number = torch.arange(6)[None]
    rows = Rows(user=number, item=number + 10, codes=number[..., None].repeat(1, 1, 2))
    batch = Batch(rows, number + 0.5, torch.full((1, 1), torch.nan).expand(2, 6), cell=None, click=number)
    at = torch.tensor([[0, 0, 5, 5, 5, 1], [2, 3, 4, 4, 4, 4]])
    taken = batch.take(at)
    assert torch.equal(taken.rows.user, at)
    assert torch.equal(taken.rows.item, at + 10)
    assert torch.equal(taken.rows["codes"], at[..., None].repeat(1, 1, 2))
    assert torch.equal(taken.conversion, at + 0.5)
    assert torch.equal(taken.click, at)
    assert taken.cell is None
    assert bool(taken.propensity.isnan().all())


@pytest.mark.parametrize("name", ["naive", "dr-jl", "kb-dr", "escm2-dr"])
def test_members_of_a_stream_in_memory_and_of_its_files_are_the_same(name, tmp_path):
    log = impressions()
    given = {"propensity": "p"} if METHODS[name].needs_propensity else {}
    source = files_of(log, tmp_path)
    read, kept, of_seeds = (
        METHODS[name](**QUICK, members=2, ensemble=kind)
        .fit(rows, seeds=2, device="cpu", **given)
        .predict_members_each(log)
        for rows, kind in (
            (source, "bootstrap"),
            (source.remembered(1e9), "bootstrap"),
            (source, "seeds"),
        )
    )
    np.testing.assert_allclose(kept, read, atol=ROUNDING)
    assert np.abs(read - of_seeds).max() > 100 * ROUNDING


def test_pairs_without_weight_do_not_train_a_member():
    """Conversions of pairs that a member never reads may be anything, as long as their mean stays."""
    log = impressions(rows=3_000)
    options = {**QUICK, "members": 2, "ensemble": "bootstrap", "validation_share": 0.0, "patience": None}
    model = us.Naive(**options).fit(log, seeds=[3], device="cpu")
    seeds = [stream(each.own, "bootstrap") for each in model.replicas()]
    weight = weights_of(log, seeds).of_rows(pairs(log, len(log)))
    unread = log.clicked[(weight[0, log.clicked] == 0).numpy()]
    bought = log.conversion[unread] == 1
    fewer = min(bought.sum(), (~bought).sum())
    assert fewer > 50
    turned = np.concatenate([unread[bought][:fewer], unread[~bought][:fewer]])
    conversion = np.array(log.conversion)
    conversion[turned] = 1 - conversion[turned]
    other = us.Naive(**options).fit(replace(log, conversion=conversion), seeds=[3], device="cpu")
    before, after = (each.predict_members_each(log)[0] for each in (model, other))
    np.testing.assert_array_equal(after[0], before[0])
    assert np.abs(after[1] - before[1]).max() > 1e-3


@pytest.mark.parametrize("stream", [False, True])
def test_one_member_alone_reads_every_pair_once(stream):
    log = impressions(rows=2_000)
    rows = us.StreamedLog.of(log, block_rows=500) if stream else log
    alone, plain = (
        us.Naive(**QUICK, ensemble=kind).fit(rows, device="cpu").predict_each(log)
        for kind in ("bootstrap", "seeds")
    )
    np.testing.assert_array_equal(alone, plain)


@pytest.mark.gpu
def test_a_gpu_captures_the_steps_and_finds_what_a_cpu_does():
    log = impressions()
    made = [
        us.Naive(**QUICK, members=3, ensemble="bootstrap")
        .fit(us.StreamedLog.of(log, block_rows=500), device=device)
        .predict_members_each(log)
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(made[0], made[1], atol=1e-3)
