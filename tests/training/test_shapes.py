"""The checker of shapes finds what is wrong, and the functions that it is there for."""

from __future__ import annotations

import pytest
import torch

from unskew.data import Rows, Schema
from unskew.debias.losses import halves, stratified
from unskew.learners import NeuMF
from unskew.training import in_groups, inference, means

pytest.importorskip("jaxtyping")

from contracts.shapes import WrongShapeError, check_shapes


@pytest.mark.parametrize(
    ("observed", "full"),
    [
        (torch.ones(3, 4), torch.ones(2, 4)),
        (torch.ones(4), torch.ones(1, 4)),
        (torch.ones(3, 4, dtype=torch.int64), None),
    ],
)
def test_another_size_rank_or_dtype_is_told(observed, full):
    with pytest.raises(WrongShapeError, match="stratified: "):
        stratified(observed=observed, full=full, density=0.1)


def test_a_result_of_another_shape_is_told(monkeypatch):
    network = NeuMF(dim=4, layers=(4,)).build(Schema.of_ids(5, 5), [1, 2])
    monkeypatch.setattr(network, "forward", lambda rows, tower=None: torch.zeros(2, 1 + rows.shape[1]))
    rows = Rows(user=torch.zeros(1, 7, dtype=torch.int64), item=torch.zeros(1, 7, dtype=torch.int64))
    with pytest.raises(WrongShapeError, match=r"logits: what is returned is .* \[2, 8\]"):
        inference.logits(network, rows)


def test_functions_are_checked_wherever_they_were_imported_to():
    assert stratified is means.stratified
    assert halves.__wrapped__
    assert not hasattr(in_groups, "__wrapped__"), "what has no shapes is left alone"
    assert check_shapes(means) == [], "once is enough"
