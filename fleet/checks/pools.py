"""Checks of pools."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from zoneinfo import ZoneInfo, available_timezones

from fleet.checks.findings import unwise, wrong
from fleet.schema.findings import Finding, Path, did_you_mean, nearest
from fleet.schema.model import (
    PROVIDERS,
    Fleet,
    ImageRecipe,
    PlaybookRecipe,
    Pool,
    Ready,
    TicketQueue,
    beginning_of,
    has_no_usable_queue,
    serves_queue,
    speaks_resalloc,
)
from fleet.schema.units import NAME_PATTERN, write_duration
from fleet.tagrules.sources import pool_sources
from fleet.tagrules.vocabulary import Vocabulary


def min_above_max(fleet: Fleet) -> Iterator[Finding]:
    """Require that min, spare and max_starting are at most max, and stop_after at most of_last."""
    boots = fleet.guards.boot_failures
    if boots.stop_after > boots.of_last:
        yield wrong(
            f"stop_after is {boots.stop_after}, but of_last is {boots.of_last}",
            ("guards", "boot_failures", "stop_after"),
            hint=f"lower stop_after to {boots.of_last} or raise of_last",
        )
    for name, pool in fleet.dynamic_pools.items():
        for key in ("min", "spare", "max_starting"):
            figure, most = getattr(pool.workers, key), pool.workers.max
            if figure is not None and figure > most:
                yield wrong(
                    f"{key} is {figure}, but max is {most}",
                    ("pools", name, "workers", key),
                    hint=f"lower {key} to {most} or raise max",
                )


LONGEST = 50
"""Maximum length of a worker's name in Debusine; a host name may have 63 characters."""


def name_too_long(fleet: Fleet) -> Iterator[Finding]:
    """Require that workers' names, FLEET-POOL-NUMBER, have at most 50 characters."""
    for name, pool in fleet.dynamic_pools.items():
        if speaks_resalloc(fleet, name):
            continue  # no queue registers the workers of this pool
        longest = f"{beginning_of(fleet, name)}{max(1, pool.workers.max):04}"
        if len(longest) > LONGEST:
            yield wrong(
                f"worker names like {longest} have {len(longest)} characters; at most {LONGEST} "
                "are possible",
                ("pools", name),
                at="key",
                hint=f"shorten the pool's name by {len(longest) - LONGEST} characters",
            )


def pool_name(fleet: Fleet) -> Iterator[Finding]:
    """Require that a pool's name is a valid host name, unless its commands are Resalloc's."""
    for name in fleet.pools:
        if not (re.fullmatch(NAME_PATTERN, name) or speaks_resalloc(fleet, name)):
            yield wrong(
                f"'{name}' is no valid host name: use at most 31 lower-case letters, digits and "
                "hyphens",
                ("pools", name),
                at="key",
                hint="rename it; other names need commands with `interface: resalloc`",
            )


def never_ready(fleet: Fleet) -> Iterator[Finding]:
    """Require that a queue can use the pool's machines, and that the port of `ready` is open."""
    for name, pool in fleet.dynamic_pools.items():
        if has_no_usable_queue(fleet, pool):
            yield unwise(
                f"pool '{name}' creates no machines: none of its queues registers workers or "
                "serves tickets",
                ("pools", name, "serves" if pool.serves is not None else "provider"),
                hint="serve a queue of kind debusine or tickets",
            )
        if pool.ready is not None:
            yield from _check_ready(fleet, name, pool, pool.ready)


def _check_ready(fleet: Fleet, name: str, pool: Pool, ready: Ready) -> Iterator[Finding]:
    path = ("pools", name, "ready")
    provider = fleet.providers.get(pool.provider)
    if provider is None or not provider.is_cloud:
        clouds = " and ".join(kind for kind, each in PROVIDERS.items() if each.is_cloud)
        yield wrong(
            f"`ready` works only with {clouds}, and provider '{pool.provider}' is neither",
            path,
            hint="remove it; for a provider of kind hooks use `livecheck`",
        )
        return
    if not any(
        isinstance(each, TicketQueue) and serves_queue(pool, queue)
        for queue, each in fleet.queues.items()
    ):
        yield wrong(
            f"`ready` works only for tickets, and pool '{name}' serves no queue of kind tickets",
            path,
            hint="remove it, or serve a queue of kind tickets",
        )
    key = provider.blocked_by(ready.port)
    if key:
        yield wrong(
            f"`{key}` of provider '{pool.provider}' blocks port {ready.port}, so no machine "
            "becomes ready",
            (*path, "port") if "port" in ready.model_fields_set else path,
            hint=f"allow this computer in providers.{pool.provider}.{key}",
        )


def on_demand_pool_with_warm_machines(fleet: Fleet) -> Iterator[Finding]:
    """Forbid `min` and `spare` in a pool that provides an on-demand tag."""
    if not any(rule.on_demand for rule in fleet.tags.values()):
        return
    vocabulary = Vocabulary(fleet)
    for name, pool in fleet.dynamic_pools.items():
        provided = dict.fromkeys(each.tag for each in pool_sources(fleet, name, ()))
        on_demand = [tag for tag in provided if vocabulary.is_on_demand(tag)]
        for key in ("min", "spare"):
            figure = getattr(pool.workers, key)
            if on_demand and figure:
                yield wrong(
                    f"{key} is {figure}, but the pool provides the on-demand tag "
                    f"'{on_demand[0]}' and keeps no idle machines",
                    ("pools", name, "workers", key),
                    hint=f"remove {key}, or provide the tag in a separate pool",
                )


def previously_still_there(fleet: Fleet) -> Iterator[Finding]:
    """Require that `previously` names a removed pool, and that no other pool names the same."""
    successors: dict[str, str] = {}
    for name, pool in fleet.dynamic_pools.items():
        old = pool.previously
        if old is None:
            continue
        path = ("pools", name, "previously")
        if old in fleet.pools:
            yield wrong(
                f"pool '{old}' still exists; `previously` must name a removed pool",
                path,
                hint=f"remove pool '{old}', or this key",
            )
        elif old in successors:
            yield wrong(
                f"pool '{successors[old]}' already has `previously: {old}`",
                path,
                hint="remove one; only one pool can take over the machines",
            )
        successors.setdefault(old, name)


def target_wait_below_boot(fleet: Fleet) -> Iterator[Finding]:
    """Warn if `target_wait` is not longer than the boot time `boot.expected`."""
    for name, pool in fleet.dynamic_pools.items():
        if pool.target_wait is not None and pool.target_wait <= pool.boot.expected:
            boots = write_duration(pool.boot.expected)
            yield unwise(
                f"target_wait is {write_duration(pool.target_wait)}, but a machine takes {boots} "
                "to boot",
                ("pools", name, "target_wait"),
                hint=f"make it longer than boot.expected ({boots}), or remove it to create one "
                "machine per waiting request",
            )


def unknown_time_zone(fleet: Fleet) -> Iterator[Finding]:
    """Require that each time zone is in the IANA database."""
    for path, name in _time_zones(fleet):
        if name != "UTC" and not _exists(name):
            close = nearest(name, available_timezones() - _NO_ZONES)
            yield wrong(
                f"there is no time zone '{name}'",
                path,
                hint=f"did you mean '{close}'?" if close else "use a name like Europe/Berlin",
            )


def _time_zones(fleet: Fleet) -> Iterator[tuple[Path, str]]:
    yield ("money", "time_zone"), fleet.money.time_zone
    for name, pool in fleet.dynamic_pools.items():
        for number, window in enumerate(pool.replace.windows):
            words = window.split(" ")
            if len(words) > 2:  # noqa: PLR2004 - days, hours and the zone
                yield ("pools", name, "replace", "windows", number), words[2]


def _exists(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # Without the database, no time zone can be reported as unknown.
        return not available_timezones()
    return name not in _NO_ZONES


_NO_ZONES = {"Factory", "localtime", "posixrules"}
"""Names in the database that mean no zone, or another zone on each computer."""


_RUNS = 3
"""Number of consecutive runs that may fail before machines expire."""


def cadence_and_idle(fleet: Fleet) -> Iterator[Finding]:
    """Warn about an `idle_after` below `cadence`, and an `expire_after` below three runs."""
    if fleet.expire_after < _RUNS * fleet.cadence:
        is_own = "expire_after" in fleet.model_fields_set
        path: Path = ("expire_after",) if is_own else ("cadence",)
        yield _too_short(fleet, path, "expire_after", fleet.expire_after, _RUNS * fleet.cadence)
    yield from _find_short(fleet, "retire", "idle_after")


def cadence_and_deadline(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a `boot.deadline` shorter than `cadence`: no run sees the boot in time."""
    yield from _find_short(fleet, "boot", "deadline")


def _find_short(fleet: Fleet, section: str, key: str) -> Iterator[Finding]:
    """Yield a finding per pool whose time in a section is shorter than `cadence`."""
    for name, pool in fleet.dynamic_pools.items():
        written = getattr(pool, section)
        if getattr(written, key) < fleet.cadence:
            is_own = key in written.model_fields_set
            path: Path = ("pools", name, section, key) if is_own else ("cadence",)
            yield _too_short(fleet, path, key, getattr(written, key), fleet.cadence)


def _too_short(fleet: Fleet, path: Path, key: str, seconds: int, least: int) -> Finding:
    return unwise(
        f"{key} is {write_duration(seconds)}, but `fleet apply` runs only every "
        f"{write_duration(fleet.cadence)}",
        path,
        hint=f"run it more often, or set {key} to at least {write_duration(least)}",
    )


def unknown_pool(fleet: Fleet) -> Iterator[Finding]:
    """Require that each approval names a pool for which fleet creates and deletes machines.

    An approval to delete may name a removed pool, because its machines possibly still exist.
    """
    pools = sorted(fleet.dynamic_pools)
    for number, approval in enumerate(fleet.approvals):
        if approval.pool in pools:
            continue
        close = get_close_matches(approval.pool, pools, n=1, cutoff=0.8)
        may_be_removed = approval.guard == "delete" and approval.pool not in fleet.pools
        if may_be_removed and not close:
            continue
        if close:
            hint = f"did you mean '{close[0]}'?"
        else:
            hint = f"known: {', '.join(pools)}" if pools else "remove the approval"
        yield (unwise if may_be_removed else wrong)(
            f"no pool '{approval.pool}' creates or deletes machines",
            ("approvals", number, "pool"),
            hint=hint,
        )


def unknown_provider(fleet: Fleet) -> Iterator[Finding]:
    """Require that `providers` declares each provider that a pool or image names."""
    for path, name, at_key in _named_providers(fleet):
        if name not in fleet.providers:
            yield wrong(
                f"there is no provider '{name}'",
                path,
                at="key" if at_key else "value",
                hint=did_you_mean(name, fleet.providers)
                or f"declare it: providers: {{{name}: …}}",
            )


def provider_without_baking(fleet: Fleet) -> Iterator[Finding]:
    """Require that fleet can rent a machine from the provider of an image made by a playbook."""
    able = ", ".join(kind for kind, each in PROVIDERS.items() if each.bakes_images)
    for name, image in fleet.images.items():
        if not isinstance(image, PlaybookRecipe) or image.provider not in fleet.providers:
            continue
        provider = fleet.providers[image.provider]
        if not provider.bakes_images:
            yield wrong(
                f"no image is baked at '{image.provider}' of kind {provider.kind}",
                ("images", name, "provider"),
                hint=f"name a provider of kind {able}, or bake it yourself and name its id: "
                f"{{existing: {{{image.provider}: …}}}}",
            )


def _named_providers(fleet: Fleet) -> Iterator[tuple[Path, str, bool]]:
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe):
            for number, place in enumerate(image.publish):
                if "://" not in place:
                    yield ("images", name, "publish", number), place, False
        elif isinstance(image, PlaybookRecipe):
            yield ("images", name, "provider"), image.provider, False
        else:
            for provider in image.existing:
                yield ("images", name, "existing", provider), provider, True
    for name, pool in fleet.dynamic_pools.items():
        yield ("pools", name, "provider"), pool.provider, False
