"""Features of a log: what they are by type, whose they are, how they are coded."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from contracts.feature_world import log_of, part, table
from unskew.base.errors import DataError, ParameterError
from unskew.data import Encoders, Features, Schema
from unskew.data.encoder import MISSING_CODE, MOST_IN_BAG, OTHER_CODE, PAD, NumberEncoder, encoder_from
from unskew.data.values import Numbers, values_of

ROWS = {"user": ["a", "a", "b", "b"], "item": [1, 2, 1, 2], "click": [1, 0, 0, 1]}


def small(features="auto", space="impressions", **columns):
    return us.Log.from_frame(pa.table(ROWS | columns), click="click", space=space, features=features)


def kinds(log):
    return {each.name: (each.kind, each.role) for each in log.schema.features}


class TestAuto:
    def test_kinds_follow_from_the_types(self):
        start = datetime(2024, 1, 1, 22)
        log = small(
            text=["x", "y", "x", "z"],
            coded=pa.array(["x", "y", "x", "z"]).dictionary_encode(),
            flag=[True, False, True, True],
            code=[3, 1, 3, 2],
            share=[0.5, 0.1, 0.4, 0.3],
            words=[["a"], [], ["a", "b"], None],
            when=pa.array([start + timedelta(hours=each) for each in range(4)]),
        )
        found = {name: kind for name, (kind, _) in kinds(log).items()}
        assert found == {
            "text": "category",
            "coded": "category",
            "flag": "category",
            "code": "category",
            "share": "number",
            "words": "bag",
            "when.hour": "category",
            "when.weekday": "category",
        }
        assert log.time == "when"
        assert log.columns["when"].dtype.kind == "M"
        hours = log.features.values["when.hour"]
        assert hours.texts[hours.codes].tolist() == ["22", "23", "0", "1"]

    def test_whole_numbers_with_many_values_are_numbers(self):
        rows = 30_000
        columns = {
            "user": np.arange(rows) % 50,
            "item": np.arange(rows) % 40,
            "click": np.arange(rows) % 3 == 0,
            "few": np.arange(rows) % 100,
            "codes": np.arange(rows) * 7 % 250,
            "cents": np.arange(rows) * 13 % 4001,
        }
        log = us.Log.from_frame(pa.table(columns), click="click", space="impressions", features="auto")
        found = {name: kind for name, (kind, _) in kinds(log).items()}
        assert found == {"few": "category", "codes": "category", "cents": "number"}

    def test_ids_outcomes_and_what_is_ignored_are_no_features(self):
        log = us.Log.from_frame(
            pa.table(ROWS | {"bought": [1, 0, 0, 0], "x": list("pqpq"), "secret": list("aabb")}),
            click="click",
            conversion="bought",
            space="impressions",
            features="auto",
            ignore=["secret"],
        )
        assert list(kinds(log)) == ["x"]

    def test_a_declared_feature_stands_beside_what_is_found(self):
        log = small(["auto", us.Number("code")], code=[3, 1, 3, 2], x=list("pqpr"))
        assert {name: kind for name, (kind, _) in kinds(log).items()} == {"code": "number", "x": "category"}


class TestRoles:
    def test_whose_a_column_is_follows_from_where_it_never_changes(self):
        log = small(country=list("xxyy"), brand=list("pqpq"), place=list("mnnm"))
        assert {name: role for name, (_, role) in kinds(log).items()} == {
            "country": "user",
            "brand": "item",
            "place": "row",
        }

    def test_in_the_matrix_a_column_of_rows_is_refused_by_name_and_left_out_by_auto(self):
        columns = {"country": list("xxyy"), "place": list("mnnm")}
        with pytest.raises(
            DataError, match=r"feature 'place': it differs within users.*'impressions'.*role="
        ):
            small(["place"], space="matrix", **columns)
        log = small(space="matrix", **columns)
        assert list(kinds(log)) == ["country"]
        assert "differs within users" in log.features.left_out["place"]

    def test_a_role_that_is_said_takes_the_last_value(self):
        log = small([us.Category("place", role="user", min_count=1)], space="matrix", place=list("mnnm"))
        values = log.features.values["place"]
        assert values.texts[values.codes].tolist() == ["n", "m"]

    def test_users_features_are_kept_whole_and_rows_are_taken(self):
        log = small(country=list("xxyy"), place=list("mnnm"))
        some = log.take(np.array([2, 3]))
        assert len(some.features.values["country"]) == 2
        assert len(some.features.values["place"]) == 2
        place = some.features.values["place"]
        assert place.texts[place.codes].tolist() == ["n", "m"]


class TestCategories:
    def test_rare_unseen_and_missing_values_have_codes_that_are_shared(self):
        log = log_of(part(table(), known=True))
        encoder = log.encoders.encoders[0]
        assert encoder.feature.name == "country"
        values = encoder.vocabulary.tolist()
        assert values == ["de", "fr", "us"]
        later = us.Log.from_frame(
            pa.table(ROWS | {"country": ["us", "us", "xx", "xx"]}),
            click="click",
            space="impressions",
            features=["country"],
        )
        codes = encoder.encode(later.features.values["country"])
        assert codes.ravel().tolist() == [4, OTHER_CODE]
        assert codes.dtype == np.int32
        nobody = log.encoders.tables["user"].codes[-1]
        assert nobody.tolist() == [MISSING_CODE]

    def test_what_is_missing_later_but_never_was_in_training_is_other(self):
        log = small([us.Category("x", min_count=1)], x=list("pqpq"))
        later = small([us.Category("x", role="item")], x=["p", None, "p", None])
        codes = log.encoders.encoders[0].encode(later.features.values["x"])
        assert codes.ravel().tolist() == [2, OTHER_CODE]

    def test_size_keeps_the_most_frequent(self):
        log = small([us.Category("x", role="row", size=1, min_count=1)], x=list("bbac"))
        assert log.encoders.encoders[0].vocabulary.tolist() == ["b"]
        assert log.encoders.encode(log)["row"].codes.ravel().tolist() == [2, 2, 0, 0]
        assert log.schema_table()[2]["note"] == "2 rare values share a code"

    def test_whole_numbers_are_the_same_value_however_they_are_held(self):
        log = small([us.Category("x", role="row", min_count=1)], x=[7, 8, 7, 8])
        for held in ([7.0, 8.0, None, 9.0], ["7", "8", None, "9"]):
            later = small([us.Category("x", role="row")], x=held)
            codes = log.encoders.encoders[0].encode(later.features.values["x"])
            assert codes.ravel().tolist() == [2, 3, 0, 0]

    @pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.float16()])
    def test_the_text_of_a_fraction_does_not_depend_on_its_neighbours(self, kind):
        """A chunk of a stream, or one row that is scored, has other neighbours than the log in memory."""
        given = [1.5, 3e10, -0.0, 7.0, 1e300, -1e19, 0.1, None, float("nan"), float("inf"), 2.0**53]
        with np.errstate(over="ignore"):
            values = pa.array(np.array(given, float).astype(kind.to_pandas_dtype()), kind)
        whole = values_of(us.Category("x"), values)
        lists = pa.LargeListArray.from_arrays(pa.array(range(len(values) + 1)), values)
        bags = values_of(us.Bag("x"), lists)
        for row in range(len(values)):
            alone = values_of(us.Category("x"), values.slice(row, 1))
            text = whole.take(np.array([row])).example()
            assert text == alone.example() == bags.take(np.array([row])).example()
        texts = set(whole.texts.tolist())
        assert {"1.5", "0", "7"} < texts
        assert kind != pa.float64() or {"30000000000", "1e+300", "-1e+19"} < texts

    def test_a_hash_needs_no_vocabulary_and_tells_how_many_values_collide(self):
        rows = 400
        frame = pa.table(
            {
                "user": np.arange(rows) % 20,
                "item": np.arange(rows) % 19,
                "click": np.arange(rows) % 2,
                "word": [f"w{each}" for each in range(rows)],
            }
        )
        features = [us.Category("word", hash=64)]
        log = us.Log.from_frame(frame, click="click", space="impressions", features=features)
        (encoder,) = log.encoders.encoders
        codes = encoder.encode(log.features.values["word"]).ravel()
        assert log.schema["word"].size == 66
        assert codes.min() >= 2
        used = np.bincount(codes)
        assert encoder.collisions == pytest.approx(used[used > 1].sum() / rows)
        assert f"{encoder.collisions:.1%} of the values share one" in encoder.note

    def test_shared_features_have_one_vocabulary(self):
        seen, bought = list("aabc"), list("bbdd")
        features = [
            us.Category("seen", role="row", min_count=1),
            us.Category("bought", role="row", share="seen"),
        ]
        log = small(features, seen=seen, bought=bought)
        first, second = log.encoders.encoders
        assert first.vocabulary.tolist() == second.vocabulary.tolist() == list("abcd")
        assert log.schema["bought"].share == "seen"
        with pytest.raises(ParameterError, match="shares the codes of 'nothing', which has none"):
            small([us.Category("seen", share="nothing")], seen=seen)


class TestNumbers:
    def encoded(self, values, **options):
        log = small([us.Number("x", role="row", **options)], x=values)
        return log.encoders.encoders[0], log.encoders.encode(log)["row"].numbers

    def test_they_have_mean_0_and_variance_1(self):
        encoder, numbers = self.encoded([1.0, 2.0, 3.0, 4.0])
        assert encoder.transform == "standard"
        np.testing.assert_allclose(numbers.ravel(), np.array([-3, -1, 1, 3]) / np.sqrt(5), rtol=1e-6)

    def test_what_is_missing_is_the_mean_with_a_column_that_says_so(self):
        encoder, numbers = self.encoded([1.0, None, 3.0, None])
        assert encoder.field.width == 2
        np.testing.assert_allclose(numbers, [[-1, 0], [0, 1], [1, 0], [0, 1]], rtol=1e-6)

    def test_the_transform_is_chosen_by_the_skewness(self):
        random = np.random.default_rng(0)
        normal = random.normal(size=4000)
        given = {"standard": normal, "log": np.exp(1.5 * normal), "quantile": np.sinh(3 * normal)}
        for expected, values in given.items():
            rows = len(values)
            columns = {"user": np.arange(rows) % 9, "item": np.arange(rows) % 8, "click": np.arange(rows) % 2}
            frame = pa.table(columns | {"x": values})
            log = us.Log.from_frame(frame, click="click", space="impressions", features=["x"])
            (encoder,) = log.encoders.encoders
            numbers = log.encoders.encode(log)["row"].numbers
            assert encoder.transform == expected
            assert abs(float(numbers.mean())) < 0.02
            assert float(numbers.std()) == pytest.approx(1, abs=0.02)
            assert np.all(np.diff(numbers.ravel()[np.argsort(values)]) >= 0)

    @pytest.mark.parametrize("rows", [10, 1_000, 12_345])
    @pytest.mark.parametrize("number", [0.3, 1.1, 123.456, -7e-9])
    def test_one_number_has_no_scale_of_its_own(self, number, rows):
        """Its deviation is a rounding of it: a number beside it would be the farthest there is."""
        encoder = NumberEncoder.fit(us.Number("x", role="row"), Numbers(np.full(rows, number)))
        assert encoder.transform == "standard"
        beside = Numbers(np.array([number, number + 0.5]))
        np.testing.assert_allclose(encoder.encode(beside)[:, 0], [0.0, 0.5], atol=1e-6)

    def test_a_constant_and_an_outlier_stay_finite(self):
        assert not self.encoded([5.0] * 4)[1].any()
        encoder, _ = self.encoded([1.0, 2.0, 3.0, 4.0])
        later = small([us.Number("x", role="row")], x=[1e30, -1e30, float("inf"), 2.5])
        assert encoder.encode(later.features.values["x"]).ravel().tolist() == [8, -8, 0, 0]


class TestBags:
    def test_they_are_codes_side_by_side_padded_to_one_width(self):
        bag = us.Bag("x", role="row", min_count=1)
        log = small([bag], x=[["a", "b", "a"], [], None, ["b"]])
        codes = log.encoders.encode(log)["row"].codes
        assert codes.tolist() == [
            [2, 3, 2],
            [MISSING_CODE, PAD, PAD],
            [MISSING_CODE, PAD, PAD],
            [3, PAD, PAD],
        ]

    def test_their_width_is_bounded_and_the_first_values_are_read(self):
        long = [str(each) for each in range(50)]
        log = small([us.Bag("x", role="row", min_count=1)], x=[long, ["1"], ["2"], ["3"]])
        codes = log.encoders.encode(log)["row"].codes
        assert codes.shape == (4, MOST_IN_BAG)
        vocabulary = log.encoders.encoders[0].vocabulary
        assert vocabulary[codes[0] - 2].tolist() == long[:MOST_IN_BAG]
        assert small([us.Bag("x", role="row", width=2)], x=[long] * 4).schema["x"].width == 2

    def test_a_null_inside_of_a_list_is_no_value(self):
        log = small([us.Bag("x", role="row", min_count=1)], x=[["a", None, "b"], [None], ["a"], ["b"]])
        assert log.encoders.encode(log)["row"].codes.tolist() == [[2, 3], [1, PAD], [2, PAD], [3, PAD]]


def test_schema_and_encoders_come_back_from_json():
    log = log_of(part(table(), known=True))
    encoders = log.encoders
    record = json.loads(json.dumps({"schema": log.schema.to_dict(), "encoders": encoders.to_dict()}))
    assert Schema.from_dict(record["schema"]) == log.schema
    again = Encoders.from_dict(record["encoders"], log.n_users, log.n_items)
    assert again.schema == log.schema
    for role, block in encoders.encode(log).items():
        for ours, theirs in zip(block, again.encode(log)[role], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_the_table_of_the_schema_has_a_line_for_each_field():
    lines = {line["name"]: line for line in log_of(table()).schema_table()}
    assert list(lines) == ["user", "item", "country", "price", "tags", "position", "noise"]
    assert lines["country"] == {
        "name": "country",
        "kind": "category",
        "role": "user",
        "cardinality": 3,
        "missing": 0.25,
        "example": lines["country"]["example"],
        "note": "",
    }
    assert lines["tags"]["kind"] == "bag"
    assert (lines["tags"]["missing"], lines["tags"]["note"]) == (0.0, "")
    bags = small([us.Bag("x", role="row", min_count=1)], x=[["a"], [], None, ["a"]]).schema_table()[2]
    assert (bags["missing"], bags["note"]) == (0.5, "empty lists count as missing")
    assert lines["price"]["missing"] == pytest.approx(9 / 60)


def test_tables_of_a_dataset_are_features_and_one_hot_blocks_are_categories():
    values = np.array([[1, 0, 30.5], [0, 1, 40.25]], dtype=np.float32)
    users = Features(("sex:f", "sex:m", "age"), values)
    log = us.Log.from_arrays(
        user=[0, 1, 0],
        item=[0, 1, 1],
        conversion=[1, 0, 1],
        user_features=users,
        item_features=Features(("age",), values[:, 2:]),
        columns={"rating": np.array([5, 1, 4])},
    )
    assert log.schema == log.ids_schema
    rich = log.with_features("auto")
    assert kinds(rich) == {
        "sex": ("category", "user"),
        "user.age": ("number", "user"),
        "item.age": ("number", "item"),
    }
    assert "rating" in rich.features.left_out
    assert rich.with_features(None).schema == log.ids_schema


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: small(["nothing"]), DataError, "column 'nothing' is missing"),
        (lambda: small(["click"]), ParameterError, "column 'click' is an id or an outcome"),
        (lambda: small([us.Number("x")], x=list("abab")), DataError, "column 'x': holds string"),
        (lambda: small([us.Bag("x")], x=list("abab")), DataError, "column 'x': holds string, not lists"),
        (lambda: small([us.Category("x")], x=[["a"]] * 4), DataError, "column 'x': holds list"),
        (lambda: small(["x", "x"], x=list("abab")), ParameterError, "feature 'x' is there twice"),
        (lambda: us.Category(""), ParameterError, "'' is not the name of a column"),
        (lambda: us.Category("x", role="time"), ParameterError, "feature 'x': role is 'time'"),
        (lambda: us.Category("x", size=0), ParameterError, "size must be a whole number of at least 1"),
        (lambda: us.Category("x", size=3, hash=8), ParameterError, "both size and hash"),
        (lambda: us.Category("x", share="y", dim=3), ParameterError, "shares the codes of 'y'"),
        (lambda: us.Number("x", transform="sqrt"), ParameterError, "transform is 'sqrt'"),
        (lambda: us.Bag("x", pool="median"), ParameterError, "pool is 'median'"),
        (
            lambda: small([us.Number("x", transform="log", role="row")], x=[-1.0, 2, 3, 4]).encoders,
            DataError,
            "needs numbers from 0 on, and there is -1",
        ),
    ],
)
def test_what_cannot_be_a_feature_is_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


class TestReading:
    def named(self, fields):
        log = log_of(table()).reading(fields)
        assert [each.feature.name for each in log.encoders.encoders] == [
            each.name for each in log.schema.features
        ]
        assert set(log.features.values) == {each.name for each in log.schema.features}
        return [each.name for each in log.schema.features]

    def test_names_that_are_read_and_names_that_are_not(self):
        assert self.named(None) == ["country", "price", "tags", "position", "noise"]
        assert self.named(("position", "country")) == ["country", "position"]
        assert self.named(("-position", "-noise")) == ["country", "price", "tags"]
        assert self.named(()) == []

    def test_a_column_of_times_names_both_of_its_fields(self):
        when = pa.array([datetime(2024, 1, each, each) for each in range(1, 5)])
        log = small(when=when, text=["x", "y", "x", "z"])
        assert list(kinds(log.reading(("when",)))) == ["when.hour", "when.weekday"]
        assert list(kinds(log.reading(("-when.hour",)))) == ["when.weekday", "text"]

    def test_what_is_read_is_coded_as_before(self):
        log = log_of(table())
        part_of = log.reading(("tags", "price"))
        whole, some = log.encoders, part_of.encoders
        items = np.arange(log.n_items)
        for name, columns in some.table_columns("item", items).items():
            assert (columns == whole.table_columns("item", items)[name]).all()
        assert some.whole is whole
        assert part_of.reading(("tags",)).encoders.whole is whole

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (("colour",), "there is no feature 'colour'"),
            (("-colour",), "there is no feature 'colour'"),
            (("price", "-tags"), "some are named and some left out"),
        ],
    )
    def test_wrong_names_are_refused(self, fields, message):
        with pytest.raises(ParameterError, match=message):
            log_of(table()).reading(fields)

    def test_a_log_without_features_has_none_to_choose(self):
        with pytest.raises(ParameterError, match="the log has no features"):
            log_of(table(), features=None).reading(("price",))

    def test_codes_that_are_shared_stay_together(self):
        log = small(features=[us.Category("a"), us.Category("b", share="a")], a=list("xyxz"), b=list("zxyy"))
        with pytest.raises(ParameterError, match="shares the codes of 'a', which is left out"):
            log.reading(("b",))


def test_a_field_that_is_called_as_a_position_has_a_hint():
    notes = {line["name"]: line["note"] for line in log_of(table()).schema_table()}
    assert "--model-features=-position" in notes["position"]
    assert "position" not in notes["price"]
    ranked = small(item_rank=[1, 2, 3, 1], positive=[1, 2, 2, 1])
    notes = {line["name"]: line["note"] for line in ranked.schema_table()}
    assert "a position?" in notes["item_rank"]
    assert notes["positive"] == ""


VECTORS = [[0.25, 0.5, 0.75], [0.125, 0.5, 1.5], [1.25, 2.5, 3.5], [0.0, -1.5, 0.25]]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32(), 3), pa.list_(pa.float16(), 3), pa.list_(pa.float64())]
)
@pytest.mark.parametrize("features", ["auto", ["emb"], [us.Vector("emb")]])
def test_a_list_of_fractions_of_one_length_is_a_vector(kind, features):
    gaps = [*np.array(VECTORS[:3], dtype=np.float16).tolist(), None]
    log = small(features, emb=pa.array(gaps, kind))
    assert kinds(log) == {"emb": ("vector", "row")}
    (field,) = log.schema.features
    assert field.width == 4
    numbers = log.encoded_rows().numbers
    known = np.array(VECTORS[:3])
    np.testing.assert_allclose(numbers[:3, :3], (known - known.mean(0)) / known.std(0), rtol=1e-5)
    assert numbers[:, 3].tolist() == [0, 0, 0, 1]
    assert numbers[3, :3].tolist() == [0, 0, 0]


def test_a_vector_is_no_bag_and_has_one_length():
    vectors = pa.array(VECTORS)
    with pytest.raises(DataError, match=r"^column 'emb': holds list.* of vectors .* declare it as a Vector"):
        small([us.Bag("emb")], emb=vectors)
    with pytest.raises(DataError, match=r"^column 'emb', row 1: a vector has 1 numbers where others have 2"):
        small([us.Vector("emb")], emb=pa.array([[0.5, 1.5], [0.5], [2.5, 1.0], [0.0, 1.0]]))


def test_a_vector_of_an_item_is_the_items_and_is_read_from_files(tmp_path):
    item = np.tile([7, 8], 2)
    rows = ROWS | {
        "item": item,
        "emb": pa.array([VECTORS[code - 7] for code in item], pa.list_(pa.float32(), 3)),
    }
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    log = us.read_log(tmp_path / "log.parquet", features="auto", space="impressions")
    assert kinds(log) == {"emb": ("vector", "item")}
    assert log.encoders is not None
    encoder = log.encoders.encoders[0]
    again = encoder_from(encoder.to_dict())
    values = log.features.values["emb"]
    np.testing.assert_array_equal(encoder.encode(values), again.encode(values))


def test_lists_of_whole_numbers_and_of_several_lengths_are_bags():
    gaps = pa.array([[1.0, 2.0], [2.0, 3.0], [1.0, None], None])
    prices = pa.array([[0.5], [0.5, 1.5], [1.5], []])
    assert kinds(small(gaps=gaps, prices=prices)) == {"gaps": ("bag", "row"), "prices": ("bag", "row")}


def test_index_levels_of_pandas_are_no_features(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS | {"price": [1.5, 2.5, 3.5, 0.5]})
    frame = pandas.concat([frame] * 2).set_index(pandas.Index(list("abcdefgh"), name="line"), append=True)
    file = tmp_path / "log.parquet"
    frame.to_parquet(file)
    names = pq.read_schema(file).names
    assert {"__index_level_0__", "line"} < {*names}
    log = us.read_log(file, features="auto", space="impressions")
    assert [field.name for field in log.schema.features] == ["price"]
    table = us.Log.from_frame(pq.read_table(file), space="impressions", features="auto")
    assert [field.name for field in table.schema.features] == ["price"]
    named = us.read_log(file, features=["line"], space="impressions")
    assert [field.name for field in named.schema.features] == ["line"]


def test_names_and_values_tell_what_whole_numbers_and_texts_are():
    rows = 300
    columns = {"user": np.arange(rows) % 7, "item": np.arange(rows) % 5, "click": np.arange(rows) % 2}
    log = small(
        **columns,
        author_id=np.arange(rows) % 150,
        click_count=np.arange(rows) % 3,
        stamp=[f"2026-01-{1 + row % 28:02d} {row % 24:02d}:00:00" for row in range(rows)],
        constant=["same"] * rows,
    )
    assert {name: kind for name, (kind, _) in kinds(log).items()} == {
        "author_id": "category",
        "click_count": "number",
        "stamp.hour": "category",
        "stamp.weekday": "category",
    }
    assert log.features.left_out == {"constant": "it has one value in all rows"}
    notes = {line["name"]: line["note"] for line in log.schema_table()}
    assert "an id by its name" in notes["author_id"]
    assert "a number by its name" in notes["click_count"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_numbered_columns_of_one_prefix_are_the_vector_that_a_list_is(tmp_path, suffix):
    random = np.random.default_rng(0)
    numbers = random.normal(size=(60, 12)).round(6)
    rows = {"user": np.arange(60) % 7, "item": np.arange(60) % 11, "click": np.arange(60) % 2}
    columns = {f"emb_{place}": numbers[:, place] for place in range(12)}
    # By their numbers, not by their names: emb_10 comes after emb_9.
    wide = pa.table({**rows, **dict(sorted(columns.items()))})
    path = tmp_path / f"log.{suffix}"
    pa.csv.write_csv(wide, path) if suffix == "csv" else pq.write_table(wide, path)
    listed = pa.table({**rows, "emb": [*numbers.tolist()]})
    options = {"click": "click", "space": "impressions"}
    expected = us.Log.from_frame(listed, features=[us.Vector("emb")], **options)
    for log in (
        us.read_log(path, features=["auto", us.Vector("emb_")], **options),
        us.Log.from_frame(wide, features=[us.Vector("emb_")], **options),
        us.Log.from_frame(wide, keep=columns, **options).with_features([us.Vector("emb_")]),
    ):
        assert kinds(log) == {"emb_": ("vector", "row")}
        np.testing.assert_array_equal(log.encoded_rows().numbers, expected.encoded_rows().numbers)
    conversion = np.arange(60) % 4 == 1
    features = [us.Vector("emb_")]
    log = us.Log.from_frame(
        wide.append_column("conversion", pa.array(conversion)), features=features, **options
    )
    model = us.Naive(learner=us.DCN(dim=2), epochs=1).fit(log, device="cpu")
    np.testing.assert_allclose(model.predict_frame_each(wide), model.predict_each(log), rtol=1e-6)
