"""Models that start from yesterday's: what is known keeps its rows, what is new gets new ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

import unskew as us
from unskew.base.errors import ParameterError, RunFolderError
from unskew.training.checkpoint import Checkpoint


def made(users, items, rows=1500, seed=0, brands=("a", "b", "c"), price=True):
    """Impressions of some users and items; what converts depends on both and on the brand."""
    draw = np.random.default_rng(seed)
    user, item = draw.choice(users, rows), draw.choice(items, rows)
    brand = draw.choice(brands, rows)
    click = draw.random(rows) < 0.6
    rate = 1 / (1 + np.exp(-(user % 5 - 2 + item % 3 - 1 + (brand == "a"))))
    columns = {"user": user, "item": item, "click": click.astype(int), "brand": brand}
    columns["conversion"] = np.where(click, draw.random(rows) < rate, np.nan)
    features = [us.Category("brand", min_count=1)]
    if price:
        columns["price"] = draw.lognormal(size=rows)
        features.append(us.Number("price"))
    named = {name: name for name in ("user", "item", "click", "conversion")}
    return us.Log.from_frame(pa.table(columns), space="impressions", features=features, **named)


YESTERDAY = made(np.arange(40), np.arange(20))
TODAY = made(np.arange(10, 55), np.arange(5, 24), seed=1, brands=("a", "c", "d"))

LEARNERS = {
    "mf": us.MF(dim=4),
    "neumf": us.NeuMF(dim=4, layers=(8,)),
    "dcn": us.DCN(dim=4, layers=(8,)),
    "deepfm": us.DeepFM(dim=4, layers=(8,)),
}


def fitted(learner, log=YESTERDAY, *, seeds=2, epochs=40, **more):
    method = us.Naive(learner=learner, epochs=epochs, batch_size=128, learning_rate=0.01)
    return method.fit(log, seeds=seeds, device="cpu", **more)


@pytest.mark.parametrize("name", LEARNERS)
def test_pairs_of_known_ids_and_values_are_predicted_as_yesterday(name):
    """Codes of categories are mapped too: 'c' has another code today, as 'b' is gone."""
    log = made(np.arange(10, 55), np.arange(5, 24), seed=1, brands=("a", "c", "d"), price=False)
    old = fitted(LEARNERS[name], made(np.arange(40), np.arange(20), price=False), epochs=2)
    still = us.Naive(learner=LEARNERS[name], epochs=1, batch_size=128, learning_rate=1e-12)
    new = still.fit(log, seeds=2, device="cpu", start=old)
    known = np.isin(log.users.ids[log.user], old.users_.ids) & np.isin(
        log.items.ids[log.item], old.items_.ids
    )
    known &= log.features.values["brand"].texts[log.features.values["brand"].codes] != "d"
    part = log.take(np.flatnonzero(known))
    assert len(part) > 100
    np.testing.assert_allclose(new.predict_each(part), old.predict_each(part), rtol=1e-6)


@pytest.mark.parametrize("name", LEARNERS)
def test_on_the_same_data_it_begins_at_yesterdays_loss_and_needs_no_more_epochs(name):
    old = fitted(LEARNERS[name])
    new = fitted(LEARNERS[name], start=old)
    np.testing.assert_allclose(new.history_.start, old.validation_loss_, rtol=1e-5)
    assert (np.array(new.validation_loss_) <= np.array(old.validation_loss_) * (1 + 1e-5)).all()
    assert len(new.history_.validation) <= len(old.history_.validation)


def test_where_no_epoch_is_better_the_start_is_kept():
    old = fitted(LEARNERS["mf"])
    method = us.Naive(learner=LEARNERS["mf"], epochs=3, batch_size=128, learning_rate=1.0)
    new = method.fit(YESTERDAY, seeds=2, device="cpu", start=old)
    assert new.history_.best_epoch == [-1, -1]
    np.testing.assert_array_equal(new.predict_each(YESTERDAY), old.predict_each(YESTERDAY))


def test_it_starts_from_a_folder_and_from_some_of_the_seeds(tmp_path):
    old = fitted(LEARNERS["mf"], epochs=3, seeds=3)
    old.save(tmp_path / "model")
    one = fitted(LEARNERS["mf"], epochs=1, seeds=[2], start=tmp_path / "model")
    other = fitted(LEARNERS["mf"], epochs=1, seeds=[2], start=old)
    assert one.history_.start == pytest.approx([old.validation_loss_[2]], rel=1e-5)
    np.testing.assert_array_equal(one.predict(YESTERDAY), other.predict(YESTERDAY))


def test_what_changed_is_counted_and_measured():
    old = fitted(LEARNERS["dcn"], epochs=5)
    new = fitted(LEARNERS["dcn"], TODAY, epochs=5, start=old)
    changes = new.start_.changes(new, TODAY)
    assert changes["fields"]["user"] == {"kept": 30, "new": 15, "gone": 10}
    assert changes["fields"]["item"] == {"kept": 15, "new": 4, "gone": 5}
    assert changes["fields"]["brand"] == {"kept": 2, "new": 1, "gone": 1}
    known = np.isin(TODAY.users.ids[TODAY.user], old.users_.ids)
    known &= np.isin(TODAY.items.ids[TODAY.item], old.items_.ids)
    assert changes["rows"] == known.sum()
    part = TODAY.take(np.flatnonzero(known))
    before, after = old.predict(part), new.predict(part)
    assert changes["mean_absolute_change"] == pytest.approx(np.abs(after - before).mean())
    assert changes["level"] == pytest.approx(after.mean() / before.mean())
    ranks = (np.argsort(np.argsort(each)) for each in (before, after))
    assert changes["rank_correlation"] == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-6)


@pytest.mark.parametrize(
    ("learner", "log", "message"),
    [
        (us.NeuMF(dim=4), YESTERDAY, r"is of another learner: name was 'dcn' and is 'neumf'"),
        (us.DCN(dim=8, layers=(8,)), YESTERDAY, r"is of another learner: dim was 4 and is 8"),
        (us.DCN(dim=4, layers=(9,)), YESTERDAY, r"is of another learner: layers was \[8\] and is \[9\]"),
        (LEARNERS["dcn"], YESTERDAY.reading(("brand",)), "reads the field 'price', which is not there"),
    ],
)
def test_what_cannot_be_started_from_is_refused_with_what_differs(learner, log, message):
    old = fitted(LEARNERS["dcn"], epochs=1)
    with pytest.raises(ParameterError, match=message) as caught:
        fitted(learner, log, start=old)
    assert str(caught.value).startswith("start: ")
    assert "\n" not in str(caught.value)


def test_a_field_that_is_new_and_missing_values_that_are_new_are_refused():
    old = fitted(LEARNERS["dcn"], YESTERDAY.reading(("brand",)), epochs=1)
    with pytest.raises(ParameterError, match="does not read the field 'price'"):
        fitted(LEARNERS["dcn"], start=old)


def test_seeds_that_it_does_not_have_are_refused():
    old = fitted(LEARNERS["mf"], epochs=1, seeds=[0, 3])
    with pytest.raises(ParameterError, match="has no seed 1: it was trained with 0, 3"):
        fitted(LEARNERS["mf"], seeds=2, start=old)


def test_a_checkpoint_of_another_start_is_refused(tmp_path):
    first, second = (fitted(LEARNERS["mf"], epochs=epochs) for epochs in (1, 2))
    unfinished = Checkpoint(tmp_path, every=0)
    unfinished.open()
    with unfinished.in_effect():
        fitted(LEARNERS["mf"], epochs=2, start=first)
    unfinished.close()
    with pytest.raises(RunFolderError, match="start differs"), Checkpoint(tmp_path, every=0):
        fitted(LEARNERS["mf"], epochs=2, start=second)


NOISE_ROWS = 3_000


def noise(first=0, rows=NOISE_ROWS, times=False):
    """Clicks whose conversions follow from nothing; a later first row makes a later window of one log."""
    draw = np.random.default_rng(5)
    columns = {
        "user": draw.integers(150, size=2 * NOISE_ROWS),
        "item": draw.integers(60, size=2 * NOISE_ROWS),
        "click": (draw.random(2 * NOISE_ROWS) < 0.8).astype(int),
        "conversion": draw.integers(2, size=2 * NOISE_ROWS),
    }
    chosen = np.arange(first, first + rows)
    when = {"when": np.datetime64("2026-01-01", "s") + 60 * chosen} if times else {}
    columns["conversion"] = np.where(columns["click"] == 1, columns["conversion"], np.nan)
    arrays = {name: values[chosen] for name, values in columns.items()}
    return us.Log.from_arrays(**arrays, space="impressions", columns=when)


def memorised(log, *, start=None, seeds=2, epochs=25, **more):
    """A model that learns its clicks by heart, and chooses no epoch."""
    options = {"validation_by": "pair", "patience": None, "weight_decay": 0.0, **more}
    method = us.Naive(learner=us.MF(dim=16), epochs=epochs, batch_size=128, learning_rate=0.03, **options)
    return method.fit(log, seeds=seeds, device="cpu", start=start)


def held_out_auc(model, log):
    """The mean AUC of what held out each line of rows, on that line."""
    rows = model.validation_rows(log)
    p = [model.predict_lines_each(log.take(line))[number] for number, line in enumerate(rows)]
    return np.mean([roc_auc_score(log.conversion[line], own) for own, line in zip(p, rows, strict=True)])


@pytest.mark.parametrize(
    "more",
    [
        {"validation_share": 0.3},
        {"validation_share": 0.05},
        {"validation_by": "user"},
        {"validation_by": "user", "validation_share": 0.2},
    ],
)
def test_another_split_than_that_of_the_start_is_refused(more):
    log = noise()
    start = memorised(log, epochs=1)
    with pytest.raises(
        ParameterError, match=r"^start: held out 10 % by pair, .*validation_by='pair' and"
    ) as e:
        memorised(log, start=start, **more)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("members", [1, 3])
def test_rows_that_are_held_out_trained_neither_model(members):
    """Whatever a model knows of noise it has from the row itself; half of yesterday's rows are gone today."""
    start = memorised(noise(), members=members)
    today = noise(NOISE_ROWS // 2)
    model = memorised(today, members=members, start=start, epochs=1)
    log = noise()
    log = log.take(log.clicked)
    assert roc_auc_score(log.conversion, start.predict(log)) > 0.8
    assert abs(held_out_auc(model, today) - 0.5) < 0.12
    assert model.split_.ends == start.split_.ends
    again = memorised(today, members=members, start=model, epochs=1)
    assert again.split_ == model.split_


def test_a_start_that_held_out_nothing_is_refused_but_for_no_held_out_rows():
    log = noise()
    start = memorised(log, epochs=1, validation_share=0.0)
    with pytest.raises(ParameterError, match="give validation_share=0, or start anew"):
        memorised(log, epochs=1, start=start)
    assert memorised(log, epochs=1, start=start, validation_share=0.0).split_.held_out == 0


def test_the_latest_clicks_may_begin_later_than_those_of_the_start_and_not_earlier():
    log = noise(times=True)
    start = memorised(log, validation_by="time", epochs=1)
    later = memorised(noise(500, times=True), validation_by="auto", start=start, epochs=1)
    assert later.split_.by.kind == "time"
    with pytest.raises(ParameterError, match=r"clicks from 2026-01-0\S+ on.*--valid-from 2026-01-0"):
        memorised(log, validation_by="time", validation_share=0.3, start=start, epochs=1)
