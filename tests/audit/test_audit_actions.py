"""``audit --actions``: probabilities of showing, on bandit logs whose policy is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.audit import audit_actions
from unskew.base.errors import DataError, ParameterError
from unskew.cli import main

ACTIONS = 8


def bandit_log(rows: int, seed: int = 0) -> np.ndarray:
    """Probabilities of the shown actions, of a policy that differs from row to row."""
    generator = np.random.default_rng(seed)
    policy = generator.dirichlet(np.full(ACTIONS, 3.0), rows) * 0.8 + 0.2 / ACTIONS
    shown = (generator.random((rows, 1)) < np.cumsum(policy, axis=1)).argmax(axis=1)
    return policy[np.arange(rows), shown]


def write(path: Path, p: np.ndarray) -> Path:
    pq.write_table(pa.table({"p": p, "clicked": np.zeros(len(p), dtype=np.int8)}), path)
    return path


def test_the_mean_of_the_inverse_is_the_number_of_actions(tmp_path: Path) -> None:
    p = bandit_log(20_000)
    result = audit_actions(write(tmp_path / "log.parquet", p), score="p", actions=ACTIONS)
    assert result.ratio == pytest.approx((1 / p).mean() / ACTIONS)
    assert result.low < 1 < result.high
    assert result.healthy is True
    assert result.smallest == p.min()


def test_the_interval_holds_one_as_often_as_it_says(tmp_path: Path) -> None:
    held = 0
    for seed in range(100):
        path = write(tmp_path / "log.parquet", bandit_log(1_000, seed=seed + 1))
        result = audit_actions(path, score="p", actions=ACTIONS)
        held += result.low <= 1 <= result.high
    assert 87 <= held <= 100


@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_probabilities_that_are_off_are_found(factor: float, tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", np.minimum(bandit_log(20_000) * factor, 1.0))
    result = audit_actions(path, score="p", actions=ACTIONS)
    assert result.healthy is False
    assert ("too large" if factor < 1 else "too small") in result.verdict
    assert "Is 'p' the probability of the action shown, among 8" in result.verdict


def test_a_shown_action_has_a_probability_above_0(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", np.array([0.5, 0.0]))
    with pytest.raises(DataError, match=r"log.parquet, column 'p', row 1: 0 is not the probability of an"):
        audit_actions(path, score="p", actions=2)
    with pytest.raises(ParameterError, match="actions must be a whole number of at least 1, not 0"):
        audit_actions(path, score="p", actions=0)


def test_the_command_tells_and_writes_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("log.parquet"), bandit_log(20_000))
    assert main(["audit", "log.parquet", "--score", "p", "--actions", "8", "--json", "told.json"]) == 0
    assert "Healthy. As 8 actions would give" in capsys.readouterr().out
    assert json.loads(Path("told.json").read_text())["ratio"] == pytest.approx(1, abs=0.05)
    assert main(["audit", "log.parquet", "--score", "p", "--actions", "16"]) == 1
    assert "Miscalibrated. The mean of 1/p" in capsys.readouterr().out
    assert sorted(path.name for path in Path().iterdir()) == ["log.parquet", "told.json"]
    for arguments, message in (
        (["--actions", "8", "--outcome", "clicked"], "--outcome has no effect with --actions"),
        ([], "--outcome is missing"),
    ):
        assert main(["audit", "log.parquet", "--score", "p", *arguments]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
