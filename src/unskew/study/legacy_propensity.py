"""The propensity of the published code: what it does otherwise than :class:`unskew.Propensity`, by switches.

Each switch overrides one thing; all are off by default, and the paper protocol turns them on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from unskew.base.estimator import require
from unskew.base.tensors import Tensor, torch
from unskew.data import Rows
from unskew.learners import Network
from unskew.propensity import DualFocal, Propensity, Uncertainty, make_uncertainty
from unskew.propensity.crossfit import OUT, STOP, TRAIN, Floats, SplitDesign
from unskew.propensity.propensity import HeldOutCells
from unskew.training import ClicksAndNegatives

SPARED = 3
"""The role of a slot that is not trained on, but counted to the training cells."""

SLOTS = 10
"""Of D, where nothing is held out; one of them may be spared."""


@dataclass(kw_only=True)
class DualFocalOnProbabilities(DualFocal):
    """The dual focal loss with the two probabilities taken for logits: p_y is then σ(±(2p̂ − 1)), which stays
    in [0.27, 0.73]. No link undoes that."""

    name: ClassVar[str] = "dual-focal-on-probabilities"
    link: Literal["inverse", "none"] = "none"

    def check(self) -> None:
        """Raise for parameters that cannot be."""
        super().check()
        require(self.link == "none", "the inverse link is not that of probabilities", "use link='none'")

    def loss(self, target: Tensor, logit: Tensor) -> Tensor:
        """Return the loss of the squeezed logit."""
        return super().loss(target, 2.0 * torch.sigmoid(logit) - 1.0)


def legacy_uncertainty(name: str | None, **params: Any) -> Uncertainty | None:
    """Return an uncertainty method by name, also that of the published code."""
    if name == DualFocalOnProbabilities.name:
        return DualFocalOnProbabilities(**params)
    return make_uncertainty(name, **params)


@dataclass(kw_only=True)
class LegacyPropensity(Propensity):
    """p̃ = q(σ(g_φ)) with what the published code does, a switch each; none is right for weights.

    Parameters
    ----------
    negatives_once
        Sampled negatives are drawn once for all epochs.
    population
        ``"sampled"`` leaves the logit offset of sampled negatives: such scores are no propensities over D,
        and full-space methods refuse them.
    calibrate_in_sample, judge_in_sample
        The calibrator is fitted, or :meth:`diagnose` measures, on the training clicks and as many fresh
        negatives per click. With both, and without early stopping, nothing is held out.
    spare_tenth
        Where nothing is held out: trains on nine tenths of the cells and counts the last tenth to the
        training cells all the same.
    calibrator_dropout
        Leaves dropout on in the scores that the calibrator is fitted on and maps: its output then has noise
        in it. Raw scores have none.
    """

    name: ClassVar[str] = "legacy-propensity"
    read_off: ClassVar[tuple[str, ...]] = (
        *Propensity.read_off,
        "calibrator_dropout",
        "calibrate_in_sample",
        "judge_in_sample",
    )
    makers: ClassVar[Mapping[str, Callable[..., Any]]] = {"uncertainty": legacy_uncertainty}

    negatives_once: bool = False
    population: Literal["D", "sampled"] = "D"
    calibrate_in_sample: bool = False
    judge_in_sample: bool = False
    spare_tenth: bool = False
    calibrator_dropout: bool = False

    def holds_out(self) -> bool:
        """Return whether any cell of D is held out."""
        return not (self.calibrate_in_sample and self.judge_in_sample and self.patience is None)

    def is_noisy(self) -> bool:
        """Return whether the calibrator's scores have dropout noise of their own."""
        return self.calibrator_dropout and self.calibrator is not None and not self.method().passes()

    def _check(self) -> None:
        super()._check()
        require(
            self.crossfit is None or not (self.calibrate_in_sample or self.judge_in_sample),
            "cross-fitting and calibrating or judging on training cells exclude each other",
            "give crossfit=None, or leave out the other",
        )

    def _design(self) -> SplitDesign:
        if self.holds_out():
            return super()._design()
        roles = torch.full((1, SLOTS if self.spare_tenth else 1), TRAIN)
        roles[0, 1:2] = SPARED
        return SplitDesign(folds=None, roles=roles)

    def _offset(self) -> float:
        return super()._offset() if self.population == "D" else 0.0

    def _resamples(self) -> bool:
        return not self.negatives_once

    def _validation(self, network: Network, replicas: Sequence[int]) -> Callable[[], Tensor] | None:
        return super()._validation(network, replicas) if self.holds_out() else None

    def _held_out(self, role: int, replicas: Sequence[int]) -> HeldOutCells:
        in_sample = {OUT: self.judge_in_sample, STOP: self.calibrate_in_sample}[role]
        return self._training_cells(replicas) if in_sample else super()._held_out(role, replicas)

    def _training_cells(self, replicas: Sequence[int]) -> HeldOutCells:
        """Return the training clicks and as many fresh negatives per click as it is trained on."""
        cells = self.cells_
        admitted = cells.admitted(TRAIN, replicas) | cells.admitted(SPARED, replicas)
        # Members of an ensemble are judged together, so all have the cells of the first.
        seeds = self._seeds("fresh negatives")[:: self.method().stacked_members()]
        sampler = ClicksAndNegatives(
            cells.population, seeds, 1, cells.slots(replicas), admitted, self.ratio_ or 1.0
        )
        (block,) = sampler.epoch(0)
        assert block.cells is not None
        chosen = block.cells.flatten(1)
        weight = torch.ones(chosen.shape)
        return HeldOutCells(cells.population.rows(chosen), cells.population.click(chosen), weight)

    def _to_map(self, raw: Floats, rows: Rows, replicas: Sequence[int]) -> Floats:
        if not self.is_noisy():
            return raw
        return replace(self._stack(), noisy=True).score(rows, replicas).mean

    def _read_off(self, trained: Self) -> None:
        require(
            self.holds_out() == trained.holds_out(),
            "this hold-out changes how it is trained",
            f"fit another {type(self).__name__}",
        )
        super()._read_off(trained)
