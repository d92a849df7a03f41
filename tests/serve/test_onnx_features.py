"""Exported models that read features: raw values or codes in, and the answers are those of ``predict``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import unskew as us
from contracts.feature_world import log_of, part, table
from serve.conftest import raw_inputs
from unskew.base.errors import UnskewError
from unskew.data.files import arrow_of
from unskew.data.values import values_of

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "export.md"

FLOAT32 = 1e-5
QUICK = {"epochs": 2, "batch_size": 512, "learning_rate": 0.02}
LEARNERS = {
    "dcn": us.DCN(dim=4, layers=(6, 5), crosses=2),
    "deepfm": us.DeepFM(dim=4, layers=(6,), init_std=0.5),
    "mlp": us.MLP(dim=4, layers=(6,)),
    "mmoe": us.MMoE(dim=4, experts=3, expert_layers=(6, 5), layers=(4,)),
}


@pytest.fixture(scope="module")
def known():
    return part(table(3000), known=True)


@pytest.fixture(scope="module")
def requests():
    """Rows of users who are known and who are not, values that were never seen, values that are missing."""
    rows = part(table(3000), known=False).slice(0, 60)
    rows = pa.concat_tables([rows, part(table(3000), known=True).slice(0, 60)]).to_pandas()
    rows.loc[0:3, "country"] = ["zz", None, "de", None]
    rows.loc[0:3, "price"] = [np.nan, np.inf, 1e9, -5.0]
    rows["tags"] = [list(each) for each in rows["tags"]]
    for place, tags in enumerate([[], ["topic1", "never"], ["all"] * 4, ["never"]]):
        rows.at[place, "tags"] = tags
    rows.loc[4, "position"] = 77
    rows.loc[5, "item"] = 10**6
    return rows


@pytest.fixture(scope="module")
def model(known):
    return us.Naive(learner=LEARNERS["dcn"], **QUICK).fit(log_of(known), seeds=2)


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def served(path, frame) -> np.ndarray:
    runtime = session(path)
    described = json.loads(runtime.get_modelmeta().custom_metadata_map["inputs"])
    answer = runtime.run(None, raw_inputs(described, frame))[0]
    assert answer.dtype == np.float32
    return answer


def hashed_codes(fitted, frame, name) -> np.ndarray:
    """The codes of a hashed feature, by the model's own encoder."""
    (encoder,) = (each for each in fitted.encoders_.encoders if each.feature.name == name)
    codes = encoder.encode(values_of(encoder.feature, arrow_of(frame[name], name))).astype(np.int64)
    return codes[:, 0] if encoder.field.kind == "category" else codes


def check(fitted, path, frame, **options) -> None:
    expected = fitted.predict_frame_each(frame, **options).mean(axis=0)
    us.export_onnx(fitted, path / "raw.onnx", overwrite=True)
    np.testing.assert_allclose(served(path / "raw.onnx", frame), expected, rtol=FLOAT32)
    assert expected.std() > 0.005, "rows that all get one answer would test nothing"


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_raw_values_are_answered_as_predict_does(known, requests, tmp_path, learner):
    check(us.Naive(learner=learner, **QUICK).fit(log_of(known), seeds=2), tmp_path, requests)


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_of_several_towers_it_is_the_one_that_predicts(known, requests, tmp_path, learner):
    check(us.ESMM(learner=learner, **QUICK).fit(log_of(known), seeds=2), tmp_path, requests)


def test_a_propensity_is_calibrated_and_the_mean_over_seeds_and_folds(known, requests, tmp_path):
    p = us.Propensity(learner=LEARNERS["dcn"], crossfit=2, **QUICK).fit(log_of(known), seeds=2)
    check(p, tmp_path, requests, average=True)


@pytest.mark.parametrize("pool", ["mean", "sum", "max"])
@pytest.mark.parametrize("transform", ["standard", "log", "quantile"])
def test_every_pool_and_transform(known, requests, tmp_path, pool, transform):
    features = (
        us.Category("country", dim=3),
        us.Bag("tags", pool=pool, width=2),
        us.Number("price", transform=transform),
        us.Category("position", size=3),
    )
    check(us.Naive(learner=LEARNERS["mlp"], **QUICK).fit(log_of(known, features)), tmp_path, requests)


def test_fields_that_share_a_table_and_times(known, requests, tmp_path):
    def with_more(frame):
        tags, first = (
            frame["tags"].to_pylist(),
            [each[0] if each else None for each in frame["tags"].to_pylist()],
        )
        moments = np.datetime64("2024-05-01T05", "s") + np.arange(len(tags)) * np.timedelta64(7, "h")
        return frame.append_column("first", pa.array(first)).append_column("at", pa.array(moments))

    features = (us.Bag("tags"), us.Category("first", share="tags"), "at")
    fitted = us.Naive(learner=LEARNERS["dcn"], **QUICK).fit(log_of(with_more(known), features))
    frame = with_more(pa.Table.from_pandas(requests, preserve_index=False)).to_pandas()
    frame["tags"] = requests["tags"].tolist()
    frame["at.hour"], frame["at.weekday"] = frame["at"].dt.hour, frame["at"].dt.day_of_week
    check(fitted, tmp_path, frame)


def test_what_is_hashed_comes_as_codes(known, requests, tmp_path):
    features = (us.Category("country", hash=7), us.Number("price"), us.Bag("tags", hash=5))
    fitted = us.Naive(learner=LEARNERS["dcn"], **QUICK).fit(log_of(known, features))
    told = us.export_onnx(fitted, tmp_path / "raw.onnx")
    assert told["holds"] == {
        "user": "text", "item": "integer", "country": "codes", "price": "number", "tags": "codes",
    }  # fmt: skip
    runtime = session(tmp_path / "raw.onnx")
    described = json.loads(runtime.get_modelmeta().custom_metadata_map["inputs"])
    assert [each["encoder"]["buckets"] for each in described if "encoder" in each] == [7, 5]
    given = raw_inputs([each for each in described if each["holds"] != "codes"], requests)
    given |= {name: hashed_codes(fitted, requests, name) for name in ("country", "tags")}
    (answer,) = runtime.run(["conversion"], given)
    expected = fitted.predict_frame_each(requests).mean(axis=0)
    np.testing.assert_allclose(answer, expected, rtol=FLOAT32)
    (other,) = runtime.run(["conversion"], given | {"country": np.zeros(len(requests), dtype=np.int64)})
    for beyond in (99, np.iinfo(np.int64).max):
        (answer,) = runtime.run(["conversion"], given | {"country": np.full(len(requests), beyond)})
        np.testing.assert_array_equal(answer, other)


def test_bags_may_be_padded_to_any_width_and_no_rows_are_no_answers(model, requests, tmp_path):
    us.export_onnx(model, tmp_path / "raw.onnx")
    runtime = session(tmp_path / "raw.onnx")
    given = raw_inputs(json.loads(runtime.get_modelmeta().custom_metadata_map["inputs"]), requests)
    (expected,) = runtime.run(["conversion"], given)
    wider = np.hstack([given["tags"], np.full((len(requests), 9), "", dtype=object)])
    np.testing.assert_array_equal(runtime.run(["conversion"], given | {"tags": wider})[0], expected)
    narrow = {name: values[:1] for name, values in given.items()} | {"tags": np.array([[""]], dtype=object)}
    np.testing.assert_allclose(runtime.run(["conversion"], narrow)[0], expected[:1], rtol=1e-6)
    assert runtime.run(["conversion"], {name: values[:0] for name, values in given.items()})[0].shape == (0,)


def test_the_lines_of_the_page_serve_a_model(known, tmp_path, monkeypatch):
    _, code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    features = (us.Category("country"), us.Number("price"), us.Bag("tags"))
    fitted = us.Naive(learner=LEARNERS["mlp"], **QUICK).fit(log_of(known, features))
    us.export_onnx(fitted, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    found = {"np": np, "json": json, "onnxruntime": onnxruntime}
    exec(code, found)
    frame = pa.table(
        {
            "user": ["u17", "somebody new"],
            "item": [3, 8],
            "country": pa.array(["de", None]),
            "price": pa.array([19.9, None]),
            "tags": [["red", "sale"], ["red"]],
        }
    )
    expected = fitted.predict_frame_each(frame).mean(axis=0)
    np.testing.assert_allclose(found["conversion"], expected, rtol=FLOAT32)


def test_the_empty_text_may_be_a_value(tmp_path):
    random = np.random.default_rng(0)
    kind = np.array(["", "a", "b", None], dtype=object)[random.integers(4, size=600)]
    frame = pa.table(
        {
            "user": random.integers(20, size=600),
            "item": random.integers(9, size=600),
            "click": np.arange(600) % 3 > 0,
            "bought": (random.random(600) < np.where(kind == "", 0.9, 0.2)) & (np.arange(600) % 3 > 0),
            "add_1": pa.array(kind),
        }
    )
    quick = QUICK | {"epochs": 20}
    fitted = us.Naive(learner=LEARNERS["mlp"], **quick).fit(log_of(frame, (us.Category("add_1"),)))
    us.export_onnx(fitted, tmp_path / "raw.onnx")
    described = json.loads(session(tmp_path / "raw.onnx").get_modelmeta().custom_metadata_map["inputs"])
    assert (described[2]["name"], described[2]["holds"], described[2]["missing"]) == ("add_1", "text", "-")
    check(fitted, tmp_path, frame.to_pandas())


def test_an_id_without_rows_in_training_is_as_good_as_unknown(known, tmp_path):
    """It has a code, and an embedding that nothing trained."""
    log = log_of(known)
    fitted = us.Naive(learner=LEARNERS["mlp"], **QUICK).fit(log.take(log.user >= 60), seeds=2)
    rows = known.slice(0, 200).to_pandas()
    rows["tags"] = [list(each) for each in rows["tags"]]
    check(fitted, tmp_path, rows)


@pytest.mark.parametrize("left_out", [("country",), ("price", "tags")])
def test_features_that_a_request_leaves_out_are_those_of_training(model, known, tmp_path, left_out):
    us.export_onnx(model, tmp_path / "raw.onnx")
    runtime = session(tmp_path / "raw.onnx")
    described = json.loads(runtime.get_modelmeta().custom_metadata_map["inputs"])
    rows = known.slice(0, 60).to_pandas()
    rows["tags"] = [list(each) for each in rows["tags"]]
    expected = model.predict_frame_each(rows.drop(columns=list(left_out))).mean(axis=0)
    given = raw_inputs(described, rows)
    for each in described:
        if each["name"] in left_out:
            values = given[each["name"]]
            given[each["name"]] = np.full_like(
                values, -np.inf if each["absent"] == "-Infinity" else each["absent"]
            )
    (answer,) = runtime.run(["conversion"], given)
    np.testing.assert_allclose(answer, expected, rtol=FLOAT32)
    assert not np.allclose(
        answer, model.predict_frame_each(rows.assign(country=None, price=np.nan)).mean(axis=0)
    )
    assert [each["name"] for each in described if "absent" in each] == ["country", "price", "tags"]


def test_the_file_says_which_ids_training_had(model, requests, tmp_path):
    us.export_onnx(model, tmp_path / "raw.onnx")
    runtime = session(tmp_path / "raw.onnx")
    described = json.loads(runtime.get_modelmeta().custom_metadata_map["inputs"])
    user, item = runtime.run(["known_user", "known_item"], raw_inputs(described, requests))
    assert user.tolist() == [int(each[1:]) % 16 < 12 for each in requests["user"]]
    assert item.tolist() == [each < 10**6 for each in requests["item"]]


def test_a_saved_and_loaded_model_gives_the_same_bytes(model, tmp_path):
    model.save(tmp_path / "run")
    us.export_onnx(model, tmp_path / "one.onnx")
    us.export_onnx(us.load_model(tmp_path / "run", device="cpu"), tmp_path / "two.onnx")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def test_a_table_is_stored_once(model, tmp_path):
    size = us.export_onnx(model, tmp_path / "raw.onnx")["bytes"]
    weights = sum(
        each.nbytes for each in (p.detach().numpy() for p in model.networks_["prediction"].parameters())
    )
    assert size < 1.2 * weights + 30_000


def test_what_cannot_be_is_refused_in_one_line(known, tmp_path):
    renamed = known.rename_columns(["conversion" if each == "noise" else each for each in known.column_names])
    log = log_of(renamed, (us.Number("conversion"),))
    fitted = us.Naive(learner=LEARNERS["mlp"], **QUICK).fit(log)
    with pytest.raises(UnskewError, match="the feature 'conversion' has the name of the output"):
        us.export_onnx(fitted, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


def with_vectors(rows, seed: int):
    """The same rows with vectors of which the first number drives nothing and the second the click."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(len(rows), 3)).round(3).tolist()
    values = [None if number % 17 == 0 else vector for number, vector in enumerate(vectors)]
    return rows.append_column("embedding", pa.array(values, pa.list_(pa.float32(), 3)))


def test_a_vector_is_an_input_of_its_width(known, tmp_path):
    log = log_of(with_vectors(known, 0), features=["country", "price", "embedding"])
    fitted = us.Naive(learner=LEARNERS["dcn"], **QUICK).fit(log)
    us.export_onnx(fitted, tmp_path / "model.onnx")
    rows = with_vectors(part(table(3000), known=True).slice(0, 50), 1).to_pandas()
    runtime = session(tmp_path / "model.onnx")
    described = json.loads(runtime.get_modelmeta().custom_metadata_map["inputs"])
    (vector,) = (each for each in described if each["name"] == "embedding")
    assert (vector["holds"], vector["kind"], vector["width"]) == ("vector", "vector", 3)
    given = raw_inputs([each for each in described if each is not vector], rows)
    given["embedding"] = np.array([[np.nan] * 3 if v is None else v for v in rows["embedding"]])
    expected = fitted.predict_frame_each(pa.Table.from_pandas(rows, preserve_index=False)).mean(axis=0)
    np.testing.assert_allclose(runtime.run(None, given)[0], expected, rtol=1e-4)
