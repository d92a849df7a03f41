"""Devices by name, and what is told where there is none."""

from __future__ import annotations

import pytest
import torch

from unskew.base import processes
from unskew.base.errors import ParameterError
from unskew.training import resolve_device


def test_auto_takes_a_gpu_where_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == torch.device("cpu")


def test_a_gpu_that_is_there_is_taken_by_number(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ParameterError, match=r"cuda:2 is not there \(2 GPUs are\)"):
        resolve_device("cuda:2")


@pytest.mark.parametrize("name", ["gpu", "", "cuda:x", "cpu:cpu"])
def test_what_is_no_device_is_told(name):
    with pytest.raises(ParameterError, match=r"is not a device.*auto, cpu, cuda or cuda:1"):
        resolve_device(name)


@pytest.mark.parametrize("name", ["mps", "meta", "xpu"])
def test_devices_that_are_not_supported_are_told(name):
    with pytest.raises(ParameterError, match=f"device '{name}' is not supported"):
        resolve_device(name)


def test_a_missing_gpu_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ParameterError, match=r"cuda is not there \(0 GPUs are\).*--device auto or cpu"):
        resolve_device("cuda")


@pytest.mark.parametrize("device", [None, 3, ["cpu"]])
def test_what_is_not_even_a_name_is_told(device):
    with pytest.raises(ParameterError, match=r"is not a device. To fix: use auto, cpu"):
        resolve_device(device)


def test_each_of_several_processes_has_a_gpu_of_its_own_as_far_as_there_are_enough(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(processes, "world", lambda: 3)
    found = []
    for number in range(3):
        monkeypatch.setenv("LOCAL_RANK", str(number))
        found.append([str(resolve_device(name)) for name in ("auto", "cuda", "cuda:1", "cpu")])
    assert found == [
        ["cuda:0", "cuda:0", "cuda:1", "cpu"],
        ["cuda:1", "cuda:1", "cuda:1", "cpu"],
        ["cuda:0", "cuda:0", "cuda:1", "cpu"],
    ]
