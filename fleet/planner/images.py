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
from fleet.model.plan import ApprovalVerdict
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
    why = words.explain_trial(wanted.image, until, rule.after)
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
        return words.explain_no_executor(image, serving[0], version.unproven)
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
    remedy: str
    fix: str
    """The remedy as a command to type, or as an edit."""
    approve: str
    """The command that lets machines pass when the cause is mended."""


@dataclass(frozen=True)
class _ImageCase:
    """The image of one pool, with all facts that decide its version."""

    fleet: Fleet
    world: World
    pool: Pool
    versions: Sequence[ImageVersion]
    """All versions of the image, at any provider."""
    published: Sequence[ImageVersion]
    """The versions of the image at the pool's provider, newest first."""
    stopped: Mapping[str, Mapping[str, StoppedImage]]
    """Image id to the machine types on which the guard stops it in this pool."""
    boots: Sequence[Attempt]
    """The successful boots of the image at the pool's provider."""
    approvals: Sequence[ApprovalVerdict]
    """The approvals of the guard for this pool."""
    name: str
    """The pool's name."""

    @property
    def first(self) -> ImageVersion | None:
        """Return the version that this run makes current; None if there is no such version."""
        if not self.versions:
            return None
        fleet, world = self.fleet, self.world
        standing = find_standing(fleet, self.pool.image, self.versions, world.queues, world.time)
        if standing is None or standing.becomes != "current":
            return None
        return standing.version if self.pool.provider in standing.version.ids else None

    def name_of(self, booted: str) -> str:
        """Return the image name with the version of an image id, or with the id if unknown."""
        known = [version.version for version in self.published if booted in version.ids.values()]
        name = next(iter(known), booted)
        return f"{self.pool.image} {name}" if name != self.pool.image else name

    @cached_property
    def types(self) -> tuple[str, ...]:
        """Return the names of the pool's machine types."""
        return tuple(known.name for known in find_types(self.fleet, self.pool))

    @property
    def approved(self) -> int:
        """Return the number of machines that approvals let pass now."""
        return sum(each.left for each in self.approvals)

    def failing(self, booted: str) -> dict[str, StoppedImage]:
        """Return the pool's machine types on which the guard stops an image."""
        stops = self.stopped.get(booted, {})
        return {kind: stops[kind] for kind in self.types if kind in stops}

    def stops(self, booted: str) -> StoppedImage | None:
        """Return the failures of an image that the guard stops on every type; None otherwise.

        An approval lets the pool boot the image again.
        """
        if self.approved or not self.is_dead(booted):
            return None
        return join_stops([*self.failing(booted).values()])

    def is_dead(self, booted: str) -> bool:
        """Return whether the guard stops an image on every machine type of the pool."""
        return bool(self.types) and len(self.failing(booted)) == len(self.types)

    @cached_property
    def booted(self) -> Attempt | None:
        """The latest successful boot of the image at the pool's provider."""
        return max(self.boots, key=_time_of, default=None)

    @property
    def last_boot(self) -> str:
        """Return the version and time of the last good boot, as the end of a sentence."""
        if self.booted is None:
            return words.NO_BOOT
        return words.describe_boot(self.name_of(self.booted.image), self.booted.at)

    def find_boot(self, booted: str) -> Attempt | None:
        """Return the latest boot of a failing image within the guard's memory; None without.

        Its machine type or pool differs from the failures, or it succeeded there before.
        """
        since = self.world.time - BOOT_MEMORY
        own = (each for each in self.boots if each.image == booted and each.at > since)
        return max(own, key=_time_of, default=None)

    def diagnose(self, booted: str, stop: StoppedImage) -> "_BootCause":
        """Return the suspected cause of a stop, and the remedies."""
        command = command_to_type("boot_failures", self.name, stop.retries)
        approve = words.advise_approval(command)
        if self.approvals:
            approve = join(guards.describe_approvals(self.approvals, 0), approve)
        if boot := self.find_boot(booted):
            kinds = [count.type for count in stop.counts]
            fix = self._find_console(stop)
            shown = f"`{fix}`" if fix.startswith("fleet ") else fix
            suspect = words.suspect_machine(self.name, kinds, boot)
            return _BootCause(suspect, shown, fix, approve)
        way_out = self.way_out
        return _BootCause(self.last_boot, way_out, way_out.strip("`"), approve)

    def _find_console(self, stop: StoppedImage) -> str:
        """Return the command for the console of a failed machine, or the edit to keep one."""
        orders = () if isinstance(self.world.orders, Unknown) else self.world.orders
        held = {each.machine for each in orders if isinstance(each, Hold) and each.by == FLEET}
        if shown := [name for name in stop.failed if name in held]:
            return f"fleet machine console {shown[0]}"
        keeps = boot_of(self.pool).on_failure
        return words.HOLDS_NEXT if keeps and keeps.hold else words.advise_keeping(self.name)

    @property
    def way_out(self) -> str:
        """Return the command or edit that makes the image bootable, as the end of a sentence."""
        image, provider = self.pool.image, self.pool.provider
        able = [
            version
            for version in self.published
            if version.state in BOOTABLE and not self.is_dead(version.ids[provider])
        ]
        last = [
            version
            for version in able
            if self.booted and self.booted.image in version.ids.values()
        ]
        if able:
            return words.describe_promotion(image, (last or able)[0].version)
        return describe_change(self.fleet, image, provider)

    @property
    def declared(self) -> str:
        """Return the image id in fleet.yaml; the image name if the provider has no images."""
        image = self.fleet.images[self.pool.image]
        if isinstance(image, ExistingImage):
            return image.existing.get(self.pool.provider, "")
        provider = self.fleet.providers[self.pool.provider]
        return "" if provider.has_images else self.pool.image


def choose_image(fleet: Fleet, world: World, memory: BootAttempts, name: str) -> ImageChoice:
    """Return the image that the next machine of a pool boots."""
    pool = fleet.pools.get(name)
    if not isinstance(pool, Pool):
        return ImageChoice(images=world.versions)
    if isinstance(world.images, Unknown):
        unknown = words.explain_unknown_versions(world.images.unknown)
        return ImageChoice(closed=unknown, path=("pools", name, "image"))
    stopped = stopped_boots(fleet.guards.boot_failures, memory, name)
    case = _ImageCase(
        fleet=fleet,
        world=world,
        pool=pool,
        versions=[each for each in world.images if each.image == pool.image],
        published=newest_first(world.images, pool.image, pool.provider),
        stopped=stopped,
        boots=[
            attempt
            for other, each in (fleet.dynamic_pools if stopped else {}).items()
            if (each.image, each.provider) == (pool.image, pool.provider)
            for attempt in memory.by_pool.get(other, ())
            if attempt.result == "registered"
        ],
        approvals=[
            each
            for each in (judge_approvals(fleet, world, fleet.pools) if stopped else ())
            if (each.guard, each.pool) == ("boot_failures", name)
        ],
        name=name,
    )
    names = {
        version.ids[pool.provider]: f"{version.image} {version.version}"
        for version in case.published
    }
    choice = _mark_types(case, _choose_for(case)) if stopped else _choose_for(case)
    return replace(choice, names=names) if names else choice


def _close_type(case: _ImageCase, booted: str, stop: StoppedImage) -> tuple[str, datetime]:
    """Return why no machine of one type is created, and the retry time."""
    cause = case.diagnose(booted, stop)
    stopped = words.explain_stopped(case.name_of(booted), stop.said)
    return join(stopped, cause.suspect, cause.remedy, cause.approve), stop.until


def _mark_types(case: _ImageCase, choice: ImageChoice) -> ImageChoice:
    """Add the machine types on which the chosen image fails to boot, though the pool boots it."""
    failing = case.failing(choice.id)
    if choice.closed or not failing:
        return replace(choice, is_tried=bool(choice.closed and case.approvals))
    if not case.approved:
        closed = {kind: _close_type(case, choice.id, stop) for kind, stop in failing.items()}
        return replace(choice, failing=closed)
    stop = join_stops([*failing.values()])
    summary = words.explain_stopped(case.name_of(choice.id), stop.summary)
    used = guards.describe_approvals(case.approvals, 0)
    problem = join(summary, used, choice.problem)
    return replace(choice, on_trial=failing, approved=case.approved, problem=problem)


def describe_change(fleet: Fleet, image: str, provider: str) -> str:
    """Return the command or edit that replaces an image without another version."""
    if not isinstance(fleet.images[image], ExistingImage):
        return f"`fleet image build {image}`"
    if isinstance(fleet.providers[provider], HooksProvider):
        return f"change what the command `new` of {provider} creates machines from"
    return f"edit images.{image}.existing.{provider} in fleet.yaml"


def _time_of(attempt: Attempt) -> tuple[datetime, str]:
    """Return a key that sorts attempts by time."""
    return attempt.at, attempt.worker


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
    found = {
        name: find_standing(fleet, name, world.versions, world.queues, world.time)
        for name in sorted(fleet.images)
    }
    return {
        name: standing.waiting()
        for name, standing in found.items()
        if standing is not None and standing.becomes is None
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


def _choose_for(case: _ImageCase) -> ImageChoice:
    if pinned := case.fleet.images[case.pool.image].version:
        return _choose_pinned(case, pinned)
    in_turn = [
        each for state in ("current", "previous") for each in case.published if each.state == state
    ]
    choice = _choose_first_working(case, in_turn) if in_turn else _choose_declared(case)
    return choice if choice.closed else _add_candidate(case, choice)


def _choose_pinned(case: _ImageCase, pinned: str) -> ImageChoice:
    """Return the pinned version; if it cannot boot, a choice that creates no machine."""
    image = case.pool.image
    pin = words.describe_pin(image, pinned)
    version = next((each for each in case.versions if each.version == pinned), None)
    path = ("images", image, "version")
    if version is None:
        return _choose_unrecorded_pin(case, pinned, pin)
    if version.state not in BOOTABLE:
        return replace(_close(words.explain_pin_state(pin, version.state)), path=path)
    if case.pool.provider not in version.ids:
        unpublished = words.explain_pin_unpublished(pin, case.pool.provider)
        return replace(_close(unpublished), path=path)
    booted = version.ids[case.pool.provider]
    if stop := case.stops(booted):
        return _close_pinned(case, pin, booted, stop, version)
    return ImageChoice(booted, (version,))


def _choose_unrecorded_pin(case: _ImageCase, pinned: str, pin: str) -> ImageChoice:
    """Return the image id in fleet.yaml as the pinned version, if no version is recorded."""
    image, booted = case.pool.image, case.declared
    is_existing = isinstance(case.fleet.images[image], ExistingImage)
    if is_existing and not case.versions:
        if booted and (stop := case.stops(booted)):
            return _close_pinned(case, pin, booted, stop)
        return ImageChoice(booted, names={booted: f"{image} {pinned}"})
    known = (version.version for version in case.versions)
    closed = words.explain_pin_unrecorded(pin, known, promote=image if is_existing else "")
    return replace(_close(closed), path=("images", image, "version"))


def _close_pinned(
    case: _ImageCase,
    pin: str,
    booted: str,
    stop: StoppedImage,
    version: ImageVersion | None = None,
) -> ImageChoice:
    cause = case.diagnose(booted, stop)
    closed = words.explain_pin_stopped(pin, stop.said)
    if case.find_boot(booted) is None:
        edit = words.advise_pin(case.pool.image)
        cause = cause._replace(remedy=edit, fix=edit)
    return _close(closed, booted, version, cause, until=stop.until)


def _close(
    closed: str,
    booted: str = "",
    version: ImageVersion | None = None,
    cause: _BootCause | None = None,
    *,
    until: datetime | None = None,
) -> ImageChoice:
    """Return the choice of an image that boots no machine, with the cause and the remedies."""
    return ImageChoice(
        booted,
        (version,) if version else (),
        problem=join(closed, cause.suspect, cause.remedy, cause.approve) if cause else closed,
        fix=cause.fix if cause else "",
        closed=closed,
        until=until,
    )


def _choose_first_working(case: _ImageCase, in_turn: Iterable[ImageVersion]) -> ImageChoice:
    """Return the first version that boots; if all fail, a choice that creates no machine."""
    stopped, messages, until = list[str](), list[str](), list[datetime]()
    cause = None
    for version in in_turn:
        booted = version.ids[case.pool.provider]
        stop = case.stops(booted)
        if stop is None:
            if cause:
                messages += [words.describe_fall_back(version), cause.approve]
            messages += _unpromoted_ids(case)
            ends = min(until, default=None)
            return ImageChoice(
                id=booted,
                images=(version,),
                stopped=tuple(stopped),
                problem=join(*messages),
                fix=cause.fix if cause else "",
                until=ends,
            )
        until.append(stop.until)
        closed = words.explain_stopped(f"{version.image} {version.version}", stop.said)
        found = case.diagnose(booted, stop)
        cause = cause or found
        if case.fleet.guards.boot_failures.fall_back != "previous-image":
            return _close(closed, booted, version, found, until=stop.until)
        messages.append(join(closed, found.suspect))
        stopped.append(booted)
    ends = min(until, default=None)
    choice = _close(join(*messages, words.NO_EARLIER), booted, version, until=ends)
    problem = join(choice.closed, *((cause.remedy, cause.approve) if cause else ()))
    return replace(choice, problem=problem, fix=cause.fix if cause else "")


def _choose_declared(case: _ImageCase) -> ImageChoice:
    """Return the image of a pool without promoted version: a first version or the declared id."""
    if first := case.first:
        return _choose_first_working(case, [first])
    image = case.declared
    if stop := case.stops(image):
        closed = words.explain_stopped(case.name_of(image), stop.said)
        return _close(closed, image, None, case.diagnose(image, stop), until=stop.until)
    if not image and any(version.state == "tested" for version in case.published):
        name = case.pool.image
        return ImageChoice(
            closed=words.explain_unpromoted(name),
            path=("images", name),
        )
    return ImageChoice(image)


def _add_candidate(case: _ImageCase, choice: ImageChoice) -> ImageChoice:
    """Add the candidate to a choice, unless the candidate fails to boot."""
    version = next((each for each in case.published if each.state == "candidate"), None)
    if version is None:
        return choice
    booted = version.ids[case.pool.provider]
    failing = case.failing(booted)
    if not failing:
        problem = join(choice.problem, _missing_tags(choice.images, version))
        return replace(choice, candidate=booted, share=version.share, problem=problem)
    stop = join_stops([*failing.values()])
    # This run retires a failed candidate of a rule (`images.NAME.promote`): name no retry time.
    why = stop.summary if version.by_rule else stop.said
    failed = words.explain_candidate_stopped(version, why, case.last_boot)
    problem = join(choice.problem, failed)
    return replace(choice, stopped=(*choice.stopped, booted), problem=problem)


def _missing_tags(current: Iterable[ImageVersion], candidate: ImageVersion) -> str:
    """Describe the tags of the current version that a candidate lacks; empty without such tags."""
    offered = {tag for version in current for tag in version.provides}
    lacking = sorted(offered - {*candidate.provides})
    if not (candidate.provides and lacking):
        return ""
    return words.describe_missing_tags(candidate, lacking)


def _unpromoted_ids(case: _ImageCase) -> Iterator[str]:
    """Yield a message if fleet.yaml names an existing image that machines do not boot.

    No message after `fleet image rollback`, which retires the version that fleet.yaml names.
    """
    image = case.fleet.images[case.pool.image]
    if not isinstance(image, ExistingImage) or not case.declared:
        return
    ids = {version.version: version.ids[case.pool.provider] for version in case.published}
    named = [each for each in case.published if ids[each.version] == case.declared]
    if not named:
        yield words.describe_declared(case.pool.image, case.declared)
        return
    version = max(named, key=lambda each: each.version)
    current = max((v.version for v in case.published if v.state == "current"), default="")
    is_earlier = version.state == "retired" and version.version < current
    is_pinned = image.version is not None  # machines boot the pinned version
    if current and not is_pinned and (version.state == "previous" or is_earlier):
        yield words.describe_earlier(case.pool.image, case.declared, ids[current])


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
