"""How many cores this process may use."""

from __future__ import annotations

import os
import re


def usable_cores() -> int:
    """Return as many as ``OMP_NUM_THREADS`` says, or else as the system lets this process run on.

    A container or ``taskset`` may give it fewer than the machine has.
    """
    asked = re.match(r"\s*0*([1-9]\d*)\s*(,|$)", os.environ.get("OMP_NUM_THREADS", ""))
    if asked is not None:
        return int(asked[1])
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
