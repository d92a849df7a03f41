"""A model of a Triton repository: its config says what the graph takes, and the graph scores raw values."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

import unskew as us
from contracts.feature_world import log_of, part, table
from unskew.cli import main

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

QUICK = {"epochs": 2, "batch_size": 512, "learning_rate": 0.02}
TRITON = {"tensor(string)": "TYPE_STRING", "tensor(int64)": "TYPE_INT64", "tensor(double)": "TYPE_FP64"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "features-run"
    log = log_of(part(table(3000), known=True))
    us.Naive(backbone=us.MLP(dim=4, layers=(6,)), **QUICK).fit(log).save(folder)
    return folder


def tensors(text: str, kind: str) -> dict[str, tuple[str, str, bool]]:
    """Name → type, dims and whether the column of one is taken away, as the config has them."""
    (block,) = re.findall(rf"^{kind} \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    found = re.findall(r'name: "(.*?)"\n    data_type: (\w+)\n    dims: \[ (-?\d+) \](\n    reshape)?', block)
    return {name: (dtype, dims, bool(reshaped)) for name, dtype, dims, reshaped in found}


def test_the_config_is_that_of_the_graph_and_the_graph_scores_as_the_verb(run, tmp_path, capsys):
    repository = tmp_path / "models"
    assert main(["export", str(run), "--triton", str(repository)]) == 0
    assert "conversion (naive, mean of 1 seed) as ONNX" in capsys.readouterr().out
    folder = repository / "features-run"
    assert sorted(each.name for each in folder.rglob("*")) == ["1", "config.pbtxt", "model.onnx"]
    text = (folder / "config.pbtxt").read_text()
    assert 'name: "features-run"' in text
    assert "max_batch_size: 4096" in text
    session = onnxruntime.InferenceSession(folder / "1" / "model.onnx", providers=["CPUExecutionProvider"])
    expected = {
        each.name: (TRITON[each.type], "1" if len(each.shape) == 1 else "-1", len(each.shape) == 1)
        for each in session.get_inputs()
    }
    assert tensors(text, "input") == expected
    assert tensors(text, "output") == {
        "conversion": ("TYPE_FP32", "1", True),
        "known_user": ("TYPE_BOOL", "1", True),
        "known_item": ("TYPE_BOOL", "1", True),
    }
    assert expected["tags"] == ("TYPE_STRING", "-1", False)

    rows = part(table(3000), known=False).slice(0, 20)
    given = {
        "user": np.array(rows["user"].to_pylist(), dtype=object),
        "item": rows["item"].to_numpy(),
        "country": np.array([each or "" for each in rows["country"].to_pylist()], dtype=object),
        "price": np.array([np.nan if each is None else each for each in rows["price"].to_pylist()]),
        "tags": np.array([[*each, ""][:2] for each in rows["tags"].to_pylist()], dtype=object),
        "position": rows["position"].to_numpy(),
        "noise": rows["noise"].to_numpy(),
    }
    (answer,) = session.run(["conversion"], given)
    np.testing.assert_allclose(answer, us.score(run, rows)["conversion"].to_numpy(), atol=1e-5)


def test_a_model_of_ids_takes_ids_as_they_are(tmp_path):
    log = us.Log.from_frame(
        pa.table({"u": list("abcabcabca"), "i": [1, 2, 3, 4, 1, 2, 3, 4, 1, 2], "y": [0, 1] * 5}),
        user="u",
        item="i",
        conversion="y",
    )
    us.Naive(backbone=us.MF(dim=2), epochs=1).fit(log).save(tmp_path / "run")
    assert main(["export", str(tmp_path / "run"), "--triton", str(tmp_path / "r"), "--name", "cvr"]) == 0
    text = (tmp_path / "r" / "cvr" / "config.pbtxt").read_text()
    assert {name: kind for name, (kind, _, _) in tensors(text, "input").items()} == {
        "user": "TYPE_STRING",
        "item": "TYPE_INT64",
    }


def test_an_earlier_model_is_replaced_on_request_and_another_ones_never(run, tmp_path, capsys):
    repository = tmp_path / "models"
    given = ["export", str(run), "--triton", str(repository)]
    assert main(given) == 0
    assert main(given) == 2
    assert "holds an exported model already" in capsys.readouterr().err
    assert main([*given, "--overwrite"]) == 0
    (repository / "features-run" / "config.pbtxt").write_text('name: "mine"\n')
    assert main([*given, "--overwrite"]) == 2
    assert "is a folder with other things in it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "give one of -o FILE and --triton DIR"),
        (("-o", "m.onnx", "--triton", "d"), "give one of -o FILE and --triton DIR"),
        (("-o", "m.onnx", "--name", "x"), "--name goes with --triton"),
        (("--triton", "d", "--name", "../x"), "cannot be the name of a model"),
    ],
)
def test_what_cannot_be_meant_is_one_line(run, tmp_path, monkeypatch, capsys, options, line):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run), *options]) == 2
    assert line in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
