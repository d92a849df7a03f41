"""What fitted models answer, as ONNX: conversion models and propensities from pairs to probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.backbones import Backbone, Network
from unskew.backbones.backbone import TOWER
from unskew.debias import Debiaser
from unskew.errors import UnskewError
from unskew.export.calibrators import mean_calibrated
from unskew.export.graph import Value
from unskew.export.inputs import Form, GraphInputs
from unskew.export.networks import replica_logits
from unskew.propensity import DualFocal, Propensity
from unskew.propensity.uncertainty import LEAST
from unskew.training.ensemble import LEAST as LEAST_OF_MEMBERS


def conversion_graph(model: Debiaser, form: Form) -> tuple[GraphInputs, Value]:
    """r̂(u, i) = (1/S) Σ_s σ((1/M) Σ_m f_sm(u, i)): the mean over seeds of what their ensembles say.

    f_sm is the logit of a member; where a network has members that share weights, of their mean probability.
    With other models beside it, the logits of all ensembles are averaged.
    Where the model is recalibrated, what a seed's ensemble says goes through its map.
    """
    _refuse_own_predictions(model, Debiaser)
    inputs = _inputs(model, form)
    each = _ensembles(model, inputs)
    if model.beside_:
        total = _log_odds(each)
        for other in model.beside_:
            _refuse_own_predictions(other, Debiaser)
            total = total + _log_odds(_ensembles(other, inputs))
        each = (total * (1.0 / (1 + len(model.beside_)))).sigmoid()
    if model.recalibration_ is not None:
        return inputs, inputs.known_alone(mean_calibrated(each, model.recalibration_.calibrators))
    return inputs, inputs.known_alone(each.sum(0) / len(model.seeds_))


def _ensembles(model: Debiaser, inputs: GraphInputs) -> Value:
    """What the ensemble of each seed says ``[seeds, n]``."""
    network = model.networks_["prediction"]
    logit = replica_logits(network, _backbone(model), inputs, "prediction")
    each, members = _score(network, logit, 1), network.replicas // len(model.seeds_)
    if members == 1:
        return each
    return (_mean_of_groups(network.replicas, members) @ _log_odds(each)).sigmoid()


def _log_odds(p: Value) -> Value:
    p = p.maximum(LEAST_OF_MEMBERS).minimum(1.0 - LEAST_OF_MEMBERS)
    return (p / (1.0 - p)).log()


def propensity_graph(propensity: Propensity, form: Form) -> tuple[GraphInputs, Value]:
    """p̃(u, i) = (1/SK) Σ_s Σ_k q_sk(p̂_sk(u, i)): the mean over seeds and folds, each calibrated.

    p̂ is the mean over members where there are any, with the link of a dual focal loss and the offset of
    sampled negatives. It is what a pair outside the training population gets from ``predict_pairs_each``.
    """
    _refuse_own_predictions(propensity, Propensity)
    _refuse_noise(propensity)
    inputs, method = _inputs(propensity, form), propensity.method()
    logit = replica_logits(propensity.network_, _backbone(propensity), inputs, TOWER)
    if isinstance(method, DualFocal):
        score = _score(propensity.network_, logit, method.stacked_members())
        if method.link == "inverse":
            score = _inverse_link(score, method.gamma)
        if propensity.offset_:
            # As odds, so that no logit has to be taken of a score that may be 0 or 1.
            odds = score * float(np.exp(propensity.offset_))
            score = odds / (odds + (1.0 - score))
    else:
        score = _score(propensity.network_, logit + propensity.offset_, method.stacked_members())
    return inputs, inputs.known_alone(mean_calibrated(score, propensity.calibrators_))


def reads_features(model: Debiaser | Propensity) -> bool:
    """Whether the network that predicts reads more than the two ids."""
    return _backbone(model).reads_features


def _backbone(model: Debiaser | Propensity) -> Backbone:
    if isinstance(model, Debiaser):
        return model.backbone_of("prediction")
    return model.trained_backbone()


def _inputs(model: Debiaser | Propensity, form: Form) -> GraphInputs:
    encoders = model.encoders_ if reads_features(model) else None
    return GraphInputs(model.users_, model.items_, encoders, form)


def _score(network: Network, logit: Value, stacked: int) -> Value:
    """Raw probabilities ``[R / stacked, n]`` in float64, averaged over members."""
    p = logit.cast(np.float64).sigmoid()
    each = p.sum(1) / network.members
    if stacked == 1:
        return each
    return _mean_of_groups(network.replicas, stacked) @ each


def _mean_of_groups(replicas: int, size: int) -> NDArray[np.float64]:
    """The matrix that averages so many lines, side by side, at a time."""
    return np.asarray(np.eye(replicas // size).repeat(size, axis=1) / size)


def _inverse_link(score: Value, gamma: float) -> Value:
    """η = L₀' / (L₀' − L₁') below ½ and 1 − η above, as :class:`unskew.DualFocal` has it."""
    p = score.minimum(1.0 - score).maximum(LEAST).minimum(0.5)
    q = 1.0 - p
    clicked = q ** (gamma - 1) * p.log() * gamma - q**gamma / p
    unclicked = (p * 2.0) ** gamma / q - (p * 2.0) ** (gamma - 1) * q.log() * (2 * gamma)
    eta = (unclicked / (unclicked - clicked)).minimum(0.5)
    return (score <= 0.5).where(eta, 1.0 - eta)


def _refuse_own_predictions(model: Debiaser | Propensity, known: type[Debiaser | Propensity]) -> None:
    """A class that predicts otherwise would be exported as something that it is not."""
    for name in ("predict_each", "predict_pairs_each", "predict_frame_each"):
        if getattr(type(model), name) is not getattr(known, name):
            raise UnskewError(
                f"{type(model).__name__} has a {name} of its own, which has no ONNX form here",
                remedy="export a method that predicts as all of unskew's do",
            )


def _refuse_noise(propensity: Propensity) -> None:
    """Random passes have no place in a graph that must answer the same twice."""
    if propensity.method().passes():
        raise UnskewError(
            "MC dropout answers with random passes, which an exported graph cannot repeat",
            remedy="export propensity.reread(uncertainty=None) before it is saved,"
            " or train with --uncertainty deep-ensemble",
        )
    if getattr(propensity, "calibrator_dropout", False) and propensity.calibrator is not None:
        raise UnskewError(
            "this calibrator maps scores with dropout noise in them (calibrator_dropout, the paper's"
            " protocol), which an exported graph cannot repeat",
            remedy="export propensity.reread(calibrator_dropout=False), or train with --protocol honest",
        )
