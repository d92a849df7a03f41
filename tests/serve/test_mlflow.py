"""A run in MLflow's file store: parameters, metrics, files, and a model that MLflow loads by itself."""

from __future__ import annotations

import json

import numpy as np
import pytest

import unskew as us
from unskew.cli import main

mlflow = pytest.importorskip("mlflow", reason="mlflow-skinny is not installed")
pytest.importorskip("onnxruntime")
pd = pytest.importorskip("pandas")

pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow itself


def test_a_run_is_logged_and_its_model_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr("unskew.report.render_run_report", lambda **told: "<html></html>")
    monkeypatch.setattr("unskew.report.overview_svg", lambda **told: "<svg/>")
    mlflow.set_tracking_uri(f"file:{tmp_path / 'store'}")
    run = tmp_path / "run"
    job = ["run", "--data", "synthetic", "--propensity", "popularity", "--seeds", "1", "--method", "ips"]
    job += ["--option", "n_users=40", "--option", "n_items=30", "--option", "density=0.2"]
    job += ["--learner", "mf", "--members", "1", "--set", "method.epochs=2", "--out", str(run), "--mlflow"]
    assert main(job) == 0
    logged = mlflow.last_active_run()
    assert len(mlflow.search_runs()) == 1, "figures of training and of the run are in one MLflow run"
    figures = json.loads((run / "metrics.json").read_text())
    assert float(logged.data.metrics["p_min"]) == figures["p_min"]
    assert any("learner" in name for name in logged.data.params)
    assert any(name.startswith("ips") and name.endswith("loss") for name in logged.data.metrics)
    client = mlflow.MlflowClient()
    files = {each.path for each in client.list_artifacts(logged.info.run_id, "run")}
    assert files == {f"run/{path.name}" for path in run.iterdir()}
    model = mlflow.pyfunc.load_model(f"runs:/{logged.info.run_id}/model")
    frame = pd.DataFrame({"user": [1, 2, 3], "item": [4, 5, 6]})
    answers = model.predict(frame)
    expected = us.score(run, frame)["conversion"]
    np.testing.assert_allclose(np.ravel(answers["conversion"]), expected, rtol=1e-5)
