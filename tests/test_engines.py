"""The examples on Ray and Spark, where these are installed (make elsewhere)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us

EXAMPLES = Path(__file__).parents[1] / "examples"
SOURCE = str(Path(us.__file__).parents[1])
RAY = {"RAY_TRAIN_ENABLE_V2": "1", "RAY_USAGE_STATS_ENABLED": "0"}
MOST_LINES = 30


def run_example(name: str, *arguments: object, **variables: str) -> str:
    path = os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def scored(tmp_path_factory) -> tuple[Path, Path]:
    """A run, and rows to score."""
    folder = tmp_path_factory.mktemp("engines")
    log = us.load("synthetic", n_users=40, n_items=30, density=0.2).train
    us.Naive(learner=us.MF(dim=2), epochs=2).fit(log).save(folder / "run")
    rows = pa.table({"user": np.arange(300) % 40, "item": np.arange(300) % 30, "row": np.arange(300)})
    pq.write_table(rows, folder / "rows.parquet")
    return folder / "run", folder / "rows.parquet"


def check_scores(scored: tuple[Path, Path], out: Path) -> None:
    run, rows = scored
    written = pq.read_table(out).sort_by("row")
    expected = us.score(run, pq.read_table(rows))["conversion"].to_numpy()
    np.testing.assert_allclose(written["conversion"].to_numpy(), expected, rtol=1e-6)


def test_examples_on_engines_are_short():
    for name in ("train_on_ray", "score_with_ray", "score_with_spark", "weights_in_duckdb"):
        code = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()
        assert len([line for line in code if line]) <= MOST_LINES, name


@pytest.mark.ray
def test_training_on_ray_deals_replicas_and_leaves_the_group_of_ray(tmp_path):
    pytest.importorskip("ray.train.torch", reason="ray is not installed (make elsewhere)")
    run_example("train_on_ray", tmp_path / "model", **RAY)
    model = us.load_model(tmp_path / "model")
    assert model.seeds_ == (0, 1, 2, 3)
    assert np.isfinite(model.predict_pairs_each([0, 1], [2, 3])).all()


@pytest.mark.ray
def test_scores_of_ray_are_those_of_score(scored, tmp_path):
    pytest.importorskip("ray.data", reason="ray is not installed (make elsewhere)")
    run_example("score_with_ray", *scored, tmp_path / "out", **RAY)
    check_scores(scored, tmp_path / "out")


@pytest.mark.spark
def test_scores_of_spark_are_those_of_score(scored, tmp_path):
    pytest.importorskip("pyspark", reason="pyspark is not installed (make elsewhere)")
    run_example("score_with_spark", *scored, tmp_path / "out", PYSPARK_PYTHON=sys.executable)
    check_scores(scored, tmp_path / "out")


def test_weights_of_duckdb_are_those_of_the_calibrator(tmp_path):
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    random = np.random.default_rng(0)
    for day in ("yesterday", "today"):
        p = random.beta(1, 6, 20_000)
        clicked = (random.random(len(p)) < p**1.3).astype(np.int8)
        pq.write_table(pa.table({"p": p, "clicked": clicked}), tmp_path / f"{day}.parquet")
    files = [tmp_path / f"{name}.parquet" for name in ("yesterday", "today", "out")]
    said = run_example("weights_in_duckdb", *files)
    before, after = pq.read_table(files[0]), pq.read_table(files[2])
    sketch = us.CalibrationSketch.of(score=before["p"], outcome=before["clicked"])
    expected = us.Platt().fit(sketch).predict(after["p"])
    np.testing.assert_allclose(after["propensity"].to_numpy(), expected, rtol=1e-9)
    weight = np.where(after["clicked"].to_numpy() == 1, 1 / np.maximum(expected, 0.01), 0)
    np.testing.assert_allclose(after["weight"].to_numpy(), weight, rtol=1e-9)
    assert f"The weights of clicks add up to {weight.mean():.2f} of the rows" in said
