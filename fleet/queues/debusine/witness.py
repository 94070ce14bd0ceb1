"""This module counts what is pending by what Debusine tells anyone, without a token.

A list proves nothing by itself: Debusine answers 200 and leaves out, with no error, what the
token's user may not look at, and lists nothing to a missing scope header or a task type in lower
case. `open-metrics` counts what is pending by scope; `service-status` for the whole server.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from fleet.errors import SourceUnreachable
from fleet.web.reader import Reply, TooSlow

METRICS = "/api/1.0/open-metrics/"
STATUS = "/api/1.0/service-status/"
_PATIENCE = 120
"""Seconds without a byte: the metrics of a large server are made for each question, slowly."""
_FAMILY = b"work_requests{"
_SAMPLE = re.compile(
    r"work_requests\{(?P<labels>[^\n]*)\} (?P<value>\d{1,15}(?:\.\d+)?(?:e\+?\d\d?)?)$",
    re.MULTILINE,
)
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


class Ask(Protocol):
    """Asks the server for one path, without a token."""

    def __call__(self, path: str, *, only: bytes = b"", silence: float | None = None) -> Reply:
        """Return the answer, whose status is 200: lines that begin with `only`."""


class _Count(BaseModel):
    model_config = ConfigDict(strict=True)
    pending: int


class _Tasks(BaseModel):
    Worker: _Count


class ServiceStatus(BaseModel):
    """The part of service-status that counts work."""

    tasks: _Tasks


def count_pending(listed: Mapping[str, int], ask: Ask) -> Mapping[str, int]:
    """Return how many requests for workers are pending in each scope, as the server counts them.

    `listed` are the rows of every scope that was read, those with a worker included, as the
    server counts them too. Where only the total can be had, and it is no more than what was
    listed, nothing was left out.
    """
    try:
        counted = counts_by_scope(ask)
        missing = sorted(listed.keys() - counted)
        if not missing:
            return {scope: counted[scope] for scope in listed}
        because = f"{METRICS} does not count scope {missing[0]}"
    except TooSlow:
        raise
    except SourceUnreachable as error:
        because = str(error)
    total = ask(STATUS).parse(ServiceStatus).tasks.Worker.pending
    if total <= sum(listed.values()):
        return listed
    raise SourceUnreachable(
        f"{sum(listed.values())} pending requests for workers were listed, but the server has "
        f"{total}, and how many of them are in {_named(listed)} cannot be told ({because}). "
        "Debusine leaves out of its list, without an error, what the token's user may not look "
        f"at. Let this computer read {METRICS}, and compare the scope's spelling with the server's"
    )


def contradicted(scope: str, *, listed: int, pending: int) -> SourceUnreachable:
    """Return what to say of a list that does not hold what the server counts."""
    if listed > pending:
        return SourceUnreachable(
            f"scope {scope} was listed with {listed} pending requests for workers, but the server "
            f"counts {pending}; is a proxy or cache answering with an old list?"
        )
    held = "as empty" if not listed else f"with {listed} pending requests for workers"
    return SourceUnreachable(
        f"scope {scope} was listed {held}, but the server counts {pending} pending requests for "
        "workers in that scope. Debusine leaves out of its list, without an error, what the "
        "token's user may not look at: give that user the role viewer on each workspace of scope "
        f"{scope} (`debusine-admin workspace grant_role {scope}/WORKSPACE viewer GROUP`)"
    )


def counts_by_scope(ask: Ask) -> dict[str, int]:
    """Return how much work for workers each scope has pending; it lists every scope it has."""
    reply = ask(METRICS, only=_FAMILY, silence=_PATIENCE)
    counted: dict[str, int] = {}
    text = reply.body.decode("utf-8", errors="replace")
    for sample in _SAMPLE.finditer(text):
        labels = dict(_LABEL.findall(sample["labels"]))
        scope = labels.get("scope")
        if scope is None:
            continue
        # Debusine lists every scope it has, with zeros: a scope not named here is not empty.
        counted.setdefault(scope, 0)
        if labels.get("status") == "pending" and labels.get("task_type") == "Worker":
            counted[scope] += int(float(sample["value"]))
    return counted


def _named(scopes: Mapping[str, int]) -> str:
    names: Sequence[str] = sorted(scopes)
    return f"scope{'s' if names[1:] else ''} {', '.join(names)}"
