"""Images and their versions: places of publication, machines, and due steps."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from fleet.model.facts import Unknown, World
from fleet.model.images import DueImage, DueReport, ImageVersion, Version
from fleet.model.plan import Plan
from fleet.schema.model import ExistingImage, Fleet

_MAX_VERSIONS = 20
"""Maximum listed versions per image; versions that machines boot are listed additionally."""


class ShownVersion(NamedTuple):
    """A version of an image, with the number of machines that boot the version."""

    fact: ImageVersion
    record: Version | None
    """Record of its build; None in a recording of the world, which has no records."""
    is_pinned: bool
    machines: int


class ImageStory(NamedTuple):
    """An image: its machines, versions, and due steps."""

    image: str
    declared: str
    """Declaration in fleet.yaml: `recipe`, `existing`, or `no` if undeclared."""
    pools: tuple[str, ...]
    versions: tuple[ShownVersion, ...]
    """The versions, the newest first."""
    hidden: int
    due: DueImage | None
    """Due steps; None if unknown, or if no step is ever due."""
    commands: tuple[str, ...]
    """Commands for the due steps."""

    @property
    def current(self) -> ShownVersion | None:
        """Return the version that new machines boot: pinned, else current; None if unknown."""
        pinned = [each for each in self.versions if each.is_pinned]
        serving = [each for each in self.versions if each.fact.state == "current"]
        return next(iter((*pinned, *serving)), None)


def image_stories(
    fleet: Fleet,
    world: World,
    plan: Plan,
    records: Sequence[Version] = (),
    due: DueReport | None = None,
) -> tuple[ImageStory, ...] | Unknown:
    """Return all images, sorted by name; `records` adds build times and failures."""
    if isinstance(world.images, Unknown):
        return world.images
    known = {(each.image, each.version): each for each in records}
    booted = Counter(
        worker.image
        for worker in plan.workers
        if worker.verdict != "create" and not worker.inactive
    )
    dues = {each.image: each for each in due.images} if due else {}

    def story(name: str) -> ImageStory:
        image = fleet.images.get(name)
        ours = [each for each in world.versions if each.image == name]
        rows = [
            ShownVersion(
                each,
                known.get((name, each.version)),
                is_pinned=image is not None and each.version == image.version,
                machines=sum(booted[id_] for id_ in {*each.ids.values(), each.version}),
            )
            for each in sorted(ours, key=lambda each: each.version, reverse=True)
        ]
        return _story(fleet, name, rows, dues.get(name))

    return tuple(map(story, sorted({*fleet.images, *(each.image for each in world.images)})))


def _story(
    fleet: Fleet, name: str, rows: Sequence[ShownVersion], due: DueImage | None
) -> ImageStory:
    image = fleet.images.get(name)
    kept = [
        row
        for nth, row in enumerate(rows)
        if nth < _MAX_VERSIONS or row.machines or row.is_pinned or row.fact.state == "current"
    ]
    declared = "existing" if isinstance(image, ExistingImage) else "recipe"
    return ImageStory(
        image=name,
        declared=declared if image else "no",
        pools=tuple(
            pool for pool, found in sorted(fleet.dynamic_pools.items()) if found.image == name
        ),
        versions=tuple(kept),
        hidden=len(rows) - len(kept),
        due=due,
        commands=due.commands if due and due.is_due else (),
    )
