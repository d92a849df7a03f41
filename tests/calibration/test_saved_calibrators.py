"""A calibrator that was read from a file gives probabilities, or it is refused in one line."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from unskew.base.errors import RunFolderError
from unskew.calibration import CALIBRATORS, calibrator_from_dict, load_calibrator, make_calibrator

NAN, INFINITY = float("nan"), float("inf")
DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]
ODD = [
    NAN,
    INFINITY,
    -1e308,
    1e308,
    10**400,
    "x",
    None,
    True,
    [],
    [[1.0]],
    {},
    -1,
    2.0,
    [NAN],
    [-1.0, 5.0],
    DEEP,
]


@pytest.fixture(scope="module")
def saved() -> dict[str, dict[str, Any]]:
    """Every calibrator, fitted, as JSON."""
    generator = np.random.default_rng(0)
    score = generator.random(3000)
    outcome = generator.random(3000) < score**2
    fitted = {name: make_calibrator(name).fit(score, outcome) for name in CALIBRATORS}
    return {name: json.loads(json.dumps(each.to_dict())) for name, each in fitted.items()}


@pytest.mark.parametrize("name", [*CALIBRATORS])
def test_odd_values_are_refused_or_still_give_probabilities(saved, name):
    scores = np.random.default_rng(1).random(20_000)
    refused: list[str] = []
    for part in ("learned", "parameters"):
        for key in saved[name][part]:
            for odd in ODD:
                told = json.loads(json.dumps(saved[name]))
                told[part][key] = odd
                try:
                    found = calibrator_from_dict(told).predict(scores)
                except RunFolderError as error:
                    refused.append(str(error))
                else:
                    assert ((found > 0) & (found < 1)).all(), (part, key, odd)
    assert len(refused) > len(ODD)
    assert all("To fix: fit and save it again" in line and len(line) < 1000 for line in refused)


@pytest.mark.parametrize("name", ["isotonic", "histogram", "venn_abers", "scaling_binning", "ic_ipw"])
def test_steps_that_are_none_are_refused(saved, name):
    told = json.loads(json.dumps(saved[name]))
    told["learned"]["edges_"] = told["learned"]["edges_"][::-1]
    with pytest.raises(RunFolderError, match="no steps"):
        calibrator_from_dict(told)
    told = json.loads(json.dumps(saved[name]))
    told["learned"]["values_"] = told["learned"]["values_"][:-1]
    with pytest.raises(RunFolderError, match="no steps"):
        calibrator_from_dict(told)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "{", "\x00", "NaN", "[]", "7"])
def test_a_file_that_is_no_calibrator_is_refused(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(RunFolderError, match=r"To fix: "):
        load_calibrator(tmp_path / "c.json")
