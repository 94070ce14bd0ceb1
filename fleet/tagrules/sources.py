"""The tags that the workers of a pool provide, the source of each tag, and the valid tags.

Sources are the machine (its type, and sizes in the pool), the manifest of the image, `provides` of
the pool, and the report of the worker. A tag has no effect and becomes a `Doubt` if its source may
not provide it, or if the machine contradicts it.

Sizes are nominal: a machine may have up to `TOLERANCE` less than a size, because the kernel of a
machine with 64 GiB reports a little less.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from fleet.model.images import is_judged, is_open
from fleet.model.prices import MachineType, find_types
from fleet.schema.findings import Path
from fleet.schema.model import (
    AnyPool,
    Askers,
    CoprQueue,
    DebusineQueue,
    Fleet,
    MachineSettings,
    Pool,
    TagRule,
    TicketQueue,
    WorldQueue,
    serves_queue,
)
from fleet.schema.pools import Image
from fleet.schema.rules import Asker, ProvidedBy
from fleet.tagrules.vocabulary import Numbers, Vocabulary, read_numbers, tag_name

if TYPE_CHECKING:
    from fleet.model.images import ImageVersion

TOLERANCE = Decimal("0.05")
_MIN_SIMILARITY = 0.85
"""Minimum similarity of a tag and a correction, as `difflib` measures it."""
_DIGITS = re.compile(r"[0-9]+")
CLASS = "worker:class:"
"""Prefix of tags that only an administrator of Debusine can provide."""
BUILD_ARCH = "worker:build-arch:"
EXTERNAL_WORKER = "worker:type:external"
"""Tag for the type of all workers on machines of pools."""
INTERNAL_WORKER = "worker:type:celery"
"""Tag for the type of workers inside the Debusine server, which run server tasks."""

_NATIVE: Mapping[str, tuple[str, ...]] = MappingProxyType({"amd64": ("amd64", "i386")})
"""Map of a machine's architecture to the Debian architectures that it runs natively.

Source: `system:architectures` as real workers of Debusine 0.16.2 report it on such machines.
"""
_ARMHF_PREFIXES = ("cax", "c7g.")
"""Prefixes of arm64 machine types that also run armhf: their processors have AArch32 at EL0.

Source: Arm's technical reference manuals of Neoverse N1 (cax at Hetzner) and V1 (c7g at AWS).
Other arm64 processors, such as Neoverse V2, cannot run armhf.
"""

_MIB_PER_GIB = 1024
_PLACES = Decimal("0.000001")


def native_architectures(types: Iterable[MachineType]) -> tuple[str, ...]:
    """Return the architectures that all of these machine types run natively, in order."""
    natives = [
        ("arm64", "armhf")
        if each.architecture == "arm64" and each.name.startswith(_ARMHF_PREFIXES)
        else _NATIVE.get(each.architecture, (each.architecture,))
        for each in types
    ]
    return tuple(a for a in natives[0] if all(a in each for each in natives)) if natives else ()


def names_of(types: Iterable[MachineType]) -> str:
    """Return the names of machine types, as text with `or`."""
    return " or ".join(each.name for each in types)


def figures_of(fleet: Fleet, pool: Pool) -> dict[str, Decimal]:
    """Map numeric tags to the minimums over a pool's machine types, for known figures."""
    types = find_types(fleet, pool)
    swap = pool.machine.swap if isinstance(pool.machine, MachineSettings) else None
    sizes = [(each.cores, each.memory, each.disk, swap or 0) for each in types]
    return _name_figures(*map(min, zip(*sizes, strict=True))) if sizes else {}


def _name_figures(
    cores: int, memory: int, disk: int | None, swap: int | None
) -> dict[str, Decimal]:
    """Map numeric tags to the known figures of these sizes, which are in MiB."""
    known = {"memory_gib": memory, "disk_gib": disk, "swap_gib": swap}
    return ({"cores": Decimal(cores)} if cores else {}) | {
        name: (Decimal(mebibytes) / _MIB_PER_GIB).quantize(_PLACES).normalize()
        for name, mebibytes in known.items()
        if mebibytes
    }


def classes_of(fleet: Fleet, figures: Mapping[str, Decimal]) -> tuple[str, ...]:
    """Return the sorted tags of all size classes that a machine with these figures reaches."""
    return tuple(
        sorted(
            CLASS + name
            for name, size in fleet.sizes.items()
            if all(
                figures.get(figure, Decimal(-1)) >= least * (1 - TOLERANCE)
                for figure, least in _name_figures(
                    size.cores, size.memory, size.disk, size.swap
                ).items()
            )
        )
    )


def is_about(number: Decimal, nominal: Decimal) -> bool:
    """Return whether two values of a figure are equal within the tolerance."""
    return abs(number - nominal) <= TOLERANCE * max(number, nominal)


def newest_first(
    images: Iterable["ImageVersion"], image: str, provider: str
) -> list["ImageVersion"]:
    """Return the versions of an image that are published at a provider, the newest first."""
    published = [each for each in images if each.image == image and provider in each.ids]
    return sorted(published, key=lambda each: _natural_key(each.version), reverse=True)


def newest_version(
    images: Iterable["ImageVersion"], image: str, provider: str
) -> "ImageVersion | None":
    """Return the newest version of an image published at a provider; None without a version."""
    return next(iter(newest_first(images, image, provider)), None)


def _natural_key(version: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that compares digits as numbers: 2026.10 is newer than 2026.9."""
    parts = re.findall(r"[0-9]+|[^0-9]+", version)
    stripped = [(part, part.lstrip("0")) for part in parts]
    return tuple(
        (len(digits), digits) if part.isdecimal() else (-1, part) for part, digits in stripped
    )


class Provided(NamedTuple):
    """A tag that workers provide, with its source and the key of fleet.yaml."""

    tag: str
    source: ProvidedBy
    path: Path = ()


class Doubt(NamedTuple):
    """A provided tag that has no effect, with the reason."""

    kind: Literal["contradiction", "not-permitted"]
    tag: str
    because: str
    path: Path = ()


class Weighed(NamedTuple):
    """The provided tags and numbers that have effect, and the doubts about the others."""

    tags: frozenset[str]
    numbers: Numbers
    doubts: tuple[Doubt, ...]


def pool_sources(
    fleet: Fleet, name: str, images: Iterable["ImageVersion"]
) -> tuple[Provided, ...]:
    """Return all tags that the workers of a pool provide, with the source of each tag."""
    known = tuple(images)
    return fleet.cached(("sources", name), known, lambda: _pool_sources(fleet, name, known))


def provided_tags(fleet: Fleet) -> frozenset[str]:
    """Return the names of all tags that pools provide, as far as fleet.yaml says."""
    sources = (each for name in fleet.pools for each in pool_sources(fleet, name, ()))
    return frozenset(tag_name(each.tag) for each in sources)


def nearest_tag(tag: str, known: Collection[str]) -> str:
    """Return the most similar known tag that differs in more than digits; else an empty text."""
    shape = _DIGITS.sub("0", tag)
    others = [each for each in sorted(known) if each != tag and _DIGITS.sub("0", each) != shape]
    return next(iter(get_close_matches(tag, others, n=1, cutoff=_MIN_SIMILARITY)), "")


def _pool_sources(
    fleet: Fleet, name: str, images: Iterable["ImageVersion"]
) -> tuple[Provided, ...]:
    pool = fleet.pools[name]
    own = [
        Provided(tag, "pool", ("pools", name, "provides", number))
        for number, tag in enumerate(pool.provides)
    ]
    if not isinstance(pool, Pool):
        return tuple(own)
    image = list(_image_sources(fleet, pool, images))
    return (*_machine_sources(fleet, name, pool, {each.tag for each in image}), *image, *own)


def worker_sources(pool: Iterable[Provided], provides: Iterable[str]) -> tuple[Provided, ...]:
    """Return the tags that a worker reports, also with the pool's sources, and the numbers.

    The queue assigns work by the reported tags, so another plain tag of the pool has no effect.
    Numbers come from the machine.
    """
    reported = frozenset(provides)
    from_pool = [p for p in pool if p.tag in reported or (p.source == "machine" and "=" in p.tag)]
    return (*from_pool, *(Provided(tag, "worker") for tag in sorted(reported)))


def weigh(fleet: Fleet, name: str, provided: Iterable[Provided]) -> Weighed:
    """Return the provided tags that have effect, and doubts about the other tags."""
    vocabulary = Vocabulary(fleet)
    pool = fleet.pools[name]
    types: tuple[MachineType, ...] = ()
    classes: tuple[str, ...] = ()
    if isinstance(pool, Pool):
        types, classes = find_types(fleet, pool), classes_of(fleet, figures_of(fleet, pool))
    counted: list[Provided] = []
    doubts: list[Doubt] = []
    for each in provided:
        doubt = _not_permitted(vocabulary, each) or _contradiction(fleet, each, types, classes)
        if doubt is None:
            counted.append(each)
        else:
            doubts.append(doubt)
    good = {each.tag for each in counted}
    doubts = [doubt for doubt in doubts if doubt.tag not in good]
    tags, numbers, differing = _weigh_numbers(vocabulary, counted)
    return Weighed(tags, numbers, (*dict.fromkeys(doubts), *differing))


def claimed_tags(image: Image | None, version: "ImageVersion") -> tuple[str, ...]:
    """Return the tags of an image that have effect only because its recipe lists them.

    If test jobs ran, these are the tags that no job can test.
    """
    if image is None:
        return ()
    if version.unproven is None:
        return () if version.provides else tuple(image.provides)
    left = (tag for tag in image.provides if tag not in version.provides)
    return tuple(tag for tag in left if not is_judged(tag) or is_open(tag, version.unproven))


def _image_sources(
    fleet: Fleet, pool: Pool, images: Iterable["ImageVersion"]
) -> Iterator[Provided]:
    newest = newest_version(images, pool.image, pool.provider)
    image = fleet.images.get(pool.image)
    for tag in newest.provides if newest else ():
        yield Provided(tag, "image", ("images", pool.image))
    if image is not None:
        claimed = claimed_tags(image, newest) if newest else image.provides
        for number, tag in enumerate(image.provides):
            if tag in claimed:
                yield Provided(tag, "image", ("images", pool.image, "provides", number))


def _machine_sources(
    fleet: Fleet, name: str, pool: Pool, manifest: Iterable[str]
) -> Iterator[Provided]:
    path = ("pools", name, "machine")
    yield Provided(EXTERNAL_WORKER, "machine", path)
    types, image = find_types(fleet, pool), fleet.images.get(pool.image)
    declared = (image.architecture,) if image else ()
    native = native_architectures(types) if types else declared
    booted = {tag.removeprefix(BUILD_ARCH) for tag in manifest if tag.startswith(BUILD_ARCH)}
    for architecture in native:
        # The image may support fewer architectures than the machine.
        if architecture in (booted or native) and (not declared or declared[0] in native):
            yield Provided(BUILD_ARCH + architecture, "machine", path)
    figures = figures_of(fleet, pool)
    for tag in classes_of(fleet, figures):
        yield Provided(tag, "machine", path)
    numeric = Vocabulary(fleet).numeric
    for figure, number in sorted(figures.items()):
        if figure in numeric:
            yield Provided(f"{figure}={number:f}", "machine", path)


def _not_permitted(vocabulary: Vocabulary, each: Provided) -> Doubt | None:
    allowed, path = vocabulary.provided_by(each.tag)
    if allowed is None or each.source in allowed:
        return None
    may, key = ", ".join(allowed) or "nothing", ".".join(map(str, path))
    because = (
        f"{each.tag} does not count: the {each.source} provides it, but {key} allows only {may}"
    )
    return Doubt("not-permitted", each.tag, because, each.path or path)


def _contradiction(
    fleet: Fleet, each: Provided, types: tuple[MachineType, ...], classes: tuple[str, ...]
) -> Doubt | None:
    """Return a doubt if the machine contradicts the tag; None otherwise."""
    if not types:
        return None
    because, name = "", names_of(types)
    if each.tag.startswith(BUILD_ARCH):
        native = native_architectures(types)
        if each.tag.removeprefix(BUILD_ARCH) not in native:
            because = f"machine {name} runs {' and '.join(native) or 'nothing'} natively"
    elif each.tag.startswith(CLASS) and each.tag.removeprefix(CLASS) in fleet.sizes:
        if each.tag not in classes:
            reached = ", ".join(c.removeprefix(CLASS) for c in classes) or "none"
            because = f"machine {name} reaches only these classes of sizes: {reached}"
    elif each.tag == INTERNAL_WORKER:
        because = f"workers of pools are {EXTERNAL_WORKER}"
    if not because:
        return None
    message = f"{each.tag} does not count: the {each.source} provides it, but {because}"
    return Doubt("contradiction", each.tag, message, each.path)


def _weigh_numbers(
    vocabulary: Vocabulary, counted: Iterable[Provided]
) -> tuple[frozenset[str], Numbers, tuple[Doubt, ...]]:
    """Return the plain tags, one value per number, and a doubt per number with differing values.

    If the values of a number agree, the nominal one of the machine is used, else the lowest.
    """
    plain: set[str] = set()
    stated: defaultdict[str, list[tuple[Decimal, Provided]]] = defaultdict(list)
    for each in counted:
        tags, numbers = read_numbers([each.tag], vocabulary.numeric)
        plain |= tags
        for name, number in numbers:
            stated[name].append((number, each))
    found: list[tuple[str, Decimal]] = []
    doubts: list[Doubt] = []
    for name, statements in sorted(stated.items()):
        nominal, first = next(
            ((n, p) for n, p in statements if p.source == "machine"), statements[0]
        )
        differing = [(n, p) for n, p in statements if not is_about(n, nominal)]
        lowest = min(number for number, _ in statements)
        found.append((name, lowest if differing else nominal))
        for number, each in differing:
            because = (
                f"{name} counts as {lowest:f}: the {each.source} states {number:f}, "
                f"the {first.source} {nominal:f}"
            )
            doubts.append(Doubt("contradiction", each.tag, because, each.path))
    return frozenset(plain), tuple(found), tuple(doubts)


Enforcer = Literal["report", "capacity", "scheduler"]
Claim = Literal["tag", "asked_by", "exclusive", "limits"]

SYSTEM_ONLY = ("task:group:", "task:scope:", "task:source-package:", "task:workspace:")
"""Prefixes of tags that only Debusine itself adds to the tags that a request provides."""

_STRENGTH: tuple[Enforcer, ...] = ("report", "capacity", "scheduler")


class Enforcement(NamedTuple):
    """The enforcement of one rule about a tag at one queue: the enforcing part, and why."""

    tag: str
    claim: Claim
    queue: str
    by: Enforcer
    because: str
    path: Path
    recorded: bool = False
    """Whether the queue is a recording, which assigns no work."""


def enforcement_of(fleet: Fleet) -> tuple[Enforcement, ...]:
    """Return the part that enforces each tag, permission, exclusivity or limit at each queue."""
    providing = pools_providing(fleet)
    found = (
        each
        for tag in known_tags(fleet)
        for queue in sorted(fleet.queues)
        for each in _tag_claims(fleet, tag, queue, providing[tag])
    )
    return tuple(found)


def known_tags(fleet: Fleet) -> tuple[str, ...]:
    """Return the sorted tags that fleet.yaml declares, provides or requires."""
    provided = (tag for pool in fleet.pools.values() for tag in pool.provides)
    asked = (tag for rule in fleet.powerful for tag in rule.ask)
    plain = (tag for tag in (*provided, *asked) if "=" not in tag)
    return tuple(sorted({*fleet.tags, *plain}))


def pools_providing(fleet: Fleet) -> dict[str, tuple[str, ...]]:
    """Map each known tag (a final `*` is a wildcard) to the pools that provide it."""
    known = known_tags(fleet)
    by_tag: defaultdict[str, set[str]] = defaultdict(set)
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for pool in fleet.pools if known else ():
        for each in pool_sources(fleet, pool, ()):
            by_tag[each.tag].add(pool)
            by_name[tag_name(each.tag)].add(pool)
    return {
        name: tuple(
            sorted(
                {p for tag in by_tag if tag.startswith(name[:-1]) for p in by_tag[tag]}
                if name.endswith("*")
                else by_name[name]
            )
        )
        for name in known
    }


def is_workspace_tag(tag: str) -> bool:
    """Return whether the owner of a Debusine workspace can add this tag to its requests."""
    return not tag.startswith(SYSTEM_ONLY)


def weakest(enforcers: Iterable[Enforcer]) -> Enforcer | None:
    """Return the weakest enforcer; None if there are no enforcers."""
    return min(enforcers, key=_STRENGTH.index, default=None)


_NO_RULE = TagRule.model_construct()


def _tag_claims(
    fleet: Fleet, tag: str, queue: str, providing: Iterable[str]
) -> Iterator[Enforcement]:
    rule = fleet.tags.get(tag, _NO_RULE)
    pools = [fleet.pools[name] for name in providing if serves_queue(fleet.pools[name], queue)]
    recorded = isinstance(fleet.queues[queue], WorldQueue)
    claims: dict[Claim, bool] = {
        "tag": True,
        "asked_by": rule.asked_by is not None,
        "exclusive": rule.exclusive,
        "limits": bool(limits_of(rule)),
    }
    for claim in (each for each, is_made in claims.items() if is_made):
        path = ("tags", tag) if claim == "tag" else ("tags", tag, claim)
        by, because = _judge(fleet, tag, claim, queue, pools)
        yield Enforcement(tag, claim, queue, by, because, path, recorded)


def limits_of(rule: TagRule) -> dict[str, int]:
    """Map each limited unit, such as `per user` or `total`, to its limit."""
    named = {f"per {key}": value for key, value in rule.limits.per.model_dump().items()}
    return {k: v for k, v in {**named, "total": rule.limits.total}.items() if v is not None}


def _judge(
    fleet: Fleet, tag: str, claim: Claim, queue: str, pools: list[AnyPool]
) -> tuple[Enforcer, str]:
    match fleet.queues[queue]:
        case WorldQueue():
            return "report", "a recording assigns no work"
        case CoprQueue() | TicketQueue():
            return "scheduler", "fleet assigns a machine to each ticket"
        case DebusineQueue() if pools:
            rule = fleet.tags.get(tag, TagRule.model_construct())
            return _find_debusine_enforcer(rule, claim, pools)
        case DebusineQueue():
            return "report", "no pool that serves this queue provides it"


def _find_debusine_enforcer(
    rule: TagRule, claim: Claim, pools: list[AnyPool]
) -> tuple[Enforcer, str]:
    if claim == "tag":
        if rule.kind == "number":
            return "capacity", "Debusine has no numbers; `fleet export debusine` writes classes"
        return (
            "scheduler",
            "Debusine assigns requests that require it only to workers that provide it",
        )
    if claim == "asked_by":
        return _permission_at_debusine(rule, pools)
    exclusive = min(
        map(_exclusive_at_debusine, pools), key=lambda found: _STRENGTH.index(found[0])
    )
    if claim == "exclusive":
        return exclusive
    if set(limits_of(rule)) == {"total"} and rule.exclusive and exclusive[0] == "scheduler":
        return (
            "scheduler",
            "only such requests run on its machines, and fleet creates no more of them",
        )
    return "capacity", "fleet creates no more machines for it, but Debusine has no limits"


def _permission_at_debusine(rule: TagRule, pools: list[AnyPool]) -> tuple[Enforcer, str]:
    """Return the enforcer of a tag's `asked_by` at the workers that provide the tag, and why."""
    admitted = _provided_only_by(rule.asked_by or ())
    keys = [admitted & set(pool.requires) if isinstance(pool, Pool) else set() for pool in pools]
    if all(keys):
        tags = ", ".join(sorted(set().union(*keys)))
        return "scheduler", f"its workers require {tags}, which only permitted requests provide"
    return "report", "any workspace owner can make requests require it; who asked is not visible"


def _provided_only_by(askers: Sequence[Asker]) -> set[str]:
    """Return tags that only requests of these scopes and groups have; empty for other askers."""
    named = [asker for asker in askers if isinstance(asker, Askers) and not asker.users]
    if len(named) < len(askers):
        return set()
    scopes = {f"task:scope:{scope}" for asker in named for scope in asker.scopes}
    return scopes | {f"task:group:{group}" for asker in named for group in asker.groups}


def _exclusive_at_debusine(pool: AnyPool) -> tuple[Enforcer, str]:
    if not isinstance(pool, Pool):
        return "report", "fleet does not manage its workers, which take whatever fits"
    if not pool.requires:
        return (
            "capacity",
            "its workers require no tags, so Debusine assigns them whatever fits first",
        )
    own = [tag for tag in pool.requires if not is_workspace_tag(tag)]
    given = [tag for tag in pool.requires if is_workspace_tag(tag)]
    if not given:
        tags = ", ".join(own)
        return "capacity", f"its workers require only {tags}, so Debusine assigns any such request"
    owner = f"an owner of a workspace with {', '.join(own)}" if own else "any workspace owner"
    return "scheduler", f"its workers require {', '.join(given)}, which {owner} can provide"
