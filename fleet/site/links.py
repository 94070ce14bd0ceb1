"""Paths of pages and relative links, which work as files and below any path of a web server.

Two names never get the same path. No path leads to an upper folder, and no part exceeds the length
of a file name.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from urllib.parse import quote

from fleet.model.facts import Request
from fleet.model.plan import WorkerVerdict
from fleet.report.status import Status
from fleet.schema.model import CoprQueue, DebusineQueue, Fleet

OVERVIEW = "index.html"
WORKERS = "-/status/workers"
INACTIVE = "-/status/inactive"
GONE = "-/status/gone"
POOLS = "-/status/pools"
QUEUE = "-/status/queue"
MONEY = "-/status/money/index.html"
IMAGES = "-/status/images/index.html"
REQUESTS = "-/status/requests"
_MAX_NAME_LENGTH = 120
_NAMES = re.compile(r"([^\s,;()]+)")
_RESERVED_NAMES = frozenset({".", "..", "index.html"})


@dataclass(frozen=True)
class Addresses:
    """Paths of the pages of workers, pools and explained requests."""

    workers: Mapping[tuple[str, str], str]
    pools: Mapping[str, str]
    requests: Mapping[str, str]

    @cached_property
    def by_worker(self) -> Mapping[str, str]:
        """Map the name of a worker to its page; of equal names, to one of their pages."""
        return {name: path for (name, _), path in self.workers.items()}

    def of_worker(self, worker: WorkerVerdict) -> str:
        """Return the path of a worker's page."""
        return self.workers[_worker_key(worker)]


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


class PageLinks:
    """Relative links from one page to other pages of the site."""

    def __init__(self, path: str, addresses: Addresses) -> None:
        self._path = path
        self._addresses = addresses
        self.up = "../" * path.count("/")

    def to(self, path: str) -> str:
        """Return the link to a page of the site."""
        return self.up + link(path)

    def to_worker(self, worker: WorkerVerdict) -> str:
        """Return the link to a worker's page."""
        return self.to(self._addresses.of_worker(worker))

    def to_pool(self, name: str) -> str | None:
        """Return the link to a pool's page; None if the pool has no page."""
        path = self._addresses.pools.get(name)
        return self.to(path) if path else None

    def to_request(self, key: str) -> str | None:
        """Return the link to a request's page; None if the request has no page."""
        path = self._addresses.requests.get(key)
        return self.to(path) if path else None

    def in_text(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield the parts of a text, each with the link to the request or worker that it names."""
        for part in _NAMES.split(text):
            name = part.rstrip(".:")
            path = self._addresses.requests.get(name) or self._addresses.by_worker.get(name)
            yield name if path else part, self.to(path) if path else ""
            if path and name != part:
                yield part[len(name) :], ""

    def is_at(self, path: str) -> bool:
        """Return whether this page has the path `path`."""
        return self._path == path

    def is_below(self, path: str) -> bool:
        """Return whether this page is in the folder of the page at `path`, or in a subfolder."""
        folder = path.removesuffix("index.html")
        return bool(folder) and self._path != path and self._path.startswith(folder)


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
def link(path: str) -> str:
    """Return a path of the site as a relative link."""
    return quote(path, safe="/~")
