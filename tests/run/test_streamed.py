"""Runs on a stream: the same job, folder and report, in bounded memory; and when a log is streamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import unskew as us
from unskew.base import processes
from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.propensity import choice
from unskew.run import run_propensity, streamed
from unskew.run.run_memory import memory_sentence
from unskew.run.streamed import why_streamed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("logs")
    draw = np.random.default_rng(0)
    for name, n in (("log/a", 700), ("log/b", 500), ("test", 400)):
        user, item = draw.integers(0, 40, n), draw.integers(0, 12, n)
        click = draw.random(n) < 0.2 + 0.02 * item
        table = {
            "user": user,
            "item": item,
            "click": click.astype(int),
            "conversion": np.where(click, draw.random(n) < 0.5, 0).astype(int),
            "logged": 0.2 + 0.02 * item,
            "device": np.array(["tv", "pc"])[draw.integers(0, 2, n)],
            "when": np.datetime64("2026-01-01", "s") + np.arange(n),
        }
        path = place / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(table), path, row_group_size=150)
    return place


def config(folder: Path, **changed: Any) -> us.RunConfig:
    options = {
        "train": str(folder / "log" / "*.parquet"),
        "test": str(folder / "test.parquet"),
        "space": "impressions",
        "conversion": "conversion",
        **changed.pop("options", {}),
    }
    settings: dict[str, Any] = {
        "propensity": "popularity",
        "backbone": "mf",
        "crossfit": 2,
        "seeds": 1,
        "parameters": {"method.epochs": 2, "backbone.dim": 2},
        "device": "cpu",
        **changed,
    }
    return us.RunConfig(data="files", options=options, **settings)


@pytest.fixture(scope="module")
def result(folder: Path) -> us.RunResult:
    return us.run(config(folder, stream=True))


def test_the_models_and_propensities_are_those_of_a_run_in_memory(folder: Path, result: us.RunResult) -> None:
    """Fitted on all rows the propensity is the same; models share their data and differ in its order."""
    memory = us.run(config(folder, stream=False))
    assert result.models.keys() == memory.models.keys() == {"naive", "ips_raw", "ips"}
    for kind in ("raw", "calibrated"):
        for name in ("nll", "weight_check", "effective_sample_size", "mean_over_base_rate"):
            mine, theirs = (each.metrics["propensity"][kind][name] for each in (result, memory))
            assert mine == pytest.approx(theirs, rel=1e-6)
    for name in ("users", "items", "rows", "clicks", "conversion_rate_of_clicks", "test_rows"):
        assert result.metrics["data"][name] == pytest.approx(memory.metrics["data"][name])
    assert result.metrics["methods"].keys() == memory.metrics["methods"].keys()
    assert "the log is streamed, as was asked for" in result.metrics["labels"]
    assert not any("streamed" in label for label in memory.metrics["labels"])


def test_what_it_took_in_memory_is_told_by_parts(result: us.RunResult) -> None:
    weights = {
        key: sum(w.numel() for w in each.networks_["prediction"].parameters())
        for key, each in result.models.items()
    }
    parts = result.memory
    # Two moments and the best so far beside the weights of those that are trained together.
    assert parts["networks"] == 4 * (weights["naive"] + 4 * (weights["ips_raw"] + weights["ips"]))
    # User, item, click, conversion and time.
    assert parts["rows"] == 1200 * (4 + 4 + 1 + 2 + 8)
    # The system counts pages in batches, so that a peak may be a little less than what was there before it.
    assert parts["peak"] >= parts["before_training"] > 0.99 * parts["libraries"] > 1e7
    when = "before" if parts["peak"] == parts["before_training"] else "in"
    assert memory_sentence(parts).startswith(
        f"Memory at most {parts['peak'] / 1e9:.2f} GB, {when} training: libraries "
    )


def test_the_folder_has_models_and_a_report_and_no_table_of_rows(
    tmp_path: Path, result: us.RunResult
) -> None:
    result.save(tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert names >= {"model.safetensors", "users.parquet", "calibrator.json", "metrics.json", "report.html"}
    assert "propensities.parquet" not in names
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["data"]["streamed"] == "the log is streamed, as was asked for"
    loaded = us.load_model(tmp_path / "run")
    pairs = np.array([1, 2]), np.array([3, 4])
    assert np.array_equal(loaded.predict_pairs_each(*pairs), result.models["ips"].predict_pairs_each(*pairs))
    assert us.load_propensity(tmp_path / "run").predict_pairs_each(*pairs).shape == (1, 2)
    with pytest.raises(RunFolderError, match="is of a streamed log"):
        us.compare_run(tmp_path / "run")


def test_a_network_reads_features_of_the_stream(folder: Path) -> None:
    asked = config(
        folder,
        stream=True,
        propensity="dcn",
        backbone="dcn",
        options={"features": "auto", "ignore": ("when", "logged")},
        parameters={"training.epochs": 1, "backbone.dim": 2},
    )
    found = us.run(asked)
    assert [field["name"] for field in found.metrics["data"]["fields"]] == ["user", "item", "device"]
    assert found.metrics["fields"].keys() == {"conversion", "propensity"}
    assert "<html" in found.report()


def test_a_calibrator_reads_features_of_rows_that_are_kept_as_codes(folder: Path) -> None:
    given = config(folder, stream=True, calibrator="multicalibrated", options={"features": ("device",)})
    found = us.run(given)
    calibrated = found.metrics["propensity"]["calibrated"]
    assert calibrated["nll"] < 1.01 * found.metrics["propensity"]["raw"]["nll"]
    assert found.models["ips"].clipping_ is not None


def test_kinds_that_need_all_rows_are_fitted_on_some_and_say_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "FITTED_ROWS", 600)
    found = us.run(config(folder, stream=True, method="none", parameters={}))
    assert found.metrics["propensity_by"]["fitted_on_rows"] == 600
    assert any("fitted on 600 rows at random" in label for label in found.metrics["labels"])


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_on_a_gpu_a_network_reads_all_rows_and_on_a_cpu_kinds_are_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr(choice, "SAMPLE_ROWS", 600)
    monkeypatch.setattr(run_propensity, "resolve_device", lambda name: torch.device(device))
    asked = config(folder, stream=True, propensity="auto", method="none", parameters={"backbone.dim": 2})
    by = us.run(asked).metrics["propensity_by"]
    if device == "cuda":
        assert by["chosen"] == "mf"
        assert "a network reads all rows of a stream" in by["sentence"]
        assert "fitted_on_rows" not in by
    else:
        assert [each["name"] for each in by["candidates"]] == ["logistic", "popularity", "mf"]


def test_young_rows_and_a_validation_by_time_are_those_of_a_run_in_memory(folder: Path) -> None:
    found, memory = (
        us.run(
            config(
                folder,
                stream=stream,
                maturity="2m",
                valid_from="2026-01-01T00:05",
                options={"time": "when"},
            )
        )
        for stream in (True, False)
    )
    for name in ("rows", "clicks", "immature_rows_dropped", "mature_until"):
        assert found.metrics["data"][name] == memory.metrics["data"][name]
    assert found.metrics["data"]["immature_rows_dropped"] > 0
    label = next(each for each in memory.metrics["labels"] if "by time, from" in each)
    assert label in found.metrics["labels"]


def test_a_column_is_a_propensity_of_a_stream(folder: Path) -> None:
    found = us.run(config(folder, stream=True, propensity="logged"))
    assert found.metrics["propensity_by"]["sentence"] == "propensity by column 'logged'"
    assert found.metrics["propensity"]["raw"]["mean_over_base_rate"] == pytest.approx(1, abs=0.1)


def test_a_propensity_is_chosen_on_rows_at_random(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "SAMPLE_ROWS", 800)
    found = us.run(config(folder, stream=True, propensity="auto", method="none", parameters={}))
    assert {each["name"] for each in found.metrics["propensity_by"]["candidates"]} == {
        "logistic",
        "popularity",
        "mf",
    }
    assert "on 800 of 1,200 rows" in found.metrics["propensity_by"]["sentence"]


@pytest.mark.parametrize(("free", "most"), [(None, 2**27), (2e9, 2**27), (8e8, 8e7)])
def test_processes_of_one_machine_share_what_is_kept_and_what_is_free_once(
    free: float | None, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``free`` is what there is for one of four processes on this machine, of eight that work together."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(processes, "_group", processes.Processes(0, 8, None))
    left = None if free is None else int(free)
    monkeypatch.setattr(streamed, "available_memory", lambda: left)
    assert streamed.most_remembered() == pytest.approx(most)


class TestWhenItIsStreamed:
    """Where the log would take too much of the memory, or where it is asked for."""

    def test_small_files_are_not(self, folder: Path) -> None:
        assert why_streamed(config(folder)) is None

    def test_large_files_are(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(streamed, "available_memory", lambda: 100_000)
        why = why_streamed(config(folder))
        assert why is not None
        assert "more than 25% of the 0.0001 GB that are free" in why
        assert why_streamed(config(folder, stream=False)) is None

    def test_a_matrix_is_not(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(streamed, "available_memory", lambda: 100_000)
        assert why_streamed(config(folder, options={"space": "matrix"})) is None
        with pytest.raises(ParameterError, match="the population of a stream is its rows"):
            us.run(config(folder, stream=True, options={"space": "matrix"}))

    def test_a_dataset_with_a_name_is_not(self) -> None:
        with pytest.raises(ParameterError, match="'synthetic' is not streamed"):
            us.run(us.RunConfig(stream=True))

    def test_csv_is_not(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("user,item,click,conversion\n1,1,1,1\n")
        options = {"train": str(tmp_path / "a.csv"), "test": None}
        assert why_streamed(config(tmp_path, options=options)) is None
        with pytest.raises(DataError, match="only Parquet files are streamed"):
            us.run(config(tmp_path, stream=True, options=options))
