"""A model made ready scores as ``unskew score`` does."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import unskew as us
from contracts.feature_world import part, table
from unskew.errors import DataError, ParameterError, RunFolderError
from unskew.serve.served_model import Parts, ServedModel

FLOAT32 = 1e-6


def test_pairs_get_what_score_gives_them(ids_run, ids_ready):
    pairs = {"user": list(range(50)) * 2, "item": [each % 40 for each in range(100)]}
    served = ServedModel(ids_ready, None, 1)
    scores = served.score(served.read(pairs))
    expected = us.score(ids_run, pa.table(pairs))["conversion"].to_numpy()
    np.testing.assert_allclose(scores, expected, atol=FLOAT32)
    assert served.count_unknown(served.read(pairs)) == (0, 0)


def test_unknown_ids_of_a_model_of_ids_get_nothing_or_an_error(ids_ready):
    pairs = {"user": [1, 999, 2], "item": [1, 1, 888]}
    served = ServedModel(ids_ready, None, 1)
    assert served.unseen == "nan"
    parts = served.read(pairs)
    assert np.isnan(served.score(parts)).tolist() == [False, True, True]
    users, items = served.unknown(parts)
    assert (users.tolist(), items.tolist()) == ([False, True, False], [False, False, True])
    assert served.count_unknown(parts) == (1, 1)
    with pytest.raises(DataError, match="field 'user', row 1: 999 was not seen in training"):
        ServedModel(ids_ready, "error", 1).read(pairs)
    with pytest.raises(ParameterError, match="this one reads ids alone"):
        ServedModel(ids_ready, "other", 1)


def rows_of(frame: pa.Table, fields: tuple[str, ...]) -> list[dict]:
    return frame.select([name for name in frame.column_names if name in fields]).to_pylist()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("left_out", [(), ("country", "tags"), ("price",)])
def test_rows_with_features_get_what_score_gives_them(features_run, features_ready, known, left_out):
    frame = part(table(3000), known=known).slice(0, 200).drop_columns(list(left_out))
    served = ServedModel(features_ready, None, 1)
    parts = served.read_rows(rows_of(frame, served.fields))
    expected = us.score(features_run, frame)
    np.testing.assert_allclose(served.score(parts), expected["conversion"].to_numpy(), atol=FLOAT32)
    users, items = served.unknown(parts)
    assert users.tolist() == expected["unseen_user"].to_pylist()
    assert items.tolist() == expected["unseen_item"].to_pylist()
    assert served.count_unknown(parts) == (users.sum(), items.sum())


def test_a_field_that_some_rows_leave_out_is_known_of_these_alone(features_ready):
    served = ServedModel(features_ready, None, 1)
    rows = rows_of(part(table(3000), known=True).slice(0, 3), served.fields)
    bare = [{**each} for each in rows]
    del bare[1]["country"]
    one_by_one = [float(served.score(served.read_rows([each]))[0]) for each in bare]
    assert served.score(served.read_rows(bare)).tolist() == pytest.approx(one_by_one, abs=FLOAT32)


def test_with_nan_unknown_users_get_nothing_though_features_tell(features_ready):
    served = ServedModel(features_ready, "nan", 1)
    frame = part(table(3000), known=False).slice(0, 5)
    assert np.isnan(served.score(served.read_rows(rows_of(frame, served.fields)))).all()


def test_several_requests_in_one_call_get_what_each_gets_alone(features_ready):
    served = ServedModel(features_ready, None, 1)
    rows = rows_of(part(table(3000), known=True).slice(0, 7), served.fields)
    parts = [served.read_rows(rows[:2]), served.read_rows(rows[2:3]), served.read_rows(rows[3:])]
    joined = served.score(Parts.joined(parts))
    alone = np.concatenate([served.score(each) for each in parts])
    np.testing.assert_allclose(joined, alone, atol=FLOAT32)


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([{"user": 1}], "field 'item', row 0: there is none"),
        ([{"user": 1, "item": 2, "price": 3}], "row 0: there is no field 'price'"),
        ([{"user": 1, "item": 2}, 7], "row 1: is not an object"),
    ],
)
def test_rows_that_the_model_does_not_read_are_named(ids_ready, rows, line):
    with pytest.raises(DataError, match=line):
        ServedModel(ids_ready, None, 1).read_rows(rows)


def test_no_rows_are_no_scores(ids_ready, features_ready):
    for folder in (ids_ready, features_ready):
        served = ServedModel(folder, None, 1)
        assert len(served.score(served.read_rows([]))) == 0


def test_a_damaged_folder_is_refused(ids_ready, tmp_path):
    import shutil

    copy = tmp_path / ids_ready.name
    shutil.copytree(ids_ready, copy)
    content = bytearray((copy / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (copy / "model.onnx").write_bytes(content)
    with pytest.raises(RunFolderError, match=r"model\.onnx is damaged"):
        ServedModel(copy, None, 1)


def test_what_serves_loads_no_torch(features_ready):
    code = (
        "import json, sys; from pathlib import Path\n"
        "from unskew.serve import server, page\n"
        "from unskew.serve.served_model import ServedModel\n"
        f"ServedModel(Path({str(features_ready)!r}), None, 1)\n"
        "print(json.dumps([each for each in ('torch', 'safetensors.torch') if each in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
