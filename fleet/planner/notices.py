"""Notify operators of rules, approvals and prices that expire, and of overdue image builds.

An allow-list rule has two notices, 30 and 7 days before it expires. Approvals and prices have only
the last notice: approvals are short by design, and each run may read prices from the provider.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta

from fleet.model.facts import PriceList, Unknown, World
from fleet.model.images import BOOTABLE, ImageVersion
from fleet.model.plan import ApprovalVerdict, Notice
from fleet.model.price_lists import PriceSource, own_prices
from fleet.model.prices import OLD_AFTER, source_of, table
from fleet.model.values import digest
from fleet.schema.model import Fleet, Recipe
from fleet.schema.units import write_duration, write_time
from fleet.words.runs import describe_location


def find_price_sources(fleet: Fleet, world: World) -> Iterator[PriceSource]:
    """Yield the source of prices per provider with pools, sorted by provider name."""
    used = {pool.provider for pool in fleet.dynamic_pools.values()}
    for name in sorted(used & fleet.providers.keys()):
        declared = fleet.providers[name]
        prices, read = own_prices(declared, world, name), world.prices.get(name)
        if prices is not None:
            yield PriceSource(
                provider=name,
                own=True,
                as_of=write_time(prices.read_at),
                age_seconds=_seconds(prices.read_at, world.time),
                because=prices.stale,
            )
        elif source_of(declared.kind):
            as_of = table(declared.kind, declared.price_location).as_of
            unread = read.unknown if isinstance(read, Unknown) else ""
            yield PriceSource(
                provider=name,
                own=False,
                as_of=as_of,
                age_seconds=_seconds(date.fromisoformat(as_of), world.time.date())
                if as_of
                else None,
                because=describe_location(read.location)
                if isinstance(read, PriceList)
                else unread,
            )


def _seconds(since: date, until: date) -> int:
    return max(0, int((until - since).total_seconds()))


SOON = 30
"""Days before expiry of the first notice."""
VERY_SOON = 7
"""Days before expiry of the last notice."""
LIST_LASTS = timedelta(days=30)
"""Age at which a price list that a run read from the provider counts as old."""
LATE = timedelta(days=1)
"""Time after `rebuild.every` at which a missing new image version is reported."""
_MAX_CONTACT = 100
_DAY_SECONDS = 86_400


def find_notices(
    fleet: Fleet, world: World, approvals: Iterable[ApprovalVerdict]
) -> Iterator[Notice]:
    """Yield the notices to operators that are due now."""
    today = world.time.date()
    yield from _rules(fleet, today)
    yield from _approvals(approvals, today)
    yield from _prices(fleet, world)
    yield from _images(fleet, world)


def _rules(fleet: Fleet, today: date) -> Iterator[Notice]:
    for number, rule in enumerate(fleet.powerful):
        days = rule.expires and _due_notice(rule.expires, today, SOON)
        if rule.expires is None or days is None or rule.expires < today:
            continue
        whom = _shorten(rule.contact) if rule.contact else "its contact"
        yield Notice(
            kind="allow-list",
            # The index of a rule may change, so the key does not contain it.
            key=_key("allow-list", rule.match, str(rule.expires), days),
            path=("powerful", number),
            until=rule.expires,
            said=f"allow-list rule `{_shorten(rule.match)}` expires on {rule.expires}: ask {whom} "
            "whether it is still needed, then set a later date or remove it",
        )


def _approvals(approvals: Iterable[ApprovalVerdict], today: date) -> Iterator[Notice]:
    for approval in approvals:
        days = _due_notice(approval.expires, today, VERY_SOON)
        # An approval from the command line lasts for hours, and its author knows it.
        if days is not None and approval.left and approval.path:
            yield Notice(
                kind="approval",
                key=_key("approval", approval.digest, days),
                path=approval.path,
                until=approval.expires,
                said=f"approval of guard {approval.guard} for pool {approval.pool} expires on "
                f"{approval.expires}, and {approval.left} of {approval.count} machines are left: "
                "if they are not done by then, write a new one",
            )


def _prices(fleet: Fleet, world: World) -> Iterator[Notice]:
    today = world.time.date()
    for source in find_price_sources(fleet, world):
        if source.age_seconds is None:
            continue
        since = (world.time - timedelta(seconds=source.age_seconds)).date()
        until = since + (LIST_LASTS if source.own else OLD_AFTER)
        days = _due_notice(until, today, VERY_SOON)
        if days is None:
            continue
        which = "its own list" if source.own else "the table shipped with fleet"
        how = "is it still read?" if source.own else "install a newer fleet, or compare:"
        yield Notice(
            kind="prices",
            key=_key("prices", source.provider, str(until), days),
            path=("providers", source.provider),
            until=until,
            said=f"prices of {source.provider} are of {since} ({which}) and count as old after "
            f"{until}: {how} `fleet prices check`",
        )


def _images(fleet: Fleet, world: World) -> Iterator[Notice]:
    for name, image in sorted(fleet.images.items()):
        every = image.rebuild.every if isinstance(image, Recipe) and image.rebuild else None
        ours = [
            version
            for version in world.versions
            if version.image == name and version.state in {"built", *BOOTABLE}
        ]
        if every is None or not ours:
            continue
        latest = max(ours, key=lambda each: each.version)
        built = _build_time(latest)
        if built is None or world.time < built + timedelta(seconds=every) + LATE:
            continue
        age = int((world.time - built).total_seconds())
        yield Notice(
            kind="image",
            key=_key("image", name, latest.version),
            path=("images", name, "rebuild", "every"),
            until=(built + timedelta(seconds=every)).date(),
            said=f"image {name} was not rebuilt: {_shorten(latest.version)} is "
            f"{write_duration(age - age % _DAY_SECONDS)} old, rebuild.every is "
            f"{write_duration(every)}; `fleet image due` says why",
        )


def _build_time(version: ImageVersion) -> datetime | None:
    """Return the build time in the name of a version; else the start of its current state."""
    try:
        return datetime.strptime(version.version[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return version.since


def _due_notice(until: date, today: date, first: int) -> int | None:
    """Return the due notice: 30 or 7 (days before expiry), or 0 after expiry; None if not due."""
    left = (until - today).days
    if left < 0:
        return 0
    return next((days for days in (VERY_SOON, SOON) if left <= days <= first), None)


def _key(kind: str, *parts: object) -> str:
    return f"{kind} {digest(list(map(str, parts)))[:16]}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_CONTACT else f"{text[: _MAX_CONTACT - 1]}…"
