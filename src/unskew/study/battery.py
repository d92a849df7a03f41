"""The battery: methods, and ``auto``, trained and judged on worlds of known truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from unskew.backbones import make_backbone
from unskew.datasets.battery import UNBIASED_SHARE, WORLDS
from unskew.estimator import require, require_at_least, require_choice
from unskew.progress import SILENT, Progress
from unskew.study.battery_jobs import train_beside
from unskew.study.battery_plan import REAL, Settings, plan_battery, total_sentence
from unskew.study.battery_result import BatteryResult
from unskew.study.battery_world import WorldRun
from unskew.study.results import ResultStore
from unskew.training import resolve_device

RESULTS = "results"


def run_battery(
    out: str | Path,
    *,
    worlds: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    scale: str = "full",
    seeds: int | None = None,
    members: int | None = None,
    minutes: float | None = None,
    backbone: str = "neumf",
    criterion: str = "auc",
    unbiased_share: float = UNBIASED_SHARE,
    grid: bool = True,
    epochs: int | None = None,
    root: str | None = None,
    device: str = "auto",
    jobs: int = 1,
    progress: Progress = SILENT,
    tell: Callable[[str], None] | None = None,
) -> BatteryResult:
    """Train every candidate in every world, or go on with it; choose as ``auto`` would; judge all.

    A finished training is kept in ``out/results`` under a hash of all that went into it, and found again.
    What auto chooses is computed from the kept predictions: it costs no training.

    Parameters
    ----------
    worlds, methods
        By default all of the battery; the candidates of ``auto`` and newer methods.
    seeds, members
        Repetitions and members of each; by default what ``minutes`` allow
        (:func:`unskew.study.battery_plan.plan_battery`).
    minutes
        What the estimate of the whole may come to: by default 45 on a CPU and 7.5 on a GPU.
    grid
        The naive model and the methods that the sample puts first with another regularisation too.
    epochs
        At most so many; the methods' own by default.
    root
        The folder of Coat's files: the real log is then one more world.
    jobs
        Processes that train at once, with the cores divided among them; all write into the same folder, each
        training once. A script that asks for more than one needs ``if __name__ == "__main__":``.
    tell
        Gets, in words, what will be trained and how long that may take, before anything is.
    """
    chosen = tuple(worlds or WORLDS)
    for world in chosen:
        require_choice("world", world, tuple(WORLDS))
    require_choice("scale", scale, ("full", "small"))
    require(seeds is None or seeds >= 1, f"seeds must be at least 1, not {seeds}", "give 3, for example")
    require(
        members is None or members >= 1, f"members must be at least 1, not {members}", "give 5, for example"
    )
    require_at_least(1, jobs=jobs)
    settings = Settings(
        worlds=(*chosen, *(() if root is None else (REAL,))),
        methods=None if methods is None else tuple(methods),
        scale=scale,
        seeds=seeds,
        members=members,
        minutes=minutes,
        backbone=backbone,
        criterion=criterion,
        unbiased_share=unbiased_share,
        grid=grid,
        epochs=epochs,
        root=root,
    )
    make_backbone(backbone)
    plans = plan_battery(
        settings.worlds,
        scale=scale,
        methods=methods,
        grid=grid,
        repetitions=seeds,
        members=members,
        minutes=minutes,
        device=resolve_device(device).type,
    )
    if tell is not None:
        for each in plans:
            tell(each.sentence)
        tell(total_sentence(plans))
    folder = Path(out)
    with ResultStore(folder / RESULTS).opened() as store:
        if jobs > 1:
            train_beside(settings, plans, store, device, jobs, progress)
        # In thousandths of the estimated seconds, so that trainings count by what they cost.
        bar = progress.task("battery", round(1000 * sum(each.seconds for each in plans)))
        found = [WorldRun(settings, plan, store, device, progress, bar).result() for plan in plans]
        bar.finish()
    result = BatteryResult(settings, tuple(found))
    result.write(folder)
    return result
