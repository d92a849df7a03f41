"""Data frames in, and the same kind out: audits, weights, predictions and scores."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.audit import Roles, audit_actions, write_weights
from unskew.base.errors import DataError, ParameterError

pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")

KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
ADDED = ["propensity_calibrated", "weight", "fold", "clipped"]


@pytest.fixture(scope="module")
def columns():
    draw = np.random.default_rng(0)
    user, item = draw.integers(0, 60, 3000), draw.integers(0, 40, 3000)
    p = 1 / (1 + np.exp(1.5 - draw.normal(0, 0.8, 60)[user] - draw.normal(0, 0.8, 40)[item]))
    click = (draw.random(3000) < p).astype(int)
    bought = click * (draw.random(3000) < 0.3)
    return {"user": user, "item": item, "p": p / 2, "clicked": click, "bought": bought}


@pytest.fixture(scope="module")
def file(columns, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(params=KINDS)
def frame(request, columns):
    return KINDS[request.param](columns)


def test_an_audit_of_a_frame_is_that_of_the_file(frame, file):
    asked = {"score": "p", "outcome": "clicked", "segments": ["item"]}
    of_frame, of_file = (us.audit(data, **asked).to_dict() for data in (frame, file))
    assert of_frame.pop("files") == ["the data frame"]
    assert of_frame.pop("command") is None
    assert str(file) in of_file.pop("command")
    of_file.pop("files")
    assert of_frame == of_file
    actions = audit_actions(frame, score="p", actions=3)
    assert actions.rows == 3000


def test_weights_of_a_frame_are_those_of_the_file(frame, file, tmp_path):
    weighted = us.weights(frame, score="p", outcome="clicked", calibrator="isotonic")
    assert type(weighted) is type(frame)
    write_weights(file, tmp_path / "w.parquet", Roles("p", "clicked"), calibrator="isotonic")
    written = pq.read_table(tmp_path / "w.parquet")
    table = pl.DataFrame(weighted)
    assert table.columns == written.column_names
    for name in ADDED:
        np.testing.assert_array_equal(table[name].to_numpy(), written[name].to_numpy())


def test_rows_of_pandas_are_matched_by_their_place(columns):
    frame = pd.DataFrame(columns, index=np.arange(3000)[::-1] % 7)
    weighted = us.weights(frame, score="p", outcome="clicked")
    plain = us.weights(pd.DataFrame(columns), score="p", outcome="clicked")
    np.testing.assert_array_equal(weighted["weight"].to_numpy(), plain["weight"].to_numpy())
    assert (weighted.index == frame.index).all()


def test_models_and_propensities_predict_frames(frame, columns):
    log = us.Log.from_frame(frame, click="clicked", conversion="bought", space="impressions")
    model = us.Naive(learner=us.MF(dim=2), epochs=1).fit(log)
    np.testing.assert_array_equal(model.predict(frame), model.predict(log))
    p = us.PopularityPropensity(crossfit=2).fit(log)
    np.testing.assert_array_equal(p.predict(frame), p.predict(log))
    with pytest.raises(ParameterError, match="not a Log"):
        model.predict([1, 2, 3])


def test_score_gives_a_frame_of_the_same_kind(columns, file, tmp_path):
    config = us.Config(
        data="files",
        options={"train": str(file), "click": "clicked", "conversion": "bought", "space": "impressions"},
        propensity="popularity",
        learner="mf",
        method="naive",
        seeds=2,
        crossfit=2,
        parameters={"method.epochs": 1},
    )
    us.run(config).save(tmp_path / "run")
    for make in KINDS.values():
        given = make({**columns, "conversion": columns["bought"]})
        scored = us.score(tmp_path / "run", given)
        assert type(scored) is type(given)
        table = pl.DataFrame(scored)
        added = ["given_conversion", "conversion", "conversion_std", "propensity", "click_and_conversion"]
        assert table.columns == [*columns, *added]
        model = us.load_model(tmp_path / "run")
        np.testing.assert_array_equal(table["conversion"].to_numpy(), model.predict(given))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"score": "q", "outcome": "clicked"}, "the data frame: column 'q' is missing"),
        ({"score": "user", "outcome": "clicked"}, "the data frame, column 'user', row"),
    ],
)
def test_what_is_wrong_with_a_frame_is_one_line(columns, asked, words):
    with pytest.raises(us.UnskewError, match=words):
        us.weights(pd.DataFrame(columns), **asked)


def test_a_lazy_frame_is_to_be_collected_for_weights_and_a_column_is_not_added_twice(columns, file):
    with pytest.raises(DataError, match="To fix: collect it first"):
        us.weights(pl.DataFrame(columns).lazy(), score="p", outcome="clicked")
    with pytest.raises(DataError, match="the data frame: column 'weight' is there already"):
        us.weights(pl.DataFrame({**columns, "weight": columns["p"]}), score="p", outcome="clicked")
    with pytest.raises(ParameterError, match="weights are for data frames"):
        us.weights(str(file), score="p", outcome="clicked")
