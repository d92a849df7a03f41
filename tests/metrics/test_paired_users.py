"""Two models on the same rows, by user: the metrics of ``evaluate``, and errors that hold."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.base.errors import ParameterError
from unskew.metrics import auc, nll, ranking_metrics
from unskew.metrics.user_bootstrap import paired_users


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(3)
    user = np.repeat(np.arange(200), 6)
    rate = 1 / (1 + np.exp(-(-0.5 + random.normal(size=200)[user] + random.normal(size=1200))))
    outcome = (random.random(1200) < rate).astype(float)
    return {
        "user": user,
        "outcome": outcome,
        "first": rate,
        "second": np.clip(rate + 0.2 * random.normal(size=1200), 0.01, 0.99),
    }


def test_advantages_are_differences_of_the_metrics_with_the_sign_of_better(rows):
    def each(metric, **of):
        if metric == "dcg@3":
            return ranking_metrics(user=rows["user"], ks=(3,), **of)[metric]
        return {"auc": auc, "nll": nll}[metric](**of)

    for metric, sign in (("nll", -1), ("auc", 1), ("dcg@3", 1)):
        first, second = (each(metric, outcome=rows["outcome"], score=rows[n]) for n in ("first", "second"))
        found = paired_users(metric, **rows)
        assert found.advantage == pytest.approx(sign * (first - second), abs=1e-12)
        assert found.influence.mean() == pytest.approx(0.0, abs=1e-9)
        assert found.p_value < 0.05
        swapped = paired_users(metric, **{**rows, "first": rows["second"], "second": rows["first"]})
        assert swapped.advantage == pytest.approx(-found.advantage)


@pytest.mark.parametrize("metric", ["nll", "auc", "dcg@3"])
def test_the_standard_error_is_that_of_resampled_users(rows, metric):
    random = np.random.default_rng(0)
    draws = []
    for _ in range(120):
        people = random.integers(200, size=200)
        take = (people[:, None] * 6 + np.arange(6)).ravel()
        sample = {name: values[take] for name, values in rows.items()}
        draws.append(paired_users(metric, **{**sample, "user": rows["user"]}).advantage)
    assert paired_users(metric, **rows).standard_error == pytest.approx(np.std(draws), rel=0.25)


def test_another_metric_is_refused(rows):
    with pytest.raises(ParameterError, match=r"paired by 'recall@2'. To fix: use one of nll, auc, dcg@K"):
        paired_users("recall@2", **rows)
