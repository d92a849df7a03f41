"""What a streamed run took in memory at most, and how much of that its largest parts took."""

from __future__ import annotations

from collections.abc import Mapping

from torch.nn import Parameter

from unskew.base import processes
from unskew.data import StreamedLog
from unskew.data.remembered import RememberedRows
from unskew.debias import Debiaser
from unskew.training.memory import BYTES, peak_memory


def memory_parts(
    log: StreamedLog,
    models: Mapping[str, Debiaser],
    trained: Mapping[str, Debiaser],
    before_training: int | None,
) -> dict[str, int]:
    """Bytes of the networks of a run, and of the rows of its log that are kept in memory, in this process.

    Parameters
    ----------
    models
        All that are kept.
    trained
        Those of the largest training, whose moments and best weights so far were there with the weights of
        all.
    before_training
        The most memory that the process had until then, when there were no such networks.
    """
    share = _share(sum(len(model.replicas()) for model in trained.values()))
    networks = sum(weights_of(model) for key, model in models.items() if key not in trained)
    for model in trained.values():
        of_model = weights_of(model) + BYTES * 2 * sum(each.numel() for each in _parameters(model))
        if model.patience is not None and len(model.history_.validation) > 1:
            of_model += weights_of(model)
        networks += round(share * of_model)
    rows = log.source.nbytes if isinstance(log.source, RememberedRows) else 0
    parts = {"networks": networks, "rows": rows, "before_training": before_training or 0}
    return parts if processes.world() == 1 else {**parts, "processes": processes.world()}


def _share(replicas: int) -> float:
    """Of so many replicas of a training, what this process has: a part of them, or, of few, each of them."""
    if processes.world() == 1 or replicas < processes.world():
        return 1.0
    own = processes.share_of(processes.rank(), replicas)
    return float(own.stop - own.start) / replicas


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
    """The parts in words: of the networks, where there were any when most was taken.

    Examples
    --------
    >>> parts = {"peak": 1_500_000_000, "libraries": 350_000_000, "networks": 400_000_000, "rows": 0}
    >>> memory_sentence({**parts, "before_training": 900_000_000})
    'Memory at most 1.50 GB, in training: libraries 0.35, networks and moments 0.40, rows as codes 0.00, \
the rest 0.75'
    >>> memory_sentence({**parts, "before_training": 1_500_000_000})
    'Memory at most 1.50 GB, before training: libraries 0.35, rows as codes 0.00, the rest 1.15'
    >>> memory_sentence({**parts, "before_training": 0, "processes": 2})[:44]
    'Memory of rank 0 of 2 at most 1.50 GB, in tr'
    """
    names = {"libraries": "libraries", "networks": "networks and moments", "rows": "rows as codes"}
    when = "in training"
    if parts["before_training"] >= parts["peak"]:
        when = "before training"
        del names["networks"]
    rest = parts["peak"] - sum(parts[name] for name in names)
    listed = [f"{words} {parts[name] / 1e9:.2f}" for name, words in names.items()]
    whose = f" of rank 0 of {parts['processes']}" if "processes" in parts else ""
    most = f"Memory{whose} at most {parts['peak'] / 1e9:.2f} GB, {when}"
    return f"{most}: {', '.join(listed)}, the rest {rest / 1e9:.2f}"


def _parameters(model: Debiaser) -> list[Parameter]:
    """In the memory of the process: none of a model on a GPU."""
    if model.device_.type != "cpu":
        return []
    return [weight for network in model.networks_.values() for weight in network.parameters()]
