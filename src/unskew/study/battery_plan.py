"""What the battery trains in each world and what that costs, counted before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unskew.datasets.battery import WORLDS
from unskew.debias import METHODS
from unskew.estimator import require
from unskew.progress import duration_in_words
from unskew.propensity.crossfit import AUTO_RATIO
from unskew.propensity.per_replica import MOST_CELLS
from unskew.search.candidates import CANDIDATES
from unskew.search.decision import BASELINE

REAL = "coat (real)"
"""The world that is read from files, where their folder is given."""
REAL_CLICKS, REAL_CELLS = 6_960, 87_000
"""Of Coat."""

NEWER = ("uips", "acdr", "dce-dr")
"""Methods of the battery beside those that ``auto`` tries."""

LADDER = ((1, 3), (2, 3), (2, 5), (3, 5))
"""Repetitions and members: every world has the first, and more as far as time goes, cheap worlds first."""

MINUTES = {"cpu": 45.0, "cuda": 7.5}
"""What the estimate of a whole battery may come to; 60 and 10 minutes are its limits."""

ROW_SECONDS = {"cpu": 4e-6, "cuda": 3e-8}
"""Of one row of one replica in one epoch: networks of the battery's width, two cores, an H200."""

TRAINING_SECONDS = {"cpu": 4.0, "cuda": 2.5}
"""Of a training beside its rows: many steps of few rows on a CPU; a GPU captures its steps first."""

CELL_SECONDS = 2e-5
"""Of one cell that logistic regression is fitted on, all folds together, on two cores."""

CALIBRATED_SECONDS = 3e-5
"""Of one such cell where propensities are calibrated for segments of all features too (20 of them)."""

WIDTH = 16
"""Of embeddings, at most: with some 20 clicks a user there is nothing to learn in more numbers, and a network
of 64 takes four times as long."""
PATIENCE = 5
"""Epochs without a better validation loss after which a training ends."""

OTHERS_TRIED = 3
"""Methods that the sample puts first and that are tried with another regularisation too, beside naive."""


@dataclass(frozen=True)
class Settings:
    """What the battery runs."""

    worlds: tuple[str, ...]
    methods: tuple[str, ...] | None
    scale: str
    seeds: int | None
    members: int | None
    minutes: float | None
    backbone: str
    criterion: str
    unbiased_share: float
    grid: bool
    epochs: int | None
    root: str | None


@dataclass(frozen=True)
class WorldPlan:
    """What is trained in one world.

    Attributes
    ----------
    clicks, cells
        As its description promises; cells are those that the propensity is fitted on.
    trainings
        Ensembles that are trained.
    reads
        Rows that they read for each click, all together.
    by_segment
        Whether one of them has propensities that are calibrated for segments.
    """

    world: str
    clicks: int
    cells: int
    trainings: int
    reads: int
    repetitions: int
    members: int
    by_segment: bool
    device: str

    @property
    def seconds(self) -> float:
        """What it may take, about."""
        rows = self.reads * self.clicks * epochs_of(self.clicks) * self.repetitions * self.members
        return (
            rows * ROW_SECONDS[self.device]
            + self.trainings * TRAINING_SECONDS[self.device]
            + self.cells * (CELL_SECONDS + (CALIBRATED_SECONDS if self.by_segment else 0.0))
        )

    @property
    def sentence(self) -> str:
        """In words."""
        return (
            f"{self.world}: {self.clicks:,} clicks, {self.trainings} ensembles of {self.members}"
            f" member{'' if self.members == 1 else 's'},"
            f" {self.repetitions} repetition{'' if self.repetitions == 1 else 's'}; about"
            f" {duration_in_words(self.seconds)}"
        )


def epochs_of(clicks: int) -> float:
    """Epochs after which early stopping has ended, about: 12 of a large log, 40 of a small one.

    Examples
    --------
    >>> epochs_of(400), epochs_of(300_000)
    (40.0, 12.0)
    """
    return min(40.0, max(12.0, 300_000 / max(clicks, 1)))


def plan_battery(
    worlds: Sequence[str],
    *,
    scale: str = "full",
    methods: Sequence[str] | None = None,
    grid: bool = True,
    repetitions: int | None = None,
    members: int | None = None,
    minutes: float | None = None,
    device: str = "cpu",
) -> tuple[WorldPlan, ...]:
    """Repetitions and members of each world: those that are given, or what the time allows.

    Every world begins at the foot of :data:`LADDER`. Rung by rung the cheap worlds rise first, as long as the
    estimate of all stays within ``minutes``: small logs, where chance is large, have more repetitions than
    large ones. Nothing is timed, so that the same call plans the same.

    Parameters
    ----------
    minutes
        By default :data:`MINUTES` of the device.

    Examples
    --------
    >>> [(each.world, each.repetitions, each.members) for each in plan_battery(["tiny", "sparse"])]
    [('tiny', 3, 5), ('sparse', 1, 3)]
    """
    require(minutes is None or minutes > 0, f"minutes must be above 0, not {minutes}", "give 60, for example")
    limit = 60.0 * (MINUTES[device] if minutes is None else minutes)
    names = methods_of(methods)

    def planned(world: str, rung: int) -> WorldPlan:
        clicks, cells = sizes_of(world, scale)
        by_rung = LADDER[rung]
        return WorldPlan(
            world,
            clicks,
            cells,
            trainings=len(names) + (OTHERS_TRIED + 1 if grid else 0) + 1,
            reads=sum(map(_reads, names)) + (2 * OTHERS_TRIED + 1 if grid else 0) + 1,
            repetitions=by_rung[0] if repetitions is None else repetitions,
            members=by_rung[1] if members is None else members,
            by_segment=methods is None,
            device=device,
        )

    plans = {world: planned(world, 0) for world in worlds}
    rising = list(plans)
    for rung in range(1, len(LADDER)):
        for world in sorted(rising, key=lambda name: plans[name].seconds):
            higher = {**plans, world: planned(world, rung)}
            if sum(each.seconds for each in higher.values()) <= limit:
                plans = higher
            else:
                rising.remove(world)
    return tuple(plans.values())


def methods_of(methods: Sequence[str] | None) -> tuple[str, ...]:
    """The baseline and the methods of the battery."""
    names = (*CANDIDATES, *NEWER) if methods is None else tuple(methods)
    return tuple(dict.fromkeys((BASELINE, *names)))


def sizes_of(world: str, scale: str) -> tuple[int, int]:
    """Clicks of a world, and cells that its propensity is fitted on: five a click of a large one."""
    if world == REAL:
        return REAL_CLICKS, REAL_CELLS
    options = WORLDS[world].full if scale == "full" else WORLDS[world].small
    if "n_rows" in options:
        return round(options["n_rows"] * options["click_rate"]), options["n_rows"]
    cells = options["n_users"] * options["n_items"]
    clicks = round(cells * options.get("density", 0.09))
    return clicks, cells if cells <= MOST_CELLS else round((1 + AUTO_RATIO) * clicks)


def _reads(method: str) -> int:
    """Rows that a method reads for each click: as many of D, and again for an imputation."""
    kind = METHODS[method]
    return 1 + int(kind.needs_full_space) + int(kind.imputation is not None)


def total_sentence(plans: Sequence[WorldPlan]) -> str:
    """The cost of all."""
    where = "on two cores" if plans[0].device == "cpu" else "on one GPU"
    seconds = sum(each.seconds for each in plans)
    takes = f"The battery takes about {duration_in_words(seconds)} {where}"
    return f"{takes}; what is finished is kept, and found again."
