"""Choosing a method by a random sample: candidates, the decision, and why biased clicks cannot make it."""

from __future__ import annotations

from unskew.search.auto import Auto
from unskew.search.decision import Decision, JudgedCandidate, decide

__all__ = ["Auto", "Decision", "JudgedCandidate", "decide"]
