"""Logs from files: CSV and Parquet agree, and a broken file is named."""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from contracts.dataset_contract import DatasetContract
from contracts.feature_world import part, table
from unskew.base.errors import DataError, ParameterError
from unskew.data import Log
from unskew.data.datasets import load as load_by_name
from unskew.data.datasets import read_log, read_table
from unskew.data.datasets.files import files

NAMES = {"user": "uid", "item": "iid", "click": "clicked", "conversion": "bought"}
TRAIN = {
    "uid": ["ann", "ann", "bob", "bob", "cid", "cid"],
    "iid": [7, 8, 7, 9, 8, 9],
    "clicked": [1, 0, 1, 1, 0, 1],
    "bought": [1, None, 0, 1, None, 0],
    "price": [1.5, 2.5, 1.5, 4.0, 2.5, 4.0],
}
TEST = {"uid": ["ann", "ann", "bob", "cid"], "iid": [7, 9, 8, 7], "bought": [1, 0, 1, 0]}


def write_csv(table, path):
    pa.csv.write_csv(table, path)


def write_tsv(table, path):
    pa.csv.write_csv(table, path, pa.csv.WriteOptions(delimiter="\t"))


def write_gzip(table, path):
    with gzip.open(path, "wb") as file:
        pa.csv.write_csv(table, file)


WRITERS = {
    "clicks.parquet": pa.parquet.write_table,
    "clicks.pq": pa.parquet.write_table,
    "clicks.csv": write_csv,
    "clicks.csv.gz": write_gzip,
    "clicks.tsv": write_tsv,
}


class TestFiles(DatasetContract):
    name = "files"

    @pytest.fixture
    def load(self, tmp_path):
        pa.parquet.write_table(pa.table(TRAIN), tmp_path / "train.parquet")
        write_csv(pa.table(TEST), tmp_path / "test.csv")
        pa.parquet.write_table(
            pa.table({"uid": ["ann", "cid"], "iid": [8, 9], "bought": [1, 0]}),
            tmp_path / "validation.parquet",
        )
        return lambda **options: load_by_name(
            "files",
            tmp_path,
            train="train.parquet",
            test="test.csv",
            validation="validation.parquet",
            **NAMES,
            **options,
        )

    def test_leaked_cells_of_test_and_validation_are_counted(self, load):
        data = load()
        assert data.facts["leaked_cells_found"] == 2  # ann 7 in test, cid 9 in validation; ann 8 was no click
        assert (len(data.test), len(data.validation)) == (3, 1)


@pytest.mark.parametrize(("name", "write"), WRITERS.items(), ids=WRITERS)
def test_every_format_gives_the_same_log(tmp_path, name, write):
    write(pa.table(TRAIN), tmp_path / name)
    log = read_log(tmp_path / name, keep=["price"], numbers=["price"], **NAMES)
    assert repr(log) == "Log(matrix: 3 users × 3 items, 6 rows, 4 clicks, density 0.4444)"
    np.testing.assert_array_equal(log.cell, [0, 1, 3, 5, 7, 8])
    np.testing.assert_array_equal(log.conversion, np.array([1, np.nan, 0, 1, np.nan, 0], dtype=np.float32))
    np.testing.assert_array_equal(log.columns["price"], TRAIN["price"])


@pytest.fixture
def parts(tmp_path):
    """One log in three files of a folder, as a cluster writes it."""
    table = pa.table(TRAIN)
    folder = tmp_path / "clicks"
    (folder / "day=2").mkdir(parents=True)
    pa.parquet.write_table(table.slice(0, 2), folder / "a.parquet")
    write_csv(table.slice(2, 2), folder / "b.csv")
    pa.parquet.write_table(table.slice(4), folder / "day=2" / "c.parquet")
    for ignored in ("_SUCCESS", ".a.parquet.crc", "_metadata.parquet", "notes.txt"):
        (folder / ignored).write_text("")
    return folder


def test_a_log_in_parts_is_the_log_in_one_file(parts, tmp_path):
    pa.parquet.write_table(pa.table(TRAIN), tmp_path / "whole.parquet")
    whole, in_parts = (read_log(path, **NAMES) for path in (tmp_path / "whole.parquet", parts))
    np.testing.assert_array_equal(whole.cell, in_parts.cell)
    np.testing.assert_array_equal(whole.conversion, in_parts.conversion)


def test_a_bad_value_is_named_by_its_file_and_its_row_there(parts):
    write_csv(
        pa.table({"uid": ["dan", "eve"], "iid": [1, 2], "clicked": [1, 5], "bought": [0, 0]}),
        parts / "b2.csv",
    )
    with pytest.raises(DataError, match=r"b2\.csv, column 'clicked', row 1: clicked is value 5"):
        read_log(parts, **NAMES)


def test_a_problem_without_a_row_names_the_files(tmp_path):
    for k in range(3):
        write_csv(pa.table({"uid": [k], "iid": [k], "clicked": [0]}), tmp_path / f"{k}.csv")
    with pytest.raises(
        DataError, match=r"0\.csv and 2 more files, column 'clicked': no row .*one class only"
    ):
        read_log(tmp_path, user="uid", item="iid", click="clicked")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.parquet", b"", r"empty\.parquet: the file is empty\. To fix: write it again"),
        ("blank.csv", b"\n\n", r"blank\.csv: cannot be read as CSV: .*[Ee]mpty CSV"),
        ("text.parquet", b"uid,iid\n1,2\n", r"text\.parquet: cannot be read as Parquet: .*fix: check"),
        ("broken.csv", b"uid,iid\n1,2\n3\n", r"broken\.csv: cannot be read as CSV: .*Expected 2 columns"),
        ("header.csv", b"uid,iid,clicked,bought\n", r"header\.csv: the log is empty"),
        (
            "clicks.xlsx",
            b"PK",
            r"clicks\.xlsx: is neither CSV, Parquet nor Arrow by its name\. To fix: .*\.parquet",
        ),
        (
            "words.csv",
            b"uid,iid,clicked,bought\n1,2,1,0\n1,3,maybe,0\n",
            r"words\.csv, column 'clicked', row 1: value 'maybe' is not a number\. To fix: encode as 0 and 1",
        ),
    ],
)
def test_a_bad_file_is_named_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_log(tmp_path / name, **NAMES)
    assert "\n" not in str(caught.value)


def test_damaged_pages_inside_parquet_are_named(tmp_path):
    path = tmp_path / "hole.parquet"
    pa.parquet.write_table(pa.table(TRAIN), path)
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"hole\.parquet: cannot be read as Parquet"):
        read_log(path, **NAMES)


def test_missing_files_and_folders_without_tables_are_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.csv: no such file, and no folder or glob that matches"):
        read_log(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match=r"nothing-\*\.csv: no such file"):
        read_log(tmp_path / "nothing-*.csv")
    with pytest.raises(DataError, match="the folder has no CSV, Parquet or Arrow files"):
        read_log(tmp_path)


def test_files_that_disagree_are_named(tmp_path):
    write_csv(pa.table({"uid": [1, 2], "iid": [1, 2]}), tmp_path / "a.csv")
    for name, users in (("b", ["x", "y"]), ("d", [1, 2])):
        pa.parquet.write_table(pa.table({"uid": users, "iid": [1, 2]}), tmp_path / f"{name}.parquet")
    write_csv(pa.table({"uid": [1, 2], "other": [1, 2]}), tmp_path / "c.csv")
    with pytest.raises(DataError, match=r"b\.parquet: a column has another type than in .*d\.parquet: .*uid"):
        read_log([tmp_path / "d.parquet", tmp_path / "b.parquet"], user="uid", item="iid")
    with pytest.raises(DataError, match=r"c\.csv and .*a\.csv: column 'iid' is not in all files"):
        read_table([tmp_path / "a.csv", tmp_path / "c.csv"])


def test_whole_numbers_and_nulls_in_different_files_fit_together(tmp_path):
    (tmp_path / "a.csv").write_text("uid,iid,clicked,bought\n1,1,0,\n")
    (tmp_path / "b.csv").write_text("uid,iid,clicked,bought\n1,2,1,1\n2,1,1,0\n")
    log = read_log(tmp_path, **NAMES)
    np.testing.assert_array_equal(log.conversion, np.array([np.nan, 1, 0], dtype=np.float32))


def test_the_root_alone_is_the_training_log(tmp_path):
    write_csv(pa.table(TRAIN), tmp_path / "clicks.csv")
    data = load_by_name("files", tmp_path / "clicks.csv", **NAMES)
    assert (len(data.train), data.test, data.validation) == (6, None, None)


def test_a_test_log_may_say_what_was_clicked(tmp_path):
    write_csv(pa.table(TRAIN), tmp_path / "train.csv")
    write_csv(
        pa.table({**TEST, "clicked": [0, 1, 1, 0], "bought": [None, 0, 1, None]}), tmp_path / "test.csv"
    )
    data = load_by_name("files", tmp_path, train="train.csv", test="test.csv", protocol="paper", **NAMES)
    np.testing.assert_array_equal(data.test.click, [0, 1, 1, 0])


def test_impressions_are_events_of_their_own(tmp_path):
    write_csv(pa.table(TRAIN), tmp_path / "train.csv")
    options = {"train": "train.csv", "test": "train.csv", "space": "impressions", **NAMES}
    data = load_by_name("files", tmp_path, **options)
    assert len(data.test) == len(data.train)
    assert data.facts["leaked_cells_found"] == 0


@pytest.fixture
def with_strangers(tmp_path):
    write_csv(pa.table(TRAIN), tmp_path / "train.csv")
    strangers = {"uid": ["ann", "dan", "bob", "cid"], "iid": [9, 8, 99, 7], "bought": [1, 0, 1, 0]}
    write_csv(pa.table(strangers), tmp_path / "test.csv")
    return lambda **options: load_by_name(
        "files", tmp_path, train="train.csv", test="test.csv", **NAMES, **options
    )


def test_unseen_test_ids_are_an_error_by_default(with_strangers):
    with pytest.raises(DataError, match=r"test\.csv, column 'uid', row 1: uid dan was not seen in training"):
        with_strangers()


def test_unseen_test_ids_are_dropped_and_counted_on_request(with_strangers):
    data = with_strangers(unseen="drop")
    assert data.facts["unseen_rows_dropped"] == 2
    assert data.train.users.decode(data.test.user).tolist() == ["ann", "cid"]
    assert data.train.items.decode(data.test.item).tolist() == ["9", "7"]
    np.testing.assert_array_equal(data.test.conversion, [1, 0])


def test_a_test_log_of_strangers_alone_is_refused(tmp_path):
    write_csv(pa.table(TRAIN), tmp_path / "train.csv")
    write_csv(pa.table({"uid": ["x", "y"], "iid": [7, 8], "bought": [0, 1]}), tmp_path / "test.csv")
    with pytest.raises(DataError, match=r"test\.csv: no row has a user and an item of the training log"):
        load_by_name("files", tmp_path, train="train.csv", test="test.csv", unseen="drop", **NAMES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"needs a training log\. To fix: give train= or root="),
        ({"train": "a.csv", "unseen": "x"}, "unseen must be 'error', 'drop' or 'keep', not 'x'"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        load_by_name("files", **options)


def test_a_test_log_needs_conversions(tmp_path):
    write_csv(pa.table(TRAIN), tmp_path / "train.csv")
    with pytest.raises(ParameterError, match=r"a test log needs conversions\. To fix: name their column"):
        load_by_name(
            "files", tmp_path, train="train.csv", test="train.csv", user="uid", item="iid", click="clicked"
        )


def test_a_test_file_that_is_the_training_file_leaves_nothing_to_test_on(tmp_path):
    write_csv(pa.table(TRAIN), tmp_path / "train.csv")
    file = tmp_path / "train.csv"
    with pytest.raises(DataError, match=r"train.csv: all 4 test pairs were clicked in training"):
        load_by_name("files", train=file, test=file, **NAMES)


class TestFeatures:
    """Test rows of users that are new, with what is known of them."""

    @pytest.fixture
    def folder(self, tmp_path):
        rows = table().drop_columns(["match"])
        for known, name in ((True, "train"), (False, "test")):
            pyarrow.parquet.write_table(part(rows, known=known), tmp_path / f"{name}.parquet")
        return tmp_path

    def load(self, folder, **options):
        given = {"click": "click", "conversion": "bought", "space": "impressions", "features": "auto"}
        return load_by_name(
            "files", folder, train="train.parquet", test="test.parquet", **{**given, **options}
        )

    def test_they_are_kept_and_coded_as_those_of_training(self, folder):
        data = self.load(folder)
        assert data.test.n_users == 60
        assert not set(data.test.users.ids) & set(data.train.users.ids)
        assert data.test.features.declared == data.train.features.declared
        roles = {each.name: each.role for each in data.train.features.declared}
        of_others = {"price": "item", "tags": "item", "position": "row", "noise": "row"}
        assert roles == {"country": "user"} | of_others
        codes = data.train.encoders.encode(data.test)["user"].codes
        assert set(codes.ravel()) == {1, 2, 3, 4}

    def test_without_features_they_are_an_error_and_may_be_dropped(self, folder):
        with pytest.raises(DataError, match="was not seen in training"):
            self.load(folder, features=None)
        mixed = pa.concat_tables(
            [pyarrow.parquet.read_table(folder / f"{name}.parquet") for name in ("train", "test")]
        )
        pyarrow.parquet.write_table(mixed, folder / "test.parquet")
        kept = self.load(folder, unseen="drop").test
        train = self.load(folder).train
        assert kept.n_users == train.n_users
        countries = [log.features.values["country"] for log in (kept, train)]
        ours, theirs = (["-" if code < 0 else each.texts[code] for code in each.codes] for each in countries)
        assert ours == theirs
        assert len(set(ours)) == 4


def test_the_time_of_the_log_is_none_that_files_to_be_scored_must_have(tmp_path):
    log = {"user": [1, 1, 2], "item": [7, 8, 7], "click": [1, 0, 1], "conversion": [1, 0, 0]}
    shown = pa.array([1, 2, 3], pa.timestamp("s"))
    pyarrow.parquet.write_table(pa.table({**log, "shown": shown}), tmp_path / "log.parquet")
    pyarrow.parquet.write_table(pa.table(log), tmp_path / "test.parquet")
    options = {"space": "impressions", "conversion": "conversion", "features": "auto"}
    found = files(tmp_path, train="log.parquet", test="test.parquet", **options)
    assert found.facts["features_left_out"] == ["shown"]
    assert found.train.time == "shown"
    ignored = files(tmp_path, train="log.parquet", test="test.parquet", ignore=["shown"], **options)
    assert ignored.train.time is None


def test_auto_takes_no_column_that_files_to_be_scored_lack(tmp_path):
    log = {"user": [1, 1, 2], "item": [7, 8, 7], "click": [1, 0, 1], "conversion": [1, 0, 0]}
    shown = {"device": ["tv", "pc", "pc"], "price": [1.5, 2.5, 3.5]}
    pyarrow.parquet.write_table(
        pa.table({**log, **shown, "paid_at": [3, None, None]}), tmp_path / "log.parquet"
    )
    pairs = {name: values for name, values in {**log, **shown}.items() if name != "click"}
    pyarrow.parquet.write_table(pa.table(pairs), tmp_path / "test.parquet")
    options = {"space": "impressions", "conversion": "conversion", "train": "log.parquet"}
    found = files(tmp_path, test="test.parquet", features="auto", **options)
    assert [each.name for each in found.train.features.declared] == ["device", "price"]
    assert found.facts["features_left_out"] == ["paid_at"]
    sampled = files(tmp_path, unbiased="test.parquet", features="auto", **options)
    assert sampled.facts["features_left_out"] == ["paid_at"]
    with pytest.raises(DataError, match="paid_at"):
        files(tmp_path, test="test.parquet", features=["auto", "paid_at"], **options)


@pytest.mark.parametrize("click", [{}, {"click": [1, 1, 1, 1]}])
def test_rows_to_judge_impressions_by_may_all_be_known_and_a_pair_may_come_twice(tmp_path, click):
    """A random sample of clicked impressions is what an ads log leaves of random traffic."""
    log = {"user": [1, 1, 2, 2], "item": [1, 2, 1, 2], "click": [1, 0, 1, 1], "r": [1, 0, 0, 1]}
    write_csv(pa.table(log), tmp_path / "log.csv")
    known = {"user": [1, 1, 2, 2], "item": [2, 2, 1, 1], **click, "r": [0, 1, 0, 0]}
    write_csv(pa.table(known), tmp_path / "test.csv")
    columns = {"conversion": "r", "space": "impressions"}
    for role in ("test", "unbiased"):
        found = load_by_name("files", tmp_path, train="log.csv", **{role: "test.csv"}, **columns)
        judged = getattr(found, role)
        assert (judged.space, len(judged), judged.n_clicks) == ("impressions", 4, 4)
        assert judged.known_conversion().tolist() == [0, 1, 0, 0]
    with pytest.raises(DataError, match="no row of the population is clicked"):
        Log.from_arrays(
            user=[1, 2], item=[1, 1], click=[0, 0], conversion=[0, 0], space="impressions", all_known=True
        )
