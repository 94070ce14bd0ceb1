"""The builds in recorded observations. A build counts once, with its latest request.

A build that starts and ends between two observations is not recorded, so counts are lower bounds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from fleet.explain.options import request_of
from fleet.model.facts import Demand, Listing, Request, Unknown, Worker, World
from fleet.tagrules.names import names_of, without_directory

MONTH = timedelta(hours=730)
_MIN_SPAN = timedelta(days=1)
"""Minimum length of a recording whose figures can be scaled to a month."""


@dataclass
class RecordedBuild:
    """A build that waits or runs in one or more observations."""

    queue: str
    request: Request
    """The waiting request, else the fields of the running work. `count` is 1 after the wait."""
    names: tuple[str, ...]
    since: datetime
    """Start of its wait, else the time of the first observation that contains the build."""
    started: datetime | None = None
    seconds: int | None = None
    """Duration of its work; None if no observation contains the work or follows its end."""
    is_withdrawn: bool = False
    """The build disappeared, and was too long to have run between two observations."""


@dataclass
class Recording:
    """The builds and times of recorded observations, the oldest first."""

    since: datetime
    last: World
    moments: int = 0
    unread: int = 0
    """Number of observations in which a queue could not be read."""
    builds: dict[tuple[str, str], RecordedBuild] = field(default_factory=dict)
    """(Queue, id) to build."""
    used: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """(Name, task) of builds to the time of the last observation that contains such a build."""
    _present: set[tuple[str, str]] = field(default_factory=set)

    @property
    def named(self) -> list[RecordedBuild]:
        """Return the builds that have a name."""
        return [each for each in self.builds.values() if each.names]

    @property
    def months(self) -> float | None:
        """Return the length of the recording in months; None if the recording is too short."""
        span = self.last.time - self.since
        return None if span < _MIN_SPAN else span / MONTH

    def add(self, world: World) -> None:
        """Add the builds of the next observation."""
        since, self.last = self.last.time, world
        self.moments += 1
        self.unread += any(isinstance(each.demand, Unknown) for each in world.queues.values())
        present = set()
        for queue, request, names, started in _read_work(world):
            key = (queue or self._queue_of(request.id), request.id)
            present.add(key)
            self.used.update(((name, request.task), world.time) for name in names)
            if key not in self.builds:
                arrived = min(request.pending_since or world.time, world.time)
                self.builds[key] = RecordedBuild(key[0], request, names, arrived)
            build = self.builds[key]
            build.started, build.seconds, build.is_withdrawn = started, None, False
            if started is None or not build.names:
                build.request, build.names = request, names
            elif build.request.count > 1:
                build.request = build.request.altered(count=1)
        unsure = set(find_unread(world))
        gone = {key for key in self._present - present if not unsure & {key[0], ""}}
        for build in map(self.builds.__getitem__, gone):
            _end(build, since, world.time)
        self._present = (self._present - gone) | present

    def _queue_of(self, request: str) -> str:
        """Return the queue of a running request that only a provider lists; "" without queues."""
        queues = [*sorted(self.last.queues), ""]
        return next((each for each in queues if (each, request) in self.builds), queues[0])


def _end(build: RecordedBuild, since: datetime, now: datetime) -> None:
    """Note that a build is over. It was observed at `since`, and no longer `now`."""
    if build.started is not None:
        build.seconds = max(1, int((now - build.started).total_seconds()))
    else:
        expected = build.request.expected_seconds
        build.is_withdrawn = expected is None or expected > (now - since).total_seconds()
    # The queue reports the other requests of a group by another id, once the oldest one is gone.
    build.request = build.request.altered(count=1)


def read_builds(worlds: Iterable[World]) -> Recording | None:
    """Return the builds of observations, the oldest first; None without an observation."""
    recording: Recording | None = None
    for world in worlds:
        recording = recording or Recording(world.time, world)
        recording.add(world)
    return recording


_ObservedWork = tuple[str, Request, tuple[str, ...], datetime | None]
"""Queue (empty if unknown), request and names of a build, and the start of its work, if any."""


def _read_work(world: World) -> Iterator[_ObservedWork]:
    """Yield the waiting and running builds of an observation."""
    for queue, demand in world.demands():
        yield from ((queue, each, names_of(each), None) for each in demand.requests)
    for queue, worker in listed_workers(world):
        request = request_of(worker)
        if request is not None and worker.work is not None:
            started = worker.work.started_at or worker.since or world.time
            yield queue, request, worker.work.names, started


def listed_workers(world: World) -> Iterator[tuple[str, Worker]]:
    """Yield (queue, worker) per listed worker. The queue is empty for a provider's list."""
    lists = [(queue, reading.workers) for queue, reading in sorted(world.queues.items())]
    lists += [("", each.workers) for each in world.providers.values() if isinstance(each, Listing)]
    for queue, workers in lists:
        yield from ((queue, worker) for worker in (workers if isinstance(workers, tuple) else ()))


def find_unread(world: World) -> Iterator[str]:
    """Yield each queue that was not read completely; "" if a provider was not."""
    for queue, reading in world.queues.items():
        is_read = isinstance(reading.demand, Demand) and not reading.demand.estimate
        if not is_read or isinstance(reading.workers, Unknown):
            yield queue
    if any(isinstance(each, Unknown) for each in world.providers.values()):
        yield ""


def package_key(name: str) -> tuple[str, ...]:
    """Return the owner, project and package of a build name, without the chroot."""
    *project, _, package = without_directory(name).split("/")
    return (*project, package)


def common_name(names: set[str]) -> str:
    """Return a common name for builds of one package, with `*` for the differing parts."""
    owner, projects, *rest = map(set, zip(*(name.split("/") for name in names), strict=True))
    project = min(projects) if len(projects) == 1 else f"{min(projects).partition(':')[0]}:*"
    parts = [min(part) if len(part) == 1 else "*" for part in rest]
    return "/".join([min(owner), project, *parts])
