"""Weights of rows for models that are not ours."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

import unskew as us
from unskew import losses
from unskew.base.errors import DataError, ParameterError
from unskew.metrics import least_error_clip

CLICK, P = np.array([1, 0, 1, 1, 0]), np.array([0.5, np.nan, 0.02, 0.25, 0.3])


def test_the_weighted_sum_of_losses_is_the_ips_loss():
    logit, conversion = (
        torch.tensor([0.3, -1.0, 2.0, 0.1, 0.7]),
        torch.tensor([1.0, torch.nan, 0, 1, torch.nan]),
    )
    weight = torch.tensor(us.sample_weight(CLICK, P, p_min=None)).float()
    error = losses.cross_entropy(torch.nan_to_num(conversion), logit)
    expected = losses.ips(conversion, logit, torch.tensor(P).float(), click=torch.tensor(CLICK))
    torch.testing.assert_close((weight * error).mean(), expected)


@pytest.mark.parametrize(
    ("method", "weight"),
    [
        ("naive", lambda p: np.ones_like(p)),
        ("ips", lambda p: 1 / p),
        ("snips", lambda p: 1 / p),
        ("dr-jl", lambda p: 1 / p),
        ("mrdr", lambda p: (1 - p) / p**2),
        ("dr-bias", lambda p: (1 - p) ** 2 / p**3),
        ("dr-mse", lambda p: ((1 - p) ** 2 / p**3 + (1 - p) / p**2) / 2),
    ],
)
def test_weights_are_their_formulas_and_have_mean_one_where_asked_to(method, weight):
    clicked = CLICK == 1
    expected = weight(P[clicked])
    plain = us.sample_weight(CLICK, P, method=method, p_min=None, normalise=False)
    np.testing.assert_allclose(plain[clicked], expected)
    assert not plain[~clicked].any()
    normalised = us.sample_weight(CLICK, P, method=method, p_min=None, normalise=True)
    np.testing.assert_allclose(normalised[clicked], expected / expected.mean())
    by_default = us.sample_weight(CLICK, P, method=method, p_min=None)
    np.testing.assert_array_equal(by_default, plain if method in ("naive", "ips") else normalised)


def test_clips_by_a_number_or_by_the_least_error():
    assert us.sample_weight(CLICK, P, p_min=0.1).max() == pytest.approx(10)
    p = np.array([0.02] * 500 + [1e-7])
    assert us.sample_weight(None, p).max() == pytest.approx(1 / least_error_clip(propensity=p))


def test_takes_columns_of_any_library_and_one_number():
    expected = us.sample_weight(CLICK, P, p_min=0.1)
    for kind in (pytest.importorskip("pandas").Series, torch.tensor, list):
        np.testing.assert_array_equal(us.sample_weight(kind(CLICK), kind(P), p_min=0.1), expected)
    arrow = us.sample_weight(pa.array(CLICK == 1), pa.array(np.nan_to_num(P)), p_min=0.1)
    np.testing.assert_array_equal(arrow, expected)
    np.testing.assert_array_equal(us.sample_weight(CLICK, 0.5), 2.0 * CLICK)
    np.testing.assert_array_equal(us.sample_weight(None, [0.5, 0.25], p_min=None), [2, 4])


@pytest.mark.parametrize(
    ("click", "propensity", "options", "message"),
    [
        ([1, 0], [0.5, 0.5], {"method": "dr"}, "there are no weights 'dr'.*use one of naive, ips"),
        ([1, 2], [0.5, 0.5], {}, "click, row 1: click is 2, not 0 or 1"),
        ([0, 0], [0.5, 0.5], {}, "no row is clicked"),
        ([1, 0], [0.5], {}, "1 propensities for 2 rows"),
        ([0, 1], [0.5, 1.5], {}, r"propensity, row 1: the propensity of a click is 1.5, not in \[0, 1\]"),
        ([0, 1], [0.5, np.nan], {}, "propensity, row 1: the propensity of a click is nan"),
        ([0, 1], [0.5, 0.0], {"p_min": None}, r"is 0, not in \(0, 1\]"),
        ([0, 1], [0.5, 0.5], {"p_min": 2.0}, "p_min must be 'auto' or a number"),
        (None, 0.5, {}, "there are no rows.*give click="),
    ],
)
def test_mistakes_are_named(click, propensity, options, message):
    with pytest.raises((DataError, ParameterError), match=message):
        us.sample_weight(click, propensity, **options)
