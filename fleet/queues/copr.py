"""Read the waiting builds of a Copr server from the list that its backend uses.

The list also has running builds, and finished builds until their results are published. A build
needs no other machine if it has a ticket, or if its ticket has just returned its machine.

Copr stores the tags of its allow-list with each build, and these tags take precedence. The list
has neither package nor age of a build, so equal builds form one group. If rules of `powerful` need
package names, the packages of the first builds are read one by one.

An empty list must have the header of a frontend, and no ticket of the backend may still wait for a
build.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated
from urllib.parse import quote

from pydantic import BeforeValidator, Field, RootModel

from fleet.errors import SourceUnreachable, StoreFailed, StoreMissing
from fleet.model.facts import Demand, QueueReading, Request, Unknown, Work, Worker
from fleet.model.tickets import SANDBOX, bounded
from fleet.model.values import MAX_ID, MOST, Id, Line, LineTags
from fleet.queues.http import QueueReply, Reader, ReadLimits
from fleet.schema.model import CoprQueue
from fleet.schema.rules import BUILD_TASK, SOURCE_CHROOT, SOURCE_TASK
from fleet.schema.units import write_count

LIST = "/backend/pending-jobs/"
BUILD = "/backend/get-build-task/"
_OK = 200
_ADVICE = {
    **dict.fromkeys(
        (401, 403), "allow this computer to read what the backend reads; no password is needed"
    ),
    404: "is it the frontend of a Copr?",
}
_NAMES_SHARE = 0.5
"""Fraction of the time limit in which package names may be read."""
_HEADER = "Copr-FE-BE-API-Version"
"""Header that a frontend sends with each reply to its backend."""
_MAX_CANCELLED_WAIT = timedelta(minutes=2)
"""Maximum time that a cancelled build's ticket may wait; the backend notices within seconds."""
PUBLISHED = timedelta(minutes=10)
"""Maximum time that a build stays listed after its ticket has returned its machine.

An equal build that Copr already has gets a machine by its own ticket at the latest.
"""
_ANY_MACHINE = "copr_builder"
"""Tag that Copr's backend requests for each build."""

_SANDBOX = re.compile(r"[^/]+/.+--.+")
"""Form of the backend's name for the sandbox of a build: OWNER/PROJECT--SUBMITTER."""


def _as_text(number: object) -> object:
    return str(number) if type(number) is int and abs(number) <= MAX_ID else number


class _Job(QueueReply):
    """Entry of the list for one build. A source build has no tags and rarely a chroot."""

    task_id: Annotated[Line, BeforeValidator(_as_text)]
    """Id of the task. A source build has the number of the build, possibly as an integer."""
    build_id: Id
    project_owner: Line
    sandbox: Line | None
    background: bool
    chroot: Line | None
    tags: LineTags | None = None

    @property
    def is_source(self) -> bool:
        return self.task_id == str(self.build_id)

    @property
    def priority(self) -> int:
        """Return the rank, 0 to 3: background builds are lower, and then source builds higher."""
        return 2 * (not self.background) + self.is_source

    @property
    def ticket_sandbox(self) -> str | None:
        """Return the sandbox name as the build's ticket has it; None without a sandbox."""
        return bounded(self.sandbox) if self.sandbox else None

    @property
    def required(self) -> tuple[str, ...]:
        """Return the tags that Copr's backend requests from a machine."""
        architecture = self.chroot.rsplit("-", 1)[-1] if self.chroot else "noarch"
        return tuple(sorted({_ANY_MACHINE, f"arch_{architecture}", *(self.tags or ())}))


class _Jobs(RootModel[tuple[_Job | None, ...]]):
    """The list of builds. An entry is null if the frontend could not describe its build."""


class _BuildRecord(QueueReply):
    """The record of a single build, with fields that the list does not have."""

    project_dirname: Line
    package_name: Line | None
    timeout: Annotated[int, Field(ge=-MAX_ID, le=MAX_ID)] | None = None
    """Seconds after which Copr stops this build."""


class CoprFrontend:
    """The builds of one Copr server that wait for a machine.

    `ticketed` reads the ticket queue from which Copr's backend takes machines. A build with a
    ticket there is not counted twice. `closed` returns the work of machines that were
    returned since a given time. `with_names` requests package names.
    """

    def __init__(
        self,
        queue: CoprQueue,
        *,
        ticketed: Callable[[datetime], QueueReading] | None = None,
        closed: Callable[[datetime], Sequence[Work]] = lambda _: (),
        with_names: bool = False,
        max_age: float = 300,
    ) -> None:
        self._url = queue.url
        self._most = queue.names if with_names else 0
        self._running = queue.names
        self._ticketed = ticketed
        self._closed = closed
        self._max_age = max_age

    def read(self, now: datetime) -> QueueReading:
        """Return the waiting builds in groups. Workers are None, since Copr lists no workers."""
        try:
            with Reader(self._url, limits=ReadLimits(total=self._max_age)) as reader:
                entries = _list(reader)
                # Read tickets after the list: a build with a new ticket is not counted twice.
                waiting, running = self._tickets(now)
                if not entries:
                    _check_none_waits(reader.base, waiting, now)
                listed = sorted(
                    filter(None, entries), key=lambda e: (-e.priority, e.build_id, e.task_id)
                )
                working = (each.work for each in running if each.work)
                given_back = self._closed(now - PUBLISHED) if self._ticketed else ()
                jobs = _drop_ticketed((*working, *given_back, *waiting), listed)
                until = self._max_age * (1 - _NAMES_SHARE)
                names = _names(reader, jobs[: self._most], until)
                begun = _possible_builds(running, listed)
                asked = [job for alike in begun.values() for job in alike][: self._running]
                packages = _packages(begun, _names(reader, asked, until))
        except (SourceUnreachable, StoreFailed, StoreMissing) as error:
            return QueueReading(demand=Unknown.of(error), workers=None)
        demand = Demand(
            read_at=now,
            requests=tuple(_group_builds(jobs, names)),
            stored=True,
            estimate=None in entries,
        )
        return QueueReading(
            demand=demand, workers=None, packages=packages, clock_ahead=reader.clock_ahead
        )

    def _tickets(self, now: datetime) -> tuple[tuple[Request, ...], tuple[Worker, ...]]:
        """Return the waiting tickets, and the workers with a ticket; raises SourceUnreachable."""
        if self._ticketed is None:
            return (), ()
        reading = self._ticketed(now)
        demand, workers = reading.demand, reading.workers
        if isinstance(demand, Unknown):
            raise SourceUnreachable(f"which builds have a ticket is unknown: {demand.unknown}")
        if isinstance(workers, Unknown):
            raise SourceUnreachable(f"which builds have a machine is unknown: {workers.unknown}")
        return demand.requests, workers or ()


def _list(reader: Reader) -> tuple[_Job | None, ...]:
    reply = reader.get(LIST, {}, {}).accepted(_ADVICE)
    known, unreadable = reply.parse_readable(_Jobs, ())
    # The list has null for a build that the frontend cannot describe.
    jobs = (*known.root, *(None for _ in unreadable))
    if not jobs and _HEADER.lower() not in reply.headers:
        raise SourceUnreachable(
            f"{reply.address} lists no build and lacks the header {_HEADER} of a Copr frontend; "
            "is a cache or another program answering?"
        )
    return jobs


def _check_none_waits(base: str, tickets: Iterable[Request], now: datetime) -> None:
    """Raise SourceUnreachable if the list is empty while the backend's tickets wait for builds."""
    waiting = [
        ticket.id
        for ticket in tickets
        if _ANY_MACHINE in ticket.required
        and _SANDBOX.fullmatch(ticket.sandbox or "")
        and ticket.pending_since is not None
        and now - ticket.pending_since >= _MAX_CANCELLED_WAIT
    ]
    if waiting:
        raise SourceUnreachable(
            f"{base}{LIST} lists no build, but the backend has "
            f"{write_count(len(waiting), 'ticket')} open for builds (first: {waiting[0]}); is the "
            "list old? If a client is gone, close its ticket with `fleet ticket close`",
            fix="fleet ticket close",
        )


def _drop_ticketed(tickets: Iterable[Request | Work], jobs: Sequence[_Job]) -> list[_Job]:
    """Remove one equal build per ticket, the first in the list, and return the other builds.

    A ticket that names its build may have tags from a rule, which only the build has stored.
    """
    unpaired: defaultdict[object, list[Request | Work]] = defaultdict(list)
    for ticket in tickets:
        unpaired[ticket.required, ticket.sandbox].append(ticket)
    left = []
    for job in jobs:
        alike = unpaired[job.required, job.ticket_sandbox]
        if alike:
            alike.pop()
        else:
            left.append(job)
    for ticket in (each for alike in unpaired.values() for each in alike if each.package):
        asked = set(ticket.required)
        fit = (j for j in left if j.ticket_sandbox == ticket.sandbox and asked <= set(j.required))
        if own := next(fit, None):
            left.remove(own)
    return left


def _possible_builds(workers: Iterable[Worker], jobs: Sequence[_Job]) -> dict[str, list[_Job]]:
    """Map each ticket without a package to the builds that its machine may be running."""
    alike: defaultdict[object, list[_Job]] = defaultdict(list)
    for job in jobs:
        alike[job.required, job.ticket_sandbox].append(job)
    return {
        each.running: alike[each.work.required, each.work.sandbox]
        for each in workers
        if each.running and each.work and not each.work.package
    }


def _packages(
    begun: Mapping[str, Sequence[_Job]], names: Mapping[str, _BuildRecord]
) -> dict[str, str]:
    """Map each ticket to its package, if all of its possible builds have the same package."""
    found = {}
    for ticket, alike in begun.items():
        known = {
            names[job.task_id].package_name if job.task_id in names else None for job in alike
        }
        package = known.pop() if len(known) == 1 else None
        if package:
            found[ticket] = package
    return found


def _names(reader: Reader, jobs: Sequence[_Job], until: float) -> dict[str, _BuildRecord]:
    """Map build ids to records. Stop when fewer than `until` seconds are left."""
    found: dict[str, _BuildRecord] = {}
    for job in jobs:
        if job.is_source or job.task_id in found:
            continue
        if reader.left() < until:
            break
        try:
            reply = reader.get(BUILD + quote(job.task_id, safe=""), {}, {})
            # The build may have been cancelled since the list was read.
            if reply.status == _OK:
                found[job.task_id] = reply.parse(_BuildRecord)
        except SourceUnreachable:
            # The demand is known; a name only shows which of today's rules adds which tag.
            break
    return found


def _group_builds(jobs: Sequence[_Job], names: Mapping[str, _BuildRecord]) -> Iterator[Request]:
    """Yield a request per group of equal builds, with the first build's id and the count."""
    groups: defaultdict[object, list[_Job]] = defaultdict(list)
    for job in jobs:
        what = (job.required, job.priority, job.project_owner, job.sandbox, job.chroot)
        groups[what, names.get(job.task_id)].append(job)
    for job, *others in groups.values():
        named = names.get(job.task_id)
        project, submitter = _parse_sandbox(job)
        yield Request(
            id=job.task_id,
            count=1 + len(others),
            task=SOURCE_TASK if job.is_source else BUILD_TASK,
            required=job.required,
            provided=(SANDBOX + job.ticket_sandbox,) if job.ticket_sandbox else (),
            asked=dict.fromkeys(job.required, "system"),
            priority=job.priority,
            requester=submitter,
            owner=job.project_owner,
            project=named.project_dirname if named else project,
            chroot=SOURCE_CHROOT if job.is_source else job.chroot,
            package=named.package_name if named else None,
            sandbox=job.ticket_sandbox,
            deadline_seconds=min(named.timeout, MOST)
            if named and named.timeout and named.timeout > 0
            else None,
        )


def _parse_sandbox(job: _Job) -> tuple[str | None, str | None]:
    """Parse OWNER/PROJECT--SUBMITTER to project and submitter; None for unknown parts."""
    owner, _, rest = (job.sandbox or "").partition("/")
    project, dashes, submitter = rest.rpartition("--")
    if owner != job.project_owner or not dashes:
        return None, None
    return project or None, submitter or None
