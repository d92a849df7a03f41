"""What an audit found, in words: a pure function of its figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from unskew.audit.audit_figures import ErrorFigure, Region
from unskew.audit.segments import Segment
from unskew.base.plain_text import plain
from unskew.metrics import ChanceTest
from unskew.metrics.judgement import WeightJudgement

HEADLINES = {True: "Healthy", None: "Undecided", False: "Miscalibrated"}
"""A verdict in a word."""

MAIN_PART = 0.25
"""A region that makes up this share of the error of all regions is named."""

MOST_REGIONS = 2

MOST_SEGMENTS = 3
"""Segments that are named; of the others, how many."""

NOISY = 0.5
"""The noise in what a remedy leaves is stated where it is more than this share of it."""

CALIBRATOR_WORDS = {
    "temperature": "Temperature scaling",
    "platt": "Platt on logits",
    "beta": "Beta calibration",
    "spline": "A spline on logits",
    "isotonic": "Isotonic regression",
    "histogram": "Histogram binning",
    "venn_abers": "Venn-Abers",
    "scaling_binning": "Scaling-binning",
    "ic_ipw": "IC-IPW",
}
"""Calibrators at the beginning of a sentence."""


class OutcomeWords(NamedTuple):
    """What an outcome of 1 is called, and a row that has it."""

    noun: str
    row: str


def outcome_words(column: str) -> OutcomeWords:
    """Words for the outcomes of a column: clicks where its name says so.

    Examples
    --------
    >>> outcome_words("is_click").noun, outcome_words("bought").noun
    ('click', 'positive')
    """
    is_click = any(word in column.lower() for word in ("click", "clk"))
    return OutcomeWords("click", "clicked") if is_click else OutcomeWords("positive", "positive")


@dataclass(frozen=True)
class Remedy:
    """The calibrator to use.

    ``wce`` is what it would leave on held-out rows, ``floor`` what noise alone shows there, and ``honest``
    whether that is healthy.
    """

    name: str
    wce: float
    floor: float
    honest: bool


def verdict(
    *,
    judgement: WeightJudgement,
    tolerance: float,
    wce: ErrorFigure,
    p_value: float,
    significance: float,
    rows: int,
    clicks: int,
    infinite: int,
    regions: Sequence[Region],
    remedy: Remedy | None,
    segments: Sequence[Segment] = (),
    segments_alike: bool = False,
    columns: tuple[str, str] = ("score", "clicked"),
    scores_vary: bool = True,
) -> str:
    """The verdict in a few sentences.

    Parameters
    ----------
    clicks, infinite
        Rows with outcome 1, and those of them with score 0.
    remedy
        None where no calibrator could be judged.
    segments
        Those worth naming, the one that costs most first: off beyond noise and beyond the tolerance, and of
        scores that are off as a whole, apart from the rest.
    segments_alike
        Whether there are segments, and none stands out.
    columns, scores_vary
        The names of score and outcome, and whether there are two scores or more.

    Examples
    --------
    >>> low = Region(low=None, high=0.01, share=0.8, ratio=0.5556, part=0.36)
    >>> chance = ChanceTest(0.7, 0.01, 0.0, True)
    >>> off = WeightJudgement("bad", "off", 0.46, 0.0, 1.2, 1.0, 90_000, chance)
    >>> text = verdict(judgement=off, tolerance=0.05, wce=ErrorFigure(0.46, 0.45, 0.47, 0.01), p_value=0.0,
    ...                significance=0.01, rows=90_000, clicks=9000, infinite=0, regions=[low],
    ...                remedy=Remedy("platt", 0.02, 0.004, True))
    >>> for sentence in text.split(". "):
    ...     print(sentence)
    Overstated by a factor 1.8 below 0.01; the weights that matter are 44 % too small
    Platt on logits, cross-fitted, would bring WCE from 0.46 to 0.02.
    """
    healthy, chance = judgement.healthy, judgement.chance
    noun = outcome_words(columns[1]).noun
    blind = chance is not None and not chance.beyond
    if healthy:
        sentences = [
            _praise(tolerance, wce, judgement.wce_debiased, p_value, significance, counted(clicks, noun))
        ]
    elif judgement.reason == "too few rows":
        sentences = [_undecided(judgement, wce, rows, counted(clicks, noun))]
    elif judgement.reason == "not beyond chance":
        sentences = [_level_alone(judgement, columns) if scores_vary else _constant(clicks, columns[1])]
    else:
        where_off = _where_off(regions, wce, tolerance, infinite)
        asked = blind and scores_vary
        sentences = [
            *([_question(chance, columns)] if chance is not None and asked else []),
            *([_infinite(infinite, noun)] if infinite else []),
            *([f"If it is: {_small(text)}" for text in where_off[:1]] if asked else where_off),
            _bandit(columns[0]) if asked else _remedy(remedy, wce, clicks, noun),
        ]
    sentences += [
        _segment(segment, judgement, tolerance, noun, first=not place)
        for place, segment in enumerate(segments[:MOST_SEGMENTS])
    ]
    further = len(segments) - MOST_SEGMENTS
    if further > 0:
        sentences.append(f"{further:,} more segment{' is' if further == 1 else 's are'} off.")
    if not segments and segments_alike and judgement.level == "bad":
        sentences.append("No segment is apart from the rest beyond noise and tolerance.")
    return " ".join(sentences)


def headline(judgement: WeightJudgement, outcome: str, *, scores_vary: bool = True) -> str:
    """The verdict in a word or two."""
    if judgement.healthy is None:
        return "Undecided"
    if judgement.healthy:
        return "Healthy"
    chance = judgement.chance
    if chance is not None and not chance.beyond and scores_vary:
        return f"Not a propensity of '{outcome}'?"
    return "Miscalibrated"


def short(value: float) -> str:
    """Two significant digits, without exponent for what is read often."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    rounded = float(f"{value:.2g}")
    return f"{rounded:.0f}" if abs(rounded) >= 10 else f"{rounded:g}"


def percent(share: float) -> str:
    """A share in per cent, two significant digits."""
    return f"{short(100 * share)} %"


def direction(ratio: float) -> str:
    """How far scores are off, from the mean of o/p̂."""
    if ratio == 0:
        return "overstated beyond measure (not one came)"
    word, factor = ("overstated", 1 / ratio) if ratio < 1 else ("understated", ratio)
    return f"{word} by a factor {_factor(factor)}"


def weights_off(ratio: float) -> str:
    """What the same means for the weights."""
    return f"{percent(abs(ratio - 1))} too {'small' if ratio < 1 else 'large'}"


def place(region: Region) -> str:
    """Which scores a region holds."""
    if region.low is None and region.high is None:
        return "on average"
    if region.low is None:
        return f"below {short(region.high or 0.0)}"
    if region.high is None:
        return f"above {short(region.low)}"
    return f"between {short(region.low)} and {short(region.high)}"


def _factor(factor: float) -> str:
    return short(factor) if factor >= 1.1 else f"{factor:.3g}"


def _praise(
    tolerance: float, wce: ErrorFigure, wce_debiased: float, p_value: float, significance: float, clicks: str
) -> str:
    off = percent(wce_debiased)
    if wce_debiased <= tolerance and p_value < significance:
        return (
            f"Honest within the tolerance: the weights are off by {off} (WCE without noise), which is more"
            f" than noise but not more than {percent(tolerance)}."
        )
    if wce_debiased <= tolerance:
        return (
            f"Honest: nothing tells the weights from right ones (WCE {short(wce.value)}, noise alone"
            f" {short(wce.floor)}, p = {short(p_value)})."
        )
    claim = (
        f"Not shown to be off by more than {percent(tolerance)}"
        if p_value < significance
        else "Not distinguishable from honest"
    )
    return (
        f"{claim}: the weights look {percent(wce.value)} off, but with {clicks} noise alone shows"
        f" {percent(wce.floor)}."
    )


def _undecided(judgement: WeightJudgement, wce: ErrorFigure, rows: int, clicks: str) -> str:
    some = (
        ""
        if judgement.rows_needed is None
        else (f"; some {round_up(judgement.rows_needed):,} rows like these would tell")
    )
    return (
        f"With {clicks} on {counted(rows, 'row')}, weights that are off by a factor"
        f" {short(judgement.error)} would be found with a chance of {percent(judgement.power)}{some}. So far"
        f" they look {percent(wce.value)} off, where noise alone shows {percent(wce.floor)}."
    )


def _level_alone(judgement: WeightJudgement, columns: tuple[str, str]) -> str:
    chance = judgement.chance
    assert chance is not None
    score, outcome = columns
    return (
        f"The weights add up, but {_at_chance(chance, outcome)}: weights made of these scores debias nothing."
        f" Is '{score}' a propensity of '{outcome}'?"
    )


def _constant(clicks: int, outcome: str) -> str:
    noun, row = outcome_words(outcome)
    return (
        f"The weights add up, but all rows have one score: it tells no {row} row from another, and debiases"
        f" nothing. With {counted(clicks, noun)} a propensity that does can be trained (unskew weights"
        " --user --item)."
    )


def _question(chance: ChanceTest, columns: tuple[str, str]) -> str:
    score, outcome = columns
    found = _capital(_at_chance(chance, outcome))
    return f"Is '{score}' the probability of '{outcome}'? {found}, and the weights do not add up."


def _bandit(score: str) -> str:
    return (
        f"If '{score}' is the probability with which the row was shown (a bandit log), audit it with"
        " --actions N, the number of actions to choose from."
    )


def _at_chance(chance: ChanceTest, outcome: str) -> str:
    noise = short(2 * chance.standard_error)
    noun, row = outcome_words(outcome)
    seen = f"were not {row} more often" if noun == "click" else f"did not come with more {noun}s"
    return f"higher scores {seen} (AUC {chance.auc:.3f}, chance 0.5 ± {noise})"


def round_up(rows: int) -> int:
    """Two significant digits, rounded up."""
    unit = int(10 ** max(len(str(rows)) - 2, 0))
    return -(-rows // unit) * unit


def counted(count: int, noun: str) -> str:
    """A number and its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _infinite(rows: int, noun: str) -> str:
    if rows == 1:
        return f"1 {noun} has a score of 0: its weight is infinite."
    return f"{rows:,} {noun}s have a score of 0: their weights are infinite."


def _where_off(regions: Sequence[Region], wce: ErrorFigure, tolerance: float, infinite: int) -> list[str]:
    finite = [region for region in regions if math.isfinite(region.ratio)]
    if not finite:
        if infinite:
            return []
        return [
            f"The weights are {percent(wce.value)} off on average, with a tolerance of {percent(tolerance)}."
        ]
    whole = sum(region.part for region in finite)
    main = [region for region in finite if region.part >= MAIN_PART * whole][:MOST_REGIONS] or finite[:1]
    if len(main) == 1:
        region = main[0]
        which = "the weights that matter" if region.low is None else "the weights there"
        which = "the weights" if region.low is None and region.high is None else which
        return [
            f"{_capital(direction(region.ratio))} {place(region)}; {which} are {weights_off(region.ratio)}."
        ]
    parts = [f"{direction(r.ratio)} {place(r)} (weights {weights_off(r.ratio)})" for r in main]
    return [f"{_capital('; '.join(parts))}."]


def _remedy(remedy: Remedy | None, wce: ErrorFigure, clicks: int, noun: str) -> str:
    if remedy is None:
        if clicks == 0:
            return f"Without a {noun} no calibrator can be fitted."
        return "No calibrator could be judged: there are too few rows of one class for cross-fitting."
    if remedy.name == "none":
        return "On held-out rows no calibrator is better beyond noise than the scores as they are."
    only = "" if remedy.honest else "only "
    before = f"from {short(wce.value)} " if math.isfinite(wce.value) else ""
    noise = f" (noise alone shows {short(remedy.floor)})" if remedy.floor > NOISY * remedy.wce else ""
    return (
        f"{CALIBRATOR_WORDS.get(remedy.name, remedy.name)}, cross-fitted, would bring WCE"
        f" {before}{only}to {short(remedy.wce)}{noise}."
    )


def _segment(
    segment: Segment, judgement: WeightJudgement, tolerance: float, noun: str, *, first: bool
) -> str:
    if not math.isfinite(segment.mean_outcome_over_score):
        off = f"have {noun}s at a score of 0"
    elif segment.low <= 1 <= segment.high or abs(segment.mean_outcome_over_score - 1) <= tolerance:
        off = f"are right on average, but from score to score weights are {percent(segment.wce_debiased)} off"
    else:
        off = f"are {direction(segment.mean_outcome_over_score)}"
    rest = ""
    if segment.of_rest is not None and judgement.level == "bad":
        honest = abs(segment.of_rest - 1) <= tolerance
        rest = f"; the rest {'is right' if honest else f'is {direction(segment.of_rest)}'}"
    scores = ("But scores" if judgement.healthy else "Scores") if first else "Those"
    return (
        f"{scores} where {plain(segment.column)} is"
        f" {plain(repr(segment.value))} {off}"
        f" ({segment.rows:,} rows{rest})."
    )


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
