"""Audits of any propensity column, and weights from it: files of any size, one sketch, no torch.

The module is callable, so that ``unskew.audit(frame, …)`` is the function and ``unskew.audit.weights`` still
a module.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from unskew.audit.actions import ActionsResult, audit_actions
from unskew.audit.audit import audit
from unskew.audit.audit_result import AuditResult
from unskew.audit.sql import cells_query, sketch_of
from unskew.data.stream import Roles

if TYPE_CHECKING:
    from unskew.audit.weights import write_weights
    from unskew.audit.weights_result import WeightsResult
    from unskew.audit.weights_sql import weights_query
    from unskew.audit.weights_trained import Trained

__all__ = [
    "ActionsResult",
    "AuditResult",
    "Roles",
    "Trained",
    "WeightsResult",
    "audit",
    "audit_actions",
    "cells_query",
    "sketch_of",
    "weights_query",
    "write_weights",
]


_WEIGHTS = {
    "Trained": "unskew.audit.weights_trained",
    "WeightsResult": "unskew.audit.weights_result",
    "weights": "unskew.audit.weights",
    "weights_query": "unskew.audit.weights_sql",
    "write_weights": "unskew.audit.weights",
}


def __getattr__(name: str) -> Any:
    # Weights may be trained, by what reads logs and data frames; an audit has no use for that.
    if name in _WEIGHTS:
        module = import_module(_WEIGHTS[name])
        return module if name == "weights" else getattr(module, name)
    raise AttributeError(f"module 'unskew.audit' has no attribute {name!r}")


class _Audit(ModuleType):
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        # Cloudpickle, by which Spark and Ray send functions, knows modules of the plain class alone.
        return import_module, (self.__name__,)

    def __call__(self, data: Any, **options: Any) -> AuditResult:
        """Audit propensities, as :func:`unskew.audit.audit`: are they honest?"""
        return audit(data, **options)


sys.modules[__name__].__class__ = _Audit
