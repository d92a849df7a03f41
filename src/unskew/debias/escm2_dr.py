"""ESCM²-DR: Multi-DR held to the rate of clicks that convert, over all of D."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unskew.debias.multi_dr import MultiDR
from unskew.registry import register


@register(order=140)
@dataclass(kw_only=True)
class ESCM2DR(MultiDR):
    """L = (1/|D|) Σ_D CE(o, p) + λ_c · (L_err + L_imp) + λ_g · (1/|D|) Σ_D CE(o·r, p·r̂).

    L_err = (1/|D|) Σ_D [ê + o·(e − ê)/sg(p)], L_imp = (1/|D|) Σ_O (e − ê)²/sg(p), ê from a third tower.
    λ_c is ``conversion_weight``, λ_g ``click_conversion_weight``: public code has (0.5, 0.5), (0.1, 1) and
    (1, 1). As published neither e nor ê is without gradient in L_imp; ``detach_pred_in_imp=True`` holds e
    fixed there. Use it as :class:`ESCM2IPS`, where weights vary much.
    """

    name: ClassVar[str] = "escm2-dr"
    paper: ClassVar[str] = "Wang 2022"
    when: ClassVar[str] = "escm2-ips where weights vary much"

    click_conversion_weight: float = 1.0
