"""What a fitted method says of rows, as functions of it: members, models beside it, and the map of its level.

Rows are what :meth:`unskew.Debiaser.reader` makes of logs, pairs and frames.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from unskew.calibration.recalibration import Judged, Recalibration, recalibration
from unskew.estimator import require
from unskew.log import Log, Rows
from unskew.propensity.given import GivenPropensities, given_propensities
from unskew.training.ensemble import combined
from unskew.training.held_out import Cells
from unskew.training.inference import probability_moments

if TYPE_CHECKING:
    from unskew.debias.method import Debiaser
    from unskew.debias.setting import Setting

Floats = NDArray[np.float64]
Model = TypeVar("Model", bound="Debiaser")


def of_seeds(model: Debiaser, rows: Rows) -> Floats:
    """Of the ensembles ``[seeds, n]``, with the models beside them; recalibrated."""
    found = combined(raw_of_members(model, rows))
    if model.beside_:
        others = [of_seeds(each, rows) for each in model.beside_]
        found = combined(np.stack([found, *others], axis=1))
    return found if model.recalibration_ is None else model.recalibration_.predict(found)


def of_lines(model: Debiaser, rows: Rows) -> Floats:
    """Of what held out each line of :meth:`unskew.Debiaser.validation_rows` ``[lines, n]``; recalibrated."""
    if model.split_ is None or model.split_.lines == 1:
        return of_seeds(model, rows)
    # Members of models beside it hold out what its own do.
    members = np.stack([raw_of_members(each, rows) for each in (model, *model.beside_)], axis=2)
    return _recalibrated(model, combined(members))


def of_replicas(model: Debiaser, rows: Rows) -> Floats:
    """Of each member ``[seeds · members, n]``, also of models beside it; recalibrated."""
    members = np.concatenate([raw_of_members(each, rows) for each in (model, *model.beside_)], axis=1)
    return _recalibrated(model, members)


def raw_of_members(model: Debiaser, rows: Rows) -> Floats:
    """Of a model's own members ``[seeds, members, n]``, before any recalibration.

    Rows are ``[1, n]``, or have a line for each seed or for each member.
    """
    if len(rows.user) > 1:
        members = len(model.replicas()) // len(rows.user)
        rows = rows.map(lambda values: values.repeat_interleave(members, dim=0))
    # The first tower of the network that predicts; of members that share weights, all of them.
    mean = probability_moments(model.networks_["prediction"], rows)[0].cpu().numpy()
    return by_seed(model, np.asarray(mean))


def by_seed(model: Debiaser, lines: Floats) -> Floats:
    """Lines of all replicas ``[R, n]`` as ``[seeds, members, n]``."""
    return lines.reshape(len(model.seeds_), len(lines) // len(model.seeds_), lines.shape[1])


def _recalibrated(model: Debiaser, members: Floats) -> Floats:
    """Lines ``[seeds · members, n]`` from ``[seeds, members, n]``, each by the map of its seed."""
    if model.recalibration_ is None:
        return np.concatenate(members)
    each = [model.recalibration_.predict(line) for line in members.swapaxes(0, 1)]
    return np.concatenate(np.stack(each, axis=1))


def without_recalibration(model: Model) -> Model:
    """A model as it was before it was recalibrated."""
    raw = copy(model)
    raw.recalibration_ = None
    return raw


def with_beside(model: Model, others: tuple[Debiaser, ...]) -> Model:
    """A model with others of the same log and seeds beside it, all as before any recalibration."""
    for other in others:
        require(
            model.seeds_ == other.seeds_
            and model.reads_features == other.reads_features
            and model.fields == other.fields
            and (model.split_ == other.split_ or None in (model.split_, other.split_))
            and model.users_.same_as(other.users_)
            and model.items_.same_as(other.items_),
            f"{model.name} and {other.name} were not trained with the same seeds, ids, features and"
            " held-out clicks",
            "fit both alike: seeds, members, validation_share and validation_by too",
        )
    together: tuple[Debiaser, ...] = (model, *others)
    for each in together:
        require(
            not each.beside_, f"{each.name} has a model beside it already", "give models as fit left them"
        )
    joined = without_recalibration(model)
    joined.beside_ = tuple(without_recalibration(other) for other in others)
    return joined


def map_after_training(
    model: Debiaser, log: Log, given: GivenPropensities | None, setting: Setting
) -> Recalibration:
    """As ``recalibrate`` says, on the clicks that chose the epoch, weighted as they were in training."""
    rows = _held_out_rows(model, log)
    if given is not None:
        own = given.clicked[list(given.lines[:: model.of_members.trained])]
        p = np.take_along_axis(own, np.searchsorted(log.clicked, rows), axis=1)
    elif model.tower is not None:
        p = np.stack([_by_tower(model, log.take(line), setting)[s] for s, line in enumerate(rows)])
    else:
        p = np.ones(rows.shape)
    return _map(log, rows, _of_held_out(model, log), p, model.recalibrate)


def map_on_clicks(model: Debiaser, log: Log, by: str, of: str) -> Recalibration:
    """On all clicks of a log, which count alike."""
    rows = np.tile(log.clicked, (len(model.seeds_), 1))
    predicted = without_recalibration(model).predict_each(log.take(log.clicked))
    return _map(log, rows, predicted, np.ones(rows.shape), by, of)


def map_on_held_out(model: Debiaser, log: Log, propensity: Any, by: str) -> Recalibration:
    """On the clicks of the training log that were held out, weighted by 1/p."""
    rows = _held_out_rows(model, log)
    given = given_propensities(log, propensity, model.seeds_, model.p_min).clicked
    p = np.take_along_axis(given, np.searchsorted(log.clicked, rows), axis=1)
    return _map(log, rows, _of_held_out(model, log), p, by)


def _map(
    log: Log, rows: NDArray[np.int64], predicted: Floats, p: Floats, kind: str, on: str = "held-out clicks"
) -> Recalibration:
    """On rows of a log ``[seeds, n]`` with predictions and propensities."""
    assert log.conversion is not None
    outcome = log.conversion[rows].astype(np.float64)
    weighted = on if (p == p[0, 0]).all() else f"{on}, weighted by 1/p"
    known = log.known_propensity is not None
    return recalibration(Judged(predicted, outcome, 1.0 / p), kind, weighted, known=known, number=rows)


def _held_out_rows(model: Debiaser, log: Log) -> NDArray[np.int64]:
    """As :meth:`unskew.Debiaser.validation_rows`, all lines of a seed in one: ``[seeds, n]``."""
    return model.validation_rows(log).reshape(len(model.seeds_), -1)


def _of_held_out(model: Debiaser, log: Log) -> Floats:
    """Predictions of these rows by what held them out ``[seeds, n]``, before any recalibration."""
    lines = model.validation_rows(log)
    asked = model.reader().of_log(log.take(lines.ravel())).rows
    at = torch.arange(lines.size, device=asked.device).reshape(lines.shape)
    found = of_lines(without_recalibration(model), asked.map(lambda values: values[0][at]))
    return found.reshape(len(model.seeds_), -1)


def _by_tower(model: Debiaser, rows: Log, setting: Setting) -> Floats:
    """Propensities by the click tower, clipped: ``[seeds, n]``, the mean over members."""
    assert model.tower is not None
    cells = Cells(model.reader().of_log(rows).rows, torch.empty(0), torch.empty(0))
    p = torch.maximum(model.tower.probability(setting, cells), setting.floor)
    return np.asarray(by_seed(model, p.double().cpu().numpy()).mean(axis=1))
