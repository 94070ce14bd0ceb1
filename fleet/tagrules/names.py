"""The names of requests, which the patterns of the allow-list match.

Copr: `owner/project[:directory]/chroot/package`; Debusine: `scope/workspace/architecture/source`.
A request has no name if a part contains a slash, because it could pass for another request.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fleet.schema.rules import SOURCE_CHROOT

if TYPE_CHECKING:
    # Checks of fleet.yaml import the words below without facts.
    from fleet.model.facts import Request, World

SOURCE_ARCHITECTURE = "source"
"""Architecture in the name of a Debusine request that builds only a source package."""
ANY_ARCHITECTURE = "any"
"""Architecture in the name of a Debusine request that can run on any worker."""
PARTS = 4
"""Number of parts in each name, separated by slashes."""

_BUILD_ARCH = "worker:build-arch:"
_SOURCE_PACKAGE = "task:source-package:"
_SOURCE_TASKS = ("makesourcepackageupload",)
_ARCHITECTURE_FIELDS = ("build_architecture", "host_architecture")


class RecordedNames(NamedTuple):
    """Names in a recorded observation. They are incomplete if a queue was not read completely."""

    tasks: Mapping[str, Collection[str]]
    """Map of name to the tasks of its requests, sorted by name."""
    complete: bool = True
    nameless: str = ""
    """A phrase on the requests if all of them are without a name."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names, sorted."""
        return tuple(self.tasks)


def names_of(request: "Request") -> tuple[str, ...]:
    """Return the names of a request; empty if a part of the name is unknown."""
    found: list[tuple[str, ...]] = []
    # The package of an uploaded source build is unknown until the build has finished.
    if request.owner and request.project and (request.package or is_source_build(request)):
        chroot = request.chroot or SOURCE_CHROOT
        found.append((request.owner, request.project, chroot, request.package or ""))
    scope, workspace, source = request.scope, request.workspace, package_of(request)
    if scope and workspace and source:
        found += [(scope, workspace, each, source) for each in _architectures(request)]
    return tuple(
        dict.fromkeys("/".join(parts) for parts in found if not any("/" in part for part in parts))
    )


def missing_in_name(request: "Request") -> str:
    """Return a phrase on the fields without which a request has no name; empty if it has one."""
    if names_of(request):
        return ""
    is_copr = request.project or request.chroot
    fields = ("owner", "project") if is_copr else ("scope", "workspace")
    missing = [each for each in fields if not getattr(request, each)]
    missing += [] if package_of(request) else ["package"]
    return f"{', '.join(missing)} missing" if missing else "a part has a slash"


def describe_nameless(requests: Iterable["Request"]) -> str:
    """Return a phrase on requests without a name; empty if one has a name or no request waits."""
    counts: Counter[str] = Counter()
    for request in requests:
        counts[missing_in_name(request)] += request.count
    if "" in counts or not counts:
        return ""
    which = (
        "1 recorded build has"
        if counts.total() == 1
        else f"{counts.total():,} recorded builds have"
    )
    return f"{which} no name: {'; '.join(counts)}"


def package_of(request: "Request") -> str:
    """Return the source package of a request; empty if it is unknown."""
    tagged = (tag for tag in request.provided if tag.startswith(_SOURCE_PACKAGE))
    return request.package or next(tagged, "").removeprefix(_SOURCE_PACKAGE)


def is_source_build(request: "Request") -> bool:
    """Return whether a request builds only a source package."""
    if request.project is not None:
        return request.chroot in (None, SOURCE_CHROOT)
    components = request.task_data.get("build_components")
    return request.task in _SOURCE_TASKS or components == ["source"]


def without_directory(name: str) -> str:
    """Return a name without its project's directory: a/b:pr:7/c/d becomes a/b/c/d.

    The directory is the text from the first colon in the second part up to the next slash.
    """
    owner, slash, rest = name.partition("/")
    project, more, tail = rest.partition("/")
    return f"{owner}{slash}{project.partition(':')[0]}{more}{tail}"


def recorded_names(world: "World") -> RecordedNames:
    """Return the names of all waiting requests in an observation."""
    from fleet.model.facts import Demand

    demands = [reading.demand for reading in world.queues.values()]
    known = [demand for demand in demands if isinstance(demand, Demand)]
    requests = [request for demand in known for request in demand.requests]
    named = ((name, request.task) for request in requests for name in names_of(request))
    complete = len(known) == len(demands) and not any(demand.estimate for demand in known)
    return RecordedNames(tasks_by_name(named), complete, describe_nameless(requests))


def tasks_by_name(named: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Map each name to the tasks of its requests, sorted by name."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, task in named:
        found[name].add(task)
    return {name: frozenset(found[name]) for name in sorted(found)}


def _architectures(request: "Request") -> tuple[str, ...]:
    if is_source_build(request):
        return (SOURCE_ARCHITECTURE,)
    tagged = [tag for tag in request.required if tag.startswith(_BUILD_ARCH)]
    if tagged:
        return tuple(tag.removeprefix(_BUILD_ARCH) for tag in tagged)
    for field in _ARCHITECTURE_FIELDS:
        written = request.task_data.get(field)
        if isinstance(written, str) and written:
            return (written,)
    return (ANY_ARCHITECTURE,)
