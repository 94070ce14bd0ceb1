"""This module reads what waits in Debusine over REST; it never takes silence for emptiness.

REST has no list of workers, so a reading's registry is None.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from fleet.errors import SourceUnreachable
from fleet.facts import Demand, QueueReading, Unknown
from fleet.schema.model import DebusineQueue

if TYPE_CHECKING:
    from fleet.queues.debusine.rows import Page, Row
    from fleet.web.reader import Reader, Reply

_PATH = "/api/1.0/work-request/"
# The task type is written as Debusine writes it: `worker` would list nothing, with status 200.
_ASKED = {"status": "pending", "task_type": "Worker"}
_MAX_PAGES = 10_000


class DebusineRest:
    """The queue of one Debusine server, read with a viewer's token.

    `paths` are the places in task data that rules of `derive` look at.
    """

    def __init__(  # noqa: PLR0913 - the server, what to keep, and limits that tests shorten
        self,
        queue: DebusineQueue,
        token: str | None,
        *,
        paths: Iterable[str] = (),
        max_age: float = 300,
        silence: float = 30,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = queue.url
        self._scopes = tuple(dict.fromkeys(queue.scopes))
        self._token = token
        self._paths = tuple(paths)
        self._max_age = max_age
        self._silence = silence
        self._clock = clock

    def read(self, now: datetime) -> QueueReading:
        """Return the requests that wait without a worker, in the order Debusine serves them."""
        try:
            rows = self._rows()
        except SourceUnreachable as error:
            return QueueReading(demand=Unknown(unknown=str(error)), workers=None)
        waiting = sorted((row for row in rows if row.worker is None), key=_order)
        return QueueReading(
            demand=Demand(
                read_at=now,
                requests=tuple(row.to_request(self._paths) for row in waiting),
                stored=True,
                environments=_environments(rows),
            ),
            workers=None,
        )

    def _rows(self) -> "tuple[Row, ...]":
        """Return what is pending in every scope, work already given to a worker included."""
        # httpx is slow to load, and most commands read nothing.
        from fleet.queues.debusine.witness import confirm_empty
        from fleet.web.reader import Limits, Reader

        limits = Limits(silence=self._silence, total=self._max_age)
        with Reader(self._url, limits=limits, clock=self._clock) as reader:
            walks = {scope: self._walk(reader, scope) for scope in self._scopes}
            empty = tuple(scope for scope, rows in walks.items() if not rows)
            if empty:
                seen = sum(len(rows) for rows in walks.values())
                confirm_empty(empty, seen=seen, ask=lambda path: self._ask(reader, path))
        return tuple(row for rows in walks.values() for row in rows.values())

    def _walk(self, reader: "Reader", scope: str) -> dict[int, "Row"]:
        """Return a scope's rows by id: one that moved to a later page counts as last seen."""
        rows: dict[int, Row] = {}
        cursor: str | None = None
        asked: set[str | None] = set()
        while cursor not in asked and len(asked) < _MAX_PAGES:
            asked.add(cursor)
            page = self._page(reader, scope, cursor=cursor, so_far=len(rows))
            rows |= {row.id: row for row in page.results}
            cursor = page.cursor()
            if cursor is None:
                return rows
        because = "leads in a circle" if cursor in asked else "does not end"
        raise SourceUnreachable(
            f"{reader.base}{_PATH}: the list of scope {scope} {because} (after {len(asked)} pages "
            f"and {len(rows)} requests); is a proxy or cache answering instead of Debusine?"
        )

    def _page(self, reader: "Reader", scope: str, *, cursor: str | None, so_far: int) -> "Page":
        from fleet.queues.debusine.rows import Page
        from fleet.web.reader import TooSlow

        query = _ASKED | ({} if cursor is None else {"cursor": cursor})
        try:
            page = self._ask(reader, _PATH, query=query, scope=scope).parse(Page)
        except TooSlow as error:
            raise SourceUnreachable(
                f"{error}: reading was given up after {so_far} requests of scope {scope}, because "
                "demand older than guards.demand_max_age is not acted upon. Raise that limit"
            ) from error
        for row in page.results:
            given = {"status": row.status, "task_type": row.task_type, "scope": row.scope}
            if given != _ASKED | {"scope": scope}:
                raise SourceUnreachable(
                    f"{reader.base}{_PATH} listed request {row.id}, which is not pending work for "
                    f"workers in scope {scope}; is a proxy or cache answering for another address?"
                )
        return page

    def _ask(
        self,
        reader: "Reader",
        path: str,
        *,
        query: dict[str, str] | None = None,
        scope: str | None = None,
    ) -> "Reply":
        """Return an answer of status 200; the token goes only where a scope is asked about."""
        headers = {}
        if scope is not None:
            headers["X-Debusine-Scope"] = scope
            if self._token is not None:
                headers["Token"] = self._token
        reply = reader.get(path, query or {}, headers)
        if reply.status == 200:  # noqa: PLR2004 - HTTP's OK
            return reply
        advice = self._advice(reply.status, scope)
        raise SourceUnreachable(f"{reply.place} answered with status {reply.status}: {advice}")

    def _advice(self, status: int, scope: str | None) -> str:
        match status:
            case 401 | 403 if self._token is None:
                return "it tells nothing without a token; give this queue a `token` in fleet.yaml"
            case 401 | 403:
                return (
                    "the token is wrong, disabled or expired, or not a user's; "
                    "`debusine-admin create_token USER` makes one"
                )
            case 404 if scope is not None:
                return f"it knows no scope {scope}, or is not a Debusine server"
            case 404:
                return "is it a Debusine server?"
            case 400:
                return "it refuses the question; is its version supported (0.16)?"
            case _:
                return "the trouble is the server's; try again, then look at its log"


def _environments(rows: "Sequence[Row]") -> dict[str, dict[str, str]]:
    """Return the environments that the server has looked up; one it tells two ways is left out."""
    found: dict[str, dict[str, str]] = {}
    differing = set()
    for number, record in filter(None, (row.environment() for row in rows)):
        if found.setdefault(number, record) != record:
            differing.add(number)
    return {number: record for number, record in found.items() if number not in differing}


def _order(row: "Row") -> tuple[int, datetime, int]:
    """Return the sorting key of Debusine's scheduler: priority, then age."""
    return (-row.priority_base - row.priority_adjustment, row.created_at, row.id)
