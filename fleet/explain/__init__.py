"""This package says why a request waits, why a pool holds what it holds, why a worker stays."""

from fleet.explain.pool import explain_pool
from fleet.explain.request import (
    EachRequest,
    Everything,
    Group,
    each_request,
    explain_every,
    explain_request,
)
from fleet.explain.values import ExplainedReason, Explanation
from fleet.explain.what_if import Path
from fleet.explain.worker import explain_worker

__all__ = [
    "EachRequest",
    "Everything",
    "ExplainedReason",
    "Explanation",
    "Group",
    "Path",
    "each_request",
    "explain_every",
    "explain_pool",
    "explain_request",
    "explain_worker",
]
