"""This module gathers what says that a worker provides a tag, and weighs what contradicts it.

Sources are the machine (catalogue and the pool's own figures), the image's manifest, the pool's
`provides` and a worker's own report. None of them has the last word: a tag that may not come from
its source, or that the machine contradicts, does not count and is a `Doubt`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from fleet.catalogue import find_types
from fleet.catalogue.tables import MachineType
from fleet.schema.model import Fleet, Pool
from fleet.schema.rules import ProvidedBy
from fleet.tagrules.images import newest_version
from fleet.tagrules.numbers import Numbers, read_numbers
from fleet.tagrules.sizes import (
    BUILD_ARCH,
    CLASS,
    EXTERNAL_WORKER,
    INTERNAL_WORKER,
    classes_of,
    figures_of,
    is_about,
    names_of,
    native_architectures,
)
from fleet.tagrules.vocabulary import Path, Vocabulary

if TYPE_CHECKING:
    # Checks of fleet.yaml need this package and no facts.
    from fleet.facts.versions import ImageVersion


@dataclass(frozen=True)
class Provided:
    """A tag, what says that workers provide it, and the key of fleet.yaml that says so."""

    tag: str
    source: ProvidedBy
    path: Path = ()


@dataclass(frozen=True)
class Doubt:
    """A tag that does not count, and why."""

    kind: Literal["contradiction", "not-permitted"]
    tag: str
    because: str
    path: Path = ()


@dataclass(frozen=True)
class Weighed:
    """What counts of all that was said."""

    tags: frozenset[str]
    numbers: Numbers
    doubts: tuple[Doubt, ...]


def pool_sources(
    fleet: Fleet, name: str, images: Iterable["ImageVersion"]
) -> tuple[Provided, ...]:
    """Return every tag that a pool's workers are said to provide, with who says so."""
    pool = fleet.pools[name]
    own = [
        Provided(tag, "pool", ("pools", name, "provides", number))
        for number, tag in enumerate(pool.provides)
    ]
    if not isinstance(pool, Pool):
        return tuple(own)
    image = list(_of_image(fleet, pool, images))
    return (*_of_machine(fleet, name, pool, {each.tag for each in image}), *image, *own)


def worker_sources(pool: Iterable[Provided], provides: Iterable[str]) -> tuple[Provided, ...]:
    """Return what a worker reports, beside what its pool says of the same tags and of numbers.

    The queue assigns by what the worker reports, so a plain tag that it lacks does not count.
    Figures are the machine's, whether or not the queue has a word for them.
    """
    reported = frozenset(provides)
    from_pool = [p for p in pool if p.tag in reported or (p.source == "machine" and "=" in p.tag)]
    return (*from_pool, *(Provided(tag, "worker") for tag in sorted(reported)))


def weigh(fleet: Fleet, name: str, provided: Iterable[Provided]) -> Weighed:
    """Return what counts of what was said about the workers of a pool."""
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


def _of_image(fleet: Fleet, pool: Pool, images: Iterable["ImageVersion"]) -> Iterator[Provided]:
    newest = newest_version(images, pool.image, pool.provider)
    image = fleet.images.get(pool.image)
    if newest and newest.provides:
        for tag in newest.provides:
            yield Provided(tag, "image", ("images", pool.image))
    elif image is not None:
        for number, tag in enumerate(image.provides):
            yield Provided(tag, "image", ("images", pool.image, "provides", number))


def _of_machine(
    fleet: Fleet, name: str, pool: Pool, manifest: Iterable[str]
) -> Iterator[Provided]:
    path = ("pools", name, "machine")
    yield Provided(EXTERNAL_WORKER, "machine", path)
    types, image = find_types(fleet, pool), fleet.images.get(pool.image)
    declared = (image.architecture,) if image else ()
    native = native_architectures(types) if types else declared
    booted = {tag.removeprefix(BUILD_ARCH) for tag in manifest if tag.startswith(BUILD_ARCH)}
    for architecture in native:
        # What an image lacks is no contradiction: the machine could do more.
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
        f"{each.tag} does not count: the {each.source} provides it, but {key} "
        f"lets only {may} provide it"
    )
    return Doubt("not-permitted", each.tag, because, each.path or path)


def _contradiction(
    fleet: Fleet, each: Provided, types: tuple[MachineType, ...], classes: tuple[str, ...]
) -> Doubt | None:
    """Say whether the machine contradicts what something else says of it."""
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
            because = f"machine {name} reaches of the classes in sizes: {reached}"
    elif each.tag == INTERNAL_WORKER:
        because = f"workers of pools are {EXTERNAL_WORKER}"
    if not because:
        return None
    said = f"{each.tag} does not count: the {each.source} says so, but {because}"
    return Doubt("contradiction", each.tag, said, each.path)


def _weigh_numbers(
    vocabulary: Vocabulary, counted: Iterable[Provided]
) -> tuple[frozenset[str], Numbers, tuple[Doubt, ...]]:
    """Return plain tags, one number for each name, and the statements that differ.

    Of statements that agree the machine's counts, which is nominal; else the lowest.
    """
    plain: set[str] = set()
    said: defaultdict[str, list[tuple[Decimal, Provided]]] = defaultdict(list)
    for each in counted:
        tags, numbers = read_numbers([each.tag], vocabulary.numeric)
        plain |= tags
        for name, number in numbers:
            said[name].append((number, each))
    found: list[tuple[str, Decimal]] = []
    doubts: list[Doubt] = []
    for name, statements in sorted(said.items()):
        nominal, first = next(
            ((n, p) for n, p in statements if p.source == "machine"), statements[0]
        )
        differing = [(n, p) for n, p in statements if not is_about(n, nominal)]
        lowest = min(number for number, _ in statements)
        found.append((name, lowest if differing else nominal))
        for number, each in differing:
            because = (
                f"{name} counts as {lowest:f}: the {each.source} says {number:f}, "
                f"the {first.source} {nominal:f}"
            )
            doubts.append(Doubt("contradiction", each.tag, because, each.path))
    return frozenset(plain), tuple(found), tuple(doubts)
