"""Which version of an image a new machine boots, and which comes next by `images.NAME.promote`.

Only a version that is newer than all that were ever in use comes next: one that was taken back,
and what is older than it, waits for a person.

That is the pinned one, else the current one, the newest first where there are several. One that
did not come up is stopped by `guards.boot_failures`, and with `fall_back: previous-image` the
version before it takes its place. A candidate takes its share of the pool's workers beside it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from fleet.model.facts import Attempt, Demand, QueueReading, Unknown, World
from fleet.model.images import (
    BOOTABLE,
    ImageVersion,
    Rental,
    WaitingVersion,
    describe_old_worker,
)
from fleet.model.plan import rates
from fleet.model.prices import bill, tariff_at
from fleet.planner.failures import Memory, Stopped, recall, stopped_images, write_time
from fleet.planner.inventory import PoolInventory, take_inventory
from fleet.schema.model import (
    ExistingImage,
    Fleet,
    HooksProvider,
    Pool,
    debusine_queues,
)
from fleet.schema.pools import Promote, Recipe
from fleet.schema.units import write_duration
from fleet.tagrules.sources import claimed_tags, newest_first

_USED = ("candidate", "current", "previous", "retired")


@dataclass(frozen=True)
class Standing:
    """The version of an image that comes next."""

    version: ImageVersion
    since: datetime
    becomes: Literal["candidate", "current"] | None = None
    """What it becomes now, unless it does not come up; None: it waits."""
    share: int = 0
    """Of each pool's workers in percent, as a candidate."""
    why: str = ""
    """Why it waits."""
    until: datetime | None = None
    """Until when; None where a person has to say."""

    @property
    def is_on_trial(self) -> bool:
        """Say whether it is a candidate that its boots decide about."""
        by_rule = self.becomes is not None or self.until is not None
        return self.version.state == "candidate" and by_rule

    @property
    def _command(self) -> str:
        name, version = self.version.image, self.version.version
        if self.version.state != "failed":
            return f"fleet image promote {name} {version}"
        if self.version.built_in is None:  # its build failed: nothing is there to test
            return f"fleet image build {name}"
        return f"fleet image test {name} {version}"

    def waiting(self, why: str = "") -> WaitingVersion:
        """Return what people are told of it while it waits."""
        name, version = self.version.image, self.version.version
        return WaitingVersion(
            image=name,
            version=version,
            state=self.version.state,
            share=self.version.share,
            since=self.since,
            until=self.until,
            because=why or self.why,
            command=self._command,
        )


def find_standing(
    fleet: Fleet,
    name: str,
    versions: Iterable[ImageVersion],
    queues: Mapping[str, QueueReading],
    now: datetime,
) -> Standing | None:
    """Return the version of an image that is promoted next.

    Returns None if there is no such version, if fleet.yaml pins one, or if fleet does not build
    the image. A version that gets no work from these queues is never promoted by a rule.
    """
    recipe = fleet.images[name]
    if not isinstance(recipe, Recipe):
        return None
    ours = [each for each in versions if each.image == name]
    candidate = _newest(each for each in ours if each.state == "candidate")
    fresh = _newest(_fresh(recipe, ours))
    rule = recipe.promotion
    # What is on trial is not given up for what is newer: that waits for the end of it.
    wanted = (candidate or fresh) if isinstance(rule, Promote) else (fresh or candidate)
    if recipe.version is not None or wanted is None or wanted.since is None:
        return _failed(ours) if recipe.version is None and wanted is None else None
    if why := _why_a_person(fleet, queues, recipe, wanted):
        return Standing(wanted, wanted.since, why=why)
    if not isinstance(rule, Promote) or not any(each.state == "current" for each in ours):
        return Standing(wanted, wanted.since, "current")
    if wanted is not candidate:
        return Standing(wanted, wanted.since, "candidate", rule.candidate)
    return _on_trial(wanted, wanted.since, rule, now)


def _why_a_person(
    fleet: Fleet, queues: Mapping[str, QueueReading], recipe: Recipe, wanted: ImageVersion
) -> str:
    """Return why no rule moves a version on; empty where one does."""
    if recipe.promotion == "manual":
        return f"images.{wanted.image}.promote is manual"
    if why := _why_no_work(fleet, queues, wanted):
        return why
    if wanted.by_rule:
        return ""
    if wanted.state == "candidate":
        return "a person made it the candidate, no rule did"
    return "it was tested before fleet promoted versions automatically"


def _failed(ours: Sequence[ImageVersion]) -> Standing | None:
    """Return the newest version where it failed, with the reason; None where it is another."""
    newest = _newest(ours)
    if newest is None or newest.state != "failed" or newest.since is None or not newest.why:
        return None
    return Standing(newest, newest.since, why=f"it failed: {newest.why}")


def _why_no_work(fleet: Fleet, queues: Mapping[str, QueueReading], version: ImageVersion) -> str:
    """Return why no queue gives work to the worker of a version; empty: one may.

    A version whose jobs were never tried, and whose worker is unknown, may get work.
    """
    image = version.image
    if said := describe_old_worker(image, version.worker):
        return said
    serving = debusine_queues(fleet, image)
    if version.unproven is None or not serving:
        return ""
    claimed = claimed_tags(fleet.images.get(image), version)
    pools = [pool for pool in fleet.dynamic_pools.values() if pool.image == image]
    offered = {*version.provides, *claimed, *(tag for pool in pools for tag in pool.provides)}
    if not any(tag.startswith("worker:executor:") for tag in offered):
        unproven = ", ".join(version.unproven) or "no executor is enabled"
        return (
            f"no executor of it was proven, so queue {serving[0]} gives it no work (unproven: "
            f"{unproven}); test it on a machine that runs the jobs, or write the tags into "
            f"images.{image}.provides"
        )
    return _other_versions(serving, queues, offered)


def _other_versions(
    serving: Iterable[str], queues: Mapping[str, QueueReading], offered: Iterable[str]
) -> str:
    """Return which tasks the queues ask for in other versions; empty where any is the same."""
    has = {_task_of(tag): tag for tag in offered if _task_of(tag)}
    other = ""
    for name in sorted(serving):
        demand = queues[name].demand if name in queues else None
        for request in demand.requests if isinstance(demand, Demand) else ():
            for tag in request.required:
                own = has.get(_task_of(tag))
                if own == tag:
                    return ""
                if own is not None:
                    other = other or f"queue {name} asks for {tag}, and its worker has {own}"
    return other


def _task_of(tag: str) -> str:
    """Return a versioned task's tag without its version; empty for any other tag."""
    task, found, _ = tag.partition(":version:")
    return task if found and task.startswith("worker:task:") else ""


def _on_trial(version: ImageVersion, since: datetime, rule: Promote, now: datetime) -> Standing:
    until = since + timedelta(seconds=rule.after)
    if now >= until:
        return Standing(version, since, "current")
    after = f"images.{version.image}.promote.after is {write_duration(rule.after)}"
    why = f"becomes current at {until:%Y-%m-%d %H:%M} UTC if its machines boot ({after})"
    return Standing(version, since, why=why, until=until)


def _newest(versions: Iterable[ImageVersion]) -> ImageVersion | None:
    return max(versions, key=lambda each: each.version, default=None)


def _fresh(recipe: Recipe, ours: Sequence[ImageVersion]) -> Iterable[ImageVersion]:
    """Return tested versions that are published everywhere and newer than all in use."""
    reached = max((each.version for each in ours if each.state in _USED), default="")
    return (
        each
        for each in ours
        if each.state == "tested"
        and each.version > reached
        and recipe.publish
        and each.ids.keys() >= set(recipe.publish)
    )


@dataclass(frozen=True)
class ImageChoice:
    """What a pool's next machine boots, and what it does not boot any more."""

    id: str = ""
    """The provider's own id; empty where nothing is published."""
    images: tuple[ImageVersion, ...] = ()
    """The version that it is, which what the pool offers rests on; none where it has none."""
    candidate: str = ""
    """Id of the version that takes its share of the pool's workers; empty where none does."""
    share: int = 0
    """The candidate's share in percent."""
    stopped: tuple[str, ...] = ()
    """Ids of newer versions that did not come up."""
    said: str = ""
    """What is wrong with the image, in a sentence; empty where nothing is."""
    closed: str = ""
    """Why no machine is made with it; empty when it may be."""
    until: datetime | None = None
    """When what closes it ends by itself, or a stopped newer version is tried again, if known."""
    path: tuple[str | int, ...] = ("guards", "boot_failures")
    """The key of fleet.yaml that decides that."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Id to what people call it, an image and a version of it, where that is known."""

    def share_of(self, workers: int) -> int:
        """Return how many of so many workers boot the candidate: one, or at most its share."""
        return max(1, workers * self.share // 100) if self.candidate else 0

    def name_of(self, booted: str) -> str:
        """Return what people call what a machine boots; its id if it has no known name."""
        return self.names.get(booted, booted)

    @property
    def ids(self) -> tuple[str, ...]:
        """Return what a machine may boot without being outdated, what comes next first."""
        return (self.id, *([self.candidate] if self.candidate else []), *self.stopped)


@dataclass(frozen=True)
class _Case:
    """The image of one pool, and all that decides about it."""

    fleet: Fleet
    world: World
    pool: Pool
    versions: Sequence[ImageVersion]
    """All of this image, wherever they are."""
    published: Sequence[ImageVersion]
    """Those at the pool's provider, the newest first."""
    stops: Callable[[str], Stopped | None]
    booted: Attempt | None
    """The latest boot after which a worker registered, of this image at this provider."""

    @property
    def pinned(self) -> str | None:
        """The version that fleet.yaml pins."""
        return self.fleet.images[self.pool.image].version

    @property
    def first(self) -> ImageVersion | None:
        """The version that this run promotes because none is current."""
        if not self.versions:
            return None
        fleet, world = self.fleet, self.world
        standing = find_standing(fleet, self.pool.image, self.versions, world.queues, world.time)
        if standing is None or standing.becomes != "current":
            return None
        return standing.version if self.pool.provider in standing.version.ids else None

    @property
    def can_fall_back(self) -> bool:
        """Whether the version before takes the place of one that does not come up."""
        return self.fleet.guards.boot_failures.fall_back == "previous-image"

    def name_of(self, booted: str) -> str:
        """Return the image with the version, or the provider's id, of what a machine boots."""
        known = [each.version for each in self.published if booted in each.ids.values()]
        name = next(iter(known), booted)
        return f"{self.pool.image} {name}" if name != self.pool.image else name

    @property
    def last_boot(self) -> str:
        """The version that booted last and when, as the end of a sentence."""
        if self.booted is None:
            return "no boot of this image is recorded"
        return f"last booted: {self.name_of(self.booted.image)} at {write_time(self.booted.at)}"

    @property
    def way_out(self) -> str:
        """The command or edit where nothing replaces an image, as the end of a sentence."""
        image, provider = self.pool.image, self.pool.provider
        able = [
            each
            for each in self.published
            if each.state in BOOTABLE and not self.stops(each.ids[provider])
        ]
        last = [each for each in able if self.booted and self.booted.image in each.ids.values()]
        if able:
            return f"`fleet image promote {image} {(last or able)[0].version}`"
        return describe_change(self.fleet, image, provider)

    @property
    def declared(self) -> str:
        """The id that fleet.yaml names; elsewhere than in a cloud an image goes by its name."""
        image = self.fleet.images[self.pool.image]
        if isinstance(image, ExistingImage):
            return image.existing.get(self.pool.provider, "")
        provider = self.fleet.providers[self.pool.provider]
        return "" if provider.has_images else self.pool.image


def choose_image(fleet: Fleet, world: World, memory: Memory, name: str) -> ImageChoice:
    """Return what the next machine of a pool boots."""
    pool = fleet.pools.get(name)
    if not isinstance(pool, Pool):
        return ImageChoice(images=world.versions)
    if isinstance(world.images, Unknown):
        because = f"the versions of its image are unknown: {world.images.unknown}"
        return ImageChoice(closed=because, path=("pools", name, "image"))
    case = _Case(
        fleet,
        world,
        pool,
        [each for each in world.images if each.image == pool.image],
        newest_first(world.images, pool.image, pool.provider),
        stopped_images(fleet.guards.boot_failures, memory, name),
        _find_last_boot(fleet, memory, pool),
    )
    names = {each.ids[pool.provider]: f"{each.image} {each.version}" for each in case.published}
    return replace(_choose(case), names=names) if names else _choose(case)


def describe_change(fleet: Fleet, image: str, provider: str) -> str:
    """Return what changes an image of which no other version is left: a command or an edit."""
    if not isinstance(fleet.images[image], ExistingImage):
        return f"`fleet image build {image}`"
    if isinstance(fleet.providers[provider], HooksProvider):
        return f"change what the command `new` of {provider} creates machines from"
    return f"edit images.{image}.existing.{provider} in fleet.yaml"


def _find_last_boot(fleet: Fleet, memory: Memory, pool: Pool) -> Attempt | None:
    """Return the latest boot of a pool's image at its provider; None where none is recorded."""
    if not memory.has_failures:
        return None
    boots = (
        attempt
        for name, other in fleet.dynamic_pools.items()
        if (other.image, other.provider) == (pool.image, pool.provider)
        for attempt in memory.by_pool.get(name, ())
        if attempt.result == "registered"
    )
    return max(boots, key=lambda each: (each.at, each.worker), default=None)


def describe_troubles(
    fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]
) -> dict[str, str]:
    """Return by pool what is wrong with its image; without inventories no machine counts."""
    memory = recall(fleet, world, inventories)
    said = {name: choose_image(fleet, world, memory, name).said for name in fleet.dynamic_pools}
    return {name: text for name, text in sorted(said.items()) if text}


def find_waiting(fleet: Fleet, world: World) -> dict[str, WaitingVersion]:
    """Return by image the newer version that no run promotes now, and why."""
    found = {
        name: find_standing(fleet, name, world.versions, world.queues, world.time)
        for name in sorted(fleet.images)
    }
    return {
        name: standing.waiting()
        for name, standing in found.items()
        if standing is not None and standing.becomes is None
    }


def images_by_pool(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory] | None = None
) -> dict[str, tuple[ImageVersion, ...]]:
    """Return for each pool the published version that what it offers rests on."""
    return {name: each.images for name, each in choose_images(fleet, world, inventory).items()}


def choose_images(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory] | None = None
) -> dict[str, ImageChoice]:
    """Return the image of the next machine of each pool."""
    memory = recall(fleet, world, inventory or take_inventory(fleet, world))
    return {name: choose_image(fleet, world, memory, name) for name in fleet.pools}


def _choose(case: _Case) -> ImageChoice:
    if case.pinned is not None:
        return _pinned(case, case.pinned)
    in_turn = [
        each for state in ("current", "previous") for each in case.published if each.state == state
    ]
    choice = _first(case, in_turn) if in_turn else _by_declaration(case)
    return choice if choice.closed else _with_candidate(case, choice)


def _pinned(case: _Case, pinned: str) -> ImageChoice:
    """Return the version that fleet.yaml pins, and no other in its place."""
    image = case.pool.image
    pin = f"image {image} is pinned to version {pinned} (images.{image}.version)"
    version = next((each for each in case.versions if each.version == pinned), None)
    path = ("images", image, "version")
    if version is None:
        return _unremembered(case, pinned, pin)
    if version.state not in BOOTABLE:
        said = f"{pin}, which is {version.state}: only tested versions boot"
        return replace(_closed(said), path=path)
    if case.pool.provider not in version.ids:
        said = f"{pin}, which is not published at provider {case.pool.provider}"
        return replace(_closed(said), path=path)
    booted = version.ids[case.pool.provider]
    if stop := case.stops(booted):
        return _closed(_pin_stopped(case, pin, stop), booted, version)
    return ImageChoice(booted, (version,))


def _unremembered(case: _Case, pinned: str, pin: str) -> ImageChoice:
    """Return the ids of fleet.yaml as the pinned version, while no version is remembered."""
    image, booted = case.pool.image, case.declared
    is_existing = isinstance(case.fleet.images[image], ExistingImage)
    if is_existing and not case.versions:
        if booted and (stop := case.stops(booted)):
            return _closed(_pin_stopped(case, pin, stop), booted)
        return ImageChoice(booted, names={booted: f"{image} {pinned}"})
    known = ", ".join(sorted(each.version for each in case.versions)) or "none"
    said = f"{pin}, which is not in the store; it has: {known}"
    if is_existing:
        said += f"; to remember the ids of fleet.yaml as it: `fleet image promote {image}`"
    return replace(_closed(said), path=("images", image, "version"))


def _pin_stopped(case: _Case, pin: str, stop: Stopped) -> str:
    image = case.pool.image
    return (
        f"{pin}, which {stop}; {case.last_boot}; a pinned version has no replacement: edit "
        f"images.{image}.version in fleet.yaml"
    )


def _first(case: _Case, in_turn: Iterable[ImageVersion]) -> ImageChoice:
    """Return the first version that comes up."""
    stopped, said, until = list[str](), list[str](), list[datetime]()
    for version in in_turn:
        booted = version.ids[case.pool.provider]
        stop = case.stops(booted)
        if stop is None:
            if stopped:
                said.append(f"new machines boot {version.image} {version.version} instead")
            said += _undeclared(case)
            told = "; ".join(said)
            ends = min(until, default=None)
            return ImageChoice(booted, (version,), stopped=tuple(stopped), said=told, until=ends)
        until.append(stop.until)
        said.append(f"image {version.image} {version.version} {stop}; {case.last_boot}")
        if not case.can_fall_back:
            return _closed("; ".join([*said, case.way_out]), booted, version, until=stop.until)
        stopped.append(booted)
    said += ["no earlier version is published", case.way_out]
    return _closed("; ".join(said), booted, version)


def _by_declaration(case: _Case) -> ImageChoice:
    """Return what fleet.yaml names, where no version was promoted and none is in this run."""
    if first := case.first:
        return _first(case, [first])
    image = case.declared
    if stop := case.stops(image):
        said = f"image {case.name_of(image)} {stop}; {case.last_boot}; {case.way_out}"
        return _closed(said, image, until=stop.until)
    if not image and any(each.state == "tested" for each in case.published):
        name = case.pool.image
        return ImageChoice(
            closed=f"no version of image {name} is promoted: fleet image promote {name}",
            path=("images", name),
        )
    return ImageChoice(image)


def _with_candidate(case: _Case, choice: ImageChoice) -> ImageChoice:
    """Add the candidate, where there is one that comes up."""
    version = next((each for each in case.published if each.state == "candidate"), None)
    if version is None:
        return choice
    booted = version.ids[case.pool.provider]
    stop = case.stops(booted)
    name = f"candidate {version.image} {version.version}"
    if stop is None:
        said = "; ".join(filter(None, [choice.said, _what_it_lacks(name, choice.images, version)]))
        return replace(choice, candidate=booted, share=version.share, said=said)
    # One on trial is retired in this run (`images.NAME.promote`), and not tried again.
    failed = (
        f"{name} {stop.said if version.by_rule else stop}; {case.last_boot}; no machine is "
        "created with it"
    )
    said = "; ".join(filter(None, [choice.said, failed]))
    return replace(choice, stopped=(*choice.stopped, booted), said=said)


def _what_it_lacks(name: str, current: Iterable[ImageVersion], candidate: ImageVersion) -> str:
    """Return which tags of the current version a candidate does not offer; empty: none."""
    offered = {tag for version in current for tag in version.provides}
    lacking = sorted(offered - {*candidate.provides})
    if not (candidate.provides and lacking):
        return ""
    return f"{name} does not report {', '.join(lacking)}, which the current version does"


def _undeclared(case: _Case) -> Iterator[str]:
    """Say where fleet.yaml names an image that was baked elsewhere and is not promoted."""
    image = case.fleet.images[case.pool.image]
    known = {version.ids[case.pool.provider] for version in case.published}
    if isinstance(image, ExistingImage) and case.declared and case.declared not in known:
        name = case.pool.image
        named = f"fleet.yaml names {case.declared}, which is not promoted"
        yield f"{named}: fleet image promote {name}"


def _closed(
    because: str,
    image: str = "",
    version: ImageVersion | None = None,
    *,
    until: datetime | None = None,
) -> ImageChoice:
    images = (version,) if version else ()
    return ImageChoice(image, images, said=because, closed=because, until=until)


_PLACES = {
    "disk": "on the computer that ran it",
    "instance": "on a machine at its provider",
    "debusine": "on a worker of a Debusine server",
}
_UNRENTED = {
    "disk": "no machine was rented",
    "instance": "its cost is unknown: the machine was not recorded",
    "debusine": "its cost is unknown here: the server has the worker",
}


def describe_rebuild(fleet: Fleet, versions: Iterable[ImageVersion], image: str) -> str:
    """Return what the newest build of an image took of which that is known, and what it cost."""
    timed = [each for each in versions if each.image == image and each.built_in is not None]
    last = max(timed, key=lambda each: each.version, default=None)
    if last is None or last.built_in is None:
        return "duration and cost of a build are unknown: none was timed"
    place = _PLACES.get(last.way, "place unknown")
    took = f"the last build took {write_duration(last.built_in)} ({place})"
    if not last.rentals:
        return f"{took}; {_UNRENTED.get(last.way, 'its cost is unknown')}"
    rented = ", ".join(
        f"{each.type} at {each.provider} for {write_duration(each.seconds)}"
        for each in last.rentals
    )
    cost = rental_cost(fleet, last.rentals)
    money = "at an unknown price"
    if cost is not None:
        money = f"which costs {rates([cost])[0]} {fleet.money.currency}"
    return f"{took}; it rented {rented}, {money}"


def rental_cost(fleet: Fleet, rentals: Iterable[Rental]) -> Decimal | None:
    """Return what such machines are billed today, in the currency of the file; None: unknown."""
    bills = [_bill(fleet, each) for each in rentals]
    known = [each for each in bills if each is not None]
    return sum(known, Decimal(0)) if len(known) == len(bills) else None


def _bill(fleet: Fleet, rental: Rental) -> Decimal | None:
    if rental.provider not in fleet.providers:
        return None
    tariff = tariff_at(fleet, rental.provider, rental.type, "on-demand")
    return None if tariff is None else bill(tariff, rental.seconds)
