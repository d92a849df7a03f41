"""What a monitor found, in words: a pure function of its figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from unskew.audit.verdict import counted, direction, percent, short, weights_off
from unskew.base.plain_text import plain
from unskew.metrics.judgement import Judgement

if TYPE_CHECKING:
    from unskew.audit.monitor import Break, MonitorResult, SegmentHistory

MOST_NAMED = 3
"""Segments that the verdict names; the others are counted."""


def verdict(result: MonitorResult) -> str:
    """Return who is off now and since when; who was; what could not be seen; what is still open."""
    whole, segments, open_periods = result.whole, result.segments, result.open
    everyone = result.histories
    off = [each for each in everyone if each.judgement.reason == "off"]
    over = [each for each in everyone if each.judgement.reason == "over"]
    blind = [each for each in segments if each.judgement.level == "undecided"]
    sentences = [f"{_who(each)} {in_words(each.breaks[-1])}" for each in off[:MOST_NAMED]]
    if len(off) > MOST_NAMED:
        sentences.append(f"So are {counted(len(off) - MOST_NAMED, 'other segment')}.")
    if not off:
        sentences.append(_not_off(whole, result.judgement, result.tolerance))
    sentences += [f"{_who(each)} {in_words(each.breaks[-1])}" for each in over[: MOST_NAMED - len(off)]]
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


def in_words(found: Break) -> str:
    """From when to when, in which way, how much, and what it cost."""
    if found.over:
        when = (
            f"were off from {found.first} to {found.last}"
            if found.first != found.last
            else f"were off in {found.first}"
        )
    else:
        when = f"have been off since {found.first}"
    if not math.isfinite(found.ratio):
        return f"{when}: clicks came at a score of 0, whose weight is infinite."
    how = {
        "level": direction(found.ratio),
        "slope": "too spread" if (found.slope or 1.0) < 1 else "too flat",
        "shape": "off in the middle against the ends",
    }[found.kind]
    money = "" if found.money is None else f", worth {abs(found.money):,.0f}"
    return (
        f"{when} (found with {found.found}): {how}; the weights are {weights_off(found.ratio)} in sum,"
        f" {abs(found.weight_error):,.0f} rows, and there were {abs(found.click_error):,.0f}"
        f" {'more' if found.click_error > 0 else 'fewer'} clicks than the scores say{money}."
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
