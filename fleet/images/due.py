"""Find the images that are due for a build: by age, changed recipe or role, or newer packages.

A failed build is retried with exponential back-off; machines then boot the last good version.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from pydantic import Field

from fleet.model.apt_sources import Source, version_key
from fleet.model.facts import Unknown
from fleet.model.images import (
    BOOTABLE,
    DueCause,
    DueImage,
    DueReason,
    DueReport,
    Manifest,
    Step,
    Version,
    recipe_digest,
)
from fleet.model.values import Value
from fleet.planner.images import describe_rebuild, find_standing
from fleet.schema.model import Fleet, ImageRecipe, PlaybookRecipe, Recipe
from fleet.schema.units import write_duration

WORKER = "debusine-worker"
_ORIGIN_PATTERN = re.compile(r"(?P<suite>\S+)/(?P<component>[^/\s]+) at (?P<uri>\S+)")
_SECURITY_SUFFIX = "-security"


class Update(Value):
    """A package that is newer in an APT source than in the image."""

    package: str
    installed: str
    available: str
    suite: str
    security: bool = Field(description="It is in a suite of security fixes.")


def sources_of(manifest: Manifest) -> tuple[Source, ...]:
    """Return the APT sources of an image's packages, and the security sources.

    If no package came from a security suite, add the usual one; mirrors have it there too.
    """
    found = {
        Source(origin["uri"], origin["suite"], origin["component"], manifest.architecture)
        for package in manifest.packages
        if (origin := _ORIGIN_PATTERN.fullmatch(package.origin))
    }
    if not any(source.suite.endswith(_SECURITY_SUFFIX) for source in found):
        found |= {
            source._replace(
                uri=source.uri.rstrip("/") + _SECURITY_SUFFIX,
                suite=source.suite + _SECURITY_SUFFIX,
            )
            for source in found
            if source.suite == manifest.suite
        }
    return tuple(sorted(found))


def find_updates(
    manifest: Manifest, offered: Mapping[Source, Mapping[str, str]]
) -> tuple[Update, ...]:
    """Return newer versions of the worker package, and newer versions in security suites."""
    newer: dict[str, Update] = {}
    for source, versions in sorted(offered.items()):
        security = source.suite.endswith(_SECURITY_SUFFIX)
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


FIRST_BACK_OFF = timedelta(hours=1)
"""Delay after the first failed build. The delay doubles with each further failure."""
MAX_BACK_OFF = timedelta(hours=24)
"""Maximum delay after failed builds."""
MAX_BUILD_TIME = timedelta(hours=6)
"""Age after which an unfinished build counts as dead."""

News = tuple[Update, ...] | Unknown


def find_due(
    fleet: Fleet,
    versions: Sequence[Version],
    *,
    digests: Mapping[str, str],
    news: Mapping[str, News],
    now: datetime,
) -> DueReport:
    """Return the due steps of each image: build, test or publish.

    `digests` maps image to the digest of its role or playbook, `news` to its newer packages.
    """

    def evaluate(name: str, recipe: Recipe) -> DueImage:
        ours = sorted(
            (each for each in versions if each.image == name), key=lambda each: each.version
        )
        facts, latest = [each.fact for each in ours], latest_built(ours, name)
        standing, known = find_standing(fleet, name, facts, {}, now), news.get(name, ())
        next_step = (
            "the next `fleet apply` goes on with it" if standing and standing.becomes else ""
        )
        due = DueImage(
            image=name,
            serving=next((each.version for each in ours if each.state == "current"), ""),
            unknown=known.unknown if isinstance(known, Unknown) else "",
            waiting=standing.waiting(next_step) if standing else None,
        )
        updates = () if isinstance(known, Unknown) else known
        causes = (*_find_causes(latest, recipe, digests[name], updates, now),)
        publish: tuple[Step, ...] = ("publish",) if recipe.publish else ()
        if causes:
            later = [each for each in ours if not latest or each.version > latest.version]
            waits, until = _find_hold(later, (recipe_digest(recipe), digests[name]), now)
            # A build with a playbook includes its test, on the rented machine.
            test: tuple[Step, ...] = ("test",) if isinstance(recipe, ImageRecipe) else ()
            return due.altered(
                steps=("build", *test, *publish),
                causes=causes,
                waits=waits,
                waits_until=until,
                rebuild=describe_rebuild(fleet, facts, name) if latest else "",
            )
        if latest and latest.state == "built":
            because = f"{latest.version} was not tested"
            cause = DueCause(reason=DueReason.NOT_TESTED, because=because)
            return due.altered(steps=("test", *publish), version=latest.version, causes=(cause,))
        for version in reversed(ours):
            verified = {place for place, each in version.publications.items() if each.verified}
            missing = [place for place in recipe.publish if place not in verified]
            if missing and version.state in ("tested", "candidate", "current"):
                because = f"{version.version} is not published at {', '.join(missing)}"
                cause = DueCause(reason=DueReason.NOT_PUBLISHED, because=because)
                return due.altered(steps=publish, version=version.version, causes=(cause,))
        return due

    images = tuple(evaluate(name, recipe) for name, recipe in sorted(fleet.baked.items()))
    return DueReport(fleet=fleet.fleet, time=now, images=images)


def latest_built(versions: Sequence[Version], image: str) -> Version | None:
    """Return the latest version of an image whose build succeeded; None if no build succeeded."""
    built = [
        each for each in versions if each.image == image and each.state in {"built", *BOOTABLE}
    ]
    return max(built, key=lambda each: each.version, default=None)


def _find_causes(
    latest: Version | None, recipe: Recipe, role: str, updates: tuple[Update, ...], now: datetime
) -> Iterator[DueCause]:
    """Yield the causes for a new build."""
    every = recipe.rebuild.every if recipe.rebuild else None
    is_pinned = isinstance(recipe, ImageRecipe) and bool(recipe.worker_version)
    if latest is None:
        yield DueCause(reason=DueReason.NEVER_BUILT, because="no version of it was ever built")
        return
    since = f"since {latest.version} was built"
    if latest.recipe_digest != recipe_digest(recipe):
        yield DueCause(reason=DueReason.RECIPE_CHANGED, because=f"its recipe changed {since}")
    if latest.role_digest != role:
        what = "the role debusine_worker"
        if isinstance(recipe, PlaybookRecipe):
            what = f"a file in the folder of {recipe.playbook}"
        because = f"{what} changed {since}"
        yield DueCause(reason=DueReason.ROLE_CHANGED, because=because)
    age = int((now - latest.built_at).total_seconds())
    if every is not None and age >= every:
        because = (
            f"{latest.version} is {write_duration(age)} old, rebuild.every is "
            f"{write_duration(every)}"
        )
        yield DueCause(reason=DueReason.TOO_OLD, because=because)
    for update in updates:
        is_worker = update.package == WORKER
        if is_worker and is_pinned:
            continue
        is_new = is_worker and not update.security
        reason = DueReason.NEWER_WORKER if is_new else DueReason.SECURITY_UPDATE
        because = f"{update.suite} has {update.package} {update.available}, it has"
        yield DueCause(reason=reason, because=f"{because} {update.installed}")


def _find_hold(
    later: Sequence[Version], today: tuple[str, str], now: datetime
) -> tuple[str, datetime | None]:
    """Return reason and end of the delay of a due build; ("", None) without a delay.

    `later` are the versions after the latest built one, `today` the digests of recipe and role.
    """
    for version in later:
        if version.state == "building" and now - version.since < MAX_BUILD_TIME:
            return f"{version.version} is being built", version.since + MAX_BUILD_TIME
    # Count only failures with the current recipe and role: a correction is built immediately.
    failed = [
        each
        for each in later
        if each.state == "failed" and (each.recipe_digest, each.role_digest) == today
    ]
    if not failed:
        return "", None
    until = failed[-1].since + min(MAX_BACK_OFF, FIRST_BACK_OFF * 2 ** min(len(failed) - 1, 10))
    if now >= until:
        return "", None
    times = "once" if len(failed) == 1 else f"{len(failed)} times in a row"
    return f"it failed {times}, the last time: {failed[-1].why or 'unknown'}", until
