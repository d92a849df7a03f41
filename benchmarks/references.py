"""Figures that a redesign must not change: ``python -m benchmarks.references FOLDER [--against FILE]``.

Runs twelve commands on fixed data and writes every number of their JSON into ``FOLDER/references.json``. With
``--against`` it prints by command which numbers differ from an earlier file by more than 1e-9 of their size.
Coat is taken from ``$UNSKEW_DATA``; without it its commands are left out.

On one machine all numbers repeat to the bit. Another processor adds in another order: networks then differ in
the last digits, and ranks by a pair or two. Compare with an earlier commit that ran on the same machine.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WORLD = "make-data impressions --rows 30000 --users 2000 --items 200 --test-rows 5000 --out world"
SMALL = "--calibrator platt --members 1 --crossfit 2 --seeds 2 --device cpu"
COLUMNS = "--score propensity --outcome click"
COMMANDS = {
    "run on a synthetic world": f"run --data synthetic --option n_users=80 --option n_items=60 {SMALL}"
    " --method mrdr --propensity neumf --out synthetic --json 1.json",
    "run on Coat": f"run --data coat --root {{coat}} --method ips --propensity mf --learner mf {SMALL}"
    " --out coat --json 2.json",
    "run on impressions with features": "run --data world/log --space impressions --features auto"
    f" --test world/test.parquet --test-is random --method ips --propensity linear {SMALL} --out features"
    " --json 3.json",
    "score": "score features world/log -o scored.parquet",
    "audit": f"audit scored.parquet {COLUMNS} --segments country --segments device --no-report --json 6.json",
    "weights": f"weights scored.parquet {COLUMNS} --calibrator isotonic -o weights.parquet --json 7.json",
    "monitor": f"monitor store --add scored.parquet {COLUMNS} --by day --time time --segments device",
    "monitor, judged": "monitor store --no-report --json 8.json",
    "compare": "compare features --json 9.json",
    "study": "study methods --data synthetic --seeds 2 --device cpu --out study --json 10.json",
    "reproduce, honest": "reproduce table-ece table-ips --data synthetic --seeds 2 --device cpu"
    " --out honest --json 11.json",
    "reproduce, paper": "reproduce table-ece table-ips --data synthetic --seeds 2 --device cpu --out paper"
    " --protocol paper --json 12.json",
}
VARY = ("seconds", "time", "date", "version", "digest", "memory", "bytes", "cost", "device", "unskew")
"""Parts of keys whose values differ from run to run."""


def numbers(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """Yield the path and the value of every number of a JSON document."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not any(word in name.lower() for word in VARY):
                yield from numbers(inner, f"{key}/{name}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from numbers(inner, f"{key}/{place}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield key, float(value)


def sums(file: Path) -> dict[str, float]:
    """Return the sum of every column of numbers of a Parquet file."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    import pyarrow.types as kinds

    table = pq.read_table(file)
    numeric = [
        field.name for field in table.schema if kinds.is_floating(field.type) or kinds.is_integer(field.type)
    ]
    return {f"sum of {name}": float(pc.sum(table.column(name)).as_py() or 0.0) for name in numeric}


def main() -> None:
    """Run the commands, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--against", type=Path)
    options = parser.parse_args()
    coat = Path(os.environ.get("UNSKEW_DATA", "../shared/data")).resolve() / "coat"
    options.folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, float]] = {}
    for name, command in {"world": WORLD, **COMMANDS}.items():
        if "{coat}" in command and not coat.is_dir():
            continue
        words = [word.format(coat=coat) for word in command.split()]
        done = subprocess.run([sys.executable, "-m", "unskew", *words], cwd=options.folder, check=False)
        if done.returncode not in (0, 1):
            sys.exit(f"{name} ended with {done.returncode}")
        found[name] = {}
        for flag, word in itertools.pairwise(words):
            if flag == "--json":
                found[name] |= dict(numbers(json.loads((options.folder / word).read_text(encoding="utf-8"))))
            if flag == "-o":
                found[name] |= sums(options.folder / word)
    text = json.dumps(found, indent=1)
    (options.folder / "references.json").write_text(text, encoding="utf-8")
    if options.against is not None:
        compare(json.loads(options.against.read_text(encoding="utf-8")), found)


def compare(before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]) -> None:
    """Print what differs by more than rounding, by command."""
    for name, numbers_before in before.items():
        numbers_after = after.get(name, {})
        both = numbers_before.keys() & numbers_after.keys()
        off = {
            key: abs(numbers_after[key] - numbers_before[key]) / max(abs(numbers_before[key]), 1e-9)
            for key in both
        }
        differ = sorted((key for key in both if off[key] > 1e-9), key=lambda key: -off[key])
        gone = len(numbers_before) - len(both)
        print(f"{name}: {len(both)} numbers in both, {len(differ)} differ, {gone} gone")
        kinds = Counter(key.split("/")[1] if "/" in key else key for key in differ)
        print("   ", ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(8)))
        for key in differ[:5]:
            print(f"    {key}: {numbers_before[key]:.9g} → {numbers_after[key]:.9g}")


if __name__ == "__main__":
    main()
