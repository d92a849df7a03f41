"""``make fuzz``: generated cases, and a table of what came of them."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from fuzz.suite import Result, cases, make_assets
from fuzz.workers import run_all


def show(results: list[Result], seed: int, seconds: float) -> None:
    """The table: cases, failures and how they ended, by class."""
    print(f"{'class':<22}{'cases':>7}{'failed':>8}  calls by how they ended")
    for kind in dict.fromkeys(kind for kind, _ in cases(1)):
        mine = [each for each in results if each.kind == kind]
        codes: Counter[str] = sum((Counter(each.codes) for each in mine), Counter())
        ends: Counter[str] = Counter()
        for name, count in codes.items():
            ends[name.split()[-1] if " " in name and name != "other error" else name] += count
        told = ", ".join(f"{name}: {count:,}" for name, count in sorted(ends.items()))
        print(f"{kind:<22}{len(mine):>7,}{sum(bool(each.problems) for each in mine):>8,}  {told}")
    verbs: dict[str, Counter[str]] = {}
    for each in results:
        for name, count in each.codes.items():
            verb, _, code = name.rpartition(" ")
            if code.lstrip("-").isdigit() or code in ("hang", "escaped"):
                verbs.setdefault(verb, Counter())[code] += count
    print(
        "\nexit codes by verb: "
        + "; ".join(f"{verb} {dict(sorted(codes.items()))}" for verb, codes in sorted(verbs.items()))
    )
    failed = [each for each in results if each.problems]
    told_of = Counter(_kind_of(problem) for each in failed for problem in each.problems)
    print(f"\n{len(results):,} cases, {len(failed)} failed, seed {seed}, {seconds:.0f} s")
    for problem, count in told_of.most_common():
        print(f"  {count:>5} × {problem}")


def _kind_of(problem: str) -> str:
    return " ".join(problem.split())[:160]


def main() -> int:
    """Read the options, run, and give 1 where a case failed."""
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument(
        "--seed", type=int, default=None, help="of all cases; another one each time by default"
    )
    parser.add_argument("--cases", type=int, default=4000, help="how many, about")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="CLASS, or CLASS:NUMBER, to run again")
    parser.add_argument(
        "--failures", type=Path, default=Path("fuzz-failures"), help="where failed cases are put"
    )
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    wanted = cases(options.cases)
    if options.only:
        kind, _, number = options.only.partition(":")
        wanted = [(kind, int(number))] if number else [each for each in wanted if each[0] == kind]
    print(f"seed {seed}, {len(wanted):,} cases", flush=True)
    with tempfile.TemporaryDirectory(prefix="unskew-fuzz-") as place:
        assets, folder = Path(place) / "assets", Path(place) / "cases"
        folder.mkdir()
        make_assets(assets)
        start = time.monotonic()
        results = run_all(wanted, seed, options.workers, folder, assets)
        show(results, seed, time.monotonic() - start)
        failed = Path(place) / "failed"
        if failed.is_dir():
            shutil.rmtree(options.failures, ignore_errors=True)
            shutil.copytree(failed, options.failures, symlinks=True)
            print(
                f"\nThe failed cases are in {options.failures}/; case.json of each says how to run it again."
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
