"""Read Debusine's waiting requests over REST, and compare lists with the server's counts.

Debusine answers 200 and silently omits rows that the token's user may not see. It lists nothing if
the scope header is missing or the task type is in lower case. So the counts of `open-metrics` (by
scope) and `service-status` (whole server) must confirm a list. REST has no list of workers, so the
workers of a reading are None.

Lists start with the newest requests. If a list is too long, the remaining time is used for its
other end, since Debusine serves the oldest of equal priority first.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from fleet.errors import SourceUnreachable
from fleet.model.facts import Demand, QueueReading, QueueSample, Unknown
from fleet.model.values import MOST, Count
from fleet.queues.debusine.rows import (
    ListedRow,
    ListPage,
    WorkRequestRow,
    list_environments,
    order,
)
from fleet.queues.http import QueueReply, Reader, ReadLimits, Reply, TooSlow
from fleet.schema.model import DebusineQueue

_LISTING_SHARE = 0.6
"""Fraction of the time limit for reading lists. Requests not listed by then are only counted."""
_TURNING_SHARE = _LISTING_SHARE / 2
"""Fraction of the time limit after which an unfinished list is read from its oldest end."""
_REREADING_SHARE = 0.85
"""Fraction of the time limit after which no list is read again."""


class DebusineRest:
    """The queue of one Debusine server, read with the token of a viewer.

    `paths` are the paths in task data that rules of `derive` use.
    """

    def __init__(  # noqa: PLR0913 - the server, the paths, and limits that tests shorten
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
        """Return the requests without a worker, in the order in which Debusine serves them."""
        limits = ReadLimits(silence=self._silence, total=self._max_age)
        try:
            with Reader(self._url, limits=limits, clock=self._clock) as reader:
                rows, sample = self._rows(reader)
        except SourceUnreachable as error:
            return QueueReading(demand=Unknown.of(error), workers=None)
        read = [row for row in rows if isinstance(row, WorkRequestRow)]
        waiting = (row.to_request(self._paths) for row in read if row.worker is None)
        return QueueReading(
            demand=Demand(
                read_at=now,
                requests=tuple(sorted(waiting, key=order)),
                stored=True,
                estimate=sample is not None,
                sample=sample,
                environments=list_environments(row.environment() for row in read),
            ),
            workers=None,
            clock_ahead=reader.clock_ahead,
        )

    def _rows(self, reader: Reader) -> tuple[tuple[ListedRow, ...], QueueSample | None]:
        """Return the pending requests of all scopes, and a sample if some were not listed."""
        asking = RestSession(reader, self._token)
        over, late = self._deadline(reader, _LISTING_SHARE), self._deadline(reader, _TURNING_SHARE)
        walks = walk_in_turn(self._scopes, asking.page, over, late)
        is_over = self._deadline(reader, _REREADING_SHARE)
        unlisted = Counter(_find_unlisted(walks, asking, is_over))
        rows = tuple(row for walk in walks for row in walk.rows.values())
        # The only known fact about an unreadable request is that it waits.
        unreadable = [
            row for row in rows if not isinstance(row, WorkRequestRow) and row.worker is None
        ]
        unlisted.update(row.scope for row in unreadable)
        return rows, _sample(walks, unlisted, unreadable)

    def _deadline(self, reader: Reader, share: float) -> Callable[[], bool]:
        """Return a function that is True after this fraction of the time limit."""
        return lambda: reader.left() < self._max_age * (1 - share)


def _find_unlisted(
    walks: "Sequence[Walk]", asking: "RestSession", is_over: Callable[[], bool]
) -> dict[str, int]:
    """Map scopes to the number of pending requests that their lists omit."""
    pending = count_pending({walk.scope: len(walk.rows) for walk in walks}, asking)
    if isinstance(pending, int):
        _confirm_total(walks, pending, asking.page, is_over)
        return {walk.scope: 0 if walk.done else 1 for walk in walks}
    return {
        walk.scope: _confirm(walk, pending[walk.scope], asking.page, is_over) for walk in walks
    }


def _confirm_total(
    walks: "Sequence[Walk]",
    total: int,
    next_page: "Callable[[Walk], ListPage]",
    is_over: Callable[[], bool],
) -> None:
    """Raise SourceUnreachable if more requests were listed than the server counts in total.

    Read the lists again first, because requests may have ended meanwhile.
    """
    listed = sum(walk.length for walk in walks)
    if listed <= total:
        return
    names = _scopes([walk.scope for walk in walks])
    if not all(walk.done for walk in walks):
        raise _beyond_count(names, listed, total)
    again = walk_in_turn((walk.scope for walk in walks), next_page, is_over)
    listed = sum(len(walk.rows) for walk in again)
    moved = sum(
        len(walk.rows.keys() ^ second.rows.keys())
        for walk, second in zip(walks, again, strict=True)
    )
    if not all(walk.done for walk in again) or listed - total > moved:
        raise _beyond_count(names, listed, total)
    for walk, second in zip(walks, again, strict=True):
        walk.rows = second.rows


def _confirm(
    walk: "Walk",
    pending: int,
    next_page: "Callable[[Walk], ListPage]",
    is_over: Callable[[], bool],
) -> int:
    """Return how many pending requests of a scope were not listed.

    If a complete list and the server's count differ, read the list again, because the queue may
    have changed. Raises SourceUnreachable if more requests differ than changed between two
    complete lists. Also raises it if an unfinished list is longer than the count.
    """
    first = frozenset(walk.rows)
    if not walk.done:
        if walk.length > pending:
            raise contradicted(walk.scope, listed=walk.length, pending=pending)
        return max(1, pending - len(first))
    if len(first) == pending:
        return 0
    (second,) = walk_in_turn((walk.scope,), next_page, is_over)
    walk.rows |= second.rows
    if not second.done:
        if (most := max(len(first), second.length)) > pending:
            raise contradicted(walk.scope, listed=most, pending=pending)
        return max(1, pending - len(walk.rows))
    moved = len(first ^ second.rows.keys())
    if abs(len(second.rows) - pending) > moved:
        raise contradicted(walk.scope, listed=len(second.rows), pending=pending)
    walk.rows = second.rows
    return 0


def _sample(
    walks: "Sequence[Walk]", unlisted: Mapping[str, int], unreadable: Sequence[ListedRow]
) -> QueueSample | None:
    """Return the counts of listed and unlisted requests; None if all were listed."""
    if not any(unlisted.values()):
        return None
    listed = sum(len(walk.rows) for walk in walks) - len(unreadable)
    return QueueSample(
        listed=listed,
        unlisted={scope: count for scope, count in sorted(unlisted.items()) if count},
        longest=listed,
        unreadable={str(row.id): row.is_unreadable_because for row in unreadable},
    )


OLDEST = "cj0x"
"""Cursor of Django REST framework for the end of a list: `r=1` in base64."""


@dataclass
class Walk:
    """Progress in reading the list of one scope. The latest reading of a row counts."""

    scope: str
    rows: dict[int | str, ListedRow] = field(default_factory=dict)
    delivered: int = 0
    """Number of rows on all pages read so far, with repetitions."""
    cursor: str | None = None
    asked: set[str | None] = field(default_factory=set)
    done: bool = False
    """Whether the last page was read, or the readings from both ends have met."""
    newest: frozenset[int | str] | None = None
    """Ids of rows that were listed before the reading changed ends; None before the change."""

    @property
    def length(self) -> int:
        """Return the minimum length of the list. An unfinished list may repeat rows."""
        return len(self.rows) if self.done else self.delivered

    def turn_around(self) -> None:
        """Continue reading the list of work requests from its other end."""
        if self.newest is None:
            self.newest, self.cursor = frozenset(self.rows), OLDEST

    def leads_to(self, page: ListPage) -> str | None:
        """Return the cursor after a page, in the direction of reading; None at the end."""
        return page.cursor() if self.newest is None else page.cursor_back()

    def take(self, page: ListPage) -> None:
        """Add the rows of a page, and move to the next page."""
        self.asked.add(self.cursor)
        self.delivered += len(page.rows)
        self.rows |= {row.id: row for row in page.rows}
        self.cursor = self.leads_to(page)
        if self.newest is None:
            self.done = self.cursor is None
        else:
            # Compare the whole page, since rows created at the same time have no fixed order.
            self.done = self.cursor is None or self.newest.issuperset(r.id for r in page.rows)


def walk_in_turn(
    scopes: Iterable[str],
    next_page: Callable[[Walk], ListPage],
    is_over: Callable[[], bool],
    is_late: Callable[[], bool] = lambda: False,
) -> tuple[Walk, ...]:
    """Read the list of each scope until the time is over, and return the progress.

    At least the first page of each list is read. The lists take turns by page, so that both ends
    of each long list are read. If `is_late`, an unfinished list continues from its other end.
    """
    walks = tuple(map(Walk, scopes))
    for walk in walks:
        walk.take(next_page(walk))
    while not (is_over() or all(walk.done for walk in walks)):
        for walk in walks:
            if not (walk.done or is_over()):
                if is_late():
                    walk.turn_around()
                walk.take(next_page(walk))
    return walks


LIST = "/api/1.0/work-request/"
# The task type is spelled as in Debusine: `worker` would list nothing, with status 200.
_ASKED = {"status": "pending", "task_type": "Worker"}
_MAX_PAGES = 10_000
_MAX_SHOWN = 300
"""Maximum characters to keep of the reason why a row is unreadable."""
_TOKEN_COMMAND = "debusine-admin create_token USER"  # noqa: S105 - a command, no secret
_REFUSED = (401, 403)


class RestSession:
    """The REST calls of one reading. The token is sent only with a scope."""

    def __init__(self, reader: Reader, token: str | None) -> None:
        self._reader = reader
        self._token = token

    def page(self, walk: Walk) -> ListPage:
        """Return the next page of a scope's list; raises SourceUnreachable for foreign rows."""
        if walk.cursor in walk.asked or len(walk.asked) >= _MAX_PAGES:
            because = "loops" if walk.cursor in walk.asked else "does not end"
            raise SourceUnreachable(
                f"{self._reader.base}{LIST}: the list of scope {walk.scope} {because} (after "
                f"{len(walk.asked)} pages and {len(walk.rows)} requests); is a proxy or cache "
                "answering instead of Debusine?"
            )
        query = _ASKED | ({} if walk.cursor is None else {"cursor": walk.cursor})
        reply = self.get(LIST, walk.scope, query)
        page, unreadable = reply.parse_readable(ListPage, ("results",))
        if unreadable:
            rows = [
                row | {"is_unreadable_because": because[:_MAX_SHOWN]}
                for row, because in unreadable
            ]
            counted = tuple(reply.check(partial(ListedRow.model_validate, row)) for row in rows)
            page = page.model_copy(update={"counted": counted})
        self._check(page, walk.scope)
        if not page.rows and walk.leads_to(page) is not None:
            raise SourceUnreachable(
                f"{self._reader.base}{LIST}: a page of scope {walk.scope} is empty, but leads to "
                "another one; is a proxy or cache answering instead of Debusine?"
            )
        return page

    def _check(self, page: ListPage, scope: str) -> None:
        for row in page.rows:
            given = {"status": row.status, "task_type": row.task_type, "scope": row.scope}
            if given != _ASKED | {"scope": scope}:
                raise SourceUnreachable(
                    f"{self._reader.base}{LIST} listed request {row.id}, which is not pending "
                    f"work for workers in scope {scope}; is a proxy or cache answering for "
                    "another address?"
                )

    def get(
        self,
        path: str,
        scope: str | None = None,
        query: Mapping[str, str] | None = None,
        *,
        only: bytes = b"",
        silence: float | None = None,
    ) -> Reply:
        """Return a reply with status 200; raises SourceUnreachable for another status.

        `only` keeps the lines that start with this text. The token is sent only with a scope.
        """
        secret = {} if scope is None or self._token is None else {"Token": self._token}
        headers = {} if scope is None else {"X-Debusine-Scope": scope, **secret}
        with _explain_timeout():
            reply = self._reader.get(path, query or {}, headers, only=only, silence=silence)
        refusal = (
            "the token is wrong, disabled or expired, or not a user's; "
            f"`{_TOKEN_COMMAND}` makes one"
        )
        if scope is None:
            refusal = "Debusine answers this without a token; does a proxy require one?"
        elif self._token is None:
            refusal = "it requires a token; set `token` of this queue in fleet.yaml"
        advice = {
            **dict.fromkeys(_REFUSED, refusal),
            404: f"there is no scope {scope}, or it is not a Debusine server"
            if scope is not None
            else "is it a Debusine server?",
            400: "bad request; is its version supported (0.16)?",
        }
        return reply.accepted(advice, fix=_TOKEN_COMMAND)


@contextmanager
def _explain_timeout() -> Iterator[None]:
    try:
        yield
    except TooSlow as error:
        raise TooSlow(
            f"{error}: demand must not be older than guards.demand_max_age; raise that limit, or "
            "find out why the server is slow"
        ) from error


METRICS = "/api/1.0/open-metrics/"
STATUS = "/api/1.0/service-status/"
_METRICS_SILENCE_SECONDS = 120
"""Seconds without data. A large server computes its metrics slowly for each request."""
_FAMILY = b"work_requests{"
_SAMPLE = re.compile(
    r"work_requests\{(?P<labels>[^\n]*)\} (?P<value>\d{1,15}(?:\.\d+)?(?:e\+?\d\d?)?)$",
    re.MULTILINE,
)
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


class _Count(QueueReply):
    pending: Count


class _WorkerTasks(QueueReply):
    Worker: _Count


class ServiceStatus(QueueReply):
    """The part of Debusine's service status that counts work."""

    tasks: _WorkerTasks


def count_pending(listed: Mapping[str, int], asking: RestSession) -> Mapping[str, int] | int:
    """Return the server's counts of pending requests for workers by scope, or in total.

    `listed` maps each scope to its listed rows. They include rows with a worker, as the server's
    counts do. If only the total is available and does not exceed the listed rows, the list is
    complete and the total is returned.
    """
    try:
        counted = counts_by_scope(asking)
        missing = sorted(listed.keys() - counted)
        if not missing:
            return {scope: counted[scope] for scope in listed}
        because = f"{METRICS} does not count scope {missing[0]}"
    except TooSlow:
        raise
    except SourceUnreachable as error:
        because = str(error)
    total = asking.get(STATUS).parse(ServiceStatus).tasks.Worker.pending
    if total <= sum(listed.values()):
        return total
    raise SourceUnreachable(
        f"listed {sum(listed.values())} pending requests for workers, but the server counts "
        f"{total}; how many of them are in {_scopes(listed)} is unknown ({because}). Debusine "
        "leaves out of its list, without an error, what the token's user may not see. Allow this "
        f"computer to read {METRICS}, and check the spelling of the scope"
    )


def contradicted(scope: str, *, listed: int, pending: int) -> SourceUnreachable:
    """Return the error for a list whose length differs from the server's count."""
    if listed > pending:
        return _beyond_count(f"scope {scope}", listed, pending)
    grant = f"debusine-admin workspace grant_role {scope}/WORKSPACE viewer GROUP"
    return SourceUnreachable(
        f"scope {scope}: listed {listed} pending requests for workers, but the server counts "
        f"{pending}. Debusine leaves out of its list, without an error, what the token's user may "
        f"not see: give that user the role viewer on each workspace of scope {scope} "
        f"(`{grant}`)",
        fix=grant,
    )


def _beyond_count(scopes: str, listed: int, pending: int) -> SourceUnreachable:
    return SourceUnreachable(
        f"{scopes}: listed {listed} pending requests for workers, but the server counts "
        f"{pending}; is a proxy or cache answering with an old list?"
    )


def counts_by_scope(asking: RestSession) -> dict[str, int]:
    """Map each scope of the server to its number of pending requests for workers."""
    reply = asking.get(METRICS, only=_FAMILY, silence=_METRICS_SILENCE_SECONDS)
    counted: dict[str, int] = {}
    text = reply.body.decode("utf-8", errors="replace")
    for sample in _SAMPLE.finditer(text):
        labels = dict(_LABEL.findall(sample["labels"]))
        scope = labels.get("scope")
        if scope is None:
            continue
        # Debusine lists all its scopes, also with zeros, so a missing scope is not merely empty.
        counted.setdefault(scope, 0)
        if labels.get("status") == "pending" and labels.get("task_type") == "Worker":
            counted[scope] += int(float(sample["value"]))
            if counted[scope] > MOST:
                raise SourceUnreachable(f"{METRICS} counts impossibly many requests")
    return counted


def _scopes(scopes: Iterable[str]) -> str:
    names: Sequence[str] = sorted(scopes)
    return f"scope{'s' if names[1:] else ''} {', '.join(names)}"
