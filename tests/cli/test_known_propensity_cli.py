"""``unskew run --known-propensity``: a bandit log from the file to the folder, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

import unskew as us
from unskew.base.errors import ParameterError
from unskew.cli import main

USERS, ACTIONS = 60, 8
COLUMNS = ("--user", "uid", "--item", "item_id", "--conversion", "click")
QUICK = ("--learner", "mf", "--seeds", "2", "--members", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a policy showed, and what a random one did, with positions and times beside it."""
    place = tmp_path_factory.mktemp("bandit")
    random = np.random.default_rng(0)
    taste = random.normal(size=(USERS, 2)) @ random.normal(size=(2, ACTIONS))
    policy = np.exp(0.7 * taste)
    policy /= policy.sum(axis=1, keepdims=True)
    for name, rows, chosen in (
        ("log", 3000, policy),
        ("random", 1500, np.full((USERS, ACTIONS), 1 / ACTIONS)),
    ):
        user = random.integers(USERS, size=rows)
        item = np.array([random.choice(ACTIONS, p=chosen[each]) for each in user])
        rate = 1 / (1 + np.exp(1.0 - taste[user, item]))
        columns = {
            "timestamp": pa.array(1_600_000_000 + np.arange(rows), type=pa.timestamp("s")),
            "uid": [f"u{each}" for each in user],
            "item_id": item,
            "position": random.integers(1, 4, rows),
            "click": (random.random(rows) < rate).astype(int),
            "propensity_score": chosen[user, item],
        }
        pq.write_table(pa.table(columns), place / f"{name}.parquet")
    return place


def run(folder: Path, *arguments: object) -> int:
    known = ("--known-propensity", "propensity_score")
    given = ["run", "--data", folder / "log.parquet", *COLUMNS, *known, *arguments]
    return main([str(each) for each in given])


@pytest.fixture(scope="module")
def done(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("known") / "run"
    test = ("--test", folder / "random.parquet", "--test-is", "random")
    assert run(folder, *test, *QUICK, "--out", out) == 0
    return out


def test_known_propensities_are_audited_and_nothing_is_trained_in_their_place(done: Path) -> None:
    told = json.loads((done / "metrics.json").read_text())
    assert told["data"]["known_propensity"] == "propensity_score"
    assert (told["data"]["rows"], told["data"]["actions"]) == (3000, ACTIONS)
    assert told["data"]["population"] == 3000 * ACTIONS
    assert set(told["propensity"]) == {"known"}
    audit = told["known_propensity"]
    p = pq.read_table(done / "propensities.parquet")["propensity"].to_numpy()
    assert audit["ratio"] == pytest.approx((1 / p).mean() / ACTIONS)
    assert told["propensity"]["known"]["weight_check"] == pytest.approx(audit["ratio"])
    assert audit["healthy"] is True
    assert set(told["methods"]) == {"naive", "ips_known"}
    assert not (done / "propensity.safetensors").exists()
    assert not (done / "calibrator.json").exists()


def test_weights_take_the_skew_of_the_policy_out_of_the_level(done: Path) -> None:
    methods = json.loads((done / "metrics.json").read_text())["methods"]
    naive, ips = (methods[key]["mean_over_rate"]["mean"] for key in ("naive", "ips_known"))
    assert naive > 1.1
    assert abs(ips - 1) < abs(naive - 1)


def test_the_report_says_that_propensities_are_known(done: Path) -> None:
    page = (done / "report.html").read_text(encoding="utf-8")
    assert "This checks their level alone; nothing was trained." in page
    assert "nothing was trained" in page
    assert "IPS, known" in page
    assert "miscalibrated" not in page


@pytest.mark.parametrize("estimator", ["balanced", "snips", "ips"])
def test_compare_weighs_the_held_out_rows_of_a_run_by_the_known_propensities(
    done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], estimator: str
) -> None:
    figures = tmp_path / "figures.json"
    assert main(["compare", str(done), "--estimator", estimator, "--json", str(figures)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "known probabilities of showing: they are used as they are" in said
    assert "no model of them is refitted or balanced" in said
    assert "unseen pairs" not in said
    told = json.loads(figures.read_text())
    assert told["estimator"] == ("ips" if estimator == "ips" else "snips")
    assert (told["gamma"], told["balance"]) == (1.0, [])
    table = pq.read_table(done / "propensities.parquet").to_pydict()
    p = np.maximum(np.array(table["propensity"]), json.loads((done / "metrics.json").read_text())["p_min"])
    r = np.array(table["conversion"], dtype=float)
    for key, of in told["estimates"].items():
        assert set(of) == {"nll", "auc"}
        model = us.load_model(done, key, device="cpu")
        log = us.Log.from_arrays(
            user=table["uid"],
            item=table["item_id"],
            conversion=r,
            users=model.users_,
            items=model.items_,
            space="impressions",
            columns={"p": p, "timestamp": np.array(table["timestamp"], dtype="datetime64[us]")},
            known_propensity="p",
        )
        losses, ranks = [], []
        for rows, q in zip(model.split_.rows(log, model.seeds_), model.predict_each(log), strict=True):
            weight, loss = 1 / p[rows], -np.log(np.where(r[rows] == 1, q[rows], 1 - q[rows]))
            losses.append(
                (weight * loss).sum() / (len(rows) * ACTIONS if estimator == "ips" else weight.sum())
            )
            ranks.append(roc_auc_score(r[rows], q[rows], sample_weight=weight))
        assert of["nll"]["value"] == pytest.approx(np.mean(losses), rel=1e-5)
        assert of["auc"]["value"] == pytest.approx(np.mean(ranks), rel=1e-5)


@pytest.mark.parametrize(
    ("option", "told"), [(("--metric", "dcg@2"), "dcg@2"), (("--estimator", "dr"), "dr")]
)
def test_compare_refuses_what_needs_pairs_that_were_not_shown(
    done: Path, capsys: pytest.CaptureFixture[str], option: tuple[str, str], told: str
) -> None:
    assert main(["compare", str(done), *option]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"{told} needs pairs that were not shown" in said
    assert "nll or auc, by snips or ips" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--method", "dr-jl"), ("dr-jl looks at pairs that were not shown", "use naive, ips or snips")),
        (("--method", "esmm"), ("esmm looks at pairs that were not shown",)),
        (("--click", "click"), ("column 'click' is given both as click and as conversion",)),
        (("--space", "matrix"), ("not of all pairs", "--space impressions")),
        (("--actions", 3), ("shows 8 items, more than the 3 actions",)),
        (("--actions", 0), ("actions must be a whole number of at least 1",)),
        (("--calibrator", "beta"), ("--calibrator has no effect with --known-propensity",)),
        (("--crossfit", 3), ("--crossfit has no effect with --known-propensity",)),
        (("--protocol", "paper"), ("goes with the honest protocol",)),
        (("--known-propensity", "position"), ("column 'position'", "above 0 and at most 1")),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[object, ...],
    words: tuple[str, ...],
) -> None:
    assert run(folder, *arguments, *QUICK, "--out", tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    for word in words:
        assert word in error
    assert not (tmp_path / "run").exists()


def test_a_missing_probability_is_told_with_its_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log.csv").write_text("uid,item_id,click,propensity_score\na,1,0,0.5\na,2,1,\nb,1,1,0.5\n")
    arguments = ("--data", tmp_path / "log.csv", *COLUMNS, "--known-propensity", "propensity_score")
    assert main([str(each) for each in ("run", *arguments, "--out", tmp_path / "run")]) == 2
    assert (
        "column 'propensity_score', row 1: the probability of showing is missing" in capsys.readouterr().err
    )


def test_without_a_file_there_is_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--known-propensity", "p"]) == 2
    assert "--known-propensity has no effect with --data synthetic" in capsys.readouterr().err


class TestPython:
    """The same log through the library."""

    @pytest.fixture(scope="class")
    @classmethod
    def log(cls, folder: Path) -> us.Log:
        names = {"user": "uid", "item": "item_id", "conversion": "click"}
        return us.read_log(
            folder / "log.parquet", **names, space="impressions", known_propensity="propensity_score"
        )

    def test_a_method_reads_the_column_unasked(self, log: us.Log) -> None:
        options = {"learner": us.MF(dim=2), "epochs": 3}
        unasked = us.SNIPS(**options).fit(log)
        asked = us.SNIPS(**options).fit(log, propensity="propensity_score")
        np.testing.assert_array_equal(unasked.predict(log), asked.predict(log))
        assert unasked.clipping_[0].weight_check == pytest.approx(1, abs=0.1)

    @pytest.mark.parametrize("make", [us.Propensity, us.PopularityPropensity])
    def test_there_is_no_propensity_to_learn(self, log: us.Log, make: type) -> None:
        with pytest.raises(ParameterError, match="no propensity to learn"):
            make().fit(log)

    def test_actions_without_probabilities_mean_nothing(self) -> None:
        with pytest.raises(ParameterError, match="actions goes with known_propensity"):
            us.Log.from_arrays(user=[1, 2], item=[1, 2], conversion=[0, 1], actions=3)
