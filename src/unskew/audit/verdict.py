"""The result of an audit in words: a pure function of its figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from unskew.audit.segments import Segment
from unskew.base.plain_text import plain
from unskew.metrics import noise_floor
from unskew.metrics.judgement import Judgement, WeightJudgement, may_be_honest

if TYPE_CHECKING:
    from unskew.audit.audit_result import AuditResult, Region
    from unskew.audit.monitor import Break, MonitorResult, SegmentHistory

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
    """The words for an outcome of 1, and for a row that has it."""

    noun: str
    row: str


def outcome_words(column: str) -> OutcomeWords:
    """Return the words for the outcomes of a column: clicks where its name says so.

    Examples
    --------
    >>> outcome_words("is_click").noun, outcome_words("bought").noun
    ('click', 'positive')
    """
    is_click = any(word in column.lower() for word in ("click", "clk"))
    return OutcomeWords("click", "clicked") if is_click else OutcomeWords("positive", "positive")


def verdict(result: AuditResult) -> str:
    """Return the verdict in a few sentences."""
    judgement, tolerance, noun = result.judgement, result.tolerance, result.outcome_words.noun
    clicks = counted(result.clicks, noun)
    if judgement.healthy:
        sentences = [_praise(result, clicks)]
    elif judgement.reason == "too few rows":
        sentences = [_undecided(result, clicks)]
    elif judgement.reason == "not beyond chance":
        sentences = [_blind(result, clicks)]
    else:
        sentences = _off(result, noun)
    bad = judgement.level == "bad"
    # Where all are off, one is worth naming for what sets it apart.
    named = [s for s in result.segments if (s.stands_out if bad else s.is_off)(**result.limits)]
    sentences += [
        _segment(segment, judgement, tolerance, noun, first=not number)
        for number, segment in enumerate(named[:MOST_SEGMENTS])
    ]
    further = len(named) - MOST_SEGMENTS
    if further > 0:
        sentences.append(f"{further:,} more segment{' is' if further == 1 else 's are'} off.")
    if not named and bad and any(segment.q_differs is not None for segment in result.segments):
        sentences.append("No segment is apart from the rest beyond noise and tolerance.")
    return " ".join(sentences)


def headline(result: AuditResult) -> str:
    """Return the verdict in a word or two."""
    if result.judgement.level == "bad" and _is_blind(result):
        return f"Not a propensity of '{result.roles.outcome}'?"
    return HEADLINES[result.healthy]


def _is_blind(result: AuditResult) -> bool:
    """Return whether there are two scores or more, and they do not tell outcomes apart."""
    chance = result.judgement.chance
    return chance is not None and not chance.beyond and len(result.sketch.occupied()) > 1


def short(value: float) -> str:
    """Write a number with two significant digits, without exponent where it is read often."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    rounded = float(f"{value:.2g}")
    return f"{rounded:.0f}" if abs(rounded) >= 10 else f"{rounded:g}"


def percent(share: float) -> str:
    """Return a share in per cent, two significant digits."""
    return f"{short(100 * share)} %"


def direction(ratio: float) -> str:
    """Describe how far scores are off, from the mean of o/p̂."""
    if ratio == 0:
        return "overstated beyond measure (not one came)"
    word, factor = ("overstated", 1 / ratio) if ratio < 1 else ("understated", ratio)
    return f"{word} by a factor {short(factor) if factor >= 1.1 else f'{factor:.3g}'}"


def weights_off(ratio: float) -> str:
    """Return what the same means for the weights."""
    return f"{percent(abs(ratio - 1))} too {'small' if ratio < 1 else 'large'}"


def place(region: Region) -> str:
    """Describe the scores that a region holds."""
    if region.low is None and region.high is None:
        return "on average"
    if region.low is None:
        return f"below {short(region.high or 0.0)}"
    if region.high is None:
        return f"above {short(region.low)}"
    return f"between {short(region.low)} and {short(region.high)}"


def _praise(result: AuditResult, clicks: str) -> str:
    wce, tolerance, off = result.wce, percent(result.tolerance), result.judgement.wce_debiased
    is_noise = result.test.p_value >= result.significance
    if off > result.tolerance:
        claim = (
            "Not distinguishable from honest" if is_noise else f"Not shown to be off by more than {tolerance}"
        )
        return (
            f"{claim}: the weights look {percent(wce.value)} off, but with {clicks} noise alone shows"
            f" {percent(wce.floor)}."
        )
    if is_noise:
        return (
            f"Honest: nothing tells the weights from right ones (WCE {short(wce.value)}, noise alone"
            f" {short(wce.floor)}, p = {short(result.test.p_value)})."
        )
    return (
        f"Honest within the tolerance: the weights are off by {percent(off)} (WCE without noise), which is"
        f" more than noise but not more than {tolerance}."
    )


def _undecided(result: AuditResult, clicks: str) -> str:
    judged, wce = result.judgement, result.wce
    needed = judged.rows_needed
    some = "" if needed is None else f"; some {round_up(needed):,} rows like these would tell"
    return (
        f"With {clicks} on {counted(result.rows, 'row')}, weights that are off by a factor"
        f" {short(judged.error)} would be found with a chance of {percent(judged.power)}{some}. So far"
        f" they look {percent(wce.value)} off, where noise alone shows {percent(wce.floor)}."
    )


def _blind(result: AuditResult, clicks: str) -> str:
    if _is_blind(result):
        return (
            f"The weights add up, but {_at_chance(result)}: weights made of these scores debias nothing. Is"
            f" '{result.roles.score}' a propensity of '{result.roles.outcome}'?"
        )
    row = result.outcome_words.row
    return (
        f"The weights add up, but all rows have one score: it tells no {row} row from another, and debiases"
        f" nothing. With {clicks} a propensity that does can be trained (unskew weights --user --item)."
    )


def _at_chance(result: AuditResult) -> str:
    chance, (noun, row) = result.judgement.chance, result.outcome_words
    assert chance is not None
    seen = f"were not {row} more often" if noun == "click" else f"did not come with more {noun}s"
    noise = short(2 * chance.standard_error)
    return f"higher scores {seen} (AUC {chance.auc:.3f}, chance 0.5 ± {noise})"


def _off(result: AuditResult, noun: str) -> list[str]:
    """Return the sentences about weights that are off: where, and what would help."""
    at_zero = result.sketch.occupied()[result.sketch.points().score == 0]
    rows = int(result.sketch.sums.rows[at_zero, 1].sum())
    infinite = []
    if rows:
        have = "has a score of 0: its weight is" if rows == 1 else "have a score of 0: their weights are"
        infinite = [f"{counted(rows, noun)} {have} infinite."]
    where = _where_off(result, any_infinite=bool(rows))
    if not _is_blind(result):
        return [*infinite, *where, _remedy(result, noun)]
    score, outcome = result.roles.score, result.roles.outcome
    return [
        f"Is '{score}' the probability of '{outcome}'? {_capital(_at_chance(result))}, and the weights do not"
        " add up.",
        *infinite,
        *(f"If it is: {text[:1].lower()}{text[1:]}" for text in where),
        f"If '{score}' is the probability with which the row was shown (a bandit log), audit it with"
        " --actions N, the number of actions to choose from.",
    ]


def round_up(rows: int) -> int:
    """Round a number of rows up to two significant digits."""
    unit = int(10 ** max(len(str(rows)) - 2, 0))
    return -(-rows // unit) * unit


def counted(count: int, noun: str) -> str:
    """Return a number and its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _where_off(result: AuditResult, *, any_infinite: bool) -> list[str]:
    finite = [region for region in result.regions if math.isfinite(region.ratio)]
    if not finite:
        off = f"{percent(result.wce.value)} off on average, with a tolerance of {percent(result.tolerance)}"
        return [] if any_infinite else [f"The weights are {off}."]
    whole = sum(region.part for region in finite)
    main = [region for region in finite if region.part >= MAIN_PART * whole][:MOST_REGIONS] or finite[:1]
    if len(main) > 1:
        places = (f"{direction(r.ratio)} {place(r)} (weights {weights_off(r.ratio)})" for r in main)
        return [f"{_capital('; '.join(places))}."]
    region = main[0]
    which = "the weights that matter" if region.low is None else "the weights there"
    which = "the weights" if region.low is None and region.high is None else which
    return [f"{_capital(direction(region.ratio))} {place(region)}; {which} are {weights_off(region.ratio)}."]


def _remedy(result: AuditResult, noun: str) -> str:
    remedy, wce = result.remedy, result.wce.value
    if remedy is None:
        if result.clicks == 0:
            return f"Without a {noun} no calibrator can be fitted."
        return "No calibrator could be judged: there are too few rows of one class for cross-fitting."
    if remedy.name == "none":
        return "On held-out rows no calibrator is better beyond noise than the scores as they are."
    only = "" if may_be_honest(remedy.sketch, **result.limits) else "only "
    before = f"from {short(wce)} " if math.isfinite(wce) else ""
    floor = noise_floor(remedy.sketch, metric="wce")
    noise = f" (noise alone shows {short(floor)})" if floor > NOISY * remedy.wce else ""
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


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


MOST_HISTORIES = 3
"""Segments that the verdict names; the others are counted."""


def monitor_verdict(result: MonitorResult) -> str:
    """Return who is off now and since when; who was; what could not be seen; what is still open."""
    whole, segments, open_periods = result.whole, result.segments, result.open
    everyone = result.histories
    off = [each for each in everyone if each.judgement.reason == "off"]
    over = [each for each in everyone if each.judgement.reason == "over"]
    blind = [each for each in segments if each.judgement.level == "undecided"]
    sentences = [f"{_who(each)} {in_words(each.breaks[-1])}" for each in off[:MOST_HISTORIES]]
    if len(off) > MOST_HISTORIES:
        sentences.append(f"So are {counted(len(off) - MOST_HISTORIES, 'other segment')}.")
    if not off:
        sentences.append(_not_off(whole, result.judgement, result.tolerance))
    sentences += [f"{_who(each)} {in_words(each.breaks[-1])}" for each in over[: MOST_HISTORIES - len(off)]]
    if blind:
        sentences.append(
            f"{counted(len(blind), 'segment')} {'is' if len(blind) == 1 else 'are'} too small to tell: even"
            " a factor 1.2 would not have been found."
        )
    if open_periods:
        sentences.append(
            f"{counted(len(open_periods), 'period')} from {open_periods[0]} on"
            f" {'is' if len(open_periods) == 1 else 'are'} not judged yet: outcomes may still come in."
        )
    return " ".join(sentences)


def in_words(episode: Break) -> str:
    """Describe a break: from when to when, in which way, how much, and what it cost."""
    if episode.over:
        when = (
            f"were off from {episode.first} to {episode.last}"
            if episode.first != episode.last
            else f"were off in {episode.first}"
        )
    else:
        when = f"have been off since {episode.first}"
    if not math.isfinite(episode.ratio):
        return f"{when}: clicks came at a score of 0, whose weight is infinite."
    how = {
        "level": direction(episode.ratio),
        "slope": "too spread" if (episode.slope or 1.0) < 1 else "too flat",
        "shape": "off in the middle against the ends",
    }[episode.kind]
    money = "" if episode.money is None else f", worth {abs(episode.money):,.0f}"
    return (
        f"{when} (found with {episode.found}): {how}; the weights are {weights_off(episode.ratio)} in sum,"
        f" {abs(episode.weight_error):,.0f} rows, and there were {abs(episode.click_error):,.0f}"
        f" {'more' if episode.click_error > 0 else 'fewer'} clicks than the scores say{money}."
    )


def _who(history: SegmentHistory) -> str:
    if not history.column:
        return "Scores of all rows together"
    return f"Scores where {plain(history.column)} is {plain(repr(history.value))}"


def _not_off(whole: SegmentHistory, judgement: Judgement, tolerance: float) -> str:
    judged = sum(each.closed for each in whole.periods)
    seen = f"over {counted(judged, 'period')} and {counted(whole.rows, 'row')}"
    if judgement.level == "undecided":
        least = (
            f"a change of the level by a factor {short(whole.smallest_so_far)} is the least that would show"
            if math.isfinite(whole.smallest_so_far)
            else "no change of the level would show"
        )
        return f"Nothing shows the weights to be off {seen}, but {least}."
    now = (
        f"the last period alone would show a factor {short(whole.smallest_now)}"
        if math.isfinite(whole.smallest_now)
        else "the last period alone would show nothing"
    )
    word = "now " if judgement.reason == "over" else ""
    return (
        f"Nothing {word}shows the weights to be off by more than {percent(tolerance)}, {seen}; a change of"
        f" the level by a factor {short(whole.smallest_so_far)} from the start would have been found, and"
        f" {now}."
    )
