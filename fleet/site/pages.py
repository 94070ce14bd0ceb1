"""Types of the status pages and of their input, paths of pages, and links to pages.

The links work as files and below any path of a web server. Two names never get the same path. No
path leads to an upper folder, and no part exceeds the length of a file name.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import quote

from fleet.explain.costs import PowerfulBuild
from fleet.explain.history import FleetHistory
from fleet.explain.request import WaitingExplanations
from fleet.explain.values import Responsible
from fleet.model.facts import Attempt, Request, Unknown, WorkerFacts
from fleet.model.log import LogEntry
from fleet.model.plan import Plan, WorkerVerdict
from fleet.report.document import BLANK, Block, Line, Style, StyledText, dim, line, red
from fleet.report.status import Status, Targets, status_of
from fleet.schema.model import CoprQueue, DebusineQueue, Fleet
from fleet.site.charges import MonthCost
from fleet.site.versions import ImageStory

OVERVIEW = "index.html"
WORKERS = "-/status/workers"
POOLS = "-/status/pools"
QUEUE = "-/status/queue"
MONEY = "-/status/money/index.html"
IMAGES = "-/status/images/index.html"
REQUESTS = "-/status/requests"
_MAX_NAME_LENGTH = 120
_NAMES = re.compile(r"([^\s,;()]+)")
_RESERVED_NAMES = frozenset({".", "..", "index.html"})


@dataclass(frozen=True)
class Addresses(Targets):
    """Paths of the pages of workers, pools and explained requests, and the links to them."""

    workers: Mapping[tuple[str, str], str]
    pools: Mapping[str, str]
    requests: Mapping[str, str]

    @cached_property
    def by_worker(self) -> Mapping[str, str]:
        """Map the name of a worker to its page; of equal names, to one of their pages."""
        return {name: path for (name, _), path in self.workers.items()}

    def path_of(self, worker: WorkerVerdict) -> str:
        """Return the path of a worker's page; empty without a page."""
        return self.workers.get(_worker_key(worker), "")

    def of_worker(self, worker: WorkerVerdict) -> str:
        """Return the quoted path of a worker's page; empty without a page."""
        return quoted(self.path_of(worker))

    def of_pool(self, name: str) -> str:
        """Return the quoted path of a pool's page; empty without a page."""
        return quoted(self.pools.get(name, ""))

    def of_pools(self, names: Iterable[str]) -> Line:
        """Return the names of pools as links."""
        return join_links((StyledText(name, target=self.of_pool(name)) for name in names), ", ")

    def of_request(self, key: str) -> str:
        """Return the quoted path of a request's page; empty without a page."""
        return quoted(self.requests.get(key, ""))

    def in_text(self, text: str) -> Line:
        """Return a text that links to the pages of the requests and workers that it names."""
        found, plain = [], ""
        for part in _NAMES.split(text):
            name = part.rstrip(".:")
            path = self.requests.get(name) or self.by_worker.get(name)
            if path:
                found += [StyledText(plain), StyledText(name, target=quoted(path))]
                plain = part[len(name) :]
            else:
                plain += part
        return (*found, StyledText(plain))


def addresses_of(status: Status, requests: Iterable[str] = ()) -> Addresses:
    """Return the paths of all worker and pool pages, and of the pages of these requests."""
    workers = path_parts([_worker_key(worker) for worker in status.workers])
    pools = path_parts([(pool.pool, "") for pool in status.pools])
    return Addresses(
        workers={key: f"{WORKERS}/{part}/index.html" for key, part in workers.items()},
        pools={name: f"{POOLS}/{part}/index.html" for (name, _), part in pools.items()},
        requests={key: f"{REQUESTS}/{path_part(key)}/index.html" for key in requests},
    )


def _worker_key(worker: WorkerVerdict) -> tuple[str, str]:
    return worker.worker, f"{worker.pool} {worker.registry or ''}"


def contact_link(name: str) -> str:
    """Return the link to a contact that is a URL or an e-mail address; empty for a name."""
    if re.fullmatch(r"https?://[^\s<>\"']+", name):
        return name
    return f"mailto:{name}" if re.fullmatch(r"[\w.+-]+@[\w.-]+", name, re.ASCII) else ""


def queue_page(fleet: Fleet, key: str, request: Request) -> str:
    """Return the URL of a request at its queue's server; empty if the server has no page."""
    name, _, number = key.partition("/")
    queue = fleet.queues.get(name)
    if number != request.id:  # the queue names only the oldest request of a group
        return ""
    match queue:
        case DebusineQueue() if request.scope and request.workspace:
            parts = [request.scope, request.workspace, "work-request", request.id]
        case CoprQueue():
            parts = ["coprs", "build", request.id.partition("-")[0]]
        case _:
            return ""
    return f"{queue.url.rstrip('/')}/{'/'.join(quote(part, safe='') for part in parts)}/"


def path_parts(names: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Map (name, qualifier) to a path part; only repeated names contain the qualifier."""
    repeats = Counter(name for name, _ in set(names))
    return {
        (name, qualifier): path_part(name)
        if repeats[name] == 1
        else f"{path_part(name)}~~{path_part(qualifier)}"
        for name, qualifier in names
    }


def path_part(name: str) -> str:
    """Return a name as one part of a path, with special characters percent-encoded."""
    # quote() keeps ~; encode it, so that ~ can mark shortened names.
    part = quote(name, safe="").replace("~", "%7E")
    if not part:
        return "~"
    if part.lower() in _RESERVED_NAMES:
        return f"%{ord(part[0]):02X}{part[1:]}"
    if len(part) > _MAX_NAME_LENGTH:
        return f"{part[:_MAX_NAME_LENGTH]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return part


@lru_cache(maxsize=1 << 14)
def quoted(path: str) -> str:
    """Return the quoted path of a page."""
    return quote(path, safe="/~")


Each = TypeVar("Each")
_NOT_READ = Unknown(unknown="it was not read")


@dataclass(frozen=True)
class Shown:
    """Input of the pages: a plan, and additional facts."""

    plan: Plan
    facts: Mapping[str, WorkerFacts] = field(default_factory=lambda: MappingProxyType({}))
    """Worker name to known facts of the worker."""
    responsible: Responsible = field(default_factory=Responsible)
    """The contact of the fleet, and the allow-list rules of waiting requests."""
    history: FleetHistory | Unknown = _NOT_READ
    money: MonthCost | Unknown = _NOT_READ
    images: tuple[ImageStory, ...] | Unknown = _NOT_READ
    log: tuple[LogEntry, ...] | Unknown = _NOT_READ
    """The log of changes in the last days."""
    attempts: tuple[Attempt, ...] = ()
    """The latest attempts to create machines, the oldest first."""
    waits: WaitingExplanations = field(default_factory=WaitingExplanations)
    """The waiting requests, grouped by reason; no groups if they were not computed."""
    queue_pages: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Key of an explained request to its URL at the queue's server, if the server has a page."""
    powerful: tuple[PowerfulBuild, ...] = ()
    """Builds to which the allow-list gave powerful machines."""

    @property
    def unknown(self) -> Iterator[str]:
        """Yield the sources that could not be read, each with its error."""
        yield from (f"Unknown: {each}" for each in self.plan.unknown)

    @cached_property
    def status(self) -> Status:
        """Return the status as of the plan."""
        return status_of(self.plan, self.facts, self.responsible)

    @cached_property
    def addresses(self) -> Addresses:
        """Return the paths of the pages of workers, pools and explained requests."""
        return addresses_of(self.status, self.waits.explained)


class Sheet(NamedTuple, Generic[Each]):
    """One page of a long list."""

    path: str
    title: str
    entries: Sequence[Each]
    links: Line
    """Links to all pages of the list; empty if it has one page."""


def in_sheets(
    entries: Sequence[Each], most: int, folder: str, title: str, name_of: Callable[[Each], str]
) -> Iterator[Sheet[Each]]:
    """Split a list into pages of `most` entries. An empty list has one page."""
    parts = [entries[n : n + most] for n in range(0, len(entries), most)] or [entries]
    # No other page has such a name: see path_part.
    folders = (folder, *(f"{folder}/~{number}" for number in range(2, len(parts) + 1)))
    labels = [
        f"{nth}: {' to '.join(dict.fromkeys(map(name_of, (*part[:1], *part[-1:]))))}"
        for nth, part in enumerate(parts, 1)
    ]
    paths = [f"{each}/index.html" for each in folders]
    for number, (path, part) in enumerate(zip(paths, parts, strict=True), 1):
        links = join_links(
            StyledText(label, Style.BOLD)
            if target == path
            else StyledText(label, target=quoted(target))
            for label, target in zip(labels, paths, strict=True)
        )
        page = f", page {number} of {len(parts)}" if number > 1 else ""
        yield Sheet(path, f"{title}{page}", part, links if parts[1:] else BLANK)


def join_links(links: Iterable[StyledText], between: str = " · ") -> Line:
    """Return a line of links."""
    return tuple(span for each in links for span in (StyledText(between), each))[1:]


class Page(NamedTuple):
    """A page: its path in the site, and its content, which starts with a title."""

    path: str
    blocks: Iterable[Block]


def alarm(text: str) -> Line:
    """Return a line that needs attention."""
    return (red(text),)


def quiet(text: str) -> Line:
    """Return a line with a side note."""
    return (dim(text),)


def more(items: Sequence[object], shown: int, *rest: str | StyledText) -> Line:
    """Return a line that counts the items after the first `shown`; empty if all are shown."""
    hidden = len(items) - shown
    return line(dim(f"and {hidden:,} more"), *rest) if hidden > 0 else BLANK
