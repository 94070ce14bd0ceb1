"""Check a Debusine server: its time, its user, its counts and its database."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime

from fleet.clock import utc_now
from fleet.model.doctor import CheckResult, Machinery, Summary, judge_clock
from fleet.model.values import Count, Line
from fleet.queues.debusine.connection import identify, reading
from fleet.queues.debusine.grants import compare
from fleet.queues.debusine.rest import STATUS, RestSession, counts_by_scope
from fleet.queues.http import QueueReply, Reader, read_date
from fleet.schema.model import DebusineQueue

_WHO = "/api/1.0/whoami/"
_NO_ARCHITECTURE = "None"
ANY = "any"


class _Workers(QueueReply):
    registered: Count
    connected: Count
    busy: Count


class _TaskCounts(QueueReply):
    pending: Count
    running: Count


class _Status(QueueReply):
    external_workers_arch: dict[Line, _Workers]
    worker_tasks_arch: dict[Line, _TaskCounts]


class _Who(QueueReply):
    user: Line
    auth: bool


class DebusineServer:
    """A Debusine server, queried with the token of a viewer."""

    def __init__(
        self, queue: DebusineQueue, token: str | None, *, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._queue = queue
        self._token = token
        self._now = now

    def summary(self) -> Summary:
        """Return the server's time, workers and work, which need no token."""
        with self._asking() as asking:
            reply = asking.get(STATUS)
            asked_at = self._now()
        status = reply.parse(_Status)
        names = status.external_workers_arch.keys() | status.worker_tasks_arch.keys()
        return Summary(
            server_time=read_date(reply.date),
            asked_at=asked_at,
            architectures={
                ANY if name == _NO_ARCHITECTURE else name: _machinery(status, name)
                for name in sorted(names)
            },
        )

    def user(self) -> str:
        """Return the user name of the token; empty if the server does not accept the token."""
        with self._asking() as asking:
            who = asking.get(_WHO, self._queue.scopes[0]).parse(_Who)
        return who.user if who.auth else ""

    def counts(self) -> Mapping[str, int]:
        """Map each scope to its number of pending requests for workers. No token is needed."""
        with self._asking() as asking:
            counted = counts_by_scope(asking)
        return {scope: counted[scope] for scope in self._queue.scopes if scope in counted}

    @contextmanager
    def _asking(self) -> Iterator[RestSession]:
        with Reader(self._queue.url) as reader:
            yield RestSession(reader, self._token)


def _machinery(status: _Status, name: str) -> Machinery:
    workers, tasks = status.external_workers_arch.get(name), status.worker_tasks_arch.get(name)
    return Machinery(
        **(workers.model_dump() if workers else {}), **(tasks.model_dump() if tasks else {})
    )


def check_database(
    about: str, dsn: str, *, admin: bool = False, now: Callable[[], datetime] = utc_now
) -> tuple[CheckResult, ...]:
    """Return findings on a database's version, clock and role; raises SourceUnreachable."""
    with reading(dsn) as connection:
        version = identify(connection)
        standing = compare(connection, admin=admin)
        ours, (theirs,) = now(), connection.execute("SELECT clock_timestamp()").fetchall()[0]
    fix = f"fleet debusine grants{' --admin' if admin else ''} --check"
    tables = f"its tables are those of Debusine {version}"
    findings = [
        CheckResult(about=f"{about}, version", result="ok", said=tables),
        judge_clock(f"{about}, clock", theirs=theirs, ours=ours),
    ]
    for result, verb, rights in (
        ("wrong", "lacks", standing.missing),
        ("notice", "has rights that it does not need", standing.excess),
    ):
        if rights:
            said = f"role {standing.role} {verb}: {'; '.join(rights)}"
            rest = {"about": f"{about}, rights", "result": result, "said": said, "fix": fix}
            findings.append(CheckResult.model_validate(rest))
    if not (standing.missing or standing.excess):
        said = f"role {standing.role} has exactly the rights it needs"
        findings.append(CheckResult(about=f"{about}, rights", result="ok", said=said))
    return tuple(findings)
