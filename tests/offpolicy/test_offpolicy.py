"""Off-policy estimates: the truth of a synthetic world, exact identities, and verdicts to be trusted."""

from __future__ import annotations

import doctest
import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit

import unskew as us
from unskew.base.errors import DataError, NotFittedError, ParameterError
from unskew.data import Log
from unskew.metrics import auc, nll
from unskew.metrics.ranking import user_ranking
from unskew.offpolicy.statistics import expected_gain
from unskew.theory import dr_estimate, ips_estimate, snips_estimate

METRICS = ("nll", "auc", "dcg@4", "hits@4")
SLATE = 16
REDRAWS = 80
USERS_EACH = 150


def log_of(click, labels, items=None):
    """A log of the clicked cells of a matrix, built without a second look: thousands of them are drawn."""
    user, item = np.nonzero(click)
    return Log(
        user=user.astype(np.int32),
        item=item.astype(np.int32),
        click=np.ones(len(user), dtype=np.uint8),
        conversion=labels[click].astype(np.float32),
        users=us.Vocabulary.range(len(click), name="user"),
        items=items or us.Vocabulary.range(click.shape[1], name="item"),
    )


def population_metrics(score, labels, unseen=None):
    """What a random test set would show on average, from the labels of all unseen pairs."""
    unseen = np.ones(score.shape, dtype=bool) if unseen is None else unseen
    above = np.where(unseen, -score, np.inf).argsort(axis=1).argsort(axis=1)[unseen]
    size = np.broadcast_to(unseen.sum(axis=1, keepdims=True), score.shape)[unseen]
    outcome = labels[unseen]
    found = {
        "nll": nll(score=score[unseen], outcome=outcome),
        "auc": auc(score=score[unseen], outcome=outcome),
    }
    for gain in ("dcg", "hits"):
        worth = expected_gain(above=above, others=size - 1, slate=SLATE, k=4, gain=gain)
        found[f"{gain}@4"] = float((worth * outcome * SLATE / size).sum() / len(score))
    return found


@pytest.fixture(scope="module")
def crowd():
    """Users enough for many redraws: each takes other people, so that users vary as well as clicks."""
    data = us.load("synthetic", n_users=REDRAWS * USERS_EACH, n_items=60, density=0.12, seed=1)
    truth, random = data.truth, np.random.default_rng(0)
    noise = random.standard_normal((4, *truth.conversion.shape))
    level = logit(truth.conversion)
    scores = {
        "good": expit(0.8 * level + 0.5 * noise[0] + 0.2),
        "twin": expit(0.8 * level + 0.5 * noise[1] + 0.2),
        "bad": expit(0.8 * level + 1.5 * noise[2] + 0.2),
    }
    clicks = random.random(truth.propensity.shape) < truth.propensity
    return truth, scores, clicks


@pytest.fixture(scope="module")
def ideal(crowd):
    truth, scores, _ = crowd
    return population_metrics(scores["good"], truth.labels)


def redraws(crowd):
    truth, scores, clicks = crowd
    for number in range(REDRAWS):
        people = slice(number * USERS_EACH, (number + 1) * USERS_EACH)
        yield (
            log_of(clicks[people], truth.labels[people]),
            truth.propensity[people],
            {name: score[people] for name, score in scores.items()},
        )


class TestTruth:
    @pytest.mark.parametrize("estimator", ["balanced", "snips", "ips", "dr"])
    def test_with_true_propensities_the_interval_covers_the_truth_as_often_as_it_says(
        self, crowd, ideal, estimator
    ):
        values, covered = {name: [] for name in METRICS}, {name: [] for name in METRICS}
        for log, propensity, score in redraws(crowd):
            told = us.off_policy_estimates(
                score["good"],
                log,
                propensity=propensity,
                estimator=estimator,
                gamma=1.0,
                held_out="all",
                p_min=1e-3,
                resamples=200,
            )
            for name in METRICS:
                values[name].append(told[name].value)
                covered[name].append(told[name].low <= ideal[name] <= told[name].high)
        for name in METRICS:
            error = np.std(values[name], ddof=1) / np.sqrt(REDRAWS)
            assert abs(np.mean(values[name]) - ideal[name]) < 3.5 * error, name
            # Fewer than 87 % of 80 intervals, at 95 % each, happen once in 300 times.
            assert np.mean(covered[name]) >= 0.87, name

    def test_a_model_that_remembers_its_clicks_is_judged_by_the_others(self):
        truth = us.load("synthetic", n_users=60, n_items=50, density=0.15, seed=1).truth
        random = np.random.default_rng(0)
        errors = {}
        for _ in range(50):
            click = random.random(truth.propensity.shape) < truth.propensity
            log = log_of(click, truth.labels)
            order = random.permutation(len(log))
            held, trained = np.split(order, [int(0.4 * len(log))])
            seen = np.zeros(click.shape, dtype=bool)
            seen[log.user[trained], log.item[trained]] = True
            score = np.where(seen, 0.01 + 0.98 * truth.labels, 0.8 * truth.conversion + 0.05)
            ideal = population_metrics(score, truth.labels, ~seen)
            for estimator in ("balanced", "snips", "ips", "dr"):
                told = us.off_policy_estimates(
                    score,
                    log,
                    propensity=truth.propensity,
                    estimator=estimator,
                    gamma=1.0,
                    held_out=held,
                    p_min=1e-3,
                    resamples=2,
                )
                for name in METRICS:
                    errors.setdefault((estimator, name), []).append(told[name].value - ideal[name])
        for of, line in errors.items():
            assert abs(np.mean(line)) < 3.5 * np.std(line, ddof=1) / np.sqrt(len(line)), of


@pytest.fixture(scope="module")
def world():
    return us.load("synthetic", n_users=60, n_items=40, density=0.15, seed=2)


@pytest.fixture(scope="module")
def score(world):
    return 0.7 * world.truth.conversion + 0.1


class TestIdentities:
    def estimates(self, score, world, **options):
        given = {"propensity": world.truth.propensity, "held_out": "all", "p_min": 1e-4, "resamples": 50}
        return us.off_policy_estimates(score, world.train, **{**given, **options})

    def test_the_loss_is_what_the_theory_estimates(self, world, score):
        truth = world.truth
        click = np.zeros(score.shape)
        click[world.train.user, world.train.item] = 1
        error = np.where(truth.labels == 1, -np.log(score), -np.log1p(-score))
        given = {"click": click, "propensity": truth.propensity, "error": error}
        imputed = -0.3 * np.log(score) - 0.7 * np.log1p(-score)
        for estimator, expected in (
            ("ips", ips_estimate(**given)),
            ("snips", snips_estimate(**given)),
            ("dr", dr_estimate(**given, imputed=imputed)),
        ):
            told = self.estimates(score, world, estimator=estimator, imputation=0.3, metrics=["nll"])
            assert told["nll"].value == pytest.approx(expected, rel=1e-10)

    def test_true_imputations_give_the_truth_with_any_propensities(self, world, score):
        labels = world.truth.labels.astype(float)
        told = self.estimates(score, world, estimator="dr", imputation=labels, propensity=0.5)
        for name, expected in population_metrics(score, world.truth.labels).items():
            assert told[name].value == pytest.approx(expected, rel=1e-9), name

    @pytest.mark.parametrize("estimator", ["ips", "snips"])
    def test_the_auc_is_that_of_clicks_weighted_by_their_propensity(self, world, score, estimator):
        train = world.train
        estimate = us.off_policy_estimates(
            *(score, train),
            propensity=world.truth.propensity,
            estimator=estimator,
            metrics=["auc"],
            held_out="all",
            p_min=1e-9,
        )["auc"]
        weight = 1.0 / world.truth.propensity[train.user, train.item]
        outcome = train.known_conversion()
        expected = auc(score=score[train.user, train.item], outcome=outcome, weight=weight)
        assert estimate.value == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("slate", [1, 3, 6])
    def test_the_gain_is_the_mean_over_all_slates(self, slate):
        score, outcome = np.array([0.9, 0.7, 0.5, 0.4, 0.2, 0.1]), np.array([0, 1, 1, 0, 0, 1])
        found = {"dcg@2": [], "hits@2": []}
        for shown in itertools.combinations(range(6), slate):
            rows = list(shown)
            for name, line in found.items():
                line.append(
                    user_ranking(user=[0] * slate, outcome=outcome[rows], score=score[rows], ks=(2,)).values[
                        name
                    ][0]
                    if outcome[rows].any()
                    else 0.0
                )
        for name, line in found.items():
            worth = expected_gain(
                above=np.arange(6), others=np.full(6, 5), slate=slate, k=2, gain=name.split("@")[0]
            )
            assert (worth * outcome).sum() * slate / 6 == pytest.approx(np.mean(line)), name

    def test_listed_impressions_of_all_pairs_give_what_the_matrix_gives(self, world, score):
        train = world.train
        user, item = (part.ravel() for part in np.indices(score.shape))
        click = np.zeros(score.shape)
        click[train.user, train.item] = 1
        conversion = np.where(click == 1, world.truth.labels, np.nan)
        log = us.Log.from_arrays(
            user=user, item=item, click=click.ravel(), conversion=conversion.ravel(), space="impressions"
        )
        rows = np.arange(0, train.n_clicks, 3)
        for estimator in ("balanced", "snips", "dr"):
            expected = self.estimates(score, world, estimator=estimator, held_out=rows)
            told = us.off_policy_estimates(
                score.ravel(),
                log,
                propensity=world.truth.propensity.ravel(),
                estimator=estimator,
                held_out=log.clicked[rows],
                p_min=1e-4,
                resamples=50,
            )
            for name in METRICS:
                assert told[name].value == pytest.approx(expected[name].value, rel=1e-9)
                assert told[name].standard_error == pytest.approx(expected[name].standard_error, rel=1e-9)


@pytest.fixture(scope="module")
def told():
    data = us.load("synthetic", seed=0)
    truth = data.truth
    models = {
        "rates": truth.conversion,
        "again": truth.conversion.copy(),
        "constant": np.full_like(truth.conversion, 0.3),
    }
    return us.compare(models, data.train, propensity=truth.propensity, held_out="all", metrics=["nll", "auc"])


class TestCompare:
    def test_it_finds_the_better_scorer_and_rarely_prefers_one_of_two_equal_ones(self, crowd):
        found, wrong = [], []
        for log, propensity, scores in redraws(crowd):
            told = us.compare(
                scores,
                log,
                propensity=propensity,
                held_out="all",
                metrics=["nll"],
                p_min=1e-3,
                baseline="good",
                gamma=1.0,
                resamples=200,
            )
            twin, bad = told.differences
            wrong.append(twin.decided)
            found.append(bad.decided and (bad.better, bad.worse) == ("good", "bad"))
        assert np.mean(found) > 0.8
        # More than 12 % of 80 happen once in 200 times where 5 % are expected.
        assert np.mean(wrong) <= 0.125

    def test_the_verdict_names_the_better_model_the_difference_and_its_interval(self, told):
        found = next(each for each in told.differences if {each.better, each.worse} == {"rates", "constant"})
        values = {name: of["nll"].value for name, of in told.estimates.items()}
        assert found.advantage == pytest.approx(values["constant"] - values["rates"])
        assert found.low < found.advantage < found.high
        assert found.probability == 1.0
        assert found.times_more_data is None
        assert str(found) == (
            f"rates is better than constant by {found.advantage:.4f} nll"
            f" (95 % {found.low:.4f} to {found.high:.4f}; it holds up to Γ = {found.survives:.2f}, and the"
            f" propensities are off by {found.gamma:.2f})."
        )

    def test_the_same_model_twice_cannot_be_told_apart(self, told):
        same = [each for each in told.differences if {each.better, each.worse} == {"rates", "again"}]
        assert [each.metric for each in same] == ["nll", "auc"]
        for each in same:
            assert (each.advantage, each.p_value, each.probability, each.decided) == (0.0, 1.0, 0.5, False)
            assert "the data cannot tell rates from again" in str(each)
            assert "even 100 times as many clicks would hardly settle" in str(each)

    def test_holm_counts_all_models_and_metrics(self, told):
        adjusted = us.metrics.holm([each.p_value for each in told.differences])
        assert len(told.differences) == 6
        np.testing.assert_allclose([each.p_holm for each in told.differences], adjusted)

    def test_more_data_is_told_and_would_decide(self):
        """Users counted N times shrink the error by √N: the interval then excludes 0 with room to spare."""
        data = us.load("synthetic", n_users=100, seed=4)
        truth = data.truth
        models = {"rates": truth.conversion, "damped": 0.97 * truth.conversion}
        given = {"propensity": truth.propensity, "held_out": "all", "metrics": ["nll"]}
        (each,) = us.compare(models, data.train, **given).differences
        assert not each.decided
        assert each.times_more_data > 1
        shrunk = each.standard_error / np.sqrt(each.times_more_data)
        assert each.advantage / shrunk == pytest.approx(1.959964 + 0.841621, rel=1e-5)

    def test_few_effective_clicks_and_dishonest_propensities_are_noted(self):
        data = us.load("synthetic", n_users=30, n_items=30, seed=4)
        rates = data.truth.conversion
        told = us.compare({"a": rates, "b": rates / 2}, data.train, propensity=0.5, held_out="all")
        few, dishonest, unbalanced = told.notes
        assert re.search(
            r"leave .* \+\d\.\d\d standard deviations from the unseen pairs, .* once", unbalanced
        )
        assert "effective sample of" in few
        assert "times the unseen pairs instead of 1" in dishonest
        assert few in str(told)
        assert f"- Note: {dishonest}" in told.to_markdown()


@pytest.fixture(scope="module")
def data():
    return us.load("synthetic", n_users=60, n_items=40, density=0.2, seed=3)


class TestModels:
    def fit(self, data, method=us.Naive, log=None, **options):
        seeds = options.pop("seeds", 2)
        model = method(learner=us.MF(dim=4), **{"epochs": 3, **options})
        return model.fit(log or data.train, propensity=0.2, seeds=seeds, device="cpu")

    def test_no_model_trained_on_the_rows_that_it_names(self, data):
        log = data.train
        model = self.fit(data, patience=None)
        rows = model.validation_rows(log)
        assert rows.shape == (2, round(0.1 * log.n_clicks))
        assert log.click[rows].all()
        assert not np.array_equal(rows[0], rows[1])
        for seed in (0, 1):
            conversion = np.array(log.conversion)
            conversion[rows[seed]] = 1 - conversion[rows[seed]]
            other = replace(log, conversion=conversion)
            again = self.fit(data, log=other, patience=None)
            np.testing.assert_array_equal(again.predict_each(log)[seed], model.predict_each(log)[seed])
            assert not np.array_equal(again.predict_each(log)[1 - seed], model.predict_each(log)[1 - seed])

    def test_a_saved_model_and_one_of_many_name_the_same_rows(self, data, tmp_path):
        model = self.fit(data)
        model.save(tmp_path / "model")
        expected = model.validation_rows(data.train)
        np.testing.assert_array_equal(us.load_model(tmp_path / "model").validation_rows(data.train), expected)
        many = us.IPS(learner=us.MF(dim=4), epochs=2).fit_many(
            data.train, propensities={"a": 0.2, "b": 0.3}, seeds=2, device="cpu"
        )
        for part in many.values():
            np.testing.assert_array_equal(part.validation_rows(data.train), expected)

    def test_models_are_compared_on_their_held_out_rows_seed_by_seed(self, data):
        models = {"naive": self.fit(data), "ips": self.fit(data, us.IPS)}
        told = us.compare(models, data.train, propensity=data.truth.propensity, p_min=0.01, resamples=100)
        rows = models["naive"].validation_rows(data.train)
        score = models["naive"].predict_each(data.train)
        p = np.maximum(data.truth.propensity[data.train.user, data.train.item], 0.01)
        outcome = data.train.known_conversion()
        share = rows.shape[1] / data.train.n_clicks
        expected = [
            nll(score=line[held], outcome=outcome[held], weight=(1 / p[held] - 1 + share) / share)
            for line, held in zip(score, rows, strict=True)
        ]
        assert told.seeds == (0, 1)
        assert told.estimates["naive"]["nll"].seeds == pytest.approx(expected, rel=1e-5)
        assert told.estimates["naive"]["nll"].value == pytest.approx(np.mean(expected), rel=1e-5)

    def test_members_are_judged_each_on_the_rows_that_it_held_out(self, data):
        models = {"naive": self.fit(data, members=2), "ips": self.fit(data, us.IPS, members=2)}
        log, p = data.train, data.truth.propensity
        told = us.compare(models, log, propensity=p, p_min=0.01, resamples=100)
        rows = models["naive"].validation_rows(log)
        score = np.concatenate(models["naive"].predict_members_each(log))
        clipped, outcome = np.maximum(p[log.user, log.item], 0.01), log.known_conversion()
        share = rows.shape[1] / log.n_clicks
        each = [
            nll(score=line[held], outcome=outcome[held], weight=(1 / clipped[held] - 1 + share) / share)
            for line, held in zip(score, rows, strict=True)
        ]
        found = told.estimates["naive"]["nll"]
        assert told.seeds == (0, 1)
        assert found.seeds == pytest.approx(np.reshape(each, (2, 2)).mean(axis=1), rel=1e-5)
        assert found.rows == 2 * rows.shape[1]
        assert told.notes[0].startswith("Each of the 2 members of a seed is judged on the clicks that it")
        with pytest.raises(DataError, match="imputation has 1 lines of held-out rows a seed, and 2 are"):
            us.compare(models, log, propensity=p, estimator="dr", imputation=self.fit(data), resamples=10)
        with pytest.raises(DataError, match=r"different numbers of members.*naive 2, one 1"):
            us.compare({"naive": models["naive"], "one": self.fit(data)}, log, propensity=0.2)

    def test_an_interval_holds_its_value_and_stays_within_the_metric(self, data):
        noise = np.random.default_rng(0).uniform(0.001, 0.01, data.truth.propensity.shape)
        options = {"held_out": "all", "imputation": 0.9, "p_min": 1e-4, "resamples": 50}
        found = us.off_policy_estimates(
            data.truth.conversion, data.train, propensity=noise, estimator="dr", **options
        )
        for each in found.values():
            assert each.range_low <= each.value <= each.range_high
            assert each.low <= each.value <= each.high
        auc = us.off_policy_estimates(data.truth.conversion, data.train, propensity=noise, held_out="all")[
            "auc"
        ]
        assert 0 <= auc.range_low <= auc.low <= auc.high <= auc.range_high <= 1

    def test_scores_that_are_no_rates_are_not_compared_by_their_loss(self, data):
        models = {"naive": self.fit(data), "ddpo": self.fit(data, us.DDPO)}
        told = us.compare(models, data.train, propensity=0.2, resamples=50)
        assert list(told.estimates["ddpo"]) == ["auc", "dcg@4", "hits@4"]
        with pytest.raises(ParameterError, match="ddpo does not predict rates"):
            us.compare(models, data.train, propensity=0.2, metrics=["nll"])

    def test_models_that_held_out_other_rows_are_refused(self, data):
        model, log = self.fit(data), data.train
        for other, message in (
            (self.fit(data, seeds=3), r"different seeds.*naive \(0, 1\), other \(0, 1, 2\)"),
            (self.fit(data, validation_share=0.2), "held out different numbers of rows: naive 4"),
            (self.fit(data, validation_share=0.0), "other trained on every click of the log"),
            (us.IPS(), "other: this IPS is not fitted yet"),
            (np.full((60, 40), 0.3), "other does not tell which rows it did not train on"),
        ):
            with pytest.raises((DataError, ParameterError, NotFittedError), match=message):
                us.compare({"naive": model, "other": other}, log, propensity=0.2)
        other = self.fit(data, log=log.take(np.arange(len(log)) % 3 > 0), validation_share=0.15)
        assert other.split_.held_out == model.split_.held_out
        with pytest.raises(DataError, match="held out different rows: they were trained on different logs"):
            us.compare({"naive": model, "other": other}, log, propensity=0.2)
        trained_on = np.setdiff1d(np.arange(len(log)), model.validation_rows(log))
        with pytest.raises(DataError, match=r"none of these clicks was held out.*held_out='all'"):
            us.off_policy_estimates(model, log.take(trained_on), propensity=0.2)
        new = us.off_policy_estimates(model, data.test, propensity=0.2, held_out="all", resamples=20)
        assert new["nll"].rows == len(data.test)


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (
                {"metrics": ["ndcg@4"]},
                r"no off-policy estimate of 'ndcg@4'.*what a log never tells",
            ),
            ({"metrics": ["nll", "nll"]}, "metrics must be distinct names"),
            ({"estimator": "magic"}, "estimator must be 'balanced', 'snips', 'ips' or 'dr'"),
            ({"gamma": 0.5}, "gamma must be 1 or more"),
            ({"slate": 0}, "slate must be from 1 to 2,147,483,647, not 0"),
            ({"resamples": 1}, "resamples must be from 2 to 1,000,000, not 1"),
            ({"level": 1.0}, "level must be between 0 and 1"),
            ({"held_out": "some"}, "held_out must be 'validation', 'all' or row numbers"),
            ({"held_out": [0, 0]}, "not there, not clicked, or named twice"),
            ({"held_out": [0.5]}, "does not name rows"),
            ({"imputation": 1.5, "estimator": "dr"}, r"imputation: a score is not in \[0, 1\]"),
            ({"propensity": 1.5}, "propensity is 1.5, not a probability"),
        ],
    )
    def test_a_bad_option_is_told(self, world, options, message):
        given = {"propensity": 0.3, "held_out": "all", **options}
        with pytest.raises((DataError, ParameterError), match=message):
            us.off_policy_estimates(world.truth.conversion, world.train, **given)

    @pytest.mark.parametrize(
        ("score", "message"),
        [
            (np.full((60, 40), 2.0), r"model: a score is not in \[0, 1\]"),
            (np.full((60, 40), np.nan), r"model: a score is not in \[0, 1\]"),
            (np.full((3, 3), 0.5), r"scores of shape \(3, 3\) do not fit a log"),
        ],
    )
    def test_bad_scores_are_told(self, world, score, message):
        with pytest.raises(DataError, match=message):
            us.off_policy_estimates(score, world.train, propensity=0.3, held_out="all")

    def test_scores_of_rows_are_enough_for_loss_and_auc_alone(self, world):
        score = np.linspace(0.1, 0.9, len(world.train))
        told = us.off_policy_estimates(
            score,
            world.train,
            propensity=0.3,
            estimator="snips",
            held_out="all",
            metrics=["nll", "auc"],
            resamples=20,
        )
        assert told["nll"].value == pytest.approx(nll(score=score, outcome=world.train.known_conversion()))
        both = us.compare(
            {"a": score, "b": score[::-1]}, world.train, propensity=0.3, held_out="all", metrics=["nll"]
        )
        assert "predicted conversion" not in [each.covariate for each in both.balance]
        assert any("Scores of clicked rows alone" in note for note in both.notes)
        with pytest.raises(ParameterError, match="not enough to rank all items"):
            us.off_policy_estimates(score, world.train, propensity=0.3, held_out="all", metrics=["dcg@2"])

    def test_rows_of_one_outcome_alone_are_told(self, world):
        rows = np.flatnonzero(world.train.known_conversion() == 0)
        with pytest.raises(DataError, match=r"auc cannot be estimated from .* one outcome is missing"):
            us.off_policy_estimates(
                world.truth.conversion, world.train, propensity=0.3, held_out=rows, metrics=["auc"]
            )

    def test_a_comparison_needs_two_models_and_a_known_baseline(self, world):
        rates = world.truth.conversion
        with pytest.raises(ParameterError, match=r"1 model\(s\) cannot be compared"):
            us.compare({"a": rates}, world.train, propensity=0.3, held_out="all")
        with pytest.raises(ParameterError, match="the baseline 'c' is none of the models"):
            us.compare({"a": rates, "b": rates}, world.train, propensity=0.3, held_out="all", baseline="c")


def test_the_example_of_the_page_is_true():
    page = Path(__file__).parents[2] / "docs" / "explanation" / "evaluation.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert attempted > 3
    assert failed == 0
