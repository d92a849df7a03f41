"""The propensity estimator: a backbone over D, a calibrator, and a split that keeps them honest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unskew.backbones import Backbone, NeuMF
from unskew.calibration import Calibrator, Platt
from unskew.errors import DataError, NotFittedError
from unskew.estimator import Estimator, require
from unskew.log import Log
from unskew.metrics import CalibrationSketch
from unskew.progress import SILENT, Progress
from unskew.propensity.design import OUT, STOP, TRAIN, SplitDesign
from unskew.propensity.diagnosis import average, propensity_figures
from unskew.propensity.negatives import Negatives, logit_offset, resolve_ratio
from unskew.seeds import as_seeds, stream
from unskew.training import (
    ClicksAndNegatives,
    Draw,
    EveryCell,
    History,
    LookedUp,
    Pass,
    Population,
    Sampler,
    Schedule,
    Slots,
    Step,
    cross_entropy,
    resolve_device,
    train,
)
from unskew.training.inference import held_out_cells, logits
from unskew.training.population import FoldBy
from unskew.vocabulary import UNSEEN_CODE, Unseen

Scored = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Score, outcome and weight of one replica's cells."""

HELD_OUT_BUDGET = 1 << 24
"""Held-out cells kept over all replicas; beyond it the unclicked are thinned and weighted."""

_NO_DATA = "a loaded propensity keeps no data to diagnose"


@dataclass(kw_only=True)
class Propensity(Estimator):
    """p̃(u, i) = q(σ(g_φ(u, i))): how likely each pair of the population was to be clicked.

    g_φ is ``backbone``, trained by L_g = −mean_D [o·log p̂ + (1 − o)·log(1 − p̂)] over the cells of D; q is
    ``calibrator``, fitted on cells that trained nothing. With ``crossfit=K`` every cell's propensity comes
    from a model and a calibrator that never saw it; use that where propensities become weights. Without it
    the propensities of the training cells are in-sample: fine for a look, not for weights.

    Parameters
    ----------
    backbone
        The network.
    calibrator
        Maps scores to honest probabilities; None leaves the raw scores.
    crossfit
        Number of folds, or None for one 80/10/10 split into training, calibration and evaluation cells.
    fold_by
        What a fold holds together: single cells, or all cells of a user or an item.
    negatives
        None trains over all of D; k draws k unclicked cells per click and corrects by the logit offset
        log w (:func:`unskew.propensity.negatives.logit_offset`); ``"auto"`` samples only where D is huge.
    resample_negatives
        New negatives in each epoch.
    population
        ``"D"`` corrects the offset of sampled negatives; ``"sampled"`` leaves it, as published code does:
        such scores are no propensities over D and full-space methods refuse them.
    calibrate_on
        ``"held-out"`` cells; or ``"training"``, as published code does: nothing is held out, and the
        calibrator is fitted and judged on the training clicks and as many fresh negatives per click.
    label_smoothing
        Moves training targets so far toward ½ (0 in the paper's text, 0.1 in part of its code).
    epochs, batch_size, learning_rate, weight_decay, patience
        Training; early stopping is on the negative log-likelihood of held-out cells at the true base rate.
        ``patience=None`` trains all epochs, as published code does, and overfits. Weight decay is 0 as in the
        published code: at the paper's 10⁻⁴ NeuMF stays on a plateau of popularity for some 20 epochs of Coat.
    """

    name: ClassVar[str] = "propensity"
    backbone: Backbone = field(default_factory=NeuMF)
    calibrator: Calibrator | None = field(default_factory=Platt)
    crossfit: int | None = None
    fold_by: FoldBy = "cell"
    negatives: Negatives = "auto"
    resample_negatives: bool = True
    population: Literal["D", "sampled"] = "D"
    calibrate_on: Literal["held-out", "training"] = "held-out"
    label_smoothing: float = 0.0
    epochs: int = 50
    batch_size: int = 1024
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    patience: int | None = 5

    def fit(
        self,
        log: Log,
        *,
        seeds: int | Sequence[int] = 1,
        device: str = "auto",
        progress: Progress = SILENT,
    ) -> Propensity:
        """Train one propensity per seed (times one per fold), all in one stacked loop, and calibrate them.

        Parameters
        ----------
        seeds
            How many independent propensities, or their seeds; debiasers pair them with their own seeds.
        """
        self._check()
        self.seeds_ = as_seeds(seeds)
        self.device_ = resolve_device(device)
        self.design_ = SplitDesign.of(self.crossfit, hold_out=self.calibrate_on == "held-out")
        self.users_, self.items_, self.space_ = log.users, log.items, log.space
        self.log_: Log | None = log
        self.population_ = Population(log, self.device_)
        ratio = resolve_ratio(self.negatives, self.population_.size)
        self.ratio_ = ratio
        self.offset_ = (
            logit_offset(ratio, self.population_.n_clicks, self.population_.size)
            if ratio is not None and self.population == "D"
            else 0.0
        )
        self.slots_ = Slots(self.population_, self.replica_split_seeds(), self.design_.slots, self.fold_by)
        self.network_ = self.backbone.build(log.n_users, log.n_items, self._replica_seeds("propensity"))
        self.network_.to_device(self.device_)
        if self.calibrate_on == "held-out":
            stop = self._held_out(STOP)
            self.history_ = self._train(stop, ratio, progress)
            self._calibrate(self._scored(*stop), self._scored(*self._held_out(OUT)))
        else:
            self.history_ = self._train(None, ratio, progress)
            seen = self._scored(*self._training_cells(ratio or 1.0))
            self._calibrate(seen, seen)
        return self

    def predict(self, log: Log, *, calibrated: bool = True) -> NDArray[np.float64]:
        """Propensities of the rows of a log ``[n]``, averaged over seeds; out of fold where cross-fitted."""
        return np.asarray(self.predict_each(log, calibrated=calibrated).mean(axis=0))

    def predict_each(self, log: Log, *, calibrated: bool = True) -> NDArray[np.float64]:
        """Propensities ``[seeds, n]`` of the rows of a log, one line per seed."""
        self._require_fitted("network_")
        if not (log.users.same_as(self.users_) and log.items.same_as(self.items_)):
            return self.predict_pairs_each(
                log.users.decode(log.user), log.items.decode(log.item), calibrated=calibrated
            )
        cell = None
        if self.space_ == "matrix":
            cell = torch.as_tensor(log.cell, device=self.device_)
        elif log is self.log_:
            cell = torch.arange(len(log), device=self.device_)
        user = torch.as_tensor(log.user.astype(np.int64), device=self.device_)
        item = torch.as_tensor(log.item.astype(np.int64), device=self.device_)
        return self._predict_codes(user, item, cell, calibrated)

    def predict_pairs_each(
        self, user: Any, item: Any, *, unseen: Unseen = "error", calibrated: bool = True
    ) -> NDArray[np.float64]:
        """Propensities ``[seeds, n]`` of pairs of ids; unknown ids are an error, or NaN."""
        self._require_fitted("network_")
        user_code = self.users_.encode(user, unseen=unseen)
        item_code = self.items_.encode(item, unseen=unseen)
        known = (user_code != UNSEEN_CODE) & (item_code != UNSEEN_CODE)
        user_known = torch.as_tensor(user_code[known].astype(np.int64), device=self.device_)
        item_known = torch.as_tensor(item_code[known].astype(np.int64), device=self.device_)
        cell = user_known * len(self.items_) + item_known if self.space_ == "matrix" else None
        result = np.full((len(self.seeds_), len(known)), np.nan)
        result[:, known] = self._predict_codes(user_known, item_known, cell, calibrated)
        return result

    def predict_matrix_each(self, *, calibrated: bool = True) -> NDArray[np.float64]:
        """Propensities ``[seeds, users, items]`` of all of D, for small matrices; out of fold."""
        self._require_fitted("network_")
        require(self.space_ == "matrix", "only the space 'matrix' has a propensity for every pair")
        cell = torch.arange(self.population_.size, device=self.device_)
        user, item = self.population_.pairs(cell)
        shape = (len(self.seeds_), len(self.users_), len(self.items_))
        return self._predict_codes(user, item, cell, calibrated).reshape(shape)

    def diagnose(self, log: Log | None = None, *, p_min: float = 0.01) -> dict[str, Any]:
        """Figures of the raw and the calibrated propensities on held-out cells, means over seeds.

        Parameters
        ----------
        log
            Whose clicked rows' weights to check; by default the training log's.
        p_min
            The clip of the weights.

        Returns
        -------
        dict
            ``{"raw": {"ece", "ece_floor", "wce", "nll", "brier", "auc", …}, "calibrated": {…}}``.
        """
        self._require_fitted("network_")
        log = log or self.log_
        if log is None:
            raise NotFittedError(_NO_DATA, remedy="fit it again")
        clicks = log.take(log.clicked)
        return {
            kind: average(
                [
                    propensity_figures(sketch, p, p_min=p_min, population_size=log.population_size)
                    for sketch, p in zip(
                        self.held_out_sketches(calibrated=calibrated),
                        self._clicked_propensities(log, clicks, calibrated),
                        strict=True,
                    )
                ]
            )
            for kind, calibrated in (("raw", False), ("calibrated", True))
        }

    def _clicked_propensities(self, log: Log, clicks: Log, calibrated: bool) -> NDArray[np.float64]:
        if log is self.log_:
            # In the space "impressions" a row is out of fold only as a row of the training log itself.
            return self.predict_each(log, calibrated=calibrated)[:, log.clicked]
        return self.predict_each(clicks, calibrated=calibrated)

    def held_out_sketches(self, *, calibrated: bool) -> list[CalibrationSketch]:
        """One sketch per seed of held-out scores against clicks: what :meth:`diagnose` measures.

        With cross-fitting these are all cells of D, each scored out of fold; otherwise the 10 %
        evaluation cells.
        """
        self._require_fitted("network_")
        if self.log_ is None:
            raise NotFittedError(_NO_DATA, remedy="fit it again")
        return self._sketches_calibrated if calibrated else self._sketches_raw

    def _check(self) -> None:
        require(
            self.calibrate_on in ("held-out", "training"),
            f"calibrate_on must be 'held-out' or 'training', not {self.calibrate_on!r}",
        )
        require(self.epochs >= 1, f"epochs must be at least 1, not {self.epochs}")
        require(self.batch_size >= 1, f"batch_size must be at least 1, not {self.batch_size}")
        require(
            0.0 <= self.label_smoothing < 1.0,
            f"label_smoothing must be in [0, 1), not {self.label_smoothing}",
        )
        require(
            self.population in ("D", "sampled"),
            f"population must be 'D' or 'sampled', not {self.population!r}",
        )
        require(
            self.fold_by in ("cell", "user", "item"),
            f"fold_by must be 'cell', 'user' or 'item', not {self.fold_by!r}",
        )

    def _replica_seeds(self, purpose: str) -> list[int]:
        return [stream(s, purpose, k) for s in self.seeds_ for k in range(self.design_.replicas)]

    def replica_split_seeds(self) -> list[int]:
        """Seeds of the partition of D, one per replica; the replicas of one seed share theirs."""
        return [stream(s, "propensity split") for s in self.seeds_ for _ in range(self.design_.replicas)]

    def _held_out(self, role: int) -> tuple[Tensor, Tensor]:
        admitted = self.design_.admitted(role, len(self.seeds_), self.device_)
        cells, weight = held_out_cells(
            self.population_, self.slots_, admitted, HELD_OUT_BUDGET // len(admitted)
        )
        self._require_clicks((self.population_.click(cells) * weight).sum(1) > 0)
        return cells, weight

    def _require_clicks(self, has_clicks: Tensor) -> None:
        if not bool(has_clicks.all()):
            raise DataError(
                f"too few clicks ({self.population_.n_clicks}) for every replica to train on some and to hold"
                " some out",
                remedy="give more data, or fewer folds (crossfit)",
            )

    def _training_cells(self, ratio: float) -> tuple[Tensor, Tensor]:
        seeds = self._replica_seeds("fresh negatives")
        admitted = self.design_.admitted(TRAIN, len(self.seeds_), self.device_)
        everything = ClicksAndNegatives(self.population_, seeds, 1, self.slots_, admitted, ratio)
        (block,) = everything.epoch(0)
        assert block.cells is not None
        return block.cells.flatten(1), torch.ones(block.cells.flatten(1).shape, device=self.device_)

    def _sampler(self, ratio: float | None) -> Sampler:
        seeds = self._replica_seeds("propensity order")
        admitted = self.design_.admitted(TRAIN, len(self.seeds_), self.device_)
        self._require_clicks(admitted.gather(1, self.slots_.of(self.population_.observed[None])).any(1))
        if ratio is None:
            return EveryCell(self.population_, seeds, self.batch_size, self.slots_, admitted)
        return ClicksAndNegatives(
            self.population_, seeds, self.batch_size, self.slots_, admitted, ratio, self.resample_negatives
        )

    def _train(self, stop: tuple[Tensor, Tensor] | None, ratio: float | None, progress: Progress) -> History:
        network, population, smoothing = self.network_, self.population_, self.label_smoothing

        def loss(draw: Draw) -> Tensor:
            assert draw.click is not None
            target = draw.click * (1.0 - smoothing) + 0.5 * smoothing if smoothing else draw.click
            return cross_entropy(target, network(draw.user, draw.item)).mean(-1)

        def held_out_nll(cells: Tensor, weight: Tensor) -> Callable[[], Tensor]:
            user, item = population.pairs(cells)
            click = population.click(cells)

            def weighted_mean() -> Tensor:
                nll = cross_entropy(click, logits(network, user, item) + self.offset_)
                return (nll * weight).sum(1) / weight.sum(1)

            return weighted_mean

        step = Step("propensity", loss, trains=("propensity",))
        return train(
            {"propensity": network},
            [Pass(LookedUp(self._sampler(ratio), population), (step,))],
            Schedule(self.epochs, self.learning_rate, self.weight_decay, self.patience),
            replicas=network.replicas,
            validate=None if stop is None else held_out_nll(*stop),
            tracker=progress.task("propensity", self.epochs),
        )

    def _calibrate(self, calibration: list[Scored], out: list[Scored]) -> None:
        """Fit a calibrator per replica on cells it never saw, and keep the held-out sketches."""
        replicas = self.design_.replicas
        self.calibrators_: list[Calibrator | None] = [None] * len(out)
        if self.calibrator is not None:
            # Without cross-fitting: on the calibration cells. With it: on the out-of-fold scores of the
            # other folds, so no cell is lost to calibration and none is mapped by a fit that saw it.
            fit_on = calibration if self.design_.folds is None else out
            sketches = [CalibrationSketch.of(score=s, outcome=o, weight=w) for s, o, w in fit_on]
            for replica in range(len(out)):
                seed, fold = divmod(replica, replicas)
                own = sketches[seed * replicas : (seed + 1) * replicas]
                used = own if self.design_.folds is None else own[:fold] + own[fold + 1 :]
                merged = CalibrationSketch()
                for sketch in used:
                    merged.merge(sketch)
                self.calibrators_[replica] = _fresh(self.calibrator).fit(merged)
        self._sketches_raw, self._sketches_calibrated = [], []
        for seed in range(len(self.seeds_)):
            raw, calibrated = CalibrationSketch(), CalibrationSketch()
            for replica in range(seed * replicas, (seed + 1) * replicas):
                score, outcome, weight = out[replica]
                raw.update(score, outcome, weight)
                calibrated.update(self._apply(score, replica), outcome, weight)
            self._sketches_raw.append(raw)
            self._sketches_calibrated.append(calibrated)

    def _scored(self, cells: Tensor, weight: Tensor) -> list[Scored]:
        """Score, outcome and weight of each replica's held-out cells, padding removed."""
        score = self._probability(logits(self.network_, *self.population_.pairs(cells)))
        click = self.population_.click(cells).double().cpu().numpy()
        weights = weight.double().cpu().numpy()
        return [(s[w > 0], o[w > 0], w[w > 0]) for s, o, w in zip(score, click, weights, strict=True)]

    def _probability(self, logit: Tensor) -> NDArray[np.float64]:
        probability: NDArray[np.float64] = torch.sigmoid(logit.double() + self.offset_).cpu().numpy()
        return probability

    def _apply(self, score: NDArray[np.float64], replica: int) -> NDArray[np.float64]:
        calibrator = self.calibrators_[replica]
        return score if calibrator is None else calibrator.predict(score)

    def _predict_codes(
        self, user: Tensor, item: Tensor, cell: Tensor | None, calibrated: bool
    ) -> NDArray[np.float64]:
        score = self._probability(logits(self.network_, user.unsqueeze(0), item.unsqueeze(0)))
        if calibrated:
            score = np.stack([self._apply(line, replica) for replica, line in enumerate(score)])
        replicas = self.design_.replicas
        by_seed = score.reshape(len(self.seeds_), replicas, -1)
        if cell is None or self.design_.folds is None:
            return np.asarray(by_seed.mean(axis=1))
        fold = self.design_.fold_of(self.slots_.of(cell.unsqueeze(0)))[::replicas].cpu().numpy()
        return np.take_along_axis(by_seed, fold[:, None, :], axis=1)[:, 0, :]


def _fresh(calibrator: Calibrator) -> Calibrator:
    return type(calibrator)(**calibrator.get_params(deep=False))
