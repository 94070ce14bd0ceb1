"""The names of requests that the allow-list matches.

Copr: `owner/project[:directory]/chroot/package`; Debusine: `scope/workspace/architecture/source`.
A request with a slash within a part has no name, because it could pass for another one.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from fleet.schema.rules import SOURCE_CHROOT

if TYPE_CHECKING:
    # Checks of fleet.yaml need the words below and no facts.
    from fleet.model.facts import Request, World

SOURCE_ARCHITECTURE = "source"
"""The architecture in the name of a Debusine request that builds source packages only."""
ANY_ARCHITECTURE = "any"
"""The architecture in the name of a Debusine request that any worker may run."""
PARTS = 4
"""Number of parts of every name."""

_BUILD_ARCH = "worker:build-arch:"
_SOURCE_PACKAGE = "task:source-package:"
_SOURCE_TASKS = ("makesourcepackageupload",)
_ARCHITECTURE_FIELDS = ("build_architecture", "host_architecture")


class RecordedNames(NamedTuple):
    """The names of a recorded world; not complete if a queue was unknown or only sampled."""

    tasks: Mapping[str, Collection[str]]
    """Each name, sorted, to the tasks of its requests."""
    complete: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names, sorted."""
        return tuple(self.tasks)


def names_of(request: "Request") -> tuple[str, ...]:
    """Return the names that patterns are matched with; none if a part is unknown."""
    found = (*_copr_names(request), *_debusine_names(request))
    return tuple(
        dict.fromkeys("/".join(parts) for parts in found if not any("/" in part for part in parts))
    )


def package_of(request: "Request") -> str:
    """Return the source package of a request; empty if unknown."""
    tagged = (tag for tag in request.provided if tag.startswith(_SOURCE_PACKAGE))
    return request.package or next(tagged, "").removeprefix(_SOURCE_PACKAGE)


def is_source_build(request: "Request") -> bool:
    """Return whether a request builds source packages only."""
    if request.project is not None:
        return request.chroot in (None, SOURCE_CHROOT)
    components = request.task_data.get("build_components")
    return request.task in _SOURCE_TASKS or components == ["source"]


def without_directory(name: str) -> str:
    """Return a name without the directory of its project: a/b:pr:7/c/d becomes a/b/c/d.

    The directory is the first colon of the second part and the text after it, up to the next
    slash.
    """
    owner, slash, rest = name.partition("/")
    project, more, tail = rest.partition("/")
    return f"{owner}{slash}{project.partition(':')[0]}{more}{tail}"


def recorded_names(world: "World") -> RecordedNames:
    """Return the names of all waiting requests in a world."""
    from fleet.model.facts import Demand

    demands = [reading.demand for reading in world.queues.values()]
    known = [demand for demand in demands if isinstance(demand, Demand)]
    named = (
        (name, request.task)
        for demand in known
        for request in demand.requests
        for name in names_of(request)
    )
    complete = len(known) == len(demands) and not any(demand.estimate for demand in known)
    return RecordedNames(tasks_by_name(named), complete)


def tasks_by_name(named: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Return each name, sorted, with the tasks of its requests."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, task in named:
        found[name].add(task)
    return {name: frozenset(found[name]) for name in sorted(found)}


def _copr_names(request: "Request") -> Iterator[tuple[str, ...]]:
    # The package of an uploaded source build is unknown until it was built.
    if request.owner and request.project and (request.package or is_source_build(request)):
        chroot = request.chroot or SOURCE_CHROOT
        yield (request.owner, request.project, chroot, request.package or "")


def _debusine_names(request: "Request") -> Iterator[tuple[str, ...]]:
    source = package_of(request)
    if request.scope and request.workspace and source:
        for architecture in _architectures(request):
            yield (request.scope, request.workspace, architecture, source)


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
