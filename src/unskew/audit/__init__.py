"""Audits of any propensity column, and weights from it: files of any size, one sketch, no torch."""

from __future__ import annotations

from unskew.audit.actions import ActionsResult, audit_actions
from unskew.audit.audit import audit
from unskew.audit.audit_result import AuditResult
from unskew.audit.weights import WeightsResult, write_weights

__all__ = ["ActionsResult", "AuditResult", "WeightsResult", "audit", "audit_actions", "write_weights"]
