"""KuaiRand-Pure in its official format, written small."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.dataset_contract import DatasetContract
from unskew.base.errors import DataError, ParameterError
from unskew.data.datasets import load as load_by_name

LOG_HEADER = (
    "user_id,video_id,date,hourmin,time_ms,is_click,is_like,is_follow,is_comment,is_forward,is_hate,long_view,"
    "play_time_ms,duration_ms,profile_stay_time,comment_stay_time,is_profile_enter,is_rand,tab"
)
USER_HEADER = (
    "user_id,user_active_degree,is_lowactive_period,is_live_streamer,is_video_author,follow_user_num,"
    "follow_user_num_range,fans_user_num,fans_user_num_range,friend_user_num,friend_user_num_range,register_days,"
    "register_days_range," + ",".join(f"onehot_feat{k}" for k in range(18))
)
VIDEO_HEADER = (
    "video_id,author_id,video_type,upload_dt,upload_type,visible_status,video_duration,server_width,server_height,"
    "music_id,music_type,tag"
)
STATISTIC_HEADER = "video_id,counts,show_cnt,play_cnt"
FIRST, SECOND = "log_standard_4_08_to_4_21_pure.csv", "log_standard_4_22_to_5_08_pure.csv"
RANDOM = "log_random_4_22_to_5_08_pure.csv"
N_USERS, N_VIDEOS = 6, 12


def event(user, video, date, click, is_rand=0):
    return f"{user},{video},{date},1600,{date}0000,{click},0,0,0,0,0,{click},1500,87433,0,0,0,{is_rand},1"


def write(folder, version="pure"):
    """Six users, twelve videos; video 11 is never in the standard logs; user 0 saw video 0 three times."""
    first = [event(0, 0, 20220408, 0), event(0, 0, 20220409, 1), event(0, 1, 20220409, 0)]
    first += [event(user, 2 * user % 11, 20220415, user % 2) for user in range(1, N_USERS)]
    second = [event(0, 0, 20220423, 0), *(event(user, 10 - user, 20220425, 1) for user in range(N_USERS))]
    at_random = [event(0, 0, 20220423, 1, 1), event(1, 5, 20220424, 0, 1), event(1, 5, 20220430, 1, 1)]
    at_random += [
        event(user, video, 20220501, (user + video) % 2, 1)
        for user in range(N_USERS)
        for video in (3, 7, 11)
        if (user, video) != (3, 7)
    ]
    users = [
        f'{user},{"full_active" if user % 2 else "UNKNOWN"},0,0,1,{user},"(0,10]",3,"[1,10)",0,0,3624,730+,'
        + ",".join("" if k == 4 and user == 2 else str(k) for k in range(18))
        for user in range(N_USERS)
    ]
    videos = [
        f"{video},{8_839_734 - video},NORMAL,2020-07-{10 + video},Short,1,17200.0,72,128,989206467{video},4,"
        + ('"12,65"' if video else "")
        for video in range(N_VIDEOS)
        if video != 9
    ]
    statistics = [f"{video},66,75.212,{video}.5" for video in range(N_VIDEOS)]
    folder.mkdir(parents=True, exist_ok=True)
    for name, header, lines in (
        (FIRST, LOG_HEADER, first),
        (SECOND, LOG_HEADER, second),
        (RANDOM, LOG_HEADER, at_random),
        ("user_features_pure.csv", USER_HEADER, users),
        ("video_features_basic_pure.csv", VIDEO_HEADER, videos),
        ("video_features_statistic_pure.csv", STATISTIC_HEADER, statistics),
    ):
        place = folder / name.replace("pure", version)
        place.write_text("\n".join([header, *lines]) + "\n")
    return folder


class TestKuaiRand(DatasetContract):
    name = "kuairand"

    @pytest.fixture
    def load(self, tmp_path):
        write(tmp_path / "data")
        return lambda **options: load_by_name("kuairand", tmp_path, **options)

    def test_repeated_pairs_count_once_clicked_if_ever(self, load):
        data = load()
        assert (data.facts["repeated_rows_train"], data.facts["repeated_rows_random"]) == (2, 1)
        assert len(data.train) == 15 - 2
        first = (data.train.user == 0) & (data.train.item == 0)
        assert data.train.conversion[first].tolist() == [1]
        assert data.train.n_clicks == len(data.train)

    def test_the_population_is_the_union_of_all_logs(self, load):
        data = load()
        assert (data.train.n_users, data.train.users.ids.tolist()) == (N_USERS, list(range(N_USERS)))
        assert 11 in data.train.items.ids
        assert data.facts["items_never_in_train"] == len(data.train.items) - len(np.unique(data.train.item))
        assert data.facts["items_never_in_train"] >= 1

    def test_the_random_log_is_split_by_pairs(self, load):
        data = load(protocol="paper", validation_share=0.25)
        assert (len(data.validation), len(data.test)) == (5, 14)
        pairs = np.sort(np.concatenate([data.validation.cell, data.test.cell]))
        assert len(np.unique(pairs)) == 19
        other = load(protocol="paper", validation_share=0.25, seed=1)
        assert not np.array_equal(np.sort(other.validation.cell), np.sort(data.validation.cell))
        np.testing.assert_array_equal(
            np.sort(np.concatenate([other.validation.cell, other.test.cell])), pairs
        )

    def test_overlap_in_time_is_told_and_can_be_avoided(self, load):
        facts = load().facts
        assert facts["train_rows_from_days_of_random_log"] == 7
        assert (facts["days_of_train"], facts["days_of_random_log"]) == (
            [20220408, 20220425],
            [20220423, 20220501],
        )
        assert facts["has_official_size"] is False
        before = load(standard="first")
        assert before.facts["train_rows_from_days_of_random_log"] == 0
        assert len(before.train) == 8 - 1

    def test_features_follow_the_ids(self, load):
        data = load(features="auto", statistics=True)
        train, values = data.train, data.train.features.values
        users, videos = (np.asarray(each.ids) for each in (train.users, train.items))
        np.testing.assert_array_equal(values["follow_user_num"].values, users)
        plays = values["play_cnt"].values
        known = ~np.isnan(plays)
        assert known.sum() >= 9
        np.testing.assert_array_equal(plays[known], videos[known] + 0.5)

    def test_networks_read_each_feature_as_what_it_is(self, load):
        data = load(features="auto", ignore=["music_id"])
        fields = {field.name: (field.kind, field.role) for field in data.train.schema.features}
        assert fields["user_active_degree"] == fields["onehot_feat4"] == ("category", "user")
        assert fields["follow_user_num"] == ("number", "user")
        assert fields["author_id"] == ("category", "item")
        assert fields["video_duration"] == ("number", "item")
        assert fields["tag"] == ("bag", "item")
        assert not {"music_id", "upload_dt", "user_id", "is_click", "show_cnt"} & fields.keys()
        assert data.train.user_features is None
        for log in (data.test, data.validation):
            assert log.features.declared == data.train.features.declared
        assert "show_cnt" in {field.name for field in load(features="auto", statistics=True).train.schema}

    def test_files_of_features_are_needed_where_features_are_asked_for(self, load, tmp_path):
        (tmp_path / "data" / "user_features_pure.csv").unlink()
        assert load().train.features is None
        with pytest.raises(DataError, match=r"user_features_pure\.csv missing"):
            load(features="auto")


def test_the_version_of_a_thousand_people_is_read_by_its_names(tmp_path):
    write(tmp_path / "KuaiRand-1K/data", "1k")
    data = load_by_name("kuairand", tmp_path, version="1k")
    assert (data.train.n_users, data.facts["version"]) == (N_USERS, "1k")
    with pytest.raises(DataError, match=rf"{FIRST}, .* missing"):
        load_by_name("kuairand", tmp_path)
    with pytest.raises(ParameterError, match="version must be 'pure' or '1k', not '27k'"):
        load_by_name("kuairand", tmp_path, version="27k")


def test_what_people_did_after_the_click_is_in_no_log(tmp_path):
    write(tmp_path)
    assert list(load_by_name("kuairand", tmp_path).train.columns) == ["time_ms"]


@pytest.mark.parametrize("place", [".", "data", "KuaiRand-Pure/data"])
def test_the_folder_is_found_where_the_archive_puts_it(tmp_path, place):
    write(tmp_path / place)
    assert load_by_name("kuairand", tmp_path).train.n_users == N_USERS


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        (RANDOM, lambda text: LOG_HEADER + "\n", r"random.*\.csv: the file has no rows"),
        (
            FIRST,
            lambda text: text.replace("is_click", "clicked"),
            r"4_21_pure\.csv: .*'is_click' in include_columns does not exist",
        ),
        (
            RANDOM,
            lambda text: text.replace("1,5,20220424", "one,5,20220424"),
            r"log_random.*Row #3: CSV conversion error to int64: invalid value 'one'",
        ),
        (
            RANDOM,
            lambda text: text.replace("1,5,20220424,1600,202204240000,0", "1,5,20220424,1600,202204240000,4"),
            r"log_random.*, column 'is_click', row 1: is_click is value 4, not 0 or 1",
        ),
        (
            "user_features_pure.csv",
            lambda text: text + text.splitlines()[-1] + "\n",
            r"user_features_pure\.csv: a user_id is listed twice",
        ),
    ],
)
def test_a_damaged_file_is_named(tmp_path, name, damage, message):
    path = write(tmp_path) / name
    path.write_text(damage(path.read_text()))
    with pytest.raises(DataError, match=message) as caught:
        load_by_name("kuairand", tmp_path, features="auto")
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"standard": "second"}, "standard must be 'all' or 'first', not 'second'"),
        ({"validation_share": 1}, "validation_share must be in"),
    ],
)
def test_impossible_options_are_refused(tmp_path, options, message):
    with pytest.raises(ParameterError, match=message):
        load_by_name("kuairand", tmp_path, **options)
