"""Deviations of published code from the papers: one class for each, laid over a method.

``as_published(DRJL(ratio=6), AveragedTogether, NoisyImputer)`` is a :class:`unskew.DRJL` that trains so; its
parameters, its files and its name are those of the method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from unskew.base.tensors import Tensor, torch
from unskew.debias import Debiaser, losses
from unskew.debias.dr_v2 import DRV2
from unskew.debias.imputation import JointLearning, SquaredPseudoLabel
from unskew.debias.ips_v2 import IPSV2
from unskew.debias.setting import Batch, Plan, Setting
from unskew.training import ObservedAndFull, Population, Sampler, ShuffledRows

Method = TypeVar("Method", bound=Debiaser)

LAST_READ = "_last_read"
"""Attribute of a method: the batch that its imputer read last, and the output."""


def as_published(method: Method, *deviations: type[Debiaser]) -> Method:
    """Return a method with deviations of published code; without any, the method itself."""
    if not deviations:
        return method
    kind = type(method)
    name = f"{kind.__name__} with {', '.join(each.__name__ for each in deviations)}"
    body = {"__doc__": kind.__doc__, "__module__": __name__, "__qualname__": name}
    deviating: Any = type(name, (*deviations, kind), body)
    made: Method = deviating(**method.get_params(deep=False))
    return made


class UnweightedImputation(JointLearning):
    """Corrects by Σ_O (e/p − ê), as much public code does: not doubly robust, even with true p."""

    def correction(self, setting: Setting, observed: Batch, logit: Tensor) -> Tensor:
        """Return e/p − ê of clicks."""
        error = self.form.error(observed.conversion, logit)
        imputed = self.form.imputed(self.imputer_output(setting, observed), logit)
        return error / observed.propensity - imputed


class AveragedTogether(JointLearning):
    """Averages clicks and their ``ratio`` cells of D together: |O|/|D| is taken for 1/(1 + ratio)."""

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Return s · mean_{B_O} [ê + (e − ê)/p] + (1 − s) · mean_{B_D} ê, s = 1/(1 + ratio)."""
        observed, logit = self.weighed(setting, observed), setting.logit(observed)
        clicked = self.correction(setting, observed, logit) + self.imputed_error(setting, observed, logit)
        imputed = self.imputed_error(setting, full, setting.logit(full))
        share = 1.0 / (1.0 + self.ratio)
        return share * clicked.mean(-1) + (1.0 - share) * imputed.mean(-1)


@dataclass(frozen=True)
class ClicksAndUnclicked:
    """Batches of clicks and ``ratio`` times as many unclicked cells, the latter drawn once for all epochs.

    The batch size counts both together.
    """

    ratio: float

    def __call__(self, observed: ShuffledRows, population: Population) -> Sampler:
        """Return the sampler."""
        clicks = replace(observed, batch_size=max(1, round(observed.batch_size / (1.0 + self.ratio))))
        return ObservedAndFull(clicks, population, self.ratio, unclicked_once=True)


class UnclickedOnce(JointLearning):
    """``batch_size`` counts clicks and cells of D together; the cells are unclicked ones, drawn once."""

    def plan(self) -> Plan:
        """Return the method's passes, the last of which draws so."""
        *others, prediction = super().plan()
        return (*others, replace(prediction, sampler=ClicksAndUnclicked(self.ratio)))


class NoisyImputer(JointLearning):
    """Leaves the imputer's dropout on where the prediction reads it."""

    def imputer_output(self, setting: Setting, batch: Batch) -> Tensor:
        """Return b with its dropout on, without gradient.

        Both terms of a click must see the same noise: what was read of the last batch is read.
        """
        read: tuple[Batch, Tensor] | None = vars(self).get(LAST_READ)
        if read is None or read[0] is not batch:
            with torch.no_grad():
                read = batch, setting.logit(batch, "imputation")
            vars(self)[LAST_READ] = read
        return read[1]


class OfficialV2(IPSV2):
    """IPS-V2 and DR-V2: no gradient is stopped, no propensity clipped, and the balance of a batch squared."""

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Return L, with L_imp = (1/|D|) Σ_O (e − ê)²/p."""
        tasks, r = self.tasks(setting, observed, full), observed.conversion
        logits, click, density = tasks.of("prediction"), tasks.of("click"), setting.density
        p = torch.sigmoid(click[0])
        if isinstance(self, DRV2):
            form, (output, imputed) = SquaredPseudoLabel(), tasks.of("imputation")
            gap = form.deviation(r, output, logits[0])
            error = form.imputed(imputed, logits[1]).mean(-1) + density * (gap / p).mean(-1)
            imputing = self.imputation_weight * density * (gap.square() / p).mean(-1)
            conversions = self.conversion_weight * error + imputing
        else:
            conversions = self.conversion_weight * density * (losses.squared_error(r, logits[0]) / p).mean(-1)
        options = {"click_conversion_weight": self.click_conversion_weight, **tasks.space}
        options |= {"conversion_weight": 0.0, "balance_weight": 0.0}
        rest = losses.ips_v2(r, logits, p, click, **options)
        return rest + conversions + self.balance_weight * losses.imbalance(logits, click, **tasks.space) ** 2
