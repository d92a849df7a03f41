"""Where the truth of impressions is known, a run says what weighting leaves, and why."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.report.findings import help_findings
from unskew.run.figures import confounding_figures

WORLD = {"n_rows": 40_000, "n_users": 800, "n_items": 100, "test_rows": 100}


@pytest.fixture(scope="module", params=[0.0, 2.0])
def world(request):
    return us.load("impressions", **WORLD, confounding=request.param)


def by_what_fields_hold(data):
    """P(click) without the taste: its logit less what a regression on the taste explains."""
    truth = data.row_truth["train"]
    logit = np.log(truth["true_click"] / (1 - truth["true_click"]))
    taste = truth["true_taste"]
    slope = np.cov(logit, taste)[0, 1] / taste.var()
    kept = 1 / (1 + np.exp(-(logit - slope * taste)))
    return kept * truth["true_click"].mean() / kept.mean()


def test_true_propensities_leave_nothing_and_the_clicks_alone_are_skewed(world):
    figures = confounding_figures(world, world.row_truth["train"]["true_click"])
    assert figures["true"] == figures["estimated"]
    assert abs(figures["true"]["times"] - 1) < 4 * figures["true"]["standard_error"]
    assert figures["clicked"]["times"] > 1 + 4 * figures["clicked"]["standard_error"]
    assert figures["true_rate"] == world.row_truth["train"]["true_conversion"].mean()


def test_a_hidden_taste_stays_whatever_the_fields_hold(world):
    figures = confounding_figures(world, by_what_fields_hold(world))
    said = help_findings({"confounding": figures}).text
    if world.facts["options"]["confounding"]:
        assert figures["estimated"]["times"] > 1.1
        assert "something that no field holds drives both clicks and conversions" in said
    else:
        assert said.endswith("The fields are enough to remove the bias.")


def test_without_a_hidden_taste_it_is_the_propensities_that_miss_something(world):
    figures = {**confounding_figures(world, np.full(len(world.train), 0.1)), "hidden": 0.0}
    said = help_findings({"confounding": figures}).text
    assert "The propensities miss some of what drives clicks" in said


def test_of_other_logs_nothing_is_said():
    assert "when weighted by the propensities" not in help_findings({}).text
