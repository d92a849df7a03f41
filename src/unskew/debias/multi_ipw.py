"""Multi-IPW: ESCM²-IPS without its term for clicks that convert, λ_g = 0 (METHODS §5.4)."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.base.registry import register
from unskew.debias.escm2_ips import ESCM2IPS


@register(order=190)
@dataclass(kw_only=True)
class MultiIPW(ESCM2IPS):
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (1/|D|) Σ_O CE(r, r̂) / sg(p).

    p is the click tower or, as a weight, what ``calibration`` says; λ_c is ``conversion_weight``, 1 in the
    paper. Clicks are many where conversions are few, and the shared embeddings learn from both. Use it where
    clicks and conversions have causes in common; where they have not, :class:`IPS` is better.
    """

    name = "multi-ipw"
    paper = "Zhang 2020"
    when = "IPS where clicks can teach the embeddings what conversions need"

    click_conversion_weight: float = 0.0
