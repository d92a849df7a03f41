"""How many random impressions tell two models apart: the plan keeps what it promises."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.cli import main
from unskew.metrics.user_bootstrap import paired_users

SLATE = 6


def world(users, seed):
    """Random rows: users, the predictions of a good and of a poorer model, outcomes."""
    random = np.random.default_rng(seed)
    user = np.repeat(np.arange(users), SLATE)
    signal = random.normal(size=users)[user] + random.normal(size=len(user))
    outcome = (random.random(len(user)) < 1 / (1 + np.exp(0.5 - signal))).astype(float)
    good, poor = (
        1 / (1 + np.exp(0.5 - signal - noise * random.normal(size=len(user)))) for noise in (0.4, 0.8)
    )
    return {"user": user, "first": good, "second": poor, "outcome": outcome}


def planned(rows, **options):
    return us.plan_random(
        rows["first"], rows["second"], user=rows["user"], conversion=rows["outcome"], **options
    )


@pytest.mark.parametrize("metric", ["nll", "auc", "dcg@2"])
def test_as_many_impressions_as_planned_tell_the_difference_as_often_as_planned(metric):
    truth = paired_users(metric, **world(8_000, 1)).advantage
    plan = planned(world(1_500, 2), metrics=[metric], differences={metric: truth}).plans[metric]
    users = round(plan.users)
    told = [paired_users(metric, **world(users, 10 + trial)) for trial in range(100)]
    share = np.mean([each.p_value < 0.025 for each in told])
    assert share == pytest.approx(0.8, abs=0.13)
    assert plan.impressions == users * SLATE


def test_a_quarter_of_the_difference_takes_sixteen_times_the_impressions_and_the_money():
    rows = world(400, 3)
    near, far = (
        planned(rows, metrics=["auc"], differences={"auc": each}, price=0.5) for each in (0.01, 0.04)
    )
    assert near.plans["auc"].impressions == pytest.approx(16 * far.plans["auc"].impressions, rel=0.01)
    assert near.plans["auc"].cost == 0.5 * near.plans["auc"].impressions
    place = near.sizes.index(10_000)
    assert near.detectable["auc"][place] == far.detectable["auc"][far.sizes.index(10_000)]
    assert "10,000" in str(near)
    assert near.svg().startswith("<svg")


def test_logs_that_show_the_difference_say_who_is_ahead_and_how_small_it_may_be():
    plan = planned(world(1_500, 4))
    assert [each.better for each in plan.plans.values()] == ["first"] * 3
    assert all(each.impressions < each.impressions_at_low < math.inf for each in plan.plans.values())
    assert "first ahead" in plan.verdicts[0]
    assert plan.to_markdown().count("\n| nll |") == 1


def test_rows_by_propensity_stand_for_random_ones():
    """Rows with a high signal are seen more often: weighted, the plan is that of random rows."""
    rows = world(8_000, 5)
    p = np.clip(rows["first"], 0.05, 0.95)
    kept = np.random.default_rng(6).random(len(p)) < p
    seen = {name: values[kept] for name, values in rows.items()}
    plain, weighted = (planned(seen, metrics=["nll"], propensity=each) for each in (None, p[kept]))
    right = planned(rows, metrics=["nll"]).plans["nll"].difference
    assert abs(weighted.plans["nll"].difference - right) < abs(plain.plans["nll"].difference - right)
    assert "drawn anew" in weighted.notes[0]


def test_without_outcomes_only_a_given_difference_is_planned():
    rows = world(400, 7)
    plan = us.plan_random(rows["first"], rows["second"], user=rows["user"], differences={"auc": 0.01})
    assert plan.plans["nll"].impressions is None
    assert plan.plans["auc"].impressions > 0
    assert "Give the difference that matters" in plan.verdicts[0]


def test_what_cannot_be_planned_is_one_line():
    rows = world(50, 8)
    with pytest.raises(ParameterError, match="power must be between 0 and 1"):
        planned(rows, power=1.0)
    with pytest.raises(ParameterError, match=r"-1 of auc cannot be planned for\. To fix: give a positive"):
        planned(rows, differences={"auc": -1})
    with pytest.raises(DataError, match="do not differ in nll"):
        planned({**rows, "second": rows["first"]})
    wrong = rows["second"].copy()
    wrong[3] = 1.5
    with pytest.raises(DataError, match=r"row 3: second: 1\.5 is not a probability"):
        planned({**rows, "second": wrong})
    with pytest.raises(DataError, match="not of the same rows"):
        planned({**rows, "second": rows["second"][1:]})


@pytest.fixture
def files(tmp_path):
    rows = world(300, 9)
    paths = []
    for name in ("first", "second"):
        columns = {"who": rows["user"], "item": np.arange(len(rows["user"])), "conversion": rows[name]}
        paths.append(tmp_path / f"{name}.parquet")
        pq.write_table(pa.table({**columns, "given_conversion": rows["outcome"]}), paths[-1])
    return paths


def test_the_command_plans_from_scored_files(files, tmp_path, capsys):
    outputs = {name: tmp_path / f"plan.{name}" for name in ("json", "md", "svg")}
    options = ["--user", "who", "--price", "0.01", "--json", str(outputs["json"])]
    options += ["--markdown", str(outputs["md"]), "--picture", str(outputs["svg"])]
    assert main(["plan-random", *map(str, files), *options]) == 0
    shown = capsys.readouterr().out
    figures = json.loads(outputs["json"].read_text())
    rows = world(300, 9)
    assert figures["metrics"]["nll"]["impressions"] == planned(rows).plans["nll"].impressions
    assert figures["models"] == ["first", "second"]
    assert figures["verdicts"][0][:20] in shown
    assert outputs["svg"].read_text().startswith("<svg")
    assert outputs["md"].read_text().startswith("Random impressions that tell first and second apart")


def test_files_of_other_rows_and_bad_options_are_refused(files, tmp_path, capsys):
    table = pq.read_table(files[1])
    pq.write_table(table.slice(1), tmp_path / "other.parquet")
    assert main(["plan-random", str(files[0]), str(tmp_path / "other.parquet"), "--user", "who"]) == 2
    assert "do not hold the same rows: column 'who' differs" in capsys.readouterr().err
    assert main(["plan-random", *map(str, files), "--user", "who", "--difference", "auc"]) == 2
    assert "is not KEY=VALUE" in capsys.readouterr().err
    assert main(["plan-random", *map(str, files), "--model", "ips"]) == 2
    assert "--model has no effect on scored files" in capsys.readouterr().err
    assert main(["plan-random", str(files[0]), str(tmp_path)]) == 2
    assert "not one of each" in capsys.readouterr().err
