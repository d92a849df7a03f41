"""Every calibrator inside a graph is, in float64, the calibrator outside of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from unskew.calibration import (
    Calibrator,
    Identity,
    Isotonic,
    Platt,
    Segmented,
    make_calibrator,
)
from unskew.errors import UnskewError
from unskew.export.calibrators import FORMS, form_of, mean_calibrated
from unskew.export.graph import IR_VERSION, OPSET, Graph, Value, serialised

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

CASES = [
    *((kind.name, {}) for kind in FORMS if kind is not Segmented),
    ("auto", {}),
    ("platt", {"input": "prob"}),
    ("beta", {"variant": "ab"}),
    ("isotonic", {"interpolation": "linear"}),
    ("isotonic", {"smoothing": 0}),
    ("histogram", {"spacing": "width", "bins": 7}),
    ("histogram", {"bins": 1}),
    ("spline", {"pieces": 3, "penalty": 0.1}),
]
SCORES = np.concatenate([[0.0, 1.0, 0.5, 1e-15, 1e-9, 1 - 1e-9], np.linspace(0, 1, 101)])


def rows(seed: int, size: int = 700):
    """Scores that are off, as a calibrator is given them."""
    random = np.random.default_rng(seed)
    truth = random.beta(1, 6, size)
    return np.round(truth**1.4, 3), random.random(size) < truth


def fitted(name: str, seed: int, **parameters) -> Calibrator:
    return make_calibrator(name, **parameters).fit(*rows(seed, 400 + 150 * seed))


def at_edges(calibrator: Calibrator) -> np.ndarray:
    """Scores on the edges of its steps and the nearest doubles beside them."""
    inner = getattr(calibrator, "choice_", calibrator)
    found = [getattr(inner, name, np.empty(0)) for name in ("edges_", "first_", "last_")]
    edges = np.concatenate(found)
    return np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 1)])


def in_a_graph(calibrators, scores: np.ndarray) -> np.ndarray:
    """What a runtime makes of scores ``[R, n]``."""
    graph = Graph()
    row = graph.input("row")
    score = graph.constant(scores).take(row, axis=1)
    answer = mean_calibrated(score, calibrators)
    content = serialised(graph, [answer.named("p")], name="test", doc="", metadata={}).content
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(["p"], {"row": np.arange(scores.shape[1])})[0]


@pytest.mark.parametrize(("name", "parameters"), CASES, ids=str)
def test_a_calibrator_answers_the_same_inside_and_outside(name, parameters):
    calibrator = fitted(name, 1, **parameters)
    scores = np.concatenate([SCORES, at_edges(calibrator), rows(5)[0]])
    inside = in_a_graph([calibrator], scores[None])
    np.testing.assert_allclose(inside, calibrator.predict(scores), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("name", ["platt", "spline", "isotonic", "venn_abers", "histogram"])
def test_each_replica_has_its_own(name):
    """Their steps differ in number, so that the shared table has to be filled up."""
    calibrators = [fitted(name, seed) for seed in range(4)]
    scores = np.stack([rows(seed, 300)[0] for seed in range(10, 14)])
    outside = np.mean([c.predict(line) for c, line in zip(calibrators, scores, strict=True)], axis=0)
    np.testing.assert_allclose(in_a_graph(calibrators, scores), outside, rtol=1e-9)


def test_replicas_may_have_different_kinds():
    """As after ``auto``, whose choice differs from fold to fold; None leaves the score."""
    calibrators = [fitted("platt", 0), None, fitted("isotonic", 1), fitted("auto", 2), fitted("platt", 3)]
    scores = np.stack([rows(seed, 200)[0] for seed in range(5)])
    outside = np.mean(
        [line if c is None else c.predict(line) for c, line in zip(calibrators, scores, strict=True)], axis=0
    )
    np.testing.assert_allclose(in_a_graph(calibrators, scores), outside, rtol=1e-9)


def test_a_segmented_one_gives_the_global_map_as_it_does_without_segments():
    score, outcome = rows(0)
    segmented = Segmented().fit(score, outcome, segment=np.arange(len(score)) % 3)
    np.testing.assert_allclose(in_a_graph([segmented], score[None]), segmented.predict(score), rtol=1e-9)


@pytest.mark.parametrize("base", [Identity, Platt, Isotonic])
def test_one_of_your_own_is_refused_even_where_it_inherits(base):
    class Mine(base):
        name = "mine"

        def _predict(self, score):
            return score / 2

    with pytest.raises(
        UnskewError, match=r"calibrator 'mine' has no ONNX form.*To fix: use one of none, pla"
    ):
        form_of(Mine())


def test_the_tables_of_a_graph_that_is_too_large_for_one_file_go_beside_it():
    graph = Graph()
    row = graph.input("row")
    huge = np.broadcast_to(np.float32(0), (700_000_000,))
    graph.constants["huge"] = huge
    answer = Value(graph, "huge", huge.dtype).take(row)
    made = serialised(graph, [answer.named("p")], name="test", doc="", metadata={}, beside="x.data")
    assert len(made.content) < 10_000
    assert {start: array.nbytes for start, array in made.outside.items()} == {0: 2_800_000_000}


def test_texts_that_are_too_large_for_one_file_are_refused(monkeypatch):
    monkeypatch.setattr("unskew.export.graph.LARGEST_BYTES", 1000)
    graph = Graph()
    doubled = (graph.input("row") * 2).named("p")
    with pytest.raises(UnskewError, match=r"ids and texts of the model have .* GB.*shorter ids"):
        serialised(graph, [doubled], name="t", doc="d", metadata={"users": "x" * 2000})


def test_small_probabilities_keep_their_digits():
    """A runtime's own sigmoid is off by 0.1 % at 10⁻¹³ and 0 at 10⁻¹⁷."""
    graph = Graph()
    logit = np.array([-800.0, -40.0, -30.0, -5.0, 0.0, 5.0, 800.0])
    answer = graph.constant(logit).take(graph.input("row")).sigmoid()
    content = serialised(graph, [answer.named("p")], name="t", doc="", metadata={}).content
    (inside,) = onnxruntime.InferenceSession(content).run(None, {"row": np.arange(len(logit))})
    np.testing.assert_allclose(inside, expit(logit), rtol=1e-14, atol=1e-300)


def test_the_versions_are_those_that_old_runtimes_know():
    graph = Graph()
    doubled = (graph.input("row") * 2).named("p")
    model = onnx.load_from_string(
        serialised(graph, [doubled], name="t", doc="d", metadata={"a": "b"}).content
    )
    assert (model.ir_version, model.opset_import[0].version) == (IR_VERSION, OPSET) == (8, 17)
    assert {each.key: each.value for each in model.metadata_props} == {"a": "b"}
