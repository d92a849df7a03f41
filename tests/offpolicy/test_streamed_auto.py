"""``us.Auto`` on a stream: the search, its evidence and its decision are those of the same log in memory."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pytest

import unskew as us
from unskew.offpolicy.auto import halves, kept_of
from unskew.training.kept import Kept

# One batch of all clicks, held out by time: the order of rows and the seed of the split do not matter, so
# that models are the same to rounding.
SAME = {"epochs": 6, "batch_size": 4096, "learning_rate": 0.1}


@pytest.fixture(scope="module")
def data():
    drawn = us.load(
        "impressions", n_rows=3000, n_users=60, n_items=20, test_rows=600, click_rate=0.3, conversion_rate=0.4
    )
    known = np.isin(drawn.test.user, np.unique(drawn.train.user))
    # No two rows of one time, which would be held out together.
    times = np.datetime64("2026-01-01", "s") + np.arange(len(drawn.train))
    log = replace(drawn.train, columns={**drawn.train.columns, "time": times})
    propensity = us.PopularityPropensity(crossfit=2).fit(log, device="cpu")
    return log, drawn.test.take(known), propensity


def searched(log, sample, propensity, **changed):
    auto = us.Auto(
        backbone=us.MF(dim=4), candidates=("ips", "snips"), **{"members": 2, "parameters": SAME, **changed}
    )
    return auto.fit(log, propensity=propensity, unbiased=sample, device="cpu")


def test_a_stream_is_searched_as_a_log_in_memory_is(data):
    log, *given = data
    # By a likelihood, in which rounding turns no order of two rows around.
    streamed, memory = (
        searched(each, *given, criterion="nll") for each in (us.StreamedLog.of(log, block_rows=700), log)
    )
    assert [(each.name, each.rung, each.members) for each in streamed.searched_.tried] == [
        (each.name, each.rung, each.members) for each in memory.searched_.tried
    ]
    assert {each.rung for each in streamed.searched_.tried} == {0, 1}
    mine, theirs = streamed.decision_, memory.decision_
    assert (mine.chosen, mine.shipped, mine.rows) == (theirs.chosen, theirs.shipped, theirs.rows)
    assert mine.bias == pytest.approx(theirs.bias, rel=1e-3)
    for one, other in zip(mine.judged, theirs.judged, strict=True):
        for name in ("advantage", "biased", "biased_error", "range_low", "combined"):
            assert getattr(one, name) == pytest.approx(getattr(other, name), abs=1e-5)
    sample = given[0]
    np.testing.assert_allclose(streamed.predict_each(sample), memory.predict_each(sample), atol=1e-4)


def test_without_a_sample_the_naive_ensemble_is_shipped(data):
    log, _, propensity = data
    auto = searched(us.StreamedLog.of(log), None, propensity, members=1)
    assert auto.model_.name == "naive"
    assert auto.decision_.sentence.startswith("The naive model is shipped: there is no random sample.")
    assert all(each.biased is not None for each in auto.decision_.judged)


def test_the_first_rung_keeps_no_network(data, monkeypatch):
    """However many candidates there are, one network waits while the next one is trained."""
    log, *given = data
    trained, alive = [], []
    fit = us.Debiaser.fit

    def counted(self, *given, **named):
        alive.append(sum(each() is not None for each in trained))
        model = fit(self, *given, **named)
        trained.append(weakref.ref(model.networks_["prediction"]))
        return model

    monkeypatch.setattr(us.Debiaser, "fit", counted)
    searched(us.StreamedLog.of(log), *given)
    assert alive == [0, 1, 1, 1, 1, 1, *range(4)]


def test_evidence_comes_from_rows_that_all_had_the_same_chance(data):
    log, *_ = data
    stream = us.StreamedLog.of(log)
    assert len(Kept.of(stream).evenly()) == len(log)
    kept = Kept.of(stream, most=400)
    assert kept.log.density > 1.2 * log.density
    even = kept.evenly()
    assert even.density == pytest.approx(log.density, rel=0.15)
    assert 400 < len(even) < len(kept.log)


def test_several_candidates_with_several_members_are_halved():
    assert halves(16, 5)
    assert not halves(16, 1)
    assert not halves(4, 5)
    assert kept_of(15) == 8
    assert kept_of(4) == 3
