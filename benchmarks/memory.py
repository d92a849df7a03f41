"""Peak memory of 100 replicas on a Coat-sized D. ``python -m benchmarks.memory``"""

from __future__ import annotations

import resource

import torch

from benchmarks.common import arguments, coat_sized_log, tell
from benchmarks.training import stacked
from unskew.learners import NeuMF

REPLICAS = 100
GIB = 1 << 30
COPIES = 3
"""Parameters and Adam's two moments."""


def main() -> None:
    options = arguments(__doc__)
    log = coat_sized_log()
    parameters = sum(p.numel() for p in NeuMF().build(log.schema, [0]).parameters())
    on_gpu = options.device.startswith("cuda")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    before = 0 if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    stacked(REPLICAS, options.device, 2)()
    after = (
        torch.cuda.max_memory_allocated()
        if on_gpu
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    state = REPLICAS * COPIES * parameters * 4
    row = {
        "replicas": REPLICAS,
        "peak, MiB": (after - before) / 2**20,
        "parameters and optimiser, MiB": state / 2**20,
        "bar, MiB": (state + GIB) / 2**20,
    }
    tell("Peak memory while training", [row], options.device, options.json)


if __name__ == "__main__":
    main()
