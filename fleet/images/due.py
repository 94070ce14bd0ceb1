"""Which images are due to be built, and why: age, changed recipe or role, newer packages.

A build that fails is tried again later and later; what was good before it goes on serving.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from pydantic import Field

from fleet.model.apt_sources import Source, version_key
from fleet.model.facts import Unknown
from fleet.model.images import BOOTABLE, Manifest, Package, Version, WaitingVersion, recipe_digest
from fleet.model.values import Moment, Value
from fleet.planner.images import describe_rebuild, find_standing
from fleet.schema.model import Fleet
from fleet.schema.pools import ImageRecipe, PlaybookRecipe, Recipe
from fleet.schema.units import write_duration

WORKER = "debusine-worker"
_ORIGIN = re.compile(r"(?P<suite>\S+)/(?P<component>[^/\s]+) at (?P<uri>\S+)")
_SECURITY = "-security"


class Update(Value):
    """A package that is newer in a source than in the image."""

    package: str
    installed: str
    available: str
    suite: str
    security: bool = Field(description="It is in a suite of security fixes.")


def sources_of(manifest: Manifest) -> tuple[Source, ...]:
    """Return where the packages of an image came from, and where fixes of them would be.

    Of a suite that had none yet, they are beside it: that is where mirrors have them.
    """
    found = {source for package in manifest.packages for source in _source(manifest, package)}
    if not any(source.suite.endswith(_SECURITY) for source in found):
        found |= {
            source._replace(uri=source.uri.rstrip("/") + _SECURITY, suite=source.suite + _SECURITY)
            for source in found
            if source.suite == manifest.suite
        }
    return tuple(sorted(found))


def find_updates(
    manifest: Manifest, offered: Mapping[Source, Mapping[str, str]]
) -> tuple[Update, ...]:
    """Return the worker where it is newer, and every package that a security fix has newer."""
    newer: dict[str, Update] = {}
    for source, versions in sorted(offered.items()):
        security = source.suite.endswith(_SECURITY)
        for package in manifest.packages:
            available = versions.get(package.name, "")
            known = newer.get(package.name)
            than = known.available if known else package.version
            wanted = security or package.name == WORKER
            if available and wanted and version_key(available) > version_key(than):
                newer[package.name] = Update(
                    package=package.name,
                    installed=package.version,
                    available=available,
                    suite=source.suite,
                    security=security,
                )
    return tuple(newer[name] for name in sorted(newer))


def _source(manifest: Manifest, package: Package) -> Iterator[Source]:
    matched = _ORIGIN.fullmatch(package.origin)
    if matched:
        yield Source(matched["uri"], matched["suite"], matched["component"], manifest.architecture)


BASE = timedelta(hours=1)
"""How long the first failure holds the next build back; each one after it doubles that."""
CAP = timedelta(hours=24)
"""How long any failure holds it back at most."""
LONGEST = timedelta(hours=6)
"""A build that began longer ago has died."""

Step = Literal["build", "test", "publish"]
News = tuple[Update, ...] | Unknown


class DueReason(StrEnum):
    """Why something is due."""

    NEVER_BUILT = "never-built"
    RECIPE_CHANGED = "recipe-changed"
    ROLE_CHANGED = "role-changed"
    TOO_OLD = "too-old"
    NEWER_WORKER = "newer-worker"
    SECURITY_UPDATE = "security-update"
    NOT_TESTED = "not-tested"
    NOT_PUBLISHED = "not-published"


class DueCause(Value):
    """One reason, with its figures."""

    reason: DueReason
    because: str


class DueImage(Value):
    """What is due of one image."""

    image: str
    steps: tuple[Step, ...] = Field((), description="What is to be done, in this order.")
    version: str = Field(
        "", description="The version to test or publish; empty where one is to be built."
    )
    causes: tuple[DueCause, ...] = ()
    waits_until: Moment | None = Field(None, description="It is due, but not before.")
    waits: str = Field("", description="Why it is due and nothing is done now.")
    serving: str = Field("", description="The version that machines boot meanwhile.")
    rebuild: str = Field(
        "", description="Where one is to be built again: what the last build took and cost."
    )
    unknown: str = Field("", description="What could not be looked at, and so is not due.")
    waiting: WaitingVersion | None = Field(
        None, description="The newer version that not every machine boots yet, and why."
    )

    @property
    def is_due(self) -> bool:
        """Say whether anything is to be done now."""
        return bool(self.steps) and not self.waits


class DueReport(Value):
    """What is due of every image that fleet bakes, by name."""

    fleet: str
    time: Moment
    images: tuple[DueImage, ...]


@dataclass(frozen=True)
class _Case:
    """One image, and all that makes it due."""

    fleet: Fleet
    name: str
    recipe: Recipe
    role: str
    now: datetime
    versions: Sequence[Version]
    """The oldest first."""

    @property
    def latest(self) -> Version | None:
        """The version that was built last and did not fail."""
        return latest_built(self.versions, self.name)


def find_due(
    fleet: Fleet,
    versions: Sequence[Version],
    *,
    digests: Mapping[str, str],
    news: Mapping[str, News],
    now: datetime,
) -> DueReport:
    """Return the steps that are due; `news` has the newer packages of its sources, by image.

    `digests` are those of the role or playbook, by image.
    """
    images = []
    for name, image in sorted(fleet.baked.items()):
        ours = sorted(
            (each for each in versions if each.image == name), key=lambda each: each.version
        )
        case = _Case(fleet, name, image, digests[name], now, ours)
        due = _judge(case, news.get(name, ()))
        if "build" in due.steps and case.latest is not None:
            rebuild = describe_rebuild(fleet, [each.fact for each in ours], name)
            due = due.altered(rebuild=rebuild)
        images.append(due)
    return DueReport(fleet=fleet.fleet, time=now, images=tuple(images))


def latest_built(versions: Sequence[Version], image: str) -> Version | None:
    """Return the version of an image that was built last and did not fail."""
    built = [
        each for each in versions if each.image == image and each.state in {"built", *BOOTABLE}
    ]
    return max(built, key=lambda each: each.version, default=None)


def _judge(case: _Case, news: News) -> DueImage:
    serving = next((each.version for each in case.versions if each.state == "current"), "")
    due = DueImage(
        image=case.name,
        serving=serving,
        unknown=news.unknown if isinstance(news, Unknown) else "",
        waiting=_waiting(case),
    )
    causes = (*_build(case), *_news(case, () if isinstance(news, Unknown) else news))
    if causes:
        publish: tuple[Step, ...] = ("publish",) if case.recipe.publish else ()
        waits, until = _waits(case)
        # A build on a machine tests it there.
        test: tuple[Step, ...] = ("test",) if isinstance(case.recipe, ImageRecipe) else ()
        steps: tuple[Step, ...] = ("build", *test, *publish)
        return due.altered(steps=steps, causes=causes, waits=waits, waits_until=until)
    return due.altered(**_unfinished(case))


def _waiting(case: _Case) -> WaitingVersion | None:
    facts = [each.fact for each in case.versions]
    standing = find_standing(case.fleet, case.name, facts, {}, case.now)
    if standing is None:
        return None
    return standing.waiting("the next `fleet apply` goes on with it" if standing.becomes else "")


def _build(case: _Case) -> Iterator[DueCause]:
    """Yield why a new version is to be built."""
    latest, every = case.latest, case.recipe.rebuild.every if case.recipe.rebuild else None
    if latest is None:
        yield DueCause(reason=DueReason.NEVER_BUILT, because="no version of it was ever built")
        return
    since = f"since {latest.version} was built"
    if latest.recipe_digest != recipe_digest(case.recipe):
        yield DueCause(reason=DueReason.RECIPE_CHANGED, because=f"its recipe changed {since}")
    if latest.role_digest != case.role:
        what = "the role debusine_worker"
        if isinstance(case.recipe, PlaybookRecipe):
            what = f"a file in the folder of {case.recipe.playbook}"
        because = f"{what} changed {since}"
        yield DueCause(reason=DueReason.ROLE_CHANGED, because=because)
    age = int((case.now - latest.built_at).total_seconds())
    if every is not None and age >= every:
        because = (
            f"{latest.version} is {write_duration(age)} old, rebuild.every is "
            f"{write_duration(every)}"
        )
        yield DueCause(reason=DueReason.TOO_OLD, because=because)


def _news(case: _Case, news: tuple[Update, ...]) -> Iterator[DueCause]:
    for update in news:
        pinned = isinstance(case.recipe, ImageRecipe) and case.recipe.worker_version
        if update.package == WORKER and pinned:
            continue  # the recipe says which it gets, however many are newer
        newer = (
            f"{update.suite} has {update.package} {update.available}, it has {update.installed}"
        )
        is_worker = update.package == WORKER and not update.security
        reason = DueReason.NEWER_WORKER if is_worker else DueReason.SECURITY_UPDATE
        yield DueCause(reason=reason, because=newer)


def _waits(case: _Case) -> tuple[str, datetime | None]:
    """Return why a build that is due is not begun now, and until when."""
    after = case.latest.version if case.latest else ""
    later = [each for each in case.versions if each.version > after]
    for version in later:
        if version.state == "building" and case.now - version.since < LONGEST:
            return f"{version.version} is being built", version.since + LONGEST
    # What was corrected since is tried at once.
    today = (recipe_digest(case.recipe), case.role)
    failed = [
        each
        for each in later
        if each.state == "failed" and (each.recipe_digest, each.role_digest) == today
    ]
    if not failed:
        return "", None
    until = failed[-1].since + min(CAP, BASE * 2 ** min(len(failed) - 1, 10))
    if case.now >= until:
        return "", None
    times = "once" if len(failed) == 1 else f"{len(failed)} times in a row"
    return f"it failed {times}, the last time: {failed[-1].why or 'unknown'}", until


def _unfinished(case: _Case) -> dict[str, object]:
    """Return what is left to do with what is built: its test, a publication."""
    latest = case.latest
    if latest is not None and latest.state == "built":
        publish = ("publish",) if case.recipe.publish else ()
        because = f"{latest.version} was not tested"
        cause = DueCause(reason=DueReason.NOT_TESTED, because=because)
        return {"steps": ("test", *publish), "version": latest.version, "causes": (cause,)}
    serving = [each for each in case.versions if each.state in ("tested", "candidate", "current")]
    for version in reversed(serving):
        uploads = version.publications
        missing = [
            place
            for place in case.recipe.publish
            if place not in uploads or not uploads[place].verified
        ]
        if missing:
            because = f"{version.version} is not published at {', '.join(missing)}"
            cause = DueCause(reason=DueReason.NOT_PUBLISHED, because=because)
            return {"steps": ("publish",), "version": version.version, "causes": (cause,)}
    return {}
