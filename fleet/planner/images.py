"""Select the image version of new machines, and promote versions by `images.NAME.promote`.

A pool boots the version that fleet.yaml pins, else the newest current version.
`guards.boot_failures` stops a version that fails to boot; with `fall_back: previous-image` the
previous version replaces it. A share of the pool's workers boots the candidate, if any.

A rule promotes only versions that are newer than all versions ever in use. An operator has to
promote a rolled back version and older versions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from operator import attrgetter
from typing import Literal, NamedTuple

from fleet.guard.approvals import command_to_type, judge_approvals
from fleet.model.facts import Attempt, Demand, QueueReading, Unknown, World
from fleet.model.images import (
    BOOTABLE,
    ImageVersion,
    Rental,
    WaitingVersion,
    describe_old_worker,
    may_prove,
)
from fleet.model.orders import FLEET, Hold
from fleet.model.pool_limits import boot_of
from fleet.model.prices import bill, find_types, tariff_at
from fleet.model.values import rates
from fleet.planner.failures import (
    BOOT_MEMORY,
    BootAttempts,
    StoppedImage,
    join_stops,
    recall,
    stopped_boots,
)
from fleet.planner.inventory import PoolInventory, take_inventory
from fleet.schema.model import (
    ExistingImage,
    Fleet,
    HooksProvider,
    ImageRecipe,
    Pool,
    Promote,
    Recipe,
    debusine_queues,
)
from fleet.schema.units import write_duration
from fleet.tagrules.offers import Mismatch
from fleet.tagrules.sources import claimed_tags, newest_first
from fleet.words import guards
from fleet.words import images as words
from fleet.words.lives import join

_MMDEBSTRAP = "worker:cap:mmdebstrap"
"""Tag of workers that run mmdebstrap and simplesystemimagebuild tasks without an executor."""
_USED_STATES = ("candidate", "current", "previous", "retired")


@dataclass(frozen=True)
class NextVersion:
    """The next version of an image to promote, with the state of its promotion."""

    version: ImageVersion
    since: datetime
    becomes: Literal["candidate", "current"] | None = None
    """State after this run's promotion; None if the version waits."""
    share: int = 0
    """Percent of each pool's workers that boot the version as a candidate."""
    why: str = ""
    """The reason why the version waits."""
    until: datetime | None = None
    """End of the wait; None if an operator has to decide."""

    @property
    def is_on_trial(self) -> bool:
        """Return True if the version is a candidate that a rule promotes if its boots work."""
        by_rule = self.becomes is not None or self.until is not None
        return self.version.state == "candidate" and by_rule

    def waiting(self, why: str = "") -> WaitingVersion:
        """Return the version's entry in the list of waiting versions, with `why` if not empty."""
        name, version = self.version.image, self.version.version
        command = f"fleet image promote {name} {version}"
        if self.version.state == "failed":
            # If its build failed, it cannot be tested.
            is_built = self.version.built_in is not None
            command = (
                f"fleet image test {name} {version}" if is_built else f"fleet image build {name}"
            )
        return WaitingVersion(
            image=name,
            version=version,
            state=self.version.state,
            share=self.version.share,
            since=self.since,
            until=self.until,
            because=why or self.why,
            command=command,
        )


def find_standing(
    fleet: Fleet,
    name: str,
    versions: Iterable[ImageVersion],
    queues: Mapping[str, QueueReading],
    now: datetime,
) -> NextVersion | None:
    """Return the next version of an image to promote, and its state of promotion.

    None if there is no such version, if fleet.yaml pins a version, or if fleet does not build the
    image. A rule never promotes a version to which these queues assign no work.
    """
    recipe = fleet.images[name]
    if not isinstance(recipe, Recipe):
        return None
    ours = [version for version in versions if version.image == name]
    candidate = _newest(version for version in ours if version.state == "candidate")
    reached = max((each.version for each in ours if each.state in _USED_STATES), default="")
    fresh = _newest(
        version
        for version in ours
        if version.state == "tested"
        and version.version > reached
        and recipe.publish
        and version.ids.keys() >= set(recipe.publish)
    )
    rule = recipe.promotion
    # A newer version does not replace a candidate before the trial ends.
    wanted = (candidate or fresh) if isinstance(rule, Promote) else (fresh or candidate)
    if recipe.version is not None or wanted is None or wanted.since is None:
        return _newest_if_failed(ours) if recipe.version is None and wanted is None else None
    if why := _explain_manual(fleet, queues, recipe, wanted):
        return NextVersion(wanted, wanted.since, why=why)
    if not isinstance(rule, Promote) or not any(version.state == "current" for version in ours):
        return NextVersion(wanted, wanted.since, "current")
    if wanted is not candidate:
        return NextVersion(wanted, wanted.since, "candidate", rule.candidate)
    until = wanted.since + timedelta(seconds=rule.after)
    why = words.explain_trial(until, wanted.image, rule.after)
    waiting = NextVersion(wanted, wanted.since, why=why, until=until)
    return waiting if now < until else NextVersion(wanted, wanted.since, "current")


def _explain_manual(
    fleet: Fleet, queues: Mapping[str, QueueReading], recipe: Recipe, wanted: ImageVersion
) -> str:
    """Return why an operator has to promote a version; empty if a rule may promote it."""
    if recipe.promotion == "manual":
        return words.explain_manual(wanted.image)
    if why := _explain_no_work(fleet, queues, wanted):
        return why
    if wanted.by_rule:
        return ""
    if wanted.state == "candidate":
        return words.UNPROMOTED_BY_PERSON
    return words.TESTED_EARLIER


def _newest_if_failed(ours: Sequence[ImageVersion]) -> NextVersion | None:
    """Return the newest version with the reason of its failure; None if it did not fail."""
    newest = _newest(ours)
    if newest is None or newest.state != "failed" or newest.since is None or not newest.why:
        return None
    return NextVersion(newest, newest.since, why=words.explain_failed(newest.why))


def _explain_no_work(
    fleet: Fleet, queues: Mapping[str, QueueReading], version: ImageVersion
) -> str:
    """Return why no queue assigns work to a version's workers; empty if a queue may.

    A queue may assign work to a version with untested jobs and an unknown worker version.
    """
    image = version.image
    if message := describe_old_worker(image, version.worker):
        return message
    serving = debusine_queues(fleet, image)
    if version.unproven is None or not serving:
        return ""
    claimed = claimed_tags(fleet.images.get(image), version)
    pools = [pool for pool in fleet.dynamic_pools.values() if pool.image == image]
    offered = {*version.provides, *claimed, *(tag for pool in pools for tag in pool.provides)}
    if not any(tag.startswith(("worker:executor:", _MMDEBSTRAP)) for tag in offered):
        return words.explain_no_executor(serving[0], version.unproven, image)
    return _other_versions(serving, queues, offered)


def _other_versions(
    serving: Iterable[str], queues: Mapping[str, QueueReading], offered: Iterable[str]
) -> str:
    """Explain that queues require other versions of the tasks; empty if a version matches."""
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
                    other = other or words.explain_other_task(name, tag, own)
    return other


def _task_of(tag: str) -> str:
    """Return the part of a tag before `:version:`; empty for tags of other kinds."""
    task, found, _ = tag.partition(":version:")
    return task if found and task.startswith("worker:task:") else ""


def _newest(versions: Iterable[ImageVersion]) -> ImageVersion | None:
    return max(versions, key=lambda each: each.version, default=None)


@dataclass(frozen=True)
class ImageChoice:
    """The image that the next machine of a pool boots, and the images that are excluded."""

    id: str = ""
    """The provider's image id; empty if no image is published."""
    images: tuple[ImageVersion, ...] = ()
    """The versions with this id, which determine the tags that workers offer; empty if unknown."""
    candidate: str = ""
    """Image id that a share of the pool's workers boots; empty without a candidate."""
    share: int = 0
    """Percent of the pool's workers that boot the candidate."""
    stopped: tuple[str, ...] = ()
    """Image ids of newer versions that failed to boot."""
    problem: str = ""
    """The problem of the image as a sentence; empty without problems."""
    fix: str = ""
    """The first command or edit that helps with the problem; empty if unknown."""
    closed: str = ""
    """The reason why no machine is created with the image; empty if allowed."""
    until: datetime | None = None
    """Time of the next boot of a closed image or of a stopped newer version; None if unknown."""
    path: tuple[str | int, ...] = ("guards", "boot_failures")
    """The key of fleet.yaml that closes the image."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Image id to image name and version; only known ids."""
    failing: Mapping[str, tuple[str, datetime]] = field(default_factory=dict)
    """Machine types on which only the guard stops the image, with the reason and retry time."""
    on_trial: Mapping[str, StoppedImage] = field(default_factory=dict)
    """Machine types on which the guard would stop the image, without an approval."""
    approved: int = 0
    """Number of machines of these types that approvals let pass."""
    is_tried: bool = False
    """An approval let the closed image boot; its machines are possibly still booting."""

    def share_of(self, workers: int) -> int:
        """Return how many of `workers` boot the candidate: at least 1; 0 without a candidate."""
        return max(1, workers * self.share // 100) if self.candidate else 0

    def name_of(self, booted: str) -> str:
        """Return the image name and version of an image id; the id if its name is unknown."""
        return self.names.get(booted, booted)

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the image ids of machines that are not outdated, the next to boot first."""
        return (self.id, *([self.candidate] if self.candidate else []), *self.stopped)


class _BootCause(NamedTuple):
    """The suspected cause of failed boots, and the remedies, as parts of a sentence."""

    suspect: str
    fix: str
    """The remedy as a command to type, or as an edit."""
    approve: str
    """The command that lets machines pass when the cause is mended."""

    @property
    def remedies(self) -> str:
        """Return both remedies, with commands in backticks."""
        return join(f"`{self.fix}`" if self.fix.startswith("fleet ") else self.fix, self.approve)


class _ImageCase:
    """The image of one pool, with all facts that decide its version."""

    def __init__(
        self,
        fleet: Fleet,
        world: World,
        memory: BootAttempts,
        pool: Pool,
        name: str,
    ) -> None:
        """Collect the versions of a pool's image; `name` is the name of the pool."""
        self.fleet, self.world, self.pool, self.name = fleet, world, pool, name
        self._memory = memory
        self.image = fleet.images[pool.image]
        self.versions = [each for each in world.versions if each.image == pool.image]
        """All versions of the image, at any provider."""
        self.published = newest_first(world.versions, pool.image, pool.provider)
        """The versions of the image at the pool's provider, newest first."""
        self.stopped = stopped_boots(fleet.guards.boot_failures, memory, name)
        """Image id to the machine types on which the guard stops it in this pool."""
        pinned = {self.declared: self.image.version} if self.image.version else {}
        ids = {each.ids[pool.provider]: each.version for each in self.published} or pinned
        self.names = {known: f"{pool.image} {version}" for known, version in ids.items()}
        """Image id to image name and version; only known ids."""
        approvals = judge_approvals(fleet, world, fleet.pools) if self.stopped else ()
        self.approvals = [
            each for each in approvals if (each.guard, each.pool) == ("boot_failures", name)
        ]
        """The approvals of the guard for this pool."""

    @property
    def declared(self) -> str:
        """Return the image id in fleet.yaml; the image name if the provider has no images."""
        if isinstance(self.image, ExistingImage):
            return self.image.existing.get(self.pool.provider, "")
        return "" if self.fleet.providers[self.pool.provider].has_images else self.pool.image

    @property
    def in_turn(self) -> list[ImageVersion]:
        """Return the versions that the pool may boot, the preferred version first."""
        if pinned := self.image.version:
            return [each for each in self.published if each.version == pinned]
        states = ("current", "previous")
        in_turn = [each for state in states for each in self.published if each.state == state]
        if in_turn or not self.versions:
            return in_turn
        fleet, world = self.fleet, self.world
        first = find_standing(fleet, self.pool.image, self.versions, world.queues, world.time)
        is_first = first is not None and first.becomes == "current"
        return [each for each in self.published if is_first and first and each == first.version]

    def name_of(self, booted: str) -> str:
        """Return the image name with the version of an image id, or with the id if unknown."""
        image = self.pool.image
        return self.names.get(booted, f"{image} {booted}" if booted != image else image)

    @property
    def approved(self) -> int:
        """Return the number of machines that approvals let pass now."""
        return sum(each.left for each in self.approvals)

    def failing(self, booted: str) -> dict[str, StoppedImage]:
        """Return the pool's machine types on which the guard stops an image."""
        stops = self.stopped.get(booted, {})
        kinds = [known.name for known in find_types(self.fleet, self.pool)] if stops else []
        return {kind: stops[kind] for kind in kinds if kind in stops}

    def is_dead(self, booted: str) -> bool:
        """Return whether the guard stops an image on every machine type of the pool."""
        failing = self.failing(booted)
        return bool(failing) and len(failing) == len(find_types(self.fleet, self.pool))

    def stops(self, booted: str) -> StoppedImage | None:
        """Return the failures of an image that the guard stops on every type; None otherwise.

        An approval lets the pool boot the image again.
        """
        if self.approved or not self.is_dead(booted):
            return None
        return join_stops([*self.failing(booted).values()])

    @cached_property
    def boots(self) -> list[Attempt]:
        """The successful boots of the image at the pool's provider, latest first."""
        own = self.pool.image, self.pool.provider
        boots = [
            attempt
            for other, each in self.fleet.dynamic_pools.items()
            if (each.image, each.provider) == own
            for attempt in self._memory.by_pool.get(other, ())
            if attempt.result == "registered"
        ]
        return sorted(boots, key=attrgetter("at", "worker"), reverse=True)

    @property
    def last_boot(self) -> str:
        """Return the version and time of the last good boot, as the end of a sentence."""
        if not self.boots:
            return words.NO_BOOT
        return words.describe_boot(self.name_of(self.boots[0].image), self.boots[0].at)

    def diagnose(self, booted: str, stop: StoppedImage) -> _BootCause:
        """Return the suspected cause of a stop, and the remedies.

        If the image booted recently on another machine type or in another pool, or booted here
        before the failures, the image is not the cause.
        """
        approve = words.advise_approval(command_to_type("boot_failures", self.name, stop.retries))
        if self.approvals:
            approve = join(guards.describe_approvals(self.approvals, 0), approve)
        since = self.world.time - BOOT_MEMORY
        for boot in self.boots:
            if boot.image == booted and boot.at > since:
                kinds = [count.type for count in stop.counts]
                suspect = words.suspect_machine(self.name, kinds, boot)
                return _BootCause(suspect, self._find_console(stop), approve)
        return _BootCause(self.last_boot, self._find_way_out(), approve)

    def _find_console(self, stop: StoppedImage) -> str:
        """Return the command for the console of a failed machine, or the edit to keep one."""
        orders = () if isinstance(self.world.orders, Unknown) else self.world.orders
        held = {each.machine for each in orders if isinstance(each, Hold) and each.by == FLEET}
        if shown := [name for name in stop.failed if name in held]:
            return f"fleet machine console {shown[0]}"
        keeps = boot_of(self.pool).on_failure
        return words.HOLDS_NEXT if keeps and keeps.hold else words.advise_keeping(self.name)

    def _find_way_out(self) -> str:
        """Return the command or edit that makes the image bootable."""
        image, provider = self.pool.image, self.pool.provider
        if self.image.version:
            return words.advise_pin(image)
        able = [
            version
            for version in self.published
            if version.state in BOOTABLE and not self.is_dead(version.ids[provider])
        ]
        last = [v for v in able if self.boots and self.boots[0].image in v.ids.values()]
        if able:
            return f"fleet image promote {image} {(last or able)[0].version}"
        return describe_change(self.fleet, image, provider).strip("`")


def choose_image(fleet: Fleet, world: World, memory: BootAttempts, name: str) -> ImageChoice:
    """Return the image that the next machine of a pool boots."""
    pool = fleet.dynamic_pool(name)
    if pool is None:
        return ImageChoice(images=world.versions)
    if isinstance(world.images, Unknown):
        unknown = words.explain_unknown_versions(world.images.unknown)
        return ImageChoice(closed=unknown, path=("pools", name, "image"))
    case = _ImageCase(fleet, world, memory, pool, name)
    choice = _choose_first_working(case)
    if not choice.closed and not case.image.version:
        choice = _add_candidate(case, choice)
    choice = _mark_types(case, choice) if case.stopped else choice
    return replace(choice, names=case.names) if case.names else choice


def _mark_types(case: _ImageCase, choice: ImageChoice) -> ImageChoice:
    """Add the machine types on which the chosen image fails to boot, though the pool boots it."""
    failing, name = case.failing(choice.id), case.name_of(choice.id)
    if choice.closed or not failing:
        return replace(choice, is_tried=bool(choice.closed and case.approvals))
    if not case.approved:
        closed = {}
        for kind, stop in failing.items():
            cause = case.diagnose(choice.id, stop)
            why = join(words.explain_stopped(name, stop.said), cause.suspect, cause.remedies)
            closed[kind] = why, stop.until
        return replace(choice, failing=closed)
    summary = words.explain_stopped(name, join_stops([*failing.values()]).summary)
    problem = join(summary, guards.describe_approvals(case.approvals, 0), choice.problem)
    return replace(choice, on_trial=failing, approved=case.approved, problem=problem)


def describe_change(fleet: Fleet, image: str, provider: str) -> str:
    """Return the command or edit that replaces an image without another version."""
    if not isinstance(fleet.images[image], ExistingImage):
        return f"`fleet image build {image}`"
    if isinstance(fleet.providers[provider], HooksProvider):
        return f"change what the command `new` of {provider} creates machines from"
    return f"edit images.{image}.existing.{provider} in fleet.yaml"


def find_image_troubles(
    fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]
) -> dict[str, ImageChoice]:
    """Map each pool whose image has a problem to its image, with the problem and the remedy.

    Without inventories, results of boots that are not recorded yet do not count.
    """
    memory = recall(fleet, world, inventories)
    found = {n: choose_image(fleet, world, memory, n) for n in sorted(fleet.dynamic_pools)}
    return {name: choice for name, choice in found.items() if choice.problem}


def find_waiting(fleet: Fleet, world: World) -> dict[str, WaitingVersion]:
    """Map image to the newer version that waits for promotion; omit all other images."""
    return {
        name: standing.waiting()
        for name in sorted(fleet.images)
        if (standing := find_standing(fleet, name, world.versions, world.queues, world.time))
        and standing.becomes is None
    }


class Unproven(NamedTuple):
    """A pool whose image fleet builds but has not published."""

    pool: Pool
    recipe: ImageRecipe

    def may_prove(self, mismatch: Mismatch) -> bool:
        """Return True if a first image version could provide all missing tags."""
        missing, recipe = mismatch.missing, self.recipe
        if not missing or mismatch != Mismatch(missing):
            return False
        return all(may_prove(recipe.enable_backends, recipe.enable_tasks, tag) for tag in missing)


def find_unproven(fleet: Fleet, world: World) -> dict[str, Unproven]:
    """Return, by name, pools whose image fleet builds but has not published at their provider."""
    return {
        name: Unproven(pool, recipe)
        for name, pool in sorted(fleet.dynamic_pools.items())
        if isinstance(recipe := fleet.images[pool.image], ImageRecipe)
        and not newest_first(world.versions, pool.image, pool.provider)
    }


def images_by_pool(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory] | None = None
) -> dict[str, tuple[ImageVersion, ...]]:
    """Map each pool to the image versions that determine the tags of its workers."""
    return {name: each.images for name, each in choose_images(fleet, world, inventory).items()}


def choose_images(
    fleet: Fleet, world: World, inventory: Mapping[str, PoolInventory] | None = None
) -> dict[str, ImageChoice]:
    """Map each pool to the image that its next machine boots."""
    memory = recall(fleet, world, inventory or take_inventory(fleet, world))
    return {name: choose_image(fleet, world, memory, name) for name in fleet.pools}


def _explain_pin(case: _ImageCase, pinned: str) -> str:
    """Return why no machine can boot the pinned version; empty if one can."""
    image, provider = case.pool.image, case.pool.provider
    pin = words.describe_pin(image, pinned)
    version = next((each for each in case.versions if each.version == pinned), None)
    if version is None:
        is_existing = isinstance(case.image, ExistingImage)
        if is_existing and not case.versions:
            return ""  # fleet.yaml states the id of the pinned version
        known = (each.version for each in case.versions)
        return words.explain_pin_unrecorded(pin, sorted(known), image if is_existing else "")
    if version.state not in BOOTABLE:
        return words.explain_pin_state(pin, version.state)
    return "" if provider in version.ids else words.explain_pin_unpublished(pin, provider)


def _choose_first_working(case: _ImageCase) -> ImageChoice:
    """Return the first version that boots; if all fail, a choice that creates no machine.

    Without a promoted version, this is the image id in fleet.yaml.
    """
    image, provider, pinned = case.pool.image, case.pool.provider, case.image.version
    if pinned and (refused := _explain_pin(case, pinned)):
        path = ("images", image, "version")
        return ImageChoice(problem=refused, closed=refused, path=path)
    versions = case.in_turn
    tries: list[tuple[str, tuple[ImageVersion, ...]]]
    tries = [(each.ids[provider], (each,)) for each in versions] or [(case.declared, ())]
    if not tries[0][0] and any(each.state == "tested" for each in case.published):
        return ImageChoice(closed=words.explain_unpromoted(image), path=("images", image))
    rule = case.fleet.guards.boot_failures
    falls_back = bool(versions) and not pinned and rule.fall_back == "previous-image"
    stops = list[StoppedImage]()
    for booted, own in tries if falls_back else tries[:1]:  # noqa: B007 - used afterwards
        stop = case.stops(booted)
        if stop is None:
            break
        stops.append(stop)
    is_closed = stop is not None
    messages = [
        words.explain_stopped(case.name_of(known), each.said)
        for (known, _), each in zip(tries, stops, strict=False)
    ]
    messages += [words.NO_EARLIER] if is_closed and falls_back else []
    closed, fix = join(*messages) if is_closed else "", ""
    if stops:
        cause = case.diagnose(tries[0][0], stops[0])
        fallen = [words.describe_fall_back(case.name_of(booted)), cause.approve]
        messages += [cause.suspect, *([cause.remedies] if is_closed else fallen)]
        fix = cause.fix
    if versions and not pinned and not is_closed:
        messages += _unpromoted_ids(case)
    return ImageChoice(
        id=booted,
        images=own,
        stopped=() if is_closed else tuple(known for known, _ in tries[: len(stops)]),
        problem=join(*messages),
        fix=fix,
        closed=closed,
        until=min((each.until for each in stops), default=None),
    )


def _add_candidate(case: _ImageCase, choice: ImageChoice) -> ImageChoice:
    """Add the candidate to a choice, unless the candidate fails to boot."""
    version = next((each for each in case.published if each.state == "candidate"), None)
    if version is None:
        return choice
    booted = version.ids[case.pool.provider]
    failing = case.failing(booted)
    if not failing:
        offered = {tag for each in choice.images for tag in each.provides}
        lacking = sorted(offered - {*version.provides}) if version.provides else []
        missing = (
            words.describe_missing_tags(version.image, version.version, lacking) if lacking else ""
        )
        problem = join(choice.problem, missing)
        return replace(choice, candidate=booted, share=version.share, problem=problem)
    stop = join_stops([*failing.values()])
    # This run retires a failed candidate of a rule (`images.NAME.promote`): name no retry time.
    why = stop.summary if version.by_rule else stop.said
    problem = join(
        choice.problem,
        words.explain_candidate_stopped(version.image, version.version, why, case.last_boot),
    )
    return replace(choice, stopped=(*choice.stopped, booted), problem=problem)


def _unpromoted_ids(case: _ImageCase) -> Iterator[str]:
    """Yield a message if fleet.yaml names an existing image that machines do not boot.

    No message after `fleet image rollback`, which retires the version that fleet.yaml names.
    """
    image = case.image
    if not isinstance(image, ExistingImage) or not case.declared:
        return
    ids = {version.version: version.ids[case.pool.provider] for version in case.published}
    named = [each for each in case.published if ids[each.version] == case.declared]
    if not named:
        yield words.describe_declared(case.declared, case.pool.image)
        return
    version = max(named, key=lambda each: each.version)
    current = max((v.version for v in case.published if v.state == "current"), default="")
    is_earlier = version.state == "retired" and version.version < current
    # If a version is pinned, machines boot the pinned version.
    if current and image.version is None and (version.state == "previous" or is_earlier):
        yield words.describe_earlier(case.declared, ids[current], case.pool.image)


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
    """Describe the duration and cost of the newest build of an image, as far as known."""
    timed = [
        version for version in versions if version.image == image and version.built_in is not None
    ]
    last = max(timed, key=lambda each: each.version, default=None)
    if last is None or last.built_in is None:
        return "duration and cost of a build are unknown: no build was timed"
    place = _PLACES.get(last.way, "place unknown")
    took = f"the last build took {write_duration(last.built_in)} ({place})"
    if not last.rentals:
        return f"{took}; {_UNRENTED.get(last.way, 'its cost is unknown')}"
    rented = ", ".join(
        f"{rental.type} at {rental.provider} for {write_duration(rental.seconds)}"
        for rental in last.rentals
    )
    cost = rental_cost(fleet, last.rentals)
    money = "at an unknown price"
    if cost is not None:
        money = f"which costs {rates([cost])[0]} {fleet.money.currency}"
    return f"{took}; it rented {rented}, {money}"


def rental_cost(fleet: Fleet, rentals: Iterable[Rental]) -> Decimal | None:
    """Return the bill of rented machines at current prices; None if a price is unknown."""
    bills = []
    for rental in rentals:
        is_known = rental.provider in fleet.providers
        tariff = tariff_at(fleet, rental.provider, rental.type, "on-demand") if is_known else None
        if tariff is None:
            return None
        bills.append(bill(tariff, rental.seconds))
    return sum(bills, Decimal(0))
