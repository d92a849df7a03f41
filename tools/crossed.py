"""Count the files of the library that a command executes: ``python tools/crossed.py [--list]``.

Each command runs twice, and the second is traced (``sys.setprofile``): what imports execute is left out.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parent.parent / "src" / "unskew"


def executed(work: Callable[[int], object]) -> list[str]:
    """Return the files of the library that the second of two calls executes; each gets its number."""
    files: set[str] = set()

    def note(frame: Any, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    work(0)
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work(1)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    paths = (Path(name) for name in files if not name.startswith("<"))
    own = (path for path in paths if path.is_relative_to(SOURCE) and path.suffix == ".py")
    return sorted(path.relative_to(SOURCE).as_posix() for path in own)


def fit_of_ips() -> list[str]:
    """Return the files that a fit of IPS with propensities executes."""
    import unskew as us

    world = us.load("synthetic", n_users=40, n_items=30, density=0.25)
    propensity = world.truth.propensity  # type: ignore[union-attr]
    return executed(lambda _: us.IPS(epochs=1).fit(world.train, propensity=propensity))


def crossed() -> dict[str, list[str]]:
    """Return the files that each walk of the architecture page executes."""

    import unskew as us
    from unskew.cli import main

    log = us.load("synthetic", n_users=40, n_items=30, density=0.25).train
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        rows = Path(folder) / "rows.csv"
        lines = [f"{0.2 if row % 2 else 0.4},{int(row % 5 == 0)}" for row in range(1000)]
        rows.write_text("\n".join(("p,clicked", *lines)), encoding="utf-8")
        pairs = Path(folder) / "log.csv"
        shown = zip(
            log.user.tolist(), log.item.tolist(), log.known_conversion().astype(int).tolist(), strict=True
        )
        pairs.write_text(
            "user,item,conversion\n" + "\n".join(",".join(map(str, row)) for row in shown), encoding="utf-8"
        )
        run = ["run", str(pairs), "--method", "ips", "--effort", "quick", "--set", "training.epochs=1"]
        audit = ["audit", str(rows), "--score", "p", "--outcome", "clicked"]
        return {
            "us.IPS().fit": fit_of_ips(),
            "unskew run": executed(lambda number: main([*run, "--out", f"{folder}/run-{number}"])),
            "unskew audit": executed(lambda number: main([*audit, "--out", f"{folder}/audit-{number}"])),
        }


if __name__ == "__main__":
    for walk, files in crossed().items():
        print(f"{walk}: {len(files)} files")
        if "--list" in sys.argv:
            print("\n".join(f"  {name}" for name in files))
