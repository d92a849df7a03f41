"""A calibrator that reads features, in every kind of propensity."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.audit.segments import segment_cells, segments_of
from unskew.base.errors import DataError
from unskew.calibration import Platt
from unskew.data import Features

USERS, ITEMS = 60, 40


def sides(seed=0):
    random = np.random.default_rng(seed)
    return random.integers(0, 2, USERS), random.integers(0, 2, ITEMS)


def one_hot(code):
    return Features(("gender:men", "gender:women"), np.eye(2, dtype=np.float32)[code])


def matrix_log(seed=0, **changes):
    """Men click on what is for men: no rate of a user or an item shows it."""
    user_side, item_side = sides()
    random = np.random.default_rng(seed)
    p = np.where(user_side[:, None] == item_side, 0.3, 0.05)
    user, item = np.nonzero(random.random((USERS, ITEMS)) < p)
    tables = {"user_features": one_hot(user_side), "item_features": one_hot(item_side)} | changes
    return us.Log.from_arrays(
        user=user,
        item=item,
        conversion=random.random(len(user)) < 0.5,
        users=us.Vocabulary.range(USERS, name="user"),
        items=us.Vocabulary.range(ITEMS, name="item"),
        **tables,
    )


def impressions(rows=6000, features=None):
    """Clicks that the column "theirs" has right, but for one place of the page."""
    random = np.random.default_rng(1)
    user, item, page = (
        random.integers(0, USERS, rows),
        random.integers(0, ITEMS, rows),
        random.integers(0, 3, rows),
    )
    theirs = random.uniform(0.1, 0.5, rows)
    click = random.random(rows) < np.where(page == 2, theirs / 4, theirs)
    columns = {
        "theirs": theirs,
        "page": np.array(["a", "b", "c"])[page],
        "position": 1.0 + rows // 2 % 2 + page,
    }
    return us.Log.from_arrays(
        user=user, item=item, click=click, columns=columns, space="impressions", features=features
    )


def nll(propensity):
    return propensity.diagnose()["calibrated"]["nll"]


KINDS = {
    "popularity": lambda **k: us.PopularityPropensity(**k),
    "linear": lambda **k: us.Propensity(learner=us.Linear(), fields=(), **k),
    "network": lambda **k: us.Propensity(learner=us.MF(dim=2), epochs=2, batch_size=512, **k),
    "classifier": lambda **k: us.Propensity(learner=us.Classifier(estimator=_bayes()), fields=(), **k),
}


def _bayes():
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB()


@pytest.mark.filterwarnings("ignore::unskew.base.errors.CollapseWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_mended_where_segments_are_off(kind):
    log = matrix_log()
    plain = KINDS[kind](crossfit=2).fit(log)
    multi = plain.reread(calibrator=us.Multicalibrated())
    fitted = KINDS[kind](calibrator=us.Multicalibrated(), crossfit=2).fit(log)
    assert nll(multi) < nll(plain) - 0.01
    pairs = np.arange(USERS * ITEMS)
    found = fitted.predict_pairs_each(*np.divmod(pairs, ITEMS))
    np.testing.assert_allclose(found[0].reshape(USERS, ITEMS), fitted.predict_matrix_each()[0], rtol=1e-12)
    np.testing.assert_allclose(found, multi.predict_pairs_each(*np.divmod(pairs, ITEMS)), rtol=1e-6)
    user_side, item_side = sides()
    same = (user_side[:, None] == item_side).ravel()
    assert found[0, same].mean() > 2 * found[0, ~same].mean()


def test_without_crossfitting_it_is_fitted_on_the_calibration_cells():
    log = matrix_log()
    plain = us.PopularityPropensity(crossfit=None).fit(log)
    multi = plain.reread(calibrator=us.Multicalibrated())
    assert multi.calibrators_[0].rows_ == plain.calibrators_[0].rows_ < USERS * ITEMS / 5
    assert nll(multi) < nll(plain) + 0.005


def test_each_pair_is_mapped_by_a_calibrator_that_never_saw_it():
    log = matrix_log()
    fitted = us.PopularityPropensity(calibrator=us.Multicalibrated(), crossfit=3).fit(log)
    user, item = np.divmod(np.arange(USERS * ITEMS), ITEMS)
    fold = fitted.fold_of_pairs_each(user, item)[0]
    raw = fitted.predict_pairs_each(user, item, calibrated=False)[0]
    found = fitted.predict_pairs_each(user, item)[0]
    clicked = np.zeros((USERS, ITEMS))
    clicked[log.user, log.item] = 1
    # The values' codes are those of the encoders: 0 and 1 are for others and what is missing.
    features = {"user.gender": 2 + sides()[0][user], "item.gender": 2 + sides()[1][item]}
    for k in range(3):
        out, others = fold == k, fold != k
        expected = us.Multicalibrated().fit(
            raw[others], clicked.ravel()[others], features={n: each[others] for n, each in features.items()}
        )
        of_fold = {name: each[out] for name, each in features.items()}
        np.testing.assert_allclose(found[out], expected.predict(raw[out], of_fold), rtol=1e-6)


def test_ids_are_segments_where_they_are_named():
    log = matrix_log(user_features=None, item_features=None)
    fitted = us.PopularityPropensity(
        calibrator=us.Multicalibrated(segments=("user", "item")), crossfit=3
    ).fit(log)
    assert [each.name for each in fitted.calibrators_[0].columns_] == ["user", "item"]
    assert fitted.predict(log).shape == (len(log),)


def test_a_column_is_mended_by_another_one():
    log = impressions()
    plain = us.ColumnPropensity(column="theirs", crossfit=3).fit(log)
    multi = plain.reread(calibrator=us.Multicalibrated(segments=("page",)))
    assert nll(multi) < nll(plain) - 0.01
    again = us.ColumnPropensity(
        column="theirs", crossfit=3, calibrator=us.Multicalibrated(segments=("page",))
    )
    np.testing.assert_array_equal(again.fit(log).predict(log), multi.predict(log))


def test_features_of_rows_come_with_logs_and_frames_and_not_with_pairs():
    pd = pytest.importorskip("pandas")
    log = impressions(features=["page"])
    fitted = us.PopularityPropensity(calibrator=us.Multicalibrated(), crossfit=2).fit(log)
    page = np.asarray(log.columns["page"])
    found = fitted.predict(log)
    assert found[page == "c"].mean() < found[page != "c"].mean() / 2
    frame = pd.DataFrame({"user": log.user, "item": log.item, "page": page})
    np.testing.assert_allclose(fitted.predict(frame), found, rtol=1e-12)
    assert fitted.diagnose()["calibrated"]["nll"] < fitted.diagnose()["raw"]["nll"]
    with pytest.raises(DataError, match=r"column 'page' is missing"):
        fitted.predict(frame.drop(columns="page"))
    with pytest.raises(DataError, match=r"the calibrator reads 'page' of each row.*data frame"):
        fitted.predict_pairs_each([0], [0])


@pytest.mark.parametrize("features", [None, ["user.gender", "item.gender"]])
def test_saved_and_loaded_it_gives_the_same_to_the_last_bit(tmp_path, features):
    log = matrix_log() if features is None else matrix_log().with_features(features)
    calibrator = us.Multicalibrated(segments=("item.gender", "user.gender"))
    fitted = us.PopularityPropensity(calibrator=calibrator, crossfit=2).fit(log)
    fitted.save(tmp_path / "p")
    loaded = us.load_propensity(tmp_path / "p")
    user, item = np.divmod(np.arange(USERS * ITEMS), ITEMS)
    np.testing.assert_array_equal(
        loaded.predict_pairs_each(user, item), fitted.predict_pairs_each(user, item)
    )
    assert fitted.calibrators_[0].terms_


def test_a_log_without_what_it_reads_is_told_before_training():
    bare = matrix_log(user_features=None, item_features=None)
    with pytest.raises(DataError, match=r"the log has no features to calibrate by.*--features"):
        us.PopularityPropensity(calibrator=us.Multicalibrated()).fit(bare)
    with pytest.raises(DataError, match=r"no column 'city'"):
        us.PopularityPropensity(calibrator=us.Multicalibrated(segments=("city",))).fit(matrix_log())
    described = matrix_log().with_features(["user.gender"])
    with pytest.raises(DataError, match=r"is to read 'item.gender', and the log has no such feature"):
        us.PopularityPropensity(calibrator=us.Multicalibrated(segments=("item.gender",))).fit(described)


def test_an_exported_file_reads_the_segments(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    fitted = us.PopularityPropensity(crossfit=2, calibrator=us.Multicalibrated()).fit(matrix_log())
    assert fitted.calibrators_[0].terms_
    us.export_onnx(fitted, tmp_path / "p.onnx")
    user, item = np.divmod(np.arange(USERS * ITEMS), ITEMS)
    session = onnxruntime.InferenceSession(tmp_path / "p.onnx")
    (inside,) = session.run(["propensity"], {"user": user, "item": item})
    outside = fitted.predict_pairs_each(user, item, average=True).mean(axis=0)
    np.testing.assert_allclose(inside, outside, rtol=2e-7)


def test_on_coat_it_beats_platt_by_segment(coat_root):
    log = us.load("coat", coat_root).train
    raw = us.PopularityPropensity(calibrator=None).fit(log).predict_matrix_each()[0].ravel()
    encoders = log.with_features("auto", ignore=log.columns).encoders
    user, item = np.divmod(np.arange(log.population_size), log.n_items)
    of_users, of_items = (
        {name: column[:, 0] for name, column in encoders.table_columns(role, code).items()}
        for role, code in (("user", user), ("item", item))
    )
    features = of_users | of_items
    click = np.zeros(log.population_size, dtype=bool)
    click[log.cell] = True
    trains = np.random.default_rng(0).random(len(click)) < 0.5
    fitted_on, asked = ({name: each[at] for name, each in features.items()} for at in (trains, ~trains))
    multi = us.Multicalibrated().fit(raw[trains], click[trains], features=fitted_on)
    found = {"multi": multi.predict(raw[~trains], asked)}
    found["platt"] = Platt().fit(raw[trains], click[trains]).predict(raw[~trains])
    outcome = click[~trains]
    pairs = {
        f"{one} × {other}": 100 * of_users[one][~trains] + of_items[other][~trains]
        for one in of_users
        for other in of_items
    }
    worst = {name: _worst(each, outcome, asked | pairs) for name, each in found.items()}
    for name in found.keys() - {"multi"}:
        gain = _loss(found[name], outcome) - _loss(found["multi"], outcome)
        assert gain.mean() > 5 * gain.std() / np.sqrt(len(gain)), name
        assert worst["multi"] < 0.9 * worst[name]


def _loss(probability, outcome):
    return -np.where(outcome, np.log(probability), np.log1p(-probability))


def _worst(probability, outcome, columns):
    """The largest weight-calibration error, less its noise, of segments with 2 % of the rows."""
    found = []
    for name, column in columns.items():
        values, code = np.unique(column, return_inverse=True)
        segments = segments_of(
            segment_cells(name, [str(each) for each in values], code, probability, outcome)
        )
        found += [each.wce_debiased for each in segments if each.rows > 0.02 * len(outcome)]
    return max(found)
