"""Every benchmark that a machine can run, one after the other: ``python -m benchmarks [--device cuda]``."""

from __future__ import annotations

import subprocess
import sys

CLAIMS = (("training",), ("inference",), ("memory",), ("quality",))
GPU_ONLY = (("inference", "--shape", "yahoo"),)
CPU_ONLY = (("bench_audit",), ("tables",), ("table_quality",))


def main() -> int:
    arguments = sys.argv[1:]
    on_gpu = any(argument.startswith("cuda") for argument in arguments)
    codes = []
    for name, *own in (*CLAIMS, *(GPU_ONLY if on_gpu else CPU_ONLY)):
        shared = [] if (name, *own) in CPU_ONLY else arguments
        codes.append(subprocess.call([sys.executable, "-m", f"benchmarks.{name}", *own, *shared]))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
