"""Adam over whole parameters, beside PyTorch's."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from unskew.training.adam import Adam

SHAPES = ((5, 7), (11,), (3, 2, 4))


@pytest.fixture
def random():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def ours(random):
    parameters = [nn.Parameter(torch.randn(shape, generator=random)) for shape in SHAPES]
    parameters[1].without_decay = True
    return parameters


def give_gradients(parameters, random):
    """To all but the last; that one has its first gradient later."""
    for each in parameters:
        each.grad = torch.randn(each.shape, generator=random)


def test_it_is_adam_with_decay_where_there_is_any(ours, random):
    theirs = [nn.Parameter(each.detach().clone()) for each in ours]
    groups = [{"params": [theirs[0], theirs[2]]}, {"params": [theirs[1]], "weight_decay": 0.0}]
    expected, found = (
        torch.optim.Adam(groups, lr=0.01, weight_decay=0.1),
        Adam(nn.ParameterList(ours), 0.01, 0.1, 1),
    )
    for step in range(30):
        give_gradients(ours if step > 9 else ours[:2], random)
        for one, other in zip(ours, theirs, strict=True):
            other.grad = None if one.grad is None else one.grad.clone()
        for optimiser in (expected, found):
            optimiser.step()
            optimiser.zero_grad()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


def test_it_goes_on_from_what_it_gave(ours, random):
    first = Adam(nn.ParameterList(ours), 0.01, 0.0, 1)
    give_gradients(ours[:2], random)
    first.step()
    copies = [nn.Parameter(each.detach().clone()) for each in ours]
    second = Adam(nn.ParameterList(copies), 0.01, 0.0, 1)
    second.restore(first.tensors())
    assert {key.split("/")[0] for key in first.tensors()} == {"0", "1"}
    give_gradients(ours, random)
    for one, other in zip(ours, copies, strict=True):
        other.grad = one.grad.clone()
    first.step()
    second.step()
    for one, other in zip(ours, copies, strict=True):
        assert torch.equal(one, other)


def test_training_loads_neither_the_compiler_of_pytorch_nor_sympy():
    code = (
        "import sys, numpy as np, unskew as us\n"
        "draw = np.random.default_rng(0)\n"
        "log = us.Log.from_arrays(user=np.repeat(range(25), 4), item=np.tile(range(5), 20),"
        " conversion=draw.integers(2, size=100))\n"
        "us.Naive(learner=us.MF(dim=2), epochs=1).fit(log)\n"
        "print({'torch._dynamo', 'sympy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"
