"""Every kind of propensity as a file, and a run's three answers: P(click), P(conversion | click), both."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.naive_bayes import GaussianNB

import unskew as us
from contracts.feature_world import log_of, part, table
from serve.conftest import raw_inputs
from unskew.base.errors import ParameterError, UnskewError
from unskew.calibration import make_calibrator
from unskew.cli import main

onnxruntime = pytest.importorskip("onnxruntime")
pd = pytest.importorskip("pandas")

FLOAT32 = 2e-7
QUICK = {"epochs": 2, "batch_size": 512, "learning_rate": 0.02}


@pytest.fixture(scope="module")
def data():
    return us.load("synthetic", n_users=40, n_items=30, density=0.2, seed=1)


@pytest.fixture(scope="module")
def shown():
    """Impressions with features and with a column of positions."""
    return log_of(part(table(3000), known=True))


def answers(path, frame) -> dict[str, np.ndarray]:
    """All outputs for rows of a frame, by the file's own description of raw inputs."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    described = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])
    answered = session.run(None, raw_inputs(described, frame))
    return dict(zip([each.name for each in session.get_outputs()], answered, strict=True))


KINDS = {
    "linear": lambda **options: us.Propensity(learner=us.Linear(), fields=(), **options),
    "blend": lambda **options: us.Propensity(
        learner=us.Blend(second=us.Trees(max_trees=9)), fields=(), **options
    ),
    "popularity": us.PopularityPropensity,
    "network": lambda **options: us.Propensity(learner=us.MF(dim=3), **QUICK, **options),
}


@pytest.mark.parametrize("calibrator", ["platt", "isotonic"])
@pytest.mark.parametrize("negatives", [None, 2.0])
@pytest.mark.parametrize("kind", KINDS)
def test_of_pairs_it_is_the_mean_over_seeds_and_folds(data, tmp_path, kind, negatives, calibrator):
    p = KINDS[kind](crossfit=2, negatives=negatives, calibrator=make_calibrator(calibrator))
    p.fit(data.train, seeds=2)
    told = us.export_onnx(p, tmp_path / "p.onnx")
    assert (told["outputs"][0], told["calibrators"]) == ("propensity", [calibrator])
    user, item = np.divmod(np.arange(40 * 30), 30)
    inside = answers(tmp_path / "p.onnx", pd.DataFrame({"user": user, "item": item}))["propensity"]
    outside = p.predict_pairs_each(user, item, average=True).mean(axis=0)
    # A score within float32 of an edge may come to stand on its other side.
    wrong = ~np.isclose(inside, outside, rtol=1e-5 if kind == "network" else FLOAT32)
    assert wrong.mean() <= (0.01 if (kind, calibrator) == ("network", "isotonic") else 0.0)
    assert outside.std() > 0.003, "pairs that all get one answer would test nothing"


def test_naive_bayes_gives_what_a_pair_of_unknown_conversion_gets(data, tmp_path):
    p = us.NaiveBayesPropensity(crossfit=2).fit(data.train, random_sample=data.test)
    us.export_onnx(p, tmp_path / "p.onnx")
    inside = answers(tmp_path / "p.onnx", pd.DataFrame({"user": [0, 3], "item": [7, 1]}))["propensity"]
    outside = p.predict_pairs_each([0, 3], [7, 1], average=True).mean(axis=0)
    np.testing.assert_allclose(inside, outside, rtol=FLOAT32)


def test_a_blend_reads_features_of_users_items_and_rows(shown, tmp_path):
    p = us.Propensity(learner=us.Blend(), crossfit=2).fit(shown, seeds=2)
    us.export_onnx(p, tmp_path / "p.onnx")
    rows = part(table(3000), known=False).slice(0, 80).to_pandas()
    rows["tags"] = [list(each) for each in rows["tags"]]
    found = answers(tmp_path / "p.onnx", rows)
    np.testing.assert_allclose(
        found["propensity"], p.predict_frame_each(rows, average=True).mean(axis=0), rtol=1e-6
    )
    assert not found["known_user"].any()


def test_positions_are_an_input_and_one_that_training_lacked_gets_nan(tmp_path):
    random = np.random.default_rng(0)
    user, item, place = (random.integers(n, size=5000) for n in (30, 20, 3))
    click = random.random(5000) < np.array([1.0, 0.5, 0.25])[place] * (0.1 + 0.4 * (item % 2))
    log = us.Log.from_arrays(
        user=user, item=item, click=click, space="impressions", columns={"position": place * 10}
    )
    p = us.PositionPropensity(crossfit=2, calibrator=make_calibrator("beta")).fit(log)
    us.export_onnx(p, tmp_path / "p.onnx")
    rows = pd.DataFrame({"user": user, "item": item, "position": place * 10.0})
    inside = answers(tmp_path / "p.onnx", rows)["propensity"]
    np.testing.assert_allclose(inside, p.predict(log, average=True), rtol=FLOAT32)
    assert np.isnan(answers(tmp_path / "p.onnx", rows.assign(position=5.0))["propensity"]).all()


def test_a_foreign_classifier_is_refused_with_an_alternative(data, tmp_path):
    p = us.Propensity(learner=us.Classifier(estimator=GaussianNB()), crossfit=2).fit(data.train)
    with pytest.raises(UnskewError, match=r"Classifier has no ONNX form.*use Trees"):
        us.export_onnx(p, tmp_path / "p.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "learner",
    [us.MF(dim=3), us.DCN(dim=4, layers=(5,)), us.Blend(second=us.Trees(max_trees=9))],
    ids=["ids", "features", "tables"],
)
def test_with_its_propensity_a_model_gives_the_product_too(shown, tmp_path, learner):
    """Whichever of the two reads features: the file has the inputs of both."""
    p = us.Propensity(learner=us.Linear(), crossfit=2, fields=("price", "country")).fit(shown)
    model = us.IPS(learner=learner, **QUICK).fit(shown, propensity=p)
    told = us.export_onnx(model, tmp_path / "all.onnx", propensity=p)
    assert told["outputs"][:3] == ["conversion", "propensity", "click_and_conversion"]
    rows = part(table(3000), known=True).slice(0, 50).to_pandas()
    rows["tags"] = [list(each) for each in rows["tags"]]
    found = answers(tmp_path / "all.onnx", rows)
    conversion = model.predict_frame_each(rows).mean(axis=0)
    click = p.predict_frame_each(rows, average=True).mean(axis=0)
    np.testing.assert_allclose(found["conversion"], conversion, rtol=1e-5)
    np.testing.assert_allclose(found["propensity"], click, rtol=1e-6)
    np.testing.assert_allclose(found["click_and_conversion"], click * conversion, rtol=1e-5)


def test_a_propensity_of_another_log_is_refused(data, shown, tmp_path):
    model = us.Naive(learner=us.MF(dim=3), **QUICK).fit(shown)
    p = us.PopularityPropensity(crossfit=2).fit(data.train)
    with pytest.raises(ParameterError, match="know other ids"):
        us.export_onnx(model, tmp_path / "m.onnx", propensity=p)


def test_a_default_run_is_exported_and_scored(tmp_path, capsys):
    """Whichever propensity ``auto`` chooses."""
    log = us.load("synthetic", n_users=50, n_items=40, density=0.2, seed=3).train
    pairs = pa.table({"user": log.user, "item": log.item, "conversion": log.known_conversion().astype(int)})
    file, run, out = tmp_path / "train.parquet", tmp_path / "run", tmp_path / "all.onnx"
    pq.write_table(pairs, file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unskew.report.render_run_report", lambda **told: "<html></html>")
        quick = ["--learner", "mf", "--seeds", "1", "--members", "1", "--method", "ips"]
        assert main(["run", "--data", str(file), "--out", str(run), *quick]) == 0
    assert main(["export", str(run), "-o", str(out)]) == 0
    assert "conversion, propensity, click_and_conversion (" in capsys.readouterr().out
    assert main(["score", str(run), str(file), "-o", str(tmp_path / "scored.parquet")]) == 0
    scored = pq.read_table(tmp_path / "scored.parquet").to_pandas()
    product = scored["propensity"] * scored["conversion"]
    np.testing.assert_allclose(scored["click_and_conversion"], product)
    inside = answers(out, pairs.to_pandas())
    np.testing.assert_allclose(inside["conversion"], scored["conversion"], rtol=1e-5)
    p = us.load_propensity(run)
    click = p.predict_pairs_each(log.user.astype(str), log.item.astype(str), average=True).mean(axis=0)
    np.testing.assert_allclose(inside["propensity"], click, rtol=1e-5)
    np.testing.assert_allclose(inside["click_and_conversion"], click * scored["conversion"], rtol=1e-5)
