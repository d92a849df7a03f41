"""What fitted models answer, as modules that ``torch.onnx.export`` can trace: rows in, probabilities out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unskew.backbones import Network
from unskew.calibration import AutoCalibrator, Calibrator
from unskew.debias import Debiaser
from unskew.errors import ParameterError, UnskewError
from unskew.export.calibrators import Calibration, MultiCalibration, sigmoid
from unskew.export.inputs import ROLES_OF_IDS, Columns, field_columns, rows_read
from unskew.log import Encoders, Rows
from unskew.log.schema import Role
from unskew.propensity import ColumnPropensity, DualFocal, PositionPropensity, Propensity
from unskew.propensity.design import MOST_CODES, DesignedModels
from unskew.propensity.logistic import DesignedLogit, LogitModel
from unskew.propensity.naive_bayes import BayesModel
from unskew.propensity.per_replica import PerReplica
from unskew.propensity.popularity import LARGEST, ProductModel
from unskew.propensity.position import PositionModel
from unskew.propensity.propensity import BasePropensity
from unskew.propensity.segments import Segments
from unskew.propensity.uncertainty import LEAST
from unskew.training.ensemble import LEAST as LEAST_OF_MEMBERS


def module_of(model: Debiaser | BasePropensity) -> nn.Module:
    """Return a fitted model as a module: columns by name → float32 probabilities ``[n]``."""
    return _Conversion(model) if isinstance(model, Debiaser) else _Propensity(model)


def encoders_of(model: Debiaser | BasePropensity) -> Encoders | None:
    """Return how the features that a model reads are coded; None where it reads the ids alone."""
    return model.encoders_ if model.reads_features else None


def further_columns(model: Debiaser | BasePropensity) -> tuple[str, ...]:
    """Return the names of columns that a propensity reads beside ids and features."""
    if isinstance(model, PositionPropensity):
        return (model.position,)
    return (model.column,) if isinstance(model, ColumnPropensity) else ()


class _Conversion(nn.Module):
    """r̂(u, i) = (1/S) Σ_s σ((1/M) Σ_m f_sm(u, i)): the mean over seeds of what their ensembles say.

    f_sm is the logit of a member; where a network has members that share weights, of their mean probability.
    With other models beside it, the logits of all ensembles are averaged. Where the model is recalibrated,
    what a seed's ensemble says goes through its map.
    """

    def __init__(self, model: Debiaser) -> None:
        super().__init__()
        models = (model, *model.beside_)
        for each in models:
            _refuse_own_predictions(each)
        self.networks = nn.ModuleList(_Network(each.networks_["prediction"], "prediction") for each in models)
        self.members = [each.networks_["prediction"].replicas // len(each.seeds_) for each in models]
        maps = (
            [None] * len(model.seeds_) if model.recalibration_ is None else model.recalibration_.calibrators
        )
        self.calibration = Calibration(maps)
        self.encoders = encoders_of(model)

    def forward(self, values: Columns) -> Tensor:
        """Return the probabilities of a conversion."""
        rows, known = rows_read(values, self.encoders)
        scores = [network(rows) for network in self.networks]
        if self.members[0] == len(scores) == 1:
            return _answer(self.calibration(scores[0]), known)
        odds = [
            _mean_of_groups(_log_odds(score), members)
            for score, members in zip(scores, self.members, strict=True)
        ]
        return _answer(self.calibration(sigmoid(torch.stack(odds).mean(0))), known)


class _Propensity(nn.Module):
    """p̃(u, i) = (1/SK) Σ_s Σ_k q_sk(p̂_sk(u, i)): the mean over seeds and folds, each calibrated.

    It is what a pair outside the training population gets from ``predict_pairs_each``.
    """

    def __init__(self, propensity: BasePropensity) -> None:
        super().__init__()
        _refuse_own_predictions(propensity)
        self.encoders = encoders_of(propensity)
        self.scores = _scores_of(propensity)
        calibrators = [_chosen(each) for each in propensity.calibrators_]
        self.segments = None if propensity.segments_ is None else _Segments(propensity.segments_)
        self.calibration = (
            Calibration(calibrators)
            if self.segments is None
            else nn.ModuleList(MultiCalibration(each) for each in calibrators)  # type: ignore[arg-type]
        )

    def forward(self, values: Columns) -> Tensor:
        """Return the probabilities of a click."""
        rows, known = rows_read(values, self.encoders)
        score = self.scores(rows, values)
        if self.segments is None:
            return _answer(self.calibration(score), known)
        columns = self.segments(rows, values)
        assert isinstance(self.calibration, nn.ModuleList)
        lines = zip(self.calibration, score.unbind(0), strict=True)
        return _answer(torch.stack([calibrate(line, columns) for calibrate, line in lines]), known)


class _Network(nn.Module):
    """p̂ ``[R, n]`` of one tower, in float64: the mean over members that share its weights."""

    def __init__(self, network: Network, tower: str, offset: float = 0.0) -> None:
        super().__init__()
        on_cpu = next(network.parameters()).device.type == "cpu"
        self.network = network if on_cpu else copy.deepcopy(network).to_device(torch.device("cpu"))
        self.tower, self.offset = tower, offset

    def forward(self, rows: Rows) -> Tensor:
        """Return raw probabilities."""
        replicas, members = self.network.replicas, self.network.members
        embedded = self.network.embed(rows.repeat(members))
        p = sigmoid(self.network.read(embedded, self.tower).double() + self.offset)
        return p if members == 1 else p.view(replicas, members, -1).mean(1)


class _NetworkScores(nn.Module):
    """Raw scores ``[R, n]`` of a propensity's networks: means over members, links undone."""

    def __init__(self, propensity: Propensity) -> None:
        super().__init__()
        self.method = propensity.method()
        if self.method.passes():
            raise UnskewError(
                "MC dropout answers with random passes, which an exported graph cannot repeat",
                remedy="export propensity.reread(uncertainty=None) before it is saved,"
                " or train with --uncertainty deep-ensemble (or export --what conversion)",
            )
        if getattr(propensity, "calibrator_dropout", False) and propensity.calibrator is not None:
            raise UnskewError(
                "this calibrator maps scores with dropout noise in them (calibrator_dropout, the paper's"
                " protocol), which an exported graph cannot repeat",
                remedy="export propensity.reread(calibrator_dropout=False), or train with --protocol honest",
            )
        self.odds = float(np.exp(propensity.offset_)) if isinstance(self.method, DualFocal) else 1.0
        network = propensity.network_
        self.network = _Network(network, network.towers[0], 0.0 if self.odds != 1.0 else propensity.offset_)

    def forward(self, rows: Rows, values: Columns) -> Tensor:
        """Return scores."""
        p = _mean_of_groups(self.network(rows), self.method.stacked_members())
        if not isinstance(self.method, DualFocal):
            return p
        p = _inverse_link(p, self.method.gamma) if self.method.link == "inverse" else p
        # As odds, so that no logit has to be taken of a score that may be 0 or 1.
        return p * self.odds / (p * self.odds + (1.0 - p))


class _ModelScores(nn.Module):
    """Raw scores ``[R, n]`` of models that are numbers: of one kind, the formula of its class."""

    def __init__(self, scorer: PerReplica) -> None:
        super().__init__()
        self.formula = FORMULAS[type(scorer.models[0])]
        self.design = scorer.design.encoders if isinstance(scorer, DesignedModels) else None
        for name, values in scorer.tensors().items():
            self.register_buffer(name, values.double())
        self.further = ""

    def forward(self, rows: Rows, values: Columns) -> Tensor:
        """Return scores."""
        return self.formula(self, rows, values)


class _ColumnScores(nn.Module):
    """Somebody else's scores, which come with the rows."""

    def __init__(self, column: str, replicas: int) -> None:
        super().__init__()
        self.column, self.replicas = column, replicas

    def forward(self, rows: Rows, values: Columns) -> Tensor:
        """Return them, for each replica."""
        return values[self.column].expand(self.replicas, -1)


class _Segments(nn.Module):
    """What a calibrator reads beside the scores: users' and items' features as they were in training."""

    def __init__(self, segments: Segments) -> None:
        super().__init__()
        self.segments = segments
        encoders = segments.encoders
        for role in ROLES_OF_IDS if encoders is not None else ():
            assert encoders is not None
            codes = np.arange(len(encoders.tables[role].codes))
            for number, columns in enumerate(encoders.table_columns(role, codes).values()):
                self.register_buffer(f"{role}_{number}", torch.from_numpy(np.ascontiguousarray(columns)))

    def forward(self, rows: Rows, values: Columns) -> dict[str, Tensor]:
        """Return columns ``[n]`` by name."""
        found = {name: rows[name][0] for name in self.segments.ids}
        encoders = self.segments.encoders
        if encoders is None:
            return found
        read = dict(values)
        for role in ROLES_OF_IDS:
            for number, encoder in enumerate(encoders.of_role(role)):
                read[encoder.feature.name] = self.get_buffer(f"{role}_{number}")[rows[role][0]]
        return found | {each.feature.name: field_columns(read, each.field) for each in encoders.encoders}


def _scores_of(propensity: BasePropensity) -> nn.Module:
    if isinstance(propensity, Propensity):
        return _NetworkScores(propensity)
    if isinstance(propensity, ColumnPropensity):
        return _ColumnScores(propensity.column, propensity.replicas_)
    scorer = propensity.scorer_
    if isinstance(scorer, PerReplica) and type(scorer.models[0]) in FORMULAS:
        scores = _ModelScores(scorer)
        scores.further = next(iter(further_columns(propensity)), "")
        return scores
    raise ParameterError(
        f"the classifiers of a {type(propensity).__name__} have no ONNX form here",
        remedy="use LogisticPropensity (--propensity logistic), a network (--propensity dcn),"
        " or write predictions to a table",
    )


def _logit(model: Any, rows: Rows, values: Columns) -> Tensor:
    """σ(c + left_u · right_i)."""
    products: Tensor = (model.left[:, rows.user[0]] * model.right[:, rows.item[0]]).sum(2)
    return sigmoid(model.intercept[:, None] + products + model.offset[:, None])


def _designed_logit(model: Any, rows: Rows, values: Columns) -> Tensor:
    """σ(c + a_u + b_i + xᵀ W y + w·v), with x = (1, the user's columns), y the item's, v the row's."""
    x, y, v = (_design(model.design, role, values) for role in ("user", "item", "row"))
    one = torch.ones_like(values["user"], dtype=torch.float64)[:, None]
    x, y = torch.cat([one, x], dim=1), torch.cat([one, y], dim=1)
    z = ((x @ model.effects) * y).sum(2) + (v * model.row[:, None]).sum(2)
    z = z + model.user[:, rows.user[0]] + model.item[:, rows.item[0]]
    return sigmoid(model.intercept[:, None] + z + model.offset[:, None])


def _product(model: Any, rows: Rows, values: Columns) -> Tensor:
    """c · f_u · f_i."""
    p: Tensor = model.constant[:, None] * model.user[:, rows.user[0]] * model.item[:, rows.item[0]]
    return p.clamp(max=LARGEST)


def _bayes(model: Any, rows: Rows, values: Columns) -> Tensor:
    """The density: nobody knows the conversion of a pair that is yet to be shown."""
    density: Tensor = model.density[:, None]
    return density + torch.zeros_like(rows.user[0], dtype=torch.float64)


def _position(model: Any, rows: Rows, values: Columns) -> Tensor:
    """θ_k · σ(c + left_u · right_i); NaN at a position that training did not have."""
    at = values[model.further][:, None] == model.positions[0]
    theta = (model.examination[:, None] * at.double()).sum(2)
    return torch.where(at.any(1), theta, torch.nan) * _logit(model, rows, values)


FORMULAS: Mapping[type, Callable[[Any, Rows, Columns], Tensor]] = {
    LogitModel: _logit,
    DesignedLogit: _designed_logit,
    ProductModel: _product,
    BayesModel: _bayes,
    PositionModel: _position,
}


def _design(encoders: Encoders, role: Role, values: Columns) -> Tensor:
    """Return the columns ``[n, k]`` of a design of the role: counts of codes, and numbers."""
    parts = [values["user"][:, None][:, :0].double()]
    for encoder in encoders.of_role(role):
        columns, field = values[encoder.feature.name], encoder.field
        if field.kind == "number":
            parts.append(columns.double())
        elif field.size <= MOST_CODES:
            counted = torch.arange(1, field.size)
            parts.append((columns[:, :, None] == counted).double().sum(1))
    return torch.cat(parts, dim=1)


def _answer(probabilities: Tensor, known: Tensor | None) -> Tensor:
    """Return the mean of lines, with NaN where a model that reads ids alone does not know one."""
    mean = probabilities.mean(0).float()
    return mean if known is None else torch.where(known, mean, torch.nan)


def _chosen(calibrator: Calibrator | None) -> Calibrator | None:
    return _chosen(calibrator.choice_) if type(calibrator) is AutoCalibrator else calibrator


def _mean_of_groups(lines: Tensor, size: int) -> Tensor:
    """Return the means ``[R / size, n]`` of so many lines, side by side, at a time."""
    return lines if size == 1 else lines.view(len(lines) // size, size, -1).mean(1)


def _log_odds(p: Tensor) -> Tensor:
    p = p.clamp(LEAST_OF_MEMBERS, 1.0 - LEAST_OF_MEMBERS)
    return (p / (1.0 - p)).log()


def _inverse_link(score: Tensor, gamma: float) -> Tensor:
    """η = L₀' / (L₀' − L₁') below ½ and 1 − η above, as :class:`unskew.DualFocal` has it."""
    p = torch.minimum(score, 1.0 - score).clamp(LEAST, 0.5)
    q = 1.0 - p
    clicked = gamma * q ** (gamma - 1) * p.log() - q**gamma / p
    unclicked = (2 * p) ** gamma / q - 2 * gamma * (2 * p) ** (gamma - 1) * q.log()
    eta = (unclicked / (unclicked - clicked)).clamp(max=0.5)
    return torch.where(score <= 0.5, eta, 1.0 - eta)


def _refuse_own_predictions(model: Debiaser | BasePropensity) -> None:
    """Raise an error for a class of somebody's own that predicts otherwise than unskew's."""
    for name in ("predict_each", "predict_pairs_each", "predict_frame_each"):
        kind = next(kind for kind in type(model).__mro__ if name in vars(kind))
        if not kind.__module__.startswith("unskew."):
            raise UnskewError(
                f"{type(model).__name__} has a {name} of its own, which has no ONNX form here",
                remedy="export a method that predicts as all of unskew's do",
            )


def names_of(calibrators: Sequence[Calibrator | None]) -> list[str]:
    """Return the names of the kinds of calibrators, ``auto`` by what it chose."""
    return sorted({"none" if each is None else each.name for each in map(_chosen, calibrators)})
