"""Effective targets t = r̃ + (r − r̃)/p: clipped if asked to, watched, and told of when they run away."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from unskew.debias.core.setting import Setting

FAR_TARGET = 20.0
"""An effective target beyond this many times |D|/|O|, the mean of 1/p, is far. METHODS §5D has ±20 for any
density, which on a log with 1 % clicks nearly every honest weight exceeds."""
FAR_SHARE = 0.01
"""Share of far targets in a batch of O above which training is told to be at risk (METHODS §5D)."""
_FAR = "far targets"


def start_watching(setting: Setting) -> None:
    """Before the first batch; a captured step can only write to what is there."""
    if _FAR not in setting.state:
        replicas = setting.clicks.rows.user[:, 0]
        setting.remember(_FAR, torch.zeros_like(replicas, dtype=torch.float32))


def effective_target(
    setting: Setting, label: Tensor, conversion: Tensor, inverse: Tensor, clip: float | None
) -> Tensor:
    """t of clicks ``[R, B]``, in [−clip, 1 + clip]; without a clip, far ones are counted."""
    target = label + (conversion - label) * inverse
    if clip is not None:
        return target.clamp(-clip, 1.0 + clip)
    if _FAR in setting.state:
        share = (target.detach().abs() * setting.density > FAR_TARGET).float().mean(-1)
        setting.remember(_FAR, torch.maximum(setting.state[_FAR], share))
    return target


def tell_of_far_targets(setting: Setting, method: str) -> None:
    """One warning, if there was a batch with too many."""
    share = float(setting.state[_FAR].max()) if _FAR in setting.state else 0.0
    if share > FAR_SHARE:
        warnings.warn(
            f"{method}: up to {share:.1%} of a batch's effective targets were beyond ±{FAR_TARGET:g} times"
            f" the mean weight, with propensities clipped at {float(setting.floor.min()):.2g}: a larger"
            " p_min, or a target_clip, keeps training stable at the price of some bias",
            stacklevel=4,
        )
