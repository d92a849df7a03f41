"""A stage's plan as passes of the training loop: who samples in which order, and what runs before."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from unskew.debias.core.observed import Observed
from unskew.debias.core.plans import StagePlan
from unskew.debias.core.setting import Setting
from unskew.seeds import stream
from unskew.training import ObservedAndFull, Pass, Sampler, ShuffledRows, Step


def passes_of(
    stage: StagePlan, setting: Setting, data: Observed, rows: Tensor, batch_size: int
) -> list[Pass]:
    """The passes of an epoch of a stage.

    Parameters
    ----------
    rows
        Positions in O to train on, ``[R, n]``.
    batch_size
        Rows of O in a batch, for a pass that names none.
    """
    passes = []
    for number, each in enumerate(stage.passes):
        # Every method's first pass has the same order, so that methods are paired; others differ.
        purpose = "order" if number == 0 else f"order of pass {number}"
        order = [stream(seed, purpose) for seed in data.seeds]
        observed = ShuffledRows(rows, order, each.batch_size or batch_size)
        sampler: Sampler = (
            observed
            if each.space == "observed"
            else ObservedAndFull(observed, data.population, each.ratio, each.unclicked_once)
        )
        steps = tuple(Step(s.name, data.bind(s.loss, setting), s.trains) for s in each.steps)
        passes.append(Pass(sampler, steps, _hook(each.before, setting)))
    return passes


def _hook(before: Callable[[Setting], None] | None, setting: Setting) -> Callable[[], None] | None:
    if before is None:
        return None
    hook = before
    return lambda: hook(setting)
