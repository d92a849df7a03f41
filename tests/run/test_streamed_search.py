"""``--method auto`` on a stream: from files and a random sample to a run folder, its cost printed first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.base.errors import ParameterError
from unskew.cli import main
from unskew.offpolicy import auto
from unskew.run.run_search import clicked_in_log
from unskew.run.search_plan import search_plan
from unskew.run.streamed import streamed_dataset

pytestmark = pytest.mark.filterwarnings("ignore::unskew.base.errors.CollapseWarning")

FEW = ("ips", "esmm")
"""Methods beside naive: one of clicks, one of all rows."""


@pytest.fixture(autouse=True, scope="module")
def few_candidates():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "CANDIDATES", FEW)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of impressions, and random pairs whose conversions are known."""
    place = tmp_path_factory.mktemp("logs")
    draw = np.random.default_rng(0)
    pairs = draw.permutation(40 * 12)
    for name, cell in (
        ("log/a", draw.integers(0, 480, 700)),
        ("log/b", draw.integers(0, 480, 500)),
        ("sample", pairs[:200]),
        ("test", pairs[200:]),
    ):
        user, item = np.divmod(cell, 12)
        click = draw.random(len(cell)) < 0.2 + 0.02 * item
        logged = name.startswith("log")
        table = {
            "user": user,
            "item": item,
            **({"click": click.astype(int), "logged": 0.2 + 0.02 * item} if logged else {}),
            **({"click": np.ones(len(cell), dtype=int)} if name == "sample" else {}),
            "conversion": ((click | (not logged)) & (draw.random(len(cell)) < 0.2 + 0.05 * item)).astype(int),
        }
        path = place / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(table), path, row_group_size=150)
    return place


def config(folder: Path, *, sample: bool = True, **changed: Any) -> us.RunConfig:
    options = {
        "train": str(folder / "log" / "*.parquet"),
        "test": str(folder / "test.parquet"),
        "test_is": "random",
        "space": "impressions",
        "conversion": "conversion",
        **({"unbiased": str(folder / "sample.parquet")} if sample else {}),
    }
    settings: dict[str, Any] = {
        "method": "auto",
        "propensity": "popularity",
        "backbone": "mf",
        "crossfit": 2,
        "seeds": 1,
        "members": 2,
        "parameters": {"method.epochs": 2, "backbone.dim": 2},
        "device": "cpu",
        "stream": True,
        **changed,
    }
    return us.RunConfig(data="files", options=options, **settings)


def planned(asked: us.RunConfig) -> list[str]:
    dataset = streamed_dataset(asked, asked.options, "as was asked for", us.progress.SILENT)
    return search_plan(asked, dataset)


@pytest.fixture(scope="module")
def result(folder: Path) -> us.RunResult:
    return us.run(config(folder))


def test_a_stream_is_searched_and_what_is_shipped_is_an_ordinary_model(
    result: us.RunResult, tmp_path: Path
) -> None:
    search = result.metrics["search"]
    assert list(result.models) == ["naive", "auto"]
    assert search["rows"] == result.metrics["data"]["unbiased_rows"] == 200
    tried = [(each["name"], each["rung"]) for each in search["tried"]]
    names = ["naive", "naive λ=15", "ips", "ips λ=15", "esmm", "esmm λ=15"]
    assert tried[:6] == [(name, 0) for name in names]
    assert len(tried) == 6 + 1 + 3
    assert all(each["biased"] is not None for each in search["judged"])
    assert search["sentence"] in result.metrics["labels"]
    assert {"naive", "auto"} == set(result.metrics["methods"])
    # Rows are events: none is left out of the test.
    assert not any("clicked in training are dropped" in label for label in result.metrics["labels"])
    # The level is that of the sample.
    sample = result.dataset.unbiased
    assert result.models["auto"].predict(sample).mean() == pytest.approx(
        sample.known_conversion().mean(), rel=0.1
    )
    page = result.report()
    assert "How was the method chosen?" in page
    assert "in the lower half on the sample" in page
    result.save(tmp_path / "run")
    loaded = us.load_model(tmp_path / "run", device="cpu")
    np.testing.assert_allclose(
        loaded.predict_each(sample), result.models["auto"].predict_each(sample), rtol=1e-6
    )
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["search"]["tried"]


def test_memory_is_told_with_all_models_of_the_last_round(result: us.RunResult) -> None:
    tables = 4 * 2 * (40 + 12) * 2
    # naive and three others of two members each, and two moments of the largest.
    assert result.memory["networks"] > 4 * tables + 2 * tables


def test_without_a_sample_naive_is_shipped_and_that_is_said_before(folder: Path) -> None:
    asked = config(folder, sample=False, members=1)
    plan = planned(asked)
    assert plan[0].startswith(
        "the search trains 3 candidates one after the other, each from the whole stream"
    )
    assert "naive is shipped whatever the search finds; --method naive trains it alone" in plan[-1]
    found = us.run(asked)
    assert found.models["auto"] is found.models["naive"]
    assert found.metrics["search"]["sentence"].startswith("The naive model is shipped: there is no random")


def test_the_plan_tells_rounds_passes_and_what_is_left_out(folder: Path) -> None:
    (plan,) = planned(config(folder))
    # Two epochs: one pass each of naive and ips, and a first stage of esmm's.
    assert "trains 6 candidates" in plan
    assert "with one member, then the better 3 on the sample and naive as ensembles of 2 a seed" in plan
    assert "about " in plan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto, "CANDIDATES", ("ips", "stable-dr"))
        printed = planned(config(folder, propensity="logged"))
    assert printed[1] == (
        "left out of the search: stable-dr, which need propensities of all of D, and logged has those of rows"
    )


def test_a_share_of_a_random_test_log_is_the_sample(folder: Path) -> None:
    asked = config(folder, sample=False, unbiased_share=0.4, method="naive", recalibrate="auto", members=1)
    found = us.run(asked)
    assert len(found.dataset.unbiased) + len(found.dataset.test) == 280
    assert found.metrics["data"]["unbiased_rows"] == len(found.dataset.unbiased)
    assert "random sample" in found.models["naive"].recalibration_.on
    with pytest.raises(ParameterError, match="an unbiased sample already"):
        us.run(config(folder, unbiased_share=0.4))


def test_pairs_of_the_sample_that_were_clicked_in_the_log_are_counted(
    folder: Path, result: us.RunResult
) -> None:
    asked = config(folder)
    dataset = streamed_dataset(asked, asked.options, "as was asked for", us.progress.SILENT)
    log = us.read_log(folder / "log", click="click", conversion="conversion", space="impressions")
    clicked = set(
        zip(log.users.decode(log.user[log.clicked]), log.items.decode(log.item[log.clicked]), strict=True)
    )
    sample = dataset.unbiased
    pairs = zip(sample.users.decode(sample.user), sample.items.decode(sample.item), strict=True)
    expected = sum(pair in clicked for pair in pairs)
    assert 0 < expected < 200
    assert clicked_in_log(sample, dataset.train) == clicked_in_log(sample, log) == expected
    assert any(f"{expected} of 200 pairs of the random sample" in label for label in result.metrics["labels"])


def test_a_search_goes_on_from_its_checkpoint(
    folder: Path, result: us.RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(us.ESMM, "fit", killed)
        with pytest.raises(KeyboardInterrupt):
            us.run(config(folder), checkpoint=us.Checkpoint(tmp_path / "states", every=0))
    again = us.run(config(folder), checkpoint=tmp_path / "states")
    assert again.checkpoint is not None
    assert again.checkpoint.goes_on
    mine, theirs = again.metrics["search"], result.metrics["search"]
    assert mine["judged"] == theirs["judged"]
    assert mine["sentence"] == theirs["sentence"]


def test_the_command_says_what_it_will_do(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["run", "--data", f"{folder}/log/*.parquet", "--stream", "--method", "auto", "--unbiased"]
    asked += [str(folder / "sample.parquet"), "--propensity", "popularity", "--seeds", "1", "--crossfit", "2"]
    asked += [
        "--backbone",
        "mf",
        "--members",
        "1",
        "--set",
        "method.epochs=1",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(asked) == 0
    printed = capsys.readouterr()
    assert "unskew: the search trains 6 candidates one after the other" in printed.err
    assert "is shipped" in " ".join(printed.out.split())
