"""What a debiasing method is: its networks and its losses. Sampling, training and selection are not its
business; they happen in :meth:`Debiaser.fit`, once for all methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.backbones import Backbone, Network, NeuMF
from unskew.debias.given import ClickedPropensities, clicked_propensities
from unskew.errors import DataError, ParameterError
from unskew.estimator import Estimator, require
from unskew.log import Log
from unskew.progress import SILENT, Progress
from unskew.seeds import as_seeds, stream
from unskew.training import (
    Draw,
    ObservedAndFull,
    Pass,
    Population,
    Sampler,
    Schedule,
    ShuffledRows,
    Step,
    cross_entropy,
    resolve_device,
    train,
)
from unskew.training.inference import logits
from unskew.vocabulary import UNSEEN_CODE, Unseen, Vocabulary


@dataclass(frozen=True)
class Batch:
    """Pairs with what is known of them, ``[R, B]`` each."""

    user: Tensor
    item: Tensor
    click: Tensor
    conversion: Tensor
    """0 where unknown: multiply by ``click`` before use on a batch of D."""
    propensity: Tensor | None
    """Clipped, without gradient; None where the method asked for none."""


@dataclass(frozen=True)
class Setting:
    """What a loss may use beside its batches."""

    networks: Mapping[str, Network]
    density: float
    """|O| / |D|."""

    def logit(self, batch: Batch, network: str = "prediction") -> Tensor:
        """Logits ``[R, B]`` of a batch."""
        result: Tensor = self.networks[network](batch.user, batch.item)
        return result


Loss = Callable[[Setting, Batch | None, Batch | None], Tensor]
"""(setting, batch of O, batch of D) → ``[R]``."""


@dataclass(frozen=True)
class StepPlan:
    """One loss and the networks it trains."""

    name: str
    loss: Loss
    trains: tuple[str, ...]


@dataclass(frozen=True)
class PassPlan:
    """One pass per epoch over O (``"observed"``), with a batch of D beside each (``"both"``)."""

    steps: tuple[StepPlan, ...]
    space: Literal["observed", "both"] = "observed"


@dataclass(kw_only=True)
class Debiaser(Estimator):
    """A conversion model and the losses that train it.

    A method subclasses this, names itself, and defines :meth:`loss` (or, with more than one network or
    step, :meth:`networks` and :meth:`plan`).

    Parameters
    ----------
    backbone
        The conversion network f_θ.
    p_min
        Propensities below are raised to it before they become weights; what that did is in ``clipping_``.
    epochs, batch_size, learning_rate, weight_decay, patience
        Training; early stopping is on the validation loss.
    validation_share
        Share of O that is held out, by pair, to choose the epoch.
    selection
        Validation loss: ``"snips"`` weights it by the method's own propensities, ``"ce"`` does not.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    when: ClassVar[str] = ""
    """One line: when to use it."""
    needs_propensity: ClassVar[bool] = False
    needs_full_space: ClassVar[bool] = False
    imputation: ClassVar[str | None] = None
    detached: ClassVar[tuple[str, ...]] = ()
    """Quantities without gradient in the losses."""

    backbone: Backbone = field(default_factory=NeuMF)
    p_min: float = 0.01
    epochs: int = 200
    batch_size: int = 1024
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    patience: int | None = 10
    validation_share: float = 0.1
    selection: Literal["snips", "ce"] = "snips"

    def networks(self) -> dict[str, Backbone]:
        """Networks by name; ``"prediction"`` is the one that predicts."""
        return {"prediction": self.backbone}

    def plan(self) -> tuple[PassPlan, ...]:
        """The passes of an epoch."""
        space: Literal["observed", "both"] = "both" if self.needs_full_space else "observed"
        return (PassPlan((StepPlan(self.name, self.loss, ("prediction",)),), space),)

    def loss(self, setting: Setting, observed: Batch | None, full: Batch | None) -> Tensor:
        """Loss ``[R]`` of the prediction network."""
        raise NotImplementedError

    def fit(
        self,
        log: Log,
        *,
        propensity: Any = None,
        seeds: int | Sequence[int] = 1,
        validation: Log | None = None,
        device: str = "auto",
        progress: Progress = SILENT,
        label: str | None = None,
        calibrated: bool = True,
    ) -> Debiaser:
        """Train one conversion model per seed, all in one stacked loop.

        Parameters
        ----------
        propensity
            A fitted :class:`unskew.Propensity` (its seeds are paired with these), an array aligned with the
            log's rows, a column's name, or one number.
        seeds
            How many repetitions, or their seeds. Each has its own split, weights and batch order; the same
            seed gives the same ones to every method.
        validation
            A log to choose the epoch on instead of a share of O.
        label
            What the progress bar calls this training.
        calibrated
            False takes the raw scores of a :class:`unskew.Propensity`.
        """
        self._check()
        self.seeds_ = as_seeds(seeds)
        self.device_ = resolve_device(device)
        self.users_, self.items_ = log.users, log.items
        data = _Observed(log, self._weights(log, propensity, calibrated), self.seeds_, self.device_)
        split = data.split(self.validation_share if validation is None else 0.0)
        self.networks_ = {
            name: backbone.build(log.n_users, log.n_items, [stream(s, name) for s in self.seeds_])
            for name, backbone in self.networks().items()
        }
        for network in self.networks_.values():
            network.to_device(self.device_)
        setting = Setting(networks=self.networks_, density=log.density)
        self.history_ = train(
            self.networks_,
            self._passes(setting, data, split[0]),
            Schedule(self.epochs, self.learning_rate, self.weight_decay, self.patience),
            replicas=len(self.seeds_),
            validate=self._validator(data, split[1], validation),
            tracker=progress.task(label or self.name, self.epochs),
        )
        return self

    def predict(self, log: Log) -> NDArray[np.float64]:
        """Conversion probabilities of the rows of a log ``[n]``, averaged over seeds."""
        return np.asarray(self.predict_each(log).mean(axis=0))

    def predict_each(self, log: Log) -> NDArray[np.float64]:
        """Conversion probabilities ``[seeds, n]`` of the rows of a log."""
        self._require_fitted("networks_")
        if log.users.same_as(self.users_) and log.items.same_as(self.items_):
            return self._predict_codes(log.user, log.item)
        return self.predict_pairs_each(log.users.decode(log.user), log.items.decode(log.item))

    def predict_pairs_each(self, user: Any, item: Any, *, unseen: Unseen = "error") -> NDArray[np.float64]:
        """Conversion probabilities ``[seeds, n]`` of pairs of ids; unknown ids are an error, or NaN."""
        self._require_fitted("networks_")
        user_code = self.users_.encode(user, unseen=unseen)
        item_code = self.items_.encode(item, unseen=unseen)
        known = (user_code != UNSEEN_CODE) & (item_code != UNSEEN_CODE)
        result = np.full((len(self.seeds_), len(known)), np.nan)
        result[:, known] = self._predict_codes(user_code[known], item_code[known])
        return result

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a folder of plain files that :func:`unskew.load_model` reads."""
        self._require_fitted("networks_")
        from unskew.debias.storage import save_model

        save_model(self, folder, overwrite=overwrite)

    def _predict_codes(self, user: NDArray[np.int32], item: NDArray[np.int32]) -> NDArray[np.float64]:
        users = torch.as_tensor(user.astype(np.int64), device=self.device_)[None]
        items = torch.as_tensor(item.astype(np.int64), device=self.device_)[None]
        logit = logits(self.networks_["prediction"], users, items)
        return np.asarray(torch.sigmoid(logit.double()).cpu().numpy())

    def _check(self) -> None:
        require(self.epochs >= 1, f"epochs must be at least 1, not {self.epochs}")
        require(self.batch_size >= 1, f"batch_size must be at least 1, not {self.batch_size}")
        require(
            0.0 <= self.validation_share < 1.0,
            f"validation_share must be in [0, 1), not {self.validation_share}",
        )
        require(
            self.selection in ("snips", "ce"), f"selection must be 'snips' or 'ce', not {self.selection!r}"
        )

    def _weights(self, log: Log, propensity: Any, calibrated: bool) -> ClickedPropensities | None:
        if propensity is None:
            if self.needs_propensity:
                raise ParameterError(
                    f"{self.name} needs propensities",
                    remedy="give fit(…, propensity=) a fitted Propensity, an array or a column's name",
                )
            self.clipping_ = None
            return None
        given = clicked_propensities(log, propensity, self.seeds_, self.p_min, calibrated=calibrated)
        self.clipping_ = given.diagnostics
        return given

    def _passes(self, setting: Setting, data: _Observed, rows: Tensor) -> list[Pass]:
        order = [stream(seed, "order") for seed in self.seeds_]
        passes = []
        for each in self.plan():
            sampler: Sampler = ShuffledRows(rows, order, self.batch_size)
            if each.space == "both":
                assert isinstance(sampler, ShuffledRows)
                sampler = ObservedAndFull(sampler, data.population)
            steps = tuple(Step(s.name, data.bind(s.loss, setting), s.trains) for s in each.steps)
            passes.append(Pass(sampler, steps))
        return passes

    def _validator(
        self, data: _Observed, rows: Tensor, validation: Log | None
    ) -> Callable[[], Tensor] | None:
        if validation is not None:
            rows_given = validation.take(validation.clicked)
            batch = Batch(
                user=_codes(self.users_, rows_given.users, rows_given.user, self.device_),
                item=_codes(self.items_, rows_given.items, rows_given.item, self.device_),
                click=torch.ones(1),
                conversion=torch.as_tensor(rows_given.known_conversion(), device=self.device_)[None],
                propensity=None,
            )
        elif rows.shape[1] == 0:
            return None
        else:
            batch = data.observed(rows)
        weight = (
            torch.ones_like(batch.conversion)
            if batch.propensity is None or self.selection == "ce"
            else 1.0 / batch.propensity
        )

        def weighted_cross_entropy() -> Tensor:
            logit = logits(self.networks_["prediction"], batch.user, batch.item)
            return (weight * cross_entropy(batch.conversion, logit)).sum(1) / weight.sum(1)

        return weighted_cross_entropy


class _Observed:
    """The clicked rows of a log on a device, and batches of them and of D."""

    def __init__(
        self, log: Log, weights: ClickedPropensities | None, seeds: tuple[int, ...], device: torch.device
    ) -> None:
        clicked = log.clicked
        self.seeds = seeds
        self.device = device
        self.population = Population(log, device)
        self.user = torch.as_tensor(log.user[clicked].astype(np.int64), device=device)
        self.item = torch.as_tensor(log.item[clicked].astype(np.int64), device=device)
        self.conversion = torch.as_tensor(log.known_conversion(), device=device)
        self.propensity = (
            None if weights is None else torch.as_tensor(weights.values.astype(np.float32), device=device)
        )

    def split(self, validation_share: float) -> tuple[Tensor, Tensor]:
        """Training and validation positions ``[R, n]`` in O, by each seed's own permutation."""
        size = len(self.conversion)
        held = round(validation_share * size)
        if size - held < 1 or (validation_share > 0 and held < 1):
            raise DataError(f"{size} clicked rows are too few to split", remedy="give more data")
        order = np.stack(
            [np.random.default_rng(stream(seed, "validation")).permutation(size) for seed in self.seeds]
        )
        rows = torch.as_tensor(order, device=self.device)
        return rows[:, held:].contiguous(), rows[:, :held].contiguous()

    def observed(self, rows: Tensor) -> Batch:
        """A batch of O from positions ``[R, B]``."""
        return Batch(
            user=self.user[rows],
            item=self.item[rows],
            click=torch.ones(rows.shape, device=self.device),
            conversion=self.conversion[rows],
            propensity=None if self.propensity is None else self.propensity.gather(1, rows),
        )

    def full(self, cells: Tensor) -> Batch:
        """A batch of D from cells ``[R, B]``; conversions are 0 where unknown."""
        user, item = self.population.pairs(cells)
        zero = torch.zeros(cells.shape, device=self.device)
        return Batch(
            user=user, item=item, click=self.population.click(cells), conversion=zero, propensity=None
        )

    def bind(self, loss: Loss, setting: Setting) -> Callable[[Draw], Tensor]:
        """A method's loss as a function of a draw."""

        def of_draw(draw: Draw) -> Tensor:
            return loss(
                setting,
                None if draw.observed is None else self.observed(draw.observed),
                None if draw.cells is None else self.full(draw.cells),
            )

        return of_draw


def _codes(trained: Vocabulary, given: Vocabulary, codes: NDArray[np.int32], device: torch.device) -> Tensor:
    known = codes if given.same_as(trained) else trained.encode(given.decode(codes))
    return torch.as_tensor(known.astype(np.int64), device=device)[None]
