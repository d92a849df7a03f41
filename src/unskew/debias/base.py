"""What a debiasing method is: its networks and its losses. Sampling, training and selection are not its
business; they happen in :meth:`Debiaser.fit`, once for all methods."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.backbones import Backbone, Network, NeuMF
from unskew.debias.given import GivenPropensities, given_propensities
from unskew.debias.held_out import HeldOut
from unskew.debias.observed import Observed
from unskew.debias.setting import Batch, PassPlan, Setting, StagePlan, StepPlan
from unskew.debias.split import Split
from unskew.debias.stacking import (
    joined_setting,
    share_of_history,
    share_of_network,
    share_of_propensities,
    share_of_setting,
    stacked_propensities,
)
from unskew.errors import ParameterError
from unskew.estimator import Estimator, require
from unskew.log import Log
from unskew.progress import SILENT, Progress
from unskew.seeds import as_seeds, stream
from unskew.training import (
    History,
    ObservedAndFull,
    Pass,
    Sampler,
    Schedule,
    ShuffledRows,
    Step,
    cross_entropy,
    in_groups,
    join_histories,
    join_networks,
    resolve_device,
    train,
)
from unskew.training.inference import logits
from unskew.vocabulary import UNSEEN_CODE, Unseen, Vocabulary


@dataclass(kw_only=True)
class Debiaser(Estimator):
    """A conversion model and the losses that train it.

    A method subclasses this, names itself, and defines :meth:`loss`; with more than one network or step,
    also :meth:`networks` and :meth:`plan`.

    Parameters
    ----------
    backbone
        The conversion network f_θ (and the method's other networks).
    p_min
        Propensities below are raised to it before they become weights; what that did is in ``clipping_``.
    epochs, batch_size, learning_rate, weight_decay, patience
        Training; early stopping is on the validation loss.
    validation_share
        Share of O that is held out, by pair, to choose the epoch.
    selection
        Validation loss: ``"snips"`` weights it by the method's own propensities, ``"ce"`` does not.
    """

    paper: ClassVar[str] = ""
    when: ClassVar[str] = ""
    """One line: when to use it."""
    needs_propensity: ClassVar[bool] = False
    needs_propensity_everywhere: ClassVar[bool] = False
    """Whether its losses read propensities on batches of D too."""
    needs_full_space: ClassVar[bool] = False
    """Whether its losses sum over D, beyond the clicked rows."""
    imputation: ClassVar[str | None] = None
    """How it imputes errors: P1 pseudo-label, P2 direct error, P3 residual (METHODS §1.2)."""
    detached: ClassVar[tuple[str, ...]] = ()
    """Quantities without gradient in its losses."""
    predicts_rates: ClassVar[bool] = True
    """Whether predictions are meant as conversion rates; otherwise they are scores, to rank by."""

    backbone: Backbone = field(default_factory=NeuMF)
    p_min: float = 0.01
    epochs: int = 200
    batch_size: int = 1024
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    patience: int | None = 10
    validation_share: float = 0.1
    selection: Literal["snips", "ce"] = "snips"

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Networks by name, with the towers that share their embeddings; ``"prediction"`` predicts."""
        return {"prediction": ("prediction",)}

    def stages(self) -> tuple[StagePlan, ...]:
        """What is trained, in order; by default :meth:`plan` alone."""
        return (StagePlan(self.plan()),)

    def plan(self) -> tuple[PassPlan, ...]:
        """The passes of an epoch; by default one step of :meth:`loss` for the prediction network."""
        space: Literal["observed", "both"] = "both" if self.needs_full_space else "observed"
        return (PassPlan((StepPlan(self.name, self.loss, ("prediction",)),), space),)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Loss ``[R]`` from a batch of O and, where ``needs_full_space``, a batch of D."""
        raise NotImplementedError

    def backbones(self) -> Mapping[str, Backbone]:
        """Backbone by network, where it is not ``backbone``."""
        return {}

    def finish(self, setting: Setting) -> None:
        """What a method learns or reports when its training is over; by default nothing."""

    def learning_rates(self) -> Mapping[str, float]:
        """Learning rate by network, where it is not ``learning_rate``."""
        return {}

    def weight_decays(self) -> Mapping[str, float]:
        """Weight decay by network, where it is not ``weight_decay``."""
        return {}

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
            log's rows or of shape [users, items], a column's name, or one number.
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
        given = self._given(log, propensity, calibrated)
        self.finish(self._train(log, given, validation, progress, label))
        return self

    def fit_many(
        self,
        log: Log,
        *,
        propensities: Mapping[str, Any],
        seeds: int | Sequence[int] = 1,
        validation: Log | None = None,
        device: str = "auto",
        progress: Progress = SILENT,
        label: str | None = None,
    ) -> dict[str, Debiaser]:
        """Train one model per set of propensities and seed, all in one stacked loop.

        Every set has the same splits, first weights and batch orders, so that what differs between two of
        them is due to the propensities. A model's replicas are those that :meth:`fit` would have trained.

        Parameters
        ----------
        propensities
            What :meth:`fit` takes as ``propensity``, by a key of your own.
        seeds, validation, device, progress, label
            As in :meth:`fit`.

        Returns
        -------
        dict
            A fitted copy of this method for each key; this one stays as it was.
        """
        self._check()
        require(bool(propensities), "there are no propensities to fit with", "give at least one set")
        chosen, params = as_seeds(seeds), self.get_params(deep=False)
        whole, *parts = (type(self)(**params) for _ in range(1 + len(propensities)))
        given = []
        for part, propensity in zip(parts, propensities.values(), strict=True):
            part.seeds_, part.device_ = chosen, resolve_device(device)
            given.append(part._given(log, propensity, True))
        whole.seeds_, whole.device_ = chosen * len(parts), resolve_device(device)
        setting = whole._train(log, stacked_propensities(given), validation, progress, label)
        for number, part in enumerate(parts):
            replicas = slice(number * len(chosen), (number + 1) * len(chosen))
            part.users_, part.items_, part.split_ = log.users, log.items, whole.split_
            part.networks_ = {
                name: share_of_network(whole.networks_[name], fresh, replicas)
                for name, fresh in part._build(log).items()
            }
            part.history_ = share_of_history(whole.history_, replicas)
            part.validation_loss_ = whole.validation_loss_ and whole.validation_loss_[replicas]
            part.finish(share_of_setting(setting, part.networks_, replicas, chosen))
        return dict(zip(propensities, parts, strict=True))

    def _build(self, log: Log) -> dict[str, Network]:
        return {
            name: self.backbones()
            .get(name, self.backbone)
            .build(log.n_users, log.n_items, [stream(seed, name) for seed in self.seeds_], towers)
            .to_device(self.device_)
            for name, towers in self.networks().items()
        }

    def _train_at_once(
        self,
        log: Log,
        given: GivenPropensities | None,
        validation: Log | None,
        progress: Progress,
        label: str | None,
    ) -> Setting:
        self.users_, self.items_ = log.users, log.items
        data = Observed(log, given, self.seeds_, self.device_)
        training, held_out = data.split(self.validation_share if validation is None else 0.0)
        self.split_: Split | None = Split.of(log, held_out.shape[1])
        self.networks_ = self._build(log)
        setting = Setting(
            networks=self.networks_,
            density=log.density,
            clicks=data.observed(training),
            given=data.propensity is not None,
            held_out=HeldOut(data.population, self.seeds_),
        )
        validate = self._validator(data, held_out, validation)
        rates = {name: self.learning_rates().get(name, self.learning_rate) for name in self.networks_}
        decays = {name: self.weight_decays().get(name, self.weight_decay) for name in self.networks_}
        self.history_ = History()
        for stage in self.stages():
            epochs = self.epochs if stage.epochs is None else stage.epochs
            self.history_ = self.history_ + train(
                self.networks_,
                self._passes(stage, setting, data, training),
                Schedule(epochs, rates, decays, self.patience if stage.selects else None),
                replicas=len(self.seeds_),
                validate=validate,
                tracker=progress.task(label or self.name, epochs),
            )
        self.validation_loss_: list[float] | None = None if validate is None else validate().tolist()
        return setting

    def _train(
        self,
        log: Log,
        given: GivenPropensities | None,
        validation: Log | None,
        progress: Progress,
        label: str | None,
    ) -> Setting:
        """Train the replicas of ``seeds_``, in which a seed may come several times, in one go if they fit."""

        def train_some(replicas: slice) -> tuple[Debiaser, Setting]:
            part = copy.copy(self)
            part.seeds_ = self.seeds_[replicas]
            own = share_of_propensities(given, replicas)
            return part, part._train_at_once(log, own, validation, progress, label)

        trained = in_groups(len(self.seeds_), train_some)
        parts, settings = [part for part, _ in trained], [setting for _, setting in trained]
        seeds = self.seeds_
        vars(self).update(vars(parts[0]))
        if len(parts) == 1:
            return settings[0]
        self.seeds_ = seeds
        self.networks_ = {
            name: join_networks([part.networks_[name] for part in parts], fresh)
            for name, fresh in self._build(log).items()
        }
        self.history_ = join_histories([part.history_ for part in parts])
        if self.validation_loss_ is not None:
            self.validation_loss_ = [loss for part in parts for loss in part.validation_loss_ or []]
        return joined_setting(settings, self.networks_, seeds)

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

    def validation_rows(self, log: Log) -> NDArray[np.int64]:
        """Numbers ``[seeds, n]`` of the training log's rows that each seed held out to choose its epoch."""
        self._require_fitted("networks_")
        if self.split_ is None:
            raise ParameterError(
                f"this {self.name} does not tell which rows it held out", remedy="fit it with this version"
            )
        return self.split_.rows(log, self.seeds_)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a folder of plain files that :func:`unskew.load_model` reads."""
        self._require_fitted("networks_")
        from unskew.debias.storage import save_model

        save_model(self, folder, overwrite=overwrite)

    def _predict_codes(self, user: NDArray[np.int32], item: NDArray[np.int32]) -> NDArray[np.float64]:
        users = torch.as_tensor(user.astype(np.int64), device=self.device_)[None]
        items = torch.as_tensor(item.astype(np.int64), device=self.device_)[None]
        logit = logits(self.networks_["prediction"], users, items, tower="prediction")
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

    def _given(self, log: Log, propensity: Any, calibrated: bool) -> GivenPropensities | None:
        self.clipping_ = None
        if propensity is None:
            if self.needs_propensity:
                raise ParameterError(
                    f"{self.name} needs propensities",
                    remedy="give fit(…, propensity=) a fitted Propensity, an array or a column's name",
                )
            return None
        given = given_propensities(
            log,
            propensity,
            self.seeds_,
            self.p_min,
            calibrated=calibrated,
            everywhere=self.needs_propensity_everywhere,
            full_space=self.needs_full_space,
        )
        self.clipping_ = given.diagnostics
        return given

    def _passes(self, stage: StagePlan, setting: Setting, data: Observed, rows: Tensor) -> list[Pass]:
        passes = []
        for number, each in enumerate(stage.passes):
            # Every method's first pass has the same order, so that methods are paired; others differ.
            purpose = "order" if number == 0 else f"order of pass {number}"
            order = [stream(seed, purpose) for seed in self.seeds_]
            observed = ShuffledRows(rows, order, each.batch_size or self.batch_size)
            sampler: Sampler = (
                observed
                if each.space == "observed"
                else ObservedAndFull(observed, data.population, each.ratio, each.unclicked_once)
            )
            steps = tuple(Step(s.name, data.bind(s.loss, setting), s.trains) for s in each.steps)
            passes.append(Pass(sampler, steps, _hook(each.before, setting)))
        return passes

    def _validator(self, data: Observed, rows: Tensor, validation: Log | None) -> Callable[[], Tensor] | None:
        if validation is not None:
            given = validation.take(validation.clicked)
            user = _codes(self.users_, given.users, given.user, self.device_)
            item = _codes(self.items_, given.items, given.item, self.device_)
            conversion = torch.as_tensor(given.known_conversion(), device=self.device_)[None]
            weight = torch.ones_like(conversion)
        elif rows.shape[1] == 0:
            return None
        else:
            batch = data.observed(rows)
            user, item, conversion = batch.user, batch.item, batch.conversion
            plain = data.propensity is None or self.selection == "ce"
            weight = torch.ones_like(conversion) if plain else 1.0 / batch.propensity

        def weighted_cross_entropy() -> Tensor:
            logit = logits(self.networks_["prediction"], user, item, tower="prediction")
            return (weight * cross_entropy(conversion, logit)).sum(1) / weight.sum(1)

        return weighted_cross_entropy


def _hook(before: Callable[[Setting], None] | None, setting: Setting) -> Callable[[], None] | None:
    if before is None:
        return None
    hook = before
    return lambda: hook(setting)


def _codes(trained: Vocabulary, given: Vocabulary, codes: NDArray[np.int32], device: torch.device) -> Tensor:
    known = codes if given.same_as(trained) else trained.encode(given.decode(codes))
    return torch.as_tensor(known.astype(np.int64), device=device)[None]
