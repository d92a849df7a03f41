"""Judging conversion models without a random test set: off-policy estimates, and which model is better."""

from __future__ import annotations

from unskew.offpolicy.comparison import Comparison, Difference, compare
from unskew.offpolicy.estimates import OffPolicyEstimate, off_policy_estimates
from unskew.offpolicy.plan import RandomPlan, plan_random
from unskew.offpolicy.run_folder import compare_run

__all__ = [
    "Comparison",
    "Difference",
    "OffPolicyEstimate",
    "RandomPlan",
    "compare",
    "compare_run",
    "off_policy_estimates",
    "plan_random",
]
