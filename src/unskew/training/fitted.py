"""Predictions of fitted ensembles: members, models beside them, and the map of their level, as functions.

Rows are what a :class:`~unskew.training.reader.Reader` makes of logs, pairs and frames. The mean logit of the
members is the model; how far they disagree tells where another would predict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit

from unskew.base.estimator import require
from unskew.base.seeds import Replica
from unskew.base.tensors import torch
from unskew.calibration.recalibration import Judged, Recalibration, recalibration
from unskew.data import Encoders, Log, Rows
from unskew.data.vocabulary import Vocabulary
from unskew.learners import Learner, Network
from unskew.training.held_out import Split
from unskew.training.inference import probability_moments

Floats = NDArray[np.float64]

LEAST = 1e-15
"""Probabilities of members are kept so far from 0 and 1, where logits would be infinite."""

MOST_MEMBERS = 1000
"""Members of a seed; more are a mistake."""


class FittedModel(Protocol):
    """The part of a :class:`unskew.Debiaser` that is used here."""

    name: ClassVar[str]
    learner: Learner
    members: int
    validation_share: float
    validation_by: str
    seeds_: tuple[int, ...]
    users_: Vocabulary
    items_: Vocabulary
    encoders_: Encoders | None
    split_: Split
    recalibration_: Recalibration | None

    @property
    def networks_(self) -> Mapping[str, Network]:
        """Return the networks by name."""
        ...

    @property
    def beside_(self) -> tuple[Any, ...]:
        """Return further models, of the same seeds, whose mean with it is the model."""
        ...

    def replicas(self) -> tuple[Replica, ...]:
        """Return all members of all seeds."""
        ...

    def predict(self, log: Any) -> NDArray[np.float64]:
        """Return predictions ``[n]`` of the rows of a log."""
        ...


def of_seeds(model: FittedModel, rows: Rows) -> Floats:
    """Return what ensembles say ``[seeds, n]``, with the models beside them; recalibrated."""
    predicted = combined(raw_of_members(model, rows))
    if model.beside_:
        others = [of_seeds(each, rows) for each in model.beside_]
        predicted = combined(np.stack([predicted, *others], axis=1))
    return predicted if model.recalibration_ is None else model.recalibration_.predict(predicted)


def of_lines(model: FittedModel, rows: Rows) -> Floats:
    """Return what held out each line of :meth:`unskew.Debiaser.validation_rows` ``[lines, n]``;
    recalibrated."""
    if model.split_.lines == 1:
        return of_seeds(model, rows)
    # Members of models beside it hold out what its own do.
    members = np.stack([raw_of_members(each, rows) for each in (model, *model.beside_)], axis=2)
    return _recalibrated(model, combined(members))


def of_replicas(model: FittedModel, rows: Rows) -> Floats:
    """Return what each member says ``[seeds · members, n]``, also of models beside it; recalibrated."""
    members = np.concatenate([raw_of_members(each, rows) for each in (model, *model.beside_)], axis=1)
    return _recalibrated(model, members)


def raw_of_members(model: FittedModel, rows: Rows) -> Floats:
    """Return what a model's own members say ``[seeds, members, n]``, before any recalibration.

    Rows are ``[1, n]``, or have a line for each seed or for each member.
    """
    if len(rows.user) > 1:
        members = len(model.replicas()) // len(rows.user)
        rows = rows.map(lambda values: values.repeat_interleave(members, dim=0))
    # The first tower of the network that predicts; of members that share weights, all of them.
    mean = probability_moments(model.networks_["prediction"], rows)[0].cpu().numpy()
    return by_seed(model, np.asarray(mean))


def by_seed(model: FittedModel, lines: Floats) -> Floats:
    """Return lines of all replicas ``[R, n]`` as ``[seeds, members, n]``."""
    return lines.reshape(len(model.seeds_), len(lines) // len(model.seeds_), lines.shape[1])


def _recalibrated(model: FittedModel, members: Floats) -> Floats:
    """Return lines ``[seeds · members, n]`` from ``[seeds, members, n]``, each by the map of its seed."""
    if model.recalibration_ is None:
        return np.concatenate(members)
    lines = [model.recalibration_.predict(line) for line in members.swapaxes(0, 1)]
    return np.concatenate(np.stack(lines, axis=1))


def of_own_lines(model: FittedModel, rows: Rows, lines: int) -> Floats:
    """Predict rows ``[1, lines · n]``, a part for each line, by what held out that line: ``[seeds, …]``."""
    at = torch.arange(rows.shape[1], device=rows.device).reshape(lines, -1)
    return of_lines(model, rows.map(lambda values: values[0][at])).reshape(len(model.seeds_), -1)


def map_of(
    log: Log, rows: NDArray[np.int64], predicted: Floats, p: Floats, kind: str, on: str = "held-out clicks"
) -> Recalibration:
    """Return the map of a level, on rows of a log ``[seeds, n]`` with predictions and propensities."""
    assert log.conversion is not None
    outcome = log.conversion[rows].astype(np.float64)
    weighted = on if (p == p[0, 0]).all() else f"{on}, weighted by 1/p"
    known = log.known_propensity is not None
    return recalibration(Judged(predicted, outcome, 1.0 / p), kind, weighted, known=known, number=rows)


def combined(members: Floats) -> Floats:
    """σ of the mean logit of members: probabilities ``[…, members, n]`` → ``[…, n]``; those of one stay."""
    if members.shape[-2] == 1:
        return members[..., 0, :]
    return np.asarray(expit(_logits(members).mean(axis=-2)))


def spread(members: Floats) -> Floats:
    """Return the standard deviation ``[n]`` of probabilities ``[K, n]``."""
    return np.asarray(members.std(axis=0, ddof=1))


def interval(members: Floats, level: float) -> Floats:
    r"""Return limits ``[2, n]`` between which another member of as many, ``[K, n]``, would predict.

    .. math:: \sigma\left(\bar z \pm t_{K-1} \, s \, \sqrt{1 + 1/K}\right)
    """
    z, count = _logits(members), len(members)
    half = stdtrit(count - 1, (1.0 + level) / 2.0) * z.std(axis=0, ddof=1) * math.sqrt(1.0 + 1.0 / count)
    return np.stack([expit(z.mean(axis=0) - half), expit(z.mean(axis=0) + half)])


def require_several(members: int, name: str) -> None:
    """Raise an error for a model of one network, by the name of its method."""
    require(
        members > 1,
        f"one network of {name} does not tell how far its predictions may be off",
        "fit it with members=5",
    )


def _logits(members: Floats) -> Floats:
    return np.asarray(logit(np.clip(members, LEAST, 1.0 - LEAST)))
