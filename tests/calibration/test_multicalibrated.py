"""Multicalibrated: beats Platt by segment where segments are off, and stays with Platt where nothing is."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.optimize import minimize

import unskew as us
from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.calibration import Multicalibrated, Platt, calibrator_from_dict, load_calibrator
from unskew.calibration.segment_terms import LEAST_GAIN, Base, Boosting, merged_cells
from unskew.metrics.sketch import CalibrationSketch

COUNTRIES = ["de", "fr", "it", "es", "pl"]


def world(rows, seed=0, *, rate=0.05, wrong="levels"):
    """Scores that Platt puts right, unless ``wrong``: then by country, and by device for the young."""
    random = np.random.default_rng(seed)
    z = random.normal(0.0, 1.0, rows) + np.log(rate / (1 - rate))
    features = {
        "country": random.choice(COUNTRIES, rows, p=[0.4, 0.25, 0.2, 0.1, 0.05]),
        "device": random.integers(0, 4, rows),
        "age": random.normal(40, 12, rows),
    }
    eta = 0.8 * z - 0.2
    country = np.searchsorted(sorted(COUNTRIES), features["country"])
    if wrong == "levels":
        eta += np.array([0.6, -0.3, -0.7, 0.0, 0.9])[country]
        eta += 0.8 * ((features["device"] == 1) & (features["age"] < 35))
    elif wrong == "slopes":
        middle = np.log(rate / (1 - rate))
        eta = middle + np.array([0.3, 1.0, 1.5, 0.8, 1.2])[country] * (z - middle)
        eta += 0.4 * (features["device"] - 1.5)
    truth = 1 / (1 + np.exp(-eta))
    return 1 / (1 + np.exp(-z)), random.random(rows) < truth, features, truth


def expected_loss(probability, truth):
    """What the held-out NLL is on average over outcomes."""
    return -np.mean(truth * np.log(probability) + (1 - truth) * np.log1p(-probability))


def worst_wce(probability, truth, features):
    """The largest weight-calibration error of a value of a column, in five bins, without noise."""
    found = []
    for column in (features["country"], features["device"], features["age"] > 35):
        for value in np.unique(column):
            p, q = probability[column == value], truth[column == value]
            bins = np.searchsorted(np.quantile(p, [0.2, 0.4, 0.6, 0.8]), p)
            off = np.array([(q[bins == b] / p[bins == b]).mean() - 1 for b in range(5)])
            found.append(np.sqrt((off**2).mean()))
    return max(found)


def platt_by_segment(score, outcome, segment, new_score, new_segment):
    """Return the probabilities of a map fitted on each segment alone."""
    found = np.empty(len(new_score))
    for value in np.unique(new_segment):
        platt = Platt().fit(score[segment == value], outcome[segment == value])
        found[new_segment == value] = platt.predict(new_score[new_segment == value])
    return found


@pytest.mark.parametrize("wrong", ["levels", "slopes"])
@pytest.mark.parametrize("rate", [0.3, 0.05])
def test_beats_platt_by_segment_where_segments_are_off(wrong, rate):
    new_score, _, new, truth = world(40_000, 99, rate=rate, wrong=wrong)
    loss, worst = {}, {}
    for seed in range(3):
        score, outcome, features, _ = world(20_000, seed, rate=rate, wrong=wrong)
        multi = Multicalibrated().fit(score, outcome, features=features)
        assert multi.gain_ > 3 * multi.gain_error_ > 0
        found = {"multi": multi.predict(new_score, new)}
        for column in ("country", "device", "both"):
            of, new_of = (
                np.char.add(each["country"], each["device"].astype(str)) if column == "both" else each[column]
                for each in (features, new)
            )
            found[column] = platt_by_segment(score, outcome, of, new_score, new_of)
        for name, probability in found.items():
            loss.setdefault(name, []).append(expected_loss(probability, truth))
            worst.setdefault(name, []).append(worst_wce(probability, truth, new))
    for name in ("country", "device", "both"):
        assert np.less(loss["multi"], loss[name]).all()
        assert np.mean(worst["multi"]) < np.mean(worst[name])


@pytest.mark.parametrize(
    ("rows", "rate", "seeds"),
    [
        (100, 0.5, 8),
        (1000, 0.5, 4),
        (1000, 0.05, 4),
        (10_000, 0.05, 2),
        (10_000, 0.001, 3),
        (100_000, 0.01, 1),
    ],
)
def test_is_never_worse_than_platt_beyond_noise_where_nothing_is_wrong(rows, rate, seeds):
    new_score, _, new, truth = world(20_000, 99, rate=rate, wrong="nothing")
    best = expected_loss(truth, truth)
    worse, platt_costs = [], []
    for seed in range(seeds):
        score, outcome, features, _ = world(rows, seed, rate=rate, wrong="nothing")
        platt = expected_loss(Platt().fit(score, outcome).predict(new_score), truth)
        multi = Multicalibrated().fit(score, outcome, features=features).predict(new_score, new)
        worse.append(expected_loss(multi, truth) - platt)
        platt_costs.append(platt - best)
    # Noise: what two parameters that were learned from so many rows cost Platt itself.
    assert np.mean(worse) <= max(np.mean(platt_costs), 1 / rows)


def test_the_order_of_rows_and_the_seed_decide_nothing_else():
    score, outcome, features, _ = world(3000)
    order = np.random.default_rng(3).permutation(3000)
    straight = Multicalibrated().fit(score, outcome, features=features)
    shuffled = Multicalibrated().fit(
        score[order], outcome[order], features={name: each[order] for name, each in features.items()}
    )
    again = Multicalibrated().fit(score, outcome, features=features)
    assert straight.rounds_ > 0
    np.testing.assert_allclose(
        shuffled.predict(score, features), straight.predict(score, features), rtol=1e-9
    )
    assert again.to_dict() == straight.to_dict()


def test_text_numbers_frames_and_matrices_are_columns():
    pd = pytest.importorskip("pandas")
    score, outcome, features, _ = world(4000)
    multi = Multicalibrated(segments=("country", "device")).fit(score, outcome, features=features)
    assert [(each.name, each.kind) for each in multi.columns_] == [("country", "text"), ("device", "whole")]
    expected = multi.predict(score, features)
    np.testing.assert_array_equal(multi.predict(score, pd.DataFrame(features)), expected)
    codes = np.searchsorted(sorted(COUNTRIES), features["country"])
    matrix = np.column_stack([codes, features["device"]])
    numbered = Multicalibrated(segments=("country", "device")).fit(score, outcome, features=matrix)
    np.testing.assert_allclose(numbered.predict(score, matrix), expected, rtol=1e-9)
    one = Multicalibrated().fit(score, outcome, features=features["country"].tolist())
    assert [each.name for each in one.columns_] == ["segment"]


def test_what_was_never_seen_gets_what_is_known_of_the_rest():
    score, outcome, features, _ = world(20_000)
    multi = Multicalibrated(rounds=1).fit(score, outcome, features={"country": features["country"]})
    z = np.log(0.1 / 0.9)
    common = 1 / (1 + np.exp(-(multi.common_slope_ * z + multi.common_intercept_)))
    np.testing.assert_allclose(multi.predict([0.1], {"country": ["xx"]}), common, rtol=1e-12)
    np.testing.assert_allclose(multi.predict(score), Platt().fit(score, outcome).predict(score), rtol=1e-9)
    both = Multicalibrated().fit(score, outcome, features=features)
    odd = {"country": [None, "nowhere"], "device": [99, -1], "age": [np.nan, np.inf]}
    found = both.predict([0.1, 0.1], odd)
    assert ((found > 0) & (found < 1)).all()


def test_a_segment_of_one_class_and_a_constant_score_are_no_harm():
    random = np.random.default_rng(0)
    segment = random.choice(["never", "some", "always"], 6000)
    rate = np.select([segment == "never", segment == "some"], [0.0, 0.3], 1.0)
    outcome = random.random(6000) < rate
    multi = Multicalibrated().fit(np.full(6000, 0.2), outcome, features={"segment": segment})
    never, some, always = multi.predict([0.2] * 3, {"segment": ["never", "some", "always"]})
    assert 1e-4 < never < 0.02
    assert some == pytest.approx(0.3, abs=0.03)
    assert 0.98 < always < 1 - 1e-4


def test_weights_undo_sampled_negatives():
    score, outcome, features, _ = world(40_000)
    multi = Multicalibrated().fit(score, outcome, features=features)
    kept = outcome | (np.random.default_rng(1).random(40_000) < 0.25)
    some = {name: each[kept] for name, each in features.items()}
    weight = np.where(outcome[kept], 1.0, 4.0)
    sampled = Multicalibrated().fit(score[kept], outcome[kept], weight, features=some)
    ratio = np.log(sampled.predict(score, features) / multi.predict(score, features))
    assert abs(ratio.mean()) < 0.06
    assert ratio.std() < 0.15


def test_monotone_in_the_score_for_any_features():
    random = np.random.default_rng(0)
    score = random.uniform(0.05, 0.95, 8000)
    features = {"a": random.integers(0, 3, 8000), "b": random.integers(0, 3, 8000)}
    backwards = (features["a"] == 0) | (features["b"] == 0)
    outcome = random.random(8000) < np.where(backwards, 0.8 - 0.7 * score, score)
    grid = np.linspace(0, 1, 2001)
    for monotone in (True, False):
        multi = Multicalibrated(monotone=monotone).fit(score, outcome, features=features)
        falls = [
            np.diff(multi.predict(grid, {"a": np.full(2001, a), "b": np.full(2001, b)})).min() < -1e-12
            for a in range(4)
            for b in range(4)
        ]
        assert multi.rounds_ > 0
        assert any(falls) is not monotone
    saved = json.loads(
        json.dumps(Multicalibrated(monotone=True).fit(score, outcome, features=features).to_dict())
    )
    assert calibrator_from_dict(saved).monotone is True


def test_every_step_raises_the_penalised_likelihood_and_ends_at_its_optimum():
    random = np.random.default_rng(0)
    code = random.integers(0, 3, (1, 5000))
    score = random.uniform(0.05, 0.6, 5000)
    outcome = (random.random(5000) < score ** np.array([0.7, 1.0, 1.5])[code[0]]).astype(float)
    cells = merged_cells(code, [3], np.arange(5000), score, np.ones(5000), outcome)
    base = Base.of(cells, 20.0)
    boosting = Boosting(cells, [3], base)
    values = [-np.inf]
    while boosting.step():
        likelihood = cells.positive @ boosting.eta - cells.total @ np.logaddexp(0, boosting.eta)
        values.append(likelihood - base.prior / 2 * (boosting.terms[(0,)].value ** 2).sum())
    assert np.diff(values).min() > 0

    start = base.slope * np.log(score / (1 - score)) + base.intercept
    t = base.scaled(np.log(score / (1 - score)))

    def negative(flat):
        level, slope = flat[2:].reshape(2, 3)
        eta = start + flat[0] + flat[1] * t + level[code[0]] + slope[code[0]] * t
        return -(outcome @ eta - np.logaddexp(0, eta).sum() - base.prior / 2 * (flat[2:] ** 2).sum())

    assert -minimize(negative, np.zeros(8)).fun - values[-1] < 2 * LEAST_GAIN


def test_saves_as_json_and_loads_to_the_last_bit(tmp_path):
    score, outcome, features, _ = world(5000)
    multi = us.Multicalibrated(segments=("country", "age")).fit(score, outcome, features=features)
    multi.save(tmp_path / "calibrator.json")
    loaded = load_calibrator(tmp_path / "calibrator.json")
    assert isinstance(loaded, Multicalibrated)
    assert loaded.get_params() == multi.get_params()
    assert loaded.to_dict() == multi.to_dict()
    np.testing.assert_array_equal(loaded.predict(score, features), multi.predict(score, features))


def damaged(saved, path, value):
    told = json.loads(json.dumps(saved))
    part = told["learned"]
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return told


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("terms_", 0, "columns"), [7]),
        (("terms_", 0, "columns"), []),
        (("terms_", 0, "value"), [[0.0], [0.0]]),
        (("terms_", 0, "value", 0, 0), float("nan")),
        (("terms_",), "x"),
        (("columns_", 0, "values"), ["b", "a"]),
        (("columns_", 0, "values"), [1, 2]),
        (("columns_", 0, "kind"), "colour"),
        (("columns_",), None),
        (("spread_",), 0.0),
        (("score_edges_",), 1.0),
        (("slope_",), "x"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(path, value):
    score, outcome, features, _ = world(5000)
    multi = Multicalibrated(segments=("country",)).fit(score, outcome, features=features)
    assert multi.terms_
    with pytest.raises(RunFolderError, match="the saved multicalibrated calibrator is damaged") as error:
        calibrator_from_dict(damaged(multi.to_dict(), path, value))
    assert "\n" not in str(error.value)


def test_bad_input_is_told_in_one_line():
    score, outcome, features, _ = world(300)
    fit = Multicalibrated().fit
    with pytest.raises(DataError, match=r"reads features, and none are given.*features="):
        fit(score, outcome)
    with pytest.raises(DataError, match="a sketch does not tell its features"):
        fit(CalibrationSketch.of(score=score, outcome=outcome), features=features)
    with pytest.raises(DataError, match=r"column 'a'.*shape \(2,\) where score has 300 rows"):
        fit(score, outcome, features={"a": [1, 2]})
    with pytest.raises(DataError, match=r"no column 'city'.*country"):
        Multicalibrated(segments=("city",)).fit(score, outcome, features=features)
    with pytest.raises(DataError, match="features has no column"):
        fit(score, outcome, features={})
    with pytest.raises(DataError, match=r"column 'when'.*datetime64"):
        fit(score, outcome, features={"when": np.zeros(300, "datetime64[s]")})
    with pytest.raises(DataError, match=r"row 0.*|score"):
        fit(score + 2, outcome, features=features)
    with pytest.raises(DataError, match="one class only"):
        fit(score, np.zeros(300), features=features)
    multi = fit(score, outcome, features=features)
    with pytest.raises(DataError, match=r"column 'country'.*int64 here and were text"):
        multi.predict([0.5], {"country": [1], "device": [1], "age": [1.0]})
    with pytest.raises(DataError, match="no column 'device'"):
        multi.predict([0.5], {"country": ["de"]})
    for wrong, message in (
        ({"strength": 0.0}, "strength must be above 0"),
        ({"rounds": -1}, "rounds must be at least 0"),
        ({"folds": 1}, "folds must be at least 2"),
        ({"segments": ()}, "segments must name columns"),
        ({"segments": ("a", "a")}, "segments must name columns"),
    ):
        with pytest.raises(ParameterError, match=message):
            Multicalibrated(**wrong).fit(score, outcome, features=features)
