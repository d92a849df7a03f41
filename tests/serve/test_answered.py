"""Scores wait for their outcomes, in a file that a kill leaves whole."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from unskew.errors import DataError
from unskew.serve.answered import FORGOTTEN, KNOWN, WAITS, Answered

MODEL = 0xABCD1234


def scores(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def test_a_row_is_found_by_its_request_until_its_outcome_came(tmp_path):
    answered = Answered(tmp_path / "a", 8)
    answered.add(scores(0.5), MODEL)
    request = answered.request_id(answered.add(scores(0.25, 0.75), MODEL))
    row = answered.row_of(request, 1)
    assert answered.find(row) == WAITS
    found, models = answered.take([row])
    assert (found.tolist(), models.tolist()) == ([0.75], [MODEL])
    assert answered.find(row) == KNOWN
    assert answered.find(answered.row_of(request, 0)) == WAITS
    assert answered.find(answered.row_of(request, 2)) == FORGOTTEN


@pytest.mark.parametrize("rows", [1, 3, 5, 8])
def test_the_latest_rows_are_remembered_whatever_their_place(tmp_path, rows):
    answered = Answered(tmp_path / "a", 8)
    given = {}
    for start in range(0, 40, rows):
        first = answered.add(scores(*(each / 64 for each in range(start, start + rows))), MODEL)
        given |= {first + each: (start + each) / 64 for each in range(rows)}
    waiting = [number for number in given if answered.find(number) == WAITS]
    assert waiting == list(given)[-8:]
    found, _ = answered.take(waiting)
    assert found.tolist() == [given[number] for number in waiting]


def test_what_a_killed_process_remembered_is_there(tmp_path):
    code = (
        "import os, numpy as np; from pathlib import Path; from unskew.serve.answered import Answered\n"
        f"a = Answered(Path({str(tmp_path / 'a')!r}), 8)\n"
        "print(a.request_id(a.add(np.array([0.125], np.float32), 7)), flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -9
    again = Answered(tmp_path / "a", 8)
    assert not again.begun_anew
    row = again.row_of(done.stdout.strip(), 0)
    assert again.take([row])[0].tolist() == [0.125]
    assert again.add(scores(0.5), MODEL) == row + 1


def test_another_size_begins_anew_and_ids_of_before_are_forgotten(tmp_path):
    before = Answered(tmp_path / "a", 8)
    request = before.request_id(before.add(scores(0.5), MODEL))
    anew = Answered(tmp_path / "a", 16)
    assert anew.begun_anew
    anew.add(scores(0.5), MODEL)
    assert anew.find(anew.row_of(request, 0)) == FORGOTTEN
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize(
    "request_id", ["", "x", "0123456g-1", "01234567-", "01234567-../x", "0" * 8 + "-" + "f" * 17]
)
def test_what_is_no_request_id_is_refused(tmp_path, request_id):
    with pytest.raises(DataError, match="is no request id"):
        Answered(tmp_path / "a", 8).row_of(request_id, 0)
