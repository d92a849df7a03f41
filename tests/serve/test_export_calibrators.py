"""Every calibrator inside an exported file is, to the rounding of float32, the calibrator outside of it."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.calibration import Isotonic, Platt, make_calibrator

onnxruntime = pytest.importorskip("onnxruntime")

CASES = [
    *((name, {}) for name in ("none", "platt", "temperature", "beta", "spline", "isotonic", "histogram")),
    *((name, {}) for name in ("venn_abers", "scaling_binning", "ic_ipw", "auto")),
    ("platt", {"input": "prob"}),
    ("beta", {"variant": "ab"}),
    ("isotonic", {"interpolation": "linear"}),
    ("isotonic", {"smoothing": 0}),
    ("histogram", {"spacing": "width", "bins": 7}),
    ("histogram", {"bins": 1}),
    ("spline", {"pieces": 3, "penalty": 0.1}),
]
SCORES = np.concatenate([[0.0, 1.0, 0.5, 1e-15, 1e-9, 1 - 1e-9], np.linspace(0, 1, 101)])


@pytest.fixture(scope="module")
def log():
    """Impressions with somebody's scores, which are off, and with a segment in which they are worse."""
    random = np.random.default_rng(0)
    truth, group = random.beta(1, 6, 3000), random.integers(3, size=3000)
    return us.Log.from_arrays(
        user=np.arange(3000) % 40,
        item=np.arange(3000) % 30,
        space="impressions",
        click=random.random(3000) < np.where(group == 2, truth**1.5, truth),
        columns={"theirs": np.round(truth**1.4, 3), "group": group, "age": random.uniform(18, 60, 3000)},
    )


def at_edges(calibrators) -> np.ndarray:
    """Scores on the edges of steps and the nearest doubles beside them."""
    inner = [getattr(each, "choice_", each) for each in calibrators]
    names = ("edges_", "first_", "last_")
    edges = np.concatenate([[0.5], *(getattr(each, name, []) for each in inner for name in names)])
    return np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])


def answers(path, score: np.ndarray, **further) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    code = {"user": np.zeros(len(score), np.int64), "item": np.zeros(len(score), np.int64)}
    return session.run(["propensity"], {**code, "theirs": score, **further})[0]


@pytest.mark.parametrize(("name", "parameters"), CASES, ids=str)
def test_a_calibrator_answers_the_same_inside_and_outside(log, tmp_path, name, parameters):
    """Those of three folds differ in their edges, and after ``auto`` in their kind."""
    calibrator = make_calibrator(name, **parameters)
    p = us.ColumnPropensity(column="theirs", calibrator=calibrator, crossfit=3).fit(log)
    us.export_onnx(p, tmp_path / "p.onnx")
    scores = np.concatenate([SCORES, at_edges(p.calibrators_)])
    outside = np.mean([each.predict(scores) for each in p.calibrators_], axis=0)
    np.testing.assert_allclose(answers(tmp_path / "p.onnx", scores), outside, rtol=1e-7, atol=1e-14)


@pytest.mark.parametrize("segments", [("user", "group"), ("age", "group", "item")])
def test_segments_of_ids_values_and_numbers(log, tmp_path, segments):
    calibrator = us.Multicalibrated(segments=segments)
    p = us.ColumnPropensity(column="theirs", calibrator=calibrator, crossfit=2).fit(log)
    assert any(each.terms_ for each in p.calibrators_), "a map without terms would test nothing"
    us.export_onnx(p, tmp_path / "p.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "p.onnx", providers=["CPUExecutionProvider"])
    names = {each.name for each in session.get_inputs()} - {"user", "item"}
    assert names == {"theirs", *segments} - {"user", "item"}
    columns = {name: log.columns[name] for name in names}
    given = {"user": log.users.ids[log.user], "item": log.items.ids[log.item], **columns}
    (inside,) = session.run(["propensity"], given)
    np.testing.assert_allclose(inside, p.predict(log, average=True), rtol=2e-7)


@pytest.mark.parametrize("base", [Platt, Isotonic])
def test_one_of_your_own_is_exported_as_it_predicts(log, tmp_path, base):
    class Mine(base):
        name = "mine"

        def _predict(self, score):
            return np.where(score < 0.2, score / 2, super()._predict(score))

    p = us.ColumnPropensity(column="theirs", calibrator=Mine(), crossfit=2).fit(log)
    us.export_onnx(p, tmp_path / "p.onnx")
    outside = np.mean([each.predict(SCORES) for each in p.calibrators_], axis=0)
    np.testing.assert_allclose(answers(tmp_path / "p.onnx", SCORES), outside, rtol=1e-7, atol=1e-14)
