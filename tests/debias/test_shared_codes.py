"""Models of logs with more ids than codes: saved with the codes that ids share; nobody is unknown to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import unskew as us
from unskew.data import Log


def test_a_loaded_model_gives_ids_without_a_code_the_shared_one(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    n = 400
    users = us.Vocabulary(np.arange(20), "user", buckets=3)
    click = draw.random(n) < 0.5
    log = Log.from_arrays(
        user=draw.integers(0, 60, n),
        item=draw.integers(0, 9, n),
        click=click,
        conversion=click & (draw.random(n) < 0.5),
        space="impressions",
        users=users,
    )
    assert log.user.max() >= 20
    model = us.Naive(learner=us.MF(dim=2), epochs=2).fit(log)
    model.save(tmp_path / "model")
    loaded = us.load_model(tmp_path / "model")
    pairs = np.array([3, 50, 10_000]), np.array([1, 2, 3])
    assert np.array_equal(loaded.predict_pairs_each(*pairs), model.predict_pairs_each(*pairs))
    assert np.isfinite(loaded.predict_pairs_each(*pairs)).all()
    assert us.export_onnx(model, tmp_path / "model.onnx")["holds"]["user"] == "codes"
