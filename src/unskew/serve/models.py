"""Fitted models as modules that torch can trace: columns by name in, probabilities out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

import unskew.propensity as kinds
from unskew.base.errors import ParameterError, UnskewError
from unskew.base.tensors import Tensor, nn, torch
from unskew.data import Encoders, Rows
from unskew.debias import Debiaser
from unskew.learners import Network
from unskew.learners.fitted import FittedLearners
from unskew.propensity import naive_bayes, popularity, position
from unskew.propensity.propensity import BasePropensity
from unskew.propensity.segments import Segments
from unskew.propensity.uncertainty import LEAST
from unskew.serve.calibrators import Calibration, MultiCalibration, chosen, sigmoid
from unskew.serve.inputs import ROLES_OF_IDS, Columns, field_columns, rows_read
from unskew.training.fitted import LEAST as LEAST_OF_MEMBERS

Fitted: TypeAlias = Debiaser | BasePropensity


def module_of(model: Fitted) -> nn.Module:
    """Return a fitted model as a module: columns by name → float32 probabilities ``[n]``."""
    for name in ("predict_each", "predict_pairs_each", "predict_frame_each"):
        kind = next(kind for kind in type(model).__mro__ if name in vars(kind))
        if not kind.__module__.startswith("unskew."):
            raise UnskewError(
                f"{type(model).__name__} has a {name} of its own, which has no ONNX form here",
                remedy="export a method that predicts as all of unskew's do",
            )
    return _Conversion(model) if isinstance(model, Debiaser) else _Propensity(model)


def _encoders_of(model: Fitted) -> Encoders | None:
    return model.encoders_ if model.reads_features else None


def further_column(model: Fitted) -> str | None:
    """Return the name of a column that a propensity reads beside ids and features."""
    if isinstance(model, kinds.PositionPropensity):
        return model.position
    return model.column if isinstance(model, kinds.ColumnPropensity) else None


class _Conversion(nn.Module):
    """r̂(u, i) = (1/S) Σ_s σ((1/M) Σ_m f_sm(u, i)): the mean over seeds of what their ensembles say.

    f_sm is the logit of a member; where a network has members that share weights, of their mean probability.
    With other models beside it, the logits of all ensembles are averaged. Where the model is recalibrated,
    what a seed's ensemble says goes through its map.
    """

    def __init__(self, model: Debiaser) -> None:
        super().__init__()
        networks = [each.networks_["prediction"] for each in (model, *model.beside_)]
        self.networks = nn.ModuleList(_Network(each, "prediction", 0.0) for each in networks)
        self.seeds = len(model.seeds_)
        maps = [None] * self.seeds if model.recalibration_ is None else model.recalibration_.calibrators
        self.calibration, self.encoders = Calibration(maps), _encoders_of(model)

    def forward(self, values: Columns) -> Tensor:
        """Return the probabilities of a conversion."""
        rows, known = rows_read(values, self.encoders)
        scores = [network(rows) for network in self.networks]
        if len(scores) == 1 and len(scores[0]) == self.seeds:
            return _answer(self.calibration(scores[0]), known)
        odds = [p.clamp(LEAST_OF_MEMBERS, 1.0 - LEAST_OF_MEMBERS) for p in scores]
        odds = [_mean_of_groups((p / (1.0 - p)).log(), len(p) // self.seeds) for p in odds]
        return _answer(self.calibration(sigmoid(torch.stack(odds).mean(0))), known)


class _Propensity(nn.Module):
    """p̃(u, i) = (1/SK) Σ_s Σ_k q_sk(p̂_sk(u, i)): the mean over seeds and folds, each calibrated.

    It is what a pair outside the training population gets from ``predict_pairs_each``.
    """

    def __init__(self, propensity: BasePropensity) -> None:
        super().__init__()
        self.encoders = _encoders_of(propensity)
        network = isinstance(propensity, kinds.Propensity)
        self.scores = _NetworkScores(propensity) if network else _ModelScores(propensity)  # type: ignore[arg-type]
        maps, segments = propensity.calibrators_, propensity.segments_
        self.segments = None if segments is None else _Segments(segments)
        by_segment = [MultiCalibration(chosen(calibrator)) for calibrator in maps if segments is not None]
        self.calibration = nn.ModuleList(by_segment) if by_segment else Calibration(maps)

    def forward(self, values: Columns) -> Tensor:
        """Return the probabilities of a click."""
        rows, known = rows_read(values, self.encoders)
        score = self.scores(rows, values)
        if not isinstance(self.calibration, nn.ModuleList):
            return _answer(self.calibration(score), known)
        assert self.segments is not None
        columns = self.segments(rows, values)
        lines = zip(self.calibration, score.unbind(0), strict=True)
        return _answer(torch.stack([calibrate(line, columns) for calibrate, line in lines]), known)


class _Network(nn.Module):
    """p̂ ``[R, n]`` of one tower, in float64: the mean over members that share its weights."""

    def __init__(self, network: Network, tower: str, offset: float) -> None:
        super().__init__()
        if isinstance(network, FittedLearners):
            self.network: Any = network.graph()
        else:
            on_cpu = next(network.parameters()).device.type == "cpu"
            self.network = network if on_cpu else copy.deepcopy(network).to_device(torch.device("cpu"))
        self.tower, self.offset = tower, offset

    def forward(self, rows: Rows) -> Tensor:
        """Return raw probabilities."""
        members = self.network.members
        embedded = self.network.embed(rows.repeat(members))
        p = sigmoid(self.network.read(embedded, self.tower).double() + self.offset)
        return p if members == 1 else p.view(self.network.replicas, members, -1).mean(1)


class _NetworkScores(nn.Module):
    """Raw scores ``[R, n]`` of a propensity's networks: means over members, links undone."""

    def __init__(self, propensity: kinds.Propensity) -> None:
        super().__init__()
        self.method = propensity.method()
        noisy = getattr(propensity, "calibrator_dropout", False) and propensity.calibrator is not None
        if self.method.passes() or noisy:
            name, value = ("calibrator_dropout", "False") if noisy else ("uncertainty", "None")
            raise UnskewError(
                f"this propensity has dropout noise ({'calibrator_dropout' if noisy else 'MC dropout'}),"
                " which an exported graph cannot repeat",
                remedy=f"export propensity.reread({name}={value}) before it is saved, or --what conversion",
            )
        dual, network = isinstance(self.method, kinds.DualFocal), propensity.network_
        self.odds = float(np.exp(propensity.offset_)) if dual else 1.0
        self.network = _Network(network, network.towers[0], 0.0 if dual else propensity.offset_)

    def forward(self, rows: Rows, values: Columns) -> Tensor:
        """Return scores."""
        p = _mean_of_groups(self.network(rows), self.method.stacked_members())
        if not isinstance(self.method, kinds.DualFocal):
            return p
        p = _inverse_link(p, self.method.gamma) if self.method.link == "inverse" else p
        # As odds, so that no logit has to be taken of a score that may be 0 or 1.
        return p * self.odds / (p * self.odds + (1.0 - p))


class _ModelScores(nn.Module):
    """Raw scores ``[R, n]`` of models that are numbers: of one kind, the formula of its class."""

    def __init__(self, propensity: BasePropensity) -> None:
        super().__init__()
        scorer = propensity.scorer_
        models = getattr(scorer, "models", [scorer])
        column = isinstance(propensity, kinds.ColumnPropensity)
        if type(models[0]) not in FORMULAS and not column:
            raise ParameterError(
                f"the classifiers of a {type(propensity).__name__} have no ONNX form here",
                remedy="use another propensity, such as --propensity trees, or write predictions to a table",
            )
        self.formula = FORMULAS.get(type(models[0]), _column)
        self.replicas, self.further = propensity.replicas_, further_column(propensity)
        for name, values in () if column else scorer.tensors().items():
            self.register_buffer(name, values.double())

    def forward(self, rows: Rows, values: Columns) -> Tensor:
        """Return scores."""
        return self.formula(self, rows, values)


class _Segments(nn.Module):
    """The columns that a calibrator reads beside the scores: features as they were in training."""

    def __init__(self, segments: Segments) -> None:
        super().__init__()
        self.segments = segments
        self.encoders = () if segments.encoders is None else segments.encoders.encoders
        for number, encoder in enumerate(self.encoders):
            if (role := encoder.feature.role) in ROLES_OF_IDS:
                assert segments.encoders is not None
                codes = np.arange(len(segments.encoders.tables[role].codes))
                table = segments.encoders.table_columns(role, codes)[encoder.feature.name]
                self.register_buffer(f"table_{number}", torch.from_numpy(np.ascontiguousarray(table)))

    def forward(self, rows: Rows, values: Columns) -> dict[str, Tensor]:
        """Return columns ``[n]`` by name."""
        found = {name: rows[name][0] for name in self.segments.ids}
        for number, encoder in enumerate(self.encoders):
            name, role = encoder.feature.name, encoder.feature.role
            own = values[name] if role == "row" else self.get_buffer(f"table_{number}")[rows[str(role)][0]]
            found[name] = field_columns(own, encoder.field)
        return found


def _logit(model: Any, rows: Rows, values: Columns) -> Tensor:
    """σ(c + left_u · right_i)."""
    products: Tensor = (model.left[:, rows.user[0]] * model.right[:, rows.item[0]]).sum(2)
    return sigmoid(model.intercept[:, None] + products + model.offset[:, None])


def _product(model: Any, rows: Rows, values: Columns) -> Tensor:
    """c · f_u · f_i."""
    p: Tensor = model.constant[:, None] * model.user[:, rows.user[0]] * model.item[:, rows.item[0]]
    return p.clamp(max=popularity.LARGEST)


def _bayes(model: Any, rows: Rows, values: Columns) -> Tensor:
    """Return the density: nobody knows the conversion of a pair that is yet to be shown."""
    density: Tensor = model.density[:, None]
    return density + torch.zeros_like(rows.user[0], dtype=torch.float64)


def _position(model: Any, rows: Rows, values: Columns) -> Tensor:
    """θ_k · σ(c + left_u · right_i); NaN at a position that training did not have."""
    at = values[model.further][:, None] == model.positions[0]
    theta = (model.examination[:, None] * at.double()).sum(2)
    return torch.where(at.any(1), theta, torch.nan) * _logit(model, rows, values)


def _column(model: Any, rows: Rows, values: Columns) -> Tensor:
    """Return somebody else's scores, which come with the rows."""
    return values[model.further].expand(model.replicas, -1)


FORMULAS: Mapping[type, Callable[[Any, Rows, Columns], Tensor]] = {
    popularity.ProductModel: _product,
    naive_bayes.BayesModel: _bayes,
    position.PositionModel: _position,
}


def _answer(probabilities: Tensor, known: Tensor | None) -> Tensor:
    """Return the mean of lines, with NaN where a model that reads ids alone does not know one."""
    mean = probabilities.mean(0).float()
    return mean if known is None else torch.where(known, mean, torch.nan)


def _mean_of_groups(lines: Tensor, size: int) -> Tensor:
    """Return the means ``[R / size, n]`` of so many lines, side by side, at a time."""
    return lines if size == 1 else lines.view(len(lines) // size, size, -1).mean(1)


def _inverse_link(score: Tensor, gamma: float) -> Tensor:
    """η = L₀' / (L₀' − L₁') below ½ and 1 − η above, as :class:`unskew.DualFocal` has it."""
    p = torch.minimum(score, 1.0 - score).clamp(LEAST, 0.5)
    q = 1.0 - p
    clicked = gamma * q ** (gamma - 1) * p.log() - q**gamma / p
    unclicked = (2 * p) ** gamma / q - 2 * gamma * (2 * p) ** (gamma - 1) * q.log()
    eta = (unclicked / (unclicked - clicked)).clamp(max=0.5)
    return torch.where(score <= 0.5, eta, 1.0 - eta)
