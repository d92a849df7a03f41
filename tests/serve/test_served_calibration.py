"""The sketch of a served model: on disk, a known distance behind, and with a verdict."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.metrics import CalibrationSketch, ece
from unskew.serve.calibration import MOST_MODELS, Calibration, figures_of

NAME, OTHER = "0" * 15 + "a", "f" * 16


def outcomes(rows: int = 200, seed: int = 0, factor: float = 1.0) -> list[tuple[float, int, float]]:
    random = np.random.default_rng(seed)
    score = random.uniform(0.02, 0.6, rows)
    came = random.random(rows) < np.minimum(1, factor * score)
    return [(float(p), int(o), 1.0) for p, o in zip(score, came, strict=True)]


def sketch_of(rows) -> CalibrationSketch:
    score, outcome, _ = np.array(rows).T
    return CalibrationSketch.of(score=score, outcome=outcome)


def test_outcomes_go_to_the_sketch_of_the_model_that_said_the_score(tmp_path):
    calibration = Calibration(tmp_path / "s")
    for name in (NAME, OTHER):
        calibration.serve(name)
    rows = outcomes()
    calibration.add({int(NAME[:8], 16): rows[:50]})
    calibration.add({int(NAME[:8], 16): rows[50:], int(OTHER[:8], 16): rows[:3], 77: rows})
    assert ece(sketch=calibration.sketch(NAME)) == pytest.approx(ece(sketch=sketch_of(rows)))
    assert calibration.sketch(OTHER).rows == 3


def test_what_was_saved_is_there_after_a_restart_and_the_rest_is_said_to_be_behind(tmp_path):
    before = Calibration(tmp_path / "s")
    before.serve(NAME)
    before.add({0: outcomes()})
    assert before.behind(NAME)["rows_behind"] == 200
    assert before.save() == 1
    assert before.behind(NAME)["rows_behind"] == 0
    assert before.save() == 0
    before.add({0: outcomes(7)})
    assert before.behind(NAME)["rows_behind"] == 7
    after = Calibration(tmp_path / "s")
    assert after.sketch(NAME).rows == 200
    after.serve(NAME)
    assert after.errors(NAME) == pytest.approx(before_errors(outcomes()))


def before_errors(rows) -> dict[str, float]:
    from unskew.metrics import wce

    sketch = sketch_of(rows)
    return {
        "rows": len(rows),
        "ece": ece(sketch=sketch),
        "wce": wce(sketch=sketch),
        "mean_over_rate": sketch.mean_score / sketch.base_rate,
    }


def test_a_damaged_sketch_is_put_aside_and_named(tmp_path):
    before = Calibration(tmp_path / "s")
    before.serve(NAME)
    before.add({0: outcomes()})
    before.save()
    (tmp_path / "s" / f"{NAME}.npz").write_bytes(b"half")
    after = Calibration(tmp_path / "s")
    assert after.sketch(NAME).rows == 0
    assert "is not a calibration sketch" in after.refused[0]
    assert (tmp_path / "s" / f"{NAME}.damaged").read_bytes() == b"half"


def test_sketches_of_models_long_ago_are_forgotten(tmp_path):
    calibration = Calibration(tmp_path / "s")
    names = [f"{each:016x}" for each in range(MOST_MODELS + 3)]
    for name in names:
        calibration.serve(name)
    calibration.serve(names[5])
    assert calibration.models == [*names[3:5], *names[6:], names[5]]


@pytest.mark.parametrize(
    ("rows", "factor", "healthy", "words"),
    [
        (100, 1.0, None, "Undecided: 100 outcomes are too few"),
        (60_000, 1.0, True, "Honest: on 60,000 outcomes"),
        (60_000, 0.5, False, "Wrong: on 60,000 outcomes the mean prediction is"),
    ],
)
def test_the_verdict_follows_the_outcomes(rows, factor, healthy, words):
    figures = figures_of(sketch_of(outcomes(rows, factor=factor)))
    assert figures["healthy"] is healthy
    assert figures["verdict"].startswith(words), figures["verdict"]
    assert figures["rows"] == rows
    assert figures["mean_over_rate"] == pytest.approx(1 / factor, rel=0.5)


def test_of_no_outcomes_nothing_is_said():
    assert figures_of(CalibrationSketch()) == {
        "rows": 0,
        "positives": 0.0,
        "healthy": None,
        "verdict": "No outcome has come yet.",
    }
