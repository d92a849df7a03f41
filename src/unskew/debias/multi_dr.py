"""Multi-DR: ESCM²-DR without its term for clicks that convert, λ_g = 0 (METHODS §5.4)."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.base.registry import register
from unskew.debias.escm2_dr import ESCM2DR


@register(order=200)
@dataclass(kw_only=True)
class MultiDR(ESCM2DR):
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (L_err + L_imp), the terms of :class:`ESCM2DR`.

    Towers share embeddings: apart, P2 would train the prediction exactly as IPS does. Use it as
    :class:`MultiIPW`, where weights vary much.
    """

    name = "multi-dr"
    paper = "Zhang 2020"
    when = "doubly robust where clicks can teach the embeddings what conversions need"

    click_conversion_weight: float = 0.0
