"""Two processes that torchrun starts on a machine with one GPU: they share it, and train what one does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ranks import torchrun

USERS, ITEMS = 150, 40

# All epochs: rounding may choose another.
SETTINGS = (
    "learner.dim=4",
    "learner.dropout=0.0",
    "learner.drop=0.0",
    "method.epochs=5",
    "method.patience=none",
    "method.learning_rate=0.02",
    "method.batch_size=256",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a log of impressions, and pairs to test on."""
    random = np.random.default_rng(2)
    folder = tmp_path_factory.mktemp("files")
    for name in ("log", "test"):
        # Each pair at most once, in any order.
        pairs = random.permutation(USERS * ITEMS)[: USERS * ITEMS if name == "log" else 2_000]
        user, item = np.divmod(pairs, ITEMS)
        clicked = random.random(len(user)) < 0.2 + 0.3 * (item % 2)
        converted = random.random(len(user)) < 0.1 + 0.4 * (user % 2)
        columns = {"user": user, "item": item, "price": random.random(len(user))}
        if name == "log":
            columns["click"] = clicked.astype(np.int8)
            converted &= clicked
        columns["conversion"] = converted.astype(np.int8)
        pq.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=500)
    return folder


def figures(files: Path, method: str, *, device: str, world: int, seeds: int) -> dict[str, list[float]]:
    """What the models of a run on so many processes reach on the test pairs, NLL and AUC by seed."""
    out = files / f"{method} {device} {world}"
    done = torchrun(
        *("run", "--data", str(files / "log.parquet"), "--test", str(files / "test.parquet")),
        *("--space", "impressions"),
        *("--features", "auto", "--propensity", "linear", "--crossfit", "2", "--learner", "dcn"),
        *(each for setting in SETTINGS for each in ("--set", setting)),
        *("--members", "1", "--method", method, "--seeds", str(seeds), "--device", device, "--out", str(out)),
        world=world,
    )
    assert done.returncode == 0, done.stderr
    if world > 1:
        assert "unskew: 2 processes, which talk by gloo" in done.stderr
    methods = json.loads((out / "metrics.json").read_text())["methods"]
    for each in methods.values():
        assert each["auc"]["mean"] > 0.6, "it learned"
    return {key: [*each["nll"]["seeds"], *each["auc"]["seeds"]] for key, each in methods.items()}


@pytest.mark.gpu
def test_replicas_on_a_shared_gpu_are_those_of_one_process(files, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    one, two = (figures(files, "ips", device="cuda", world=world, seeds=2) for world in (1, 2))
    assert two.keys() == one.keys()
    for key, each in one.items():
        assert two[key] == pytest.approx(each, rel=3e-3), key
