"""The default propensity: the one with the least held-out likelihood, by work that is counted, not timed."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import unskew as us
from unskew.base.errors import DataError, ParameterError, TrainingError
from unskew.propensity import make_propensity, registered_name
from unskew.propensity.choice import MOST_WORK
from unskew.propensity.network import LEAST_OF_ROW


def impressions(
    rows: int = 6000, users: int = 300, items: int = 100, *, additive: bool = True, seed: int = 0
):
    """Impressions that users click by habit and items by appeal alone, or by taste."""
    draw = np.random.default_rng(seed)
    user, item = draw.integers(0, users, rows), draw.integers(0, items, rows)
    habit, appeal = draw.normal(0, 0.8, users)[user], draw.normal(0, 0.8, items)[item]
    taste = 0.0 if additive else 4.0 * np.sign(np.sin(user) * np.cos(item))
    p = 1 / (1 + np.exp(2.0 - habit - appeal - taste))
    return us.Log.from_arrays(
        user=user,
        item=item,
        click=draw.random(rows) < p,
        space="impressions",
        columns={"theirs": p, "half": p / 2, "percent": 100 * p},
    )


@pytest.fixture(scope="module")
def log():
    return impressions()


def candidates(**network):
    return {
        "linear": us.Propensity(learner=us.Linear(), crossfit=2),
        "popularity": us.PopularityPropensity(crossfit=2),
        "mf": us.Propensity(learner=us.MF(dim=4), crossfit=2, **network),
    }


def test_on_an_additive_sparse_world_the_network_loses(log):
    choice = us.choose_propensity(log, candidates())
    assert choice.name in ("linear", "popularity")
    by_name = {each.name: each for each in choice.tried}
    assert by_name[choice.name].nll == min(each.nll for each in choice.tried)
    assert by_name["mf"].nll > by_name[choice.name].nll
    assert choice.sentence.startswith(f"propensity by {choice.name}, chosen by held-out NLL: 0.")
    assert "mf 0." in choice.sentence


def test_where_tastes_decide_the_network_is_chosen():
    tastes = impressions(rows=6000, users=60, items=40, additive=False)
    choice = us.choose_propensity(tastes, candidates(learning_rate=0.02))
    assert choice.name == "mf"


def test_with_times_candidates_are_judged_on_the_latest_rows_that_trained_none(log):
    """Fits on the earlier four fifths are compared; what is chosen is fitted on all rows."""
    when = np.datetime64("2026-01-01", "s") + np.arange(len(log))
    timed = replace(log, columns={**log.columns, "when": when}, time="when")
    kinds = {
        "linear": us.Propensity(learner=us.Linear(), crossfit=2),
        "popularity": us.PopularityPropensity(),
    }
    choice = us.choose_propensity(timed, kinds)
    late = when >= np.quantile(when.view(np.int64), 0.8, method="higher").astype("datetime64[s]")
    for tried in choice.tried:
        earlier = clone(kinds[tried.name]).fit(timed.take(~late), seeds=[0])
        score = earlier.predict(timed.take(late), average=True)
        assert tried.nll == pytest.approx(us.metrics.nll(score, timed.click[late]))
    assert "NLL on the latest 20 % of the log" in choice.sentence
    whole = clone(kinds[choice.name]).fit(timed, seeds=[0])
    np.testing.assert_array_equal(whole.predict(timed), choice.propensity.predict(timed))


def test_the_chosen_one_is_fitted_and_the_candidates_are_left_alone(log):
    given = candidates()
    choice = us.choose_propensity(log, given, seed=7)
    assert choice.propensity.seeds_ == (7,)
    assert not hasattr(given[choice.name], "scorer_")
    again = given[choice.name].fit(log, seeds=[7, 8])
    np.testing.assert_array_equal(again.predict_each(log)[0], choice.propensity.predict_each(log)[0])


def test_a_network_beyond_the_work_is_not_tried_and_that_is_told(log):
    work = candidates()["mf"].work(log)
    choice = us.choose_propensity(log, candidates(), most_work=work / 2)
    assert choice.tried[-1].nll is None
    assert choice.tried[-1].left_out.startswith("was not tried: ")
    assert "mf was not tried" in choice.sentence
    assert "(--propensity mf trains it all the same)" in choice.sentence
    said, limit = re.findall(r"[\d.]+(?:e[+-]\d+)?", choice.tried[-1].left_out)[:2]
    assert said != limit
    assert choice.to_dict()["chosen"] == choice.name


def test_work_is_rows_times_parameters():
    small, large = impressions(rows=2000), impressions(rows=4000)
    network = us.Propensity(learner=us.MF(dim=4), crossfit=5, epochs=10)
    assert network.work(large) == pytest.approx(2 * network.work(small), rel=1e-3)
    tables = 4 * (300 + 100) + 300 + 100 + 1
    a_row = LEAST_OF_ROW
    # Of five folds each trains on all but its own and a tenth of the rest.
    assert network.work(small) == pytest.approx(10 * 2000 * 5 * 0.7 * (a_row + tables / 1024), rel=0.02)
    assert us.Propensity().work(small) < MOST_WORK["cpu"]


def test_nothing_left_to_choose_is_an_error(log):
    network = {"mf": us.Propensity(learner=us.MF(), crossfit=2)}
    with pytest.raises(TrainingError, match=r"no propensity could be fitted: mf was not tried"):
        us.choose_propensity(log, network, most_work=1.0)
    with pytest.raises(ParameterError, match="there is no candidate"):
        us.choose_propensity(log, {})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("neumf", us.Propensity),
        ("mf", us.Propensity),
        ("linear", us.Propensity),
        ("popularity", us.PopularityPropensity),
        ("naive-bayes", us.NaiveBayesPropensity),
        ("naive_bayes", us.NaiveBayesPropensity),
        ("trees", us.Propensity),
    ],
)
def test_propensities_have_names(name, kind):
    assert type(make_propensity(name, crossfit=3)) is kind
    assert make_propensity(name, crossfit=3).crossfit == 3


def test_an_unknown_name_is_told():
    assert registered_name("theirs") is None
    with pytest.raises(ParameterError, match=r"unknown propensity 'lgbm'.*linear, trees, blend, popularity"):
        make_propensity("lgbm")


class TestColumn:
    def test_a_column_is_calibrated_out_of_fold(self, log):
        p = us.ColumnPropensity(column="half", crossfit=3).fit(log)
        figures = p.diagnose()
        assert figures["raw"]["mean_over_base_rate"] == pytest.approx(0.5, abs=0.05)
        assert figures["calibrated"]["mean_over_base_rate"] == pytest.approx(1.0, abs=0.02)
        both = p.predict_both_each(log)
        np.testing.assert_allclose(both.raw[0], log.columns["half"])
        assert both.calibrated[0].mean() == pytest.approx(log.density, rel=0.02)

    def test_what_cannot_be_used_is_told(self, log):
        with pytest.raises(DataError, match=r"the log has no column 'p'.*theirs, half, percent"):
            us.ColumnPropensity(column="p").fit(log)
        with pytest.raises(DataError, match=r"column 'percent', row \d+: .* not a probability"):
            us.ColumnPropensity(column="percent").fit(log)
        matrix = us.Log.from_arrays(
            user=[0, 0, 1], item=[0, 1, 0], conversion=[0, 1, 0], columns={"p": [0.1, 0.2, 0.3]}
        )
        with pytest.raises(DataError, match="tells nothing of pairs that the log does not list"):
            us.ColumnPropensity(column="p").fit(matrix)
