"""What a streamed run took in memory at most, and how much of that its largest parts took."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.nn import Parameter

from unskew.debias import Debiaser
from unskew.log import StreamedLog
from unskew.log.remembered import RememberedRows
from unskew.training.memory import BYTES, peak_memory


def memory_parts(
    log: StreamedLog, models: Mapping[str, Debiaser], trained: Mapping[str, Debiaser]
) -> dict[str, int]:
    """Bytes of the networks of a run, and of the rows of its log that are kept in memory.

    Parameters
    ----------
    models
        All that are kept.
    trained
        Those of the largest training, whose moments were there with the weights of all.
    """
    weights = sum(weights_of(model) for model in models.values())
    moments = sum(_numbers_of_moments(p) for model in trained.values() for p in _parameters(model))
    rows = log.source.nbytes if isinstance(log.source, RememberedRows) else 0
    return {"networks": weights + BYTES * moments, "rows": rows}


def weights_of(model: Debiaser) -> int:
    """Bytes of a model's own networks in the memory of the process."""
    return sum(p.numel() * p.element_size() for p in _parameters(model))


def with_peak(parts: Mapping[str, int], libraries: float | None) -> dict[str, int]:
    """The parts with the most memory that the process had so far, and (in MB) what it had before it read the
    log; nothing where the system does not tell, or there are no parts."""
    peak = peak_memory()
    if not parts or peak is None or libraries is None:
        return {}
    return {"peak": peak, "libraries": round(libraries * 1e6), **parts}


def memory_sentence(parts: Mapping[str, int]) -> str:
    """The parts in words.

    Examples
    --------
    >>> memory_sentence({"peak": 1_500_000_000, "libraries": 350_000_000, "networks": 0, "rows": 0})
    'Memory at most 1.50 GB: libraries 0.35, networks and moments 0.00, rows as codes 0.00, the rest 1.15'
    """
    gigabytes = {name: size / 1e9 for name, size in parts.items()}
    rest = gigabytes["peak"] - sum(size for name, size in gigabytes.items() if name != "peak")
    return (
        f"Memory at most {gigabytes['peak']:.2f} GB: libraries {gigabytes['libraries']:.2f},"
        f" networks and moments {gigabytes['networks']:.2f}, rows as codes {gigabytes['rows']:.2f},"
        f" the rest {rest:.2f}"
    )


def _parameters(model: Debiaser) -> list[Parameter]:
    """In the memory of the process: none of a model on a GPU."""
    if model.device_.type != "cpu":
        return []
    return [weight for network in model.networks_.values() for weight in network.parameters()]


def _numbers_of_moments(weight: Parameter) -> int:
    """Adam's two, each as large as the weights; of bfloat16 the second, few numbers a row, does not count."""
    return weight.numel() * (1 if weight.dtype == torch.bfloat16 else 2)
