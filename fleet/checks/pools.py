"""Checks of pools, queues, tasks and teams."""

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from ipaddress import ip_address
from zoneinfo import ZoneInfo, available_timezones

from fleet.schema.findings import Finding, Path, did_you_mean, nearest, unwise, wrong
from fleet.schema.model import (
    PROVIDERS,
    TEAM_MEMBERS,
    CoprQueue,
    DebusineQueue,
    Fleet,
    ImageRecipe,
    PlaybookRecipe,
    Pool,
    Ready,
    TicketQueue,
    WorldQueue,
    beginning_of,
    has_no_usable_queue,
    serves_queue,
    speaks_resalloc,
)
from fleet.schema.rules import BUILD_TASK, SOURCE_TASK
from fleet.schema.units import NAME_PATTERN, write_duration
from fleet.tagrules.sources import pool_sources
from fleet.tagrules.vocabulary import Vocabulary, mentions


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
        hint = f"known: {', '.join(pools)}" if pools else "remove the approval"
        yield (unwise if may_be_removed else wrong)(
            f"no pool '{approval.pool}' creates or deletes machines",
            ("approvals", number, "pool"),
            hint=f"did you mean '{close[0]}'?" if close else hint,
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


def unknown_queue(fleet: Fleet) -> Iterator[Finding]:
    """Require that `queues` declares each queue that a pool or a Copr names."""
    for name, pool in fleet.pools.items():
        for number, queue in enumerate(pool.serves or ()):
            if queue not in fleet.queues:
                yield wrong(
                    f"there is no queue '{queue}'",
                    ("pools", name, "serves", number),
                    hint=did_you_mean(queue, fleet.queues)
                    or f"declare it: queues: {{{queue}: …}}",
                )
    desks = [name for name, queue in fleet.queues.items() if isinstance(queue, TicketQueue)]
    for name, copr in fleet.queues.items():
        if isinstance(copr, CoprQueue) and copr.tickets is not None and copr.tickets not in desks:
            yield wrong(
                f"there is no queue '{copr.tickets}' of kind tickets",
                ("queues", name, "tickets"),
                hint=did_you_mean(copr.tickets, desks)
                or f"declare it: queues: {{{copr.tickets}: {{kind: tickets}}}}",
            )


def admin_without_read(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a queue that fleet can change but not read, as no machine would be deleted."""
    for name, queue in fleet.queues.items():
        if isinstance(queue, DebusineQueue) and queue.admin and not queue.read:
            yield unwise(
                f"fleet creates workers of queue '{name}' but cannot see which are idle, so it "
                "deletes no machines",
                ("queues", name, "admin"),
                at="key",
                hint="add `read: {env: FLEET_DEBUSINE_DSN}`; `fleet debusine grants` prints the "
                "role it needs",
            )


_MIN_SIMILARITY = 0.8
_ANY_TASK = "any"
_TASKS = frozenset(
    {
        _ANY_TASK,
        "assemblesignedsource",
        "autopkgtest",
        "blhc",
        BUILD_TASK,
        "debdiff",
        "extractforsigning",
        "lintian",
        "makesourcepackageupload",
        "mergeuploads",
        "mmdebstrap",
        "noop",
        "piuparts",
        "sbuild",
        "simplesystemimagebuild",
        SOURCE_TASK,
    }
)
"""Known tasks of Debusine's workers and of Copr, and `any`; a queue may have other tasks."""
_TAG = "worker:task:worker:"


def misspelt_task(fleet: Fleet) -> Iterator[Finding]:
    """Warn about tasks that look misspelt or have two words, and about rules for `any`."""
    of_rules = [(rule.task, number) for number, rule in enumerate(fleet.powerful) if rule.task]
    if not fleet.durations and not of_rules:
        return
    tasks = sorted(_TASKS | set(_named_tasks(fleet)))
    for task in fleet.durations:
        words = task.split()
        if len(words) > 1:
            yield wrong(
                f"'{task}' has two words: a task is one, and its package belongs into `match`",
                ("durations", task),
                at="key",
                hint=f'write {words[0]}: [{{match: "{words[1]}", takes: …}}]',
            )
        elif close := _nearest_task(task, tasks):
            yield unwise(
                f"unknown task '{task}': this duration is never used",
                ("durations", task),
                at="key",
                hint=f"did you mean '{close}'?",
            )
    for task, number in of_rules:
        close = _nearest_task(task, tasks)
        if close or task == _ANY_TASK:
            yield unwise(
                f"unknown task '{task}': this rule matches no request",
                ("powerful", number, "task"),
                hint=f"did you mean '{close}'?" if close else "remove `task`: it means every task",
            )


def _nearest_task(task: str, tasks: Collection[str]) -> str:
    """Return the known task that is most similar to an unknown task; else an empty text."""
    close = get_close_matches(task, tasks, n=1, cutoff=_MIN_SIMILARITY)
    return close[0] if task not in tasks and close else ""


def _named_tasks(fleet: Fleet) -> Iterator[str]:
    """Yield the tasks that other parts of fleet.yaml name."""
    yield from (rule.task for rule in fleet.derive if rule.task is not None)
    for mention in mentions(fleet):
        if mention.tag.startswith(_TAG):
            yield mention.tag.removeprefix(_TAG).partition(":")[0]


_IN_CLEAR = re.compile(r"http://(\[[^]]+\]|[^/:?#]+)")


def token_in_clear(fleet: Fleet) -> Iterator[Finding]:
    """Require https for servers that receive tokens, except for servers on this computer."""
    for path, url in _servers_with_tokens(fleet):
        found = _IN_CLEAR.match(url)
        host = found[1].strip("[]") if found else ""
        if found and not _is_local(host):
            yield wrong(
                f"tokens would be sent to {host} unencrypted",
                path,
                hint="write https://; only this computer, such as localhost, may use http://",
            )


def _servers_with_tokens(fleet: Fleet) -> Iterator[tuple[Path, str]]:
    for name, queue in fleet.queues.items():
        if isinstance(queue, DebusineQueue) and (queue.token or queue.admin):
            yield ("queues", name, "url"), queue.url
    for name, image in fleet.recipes.items():
        if image.api_url:
            yield ("images", name, "api_url"), image.api_url
    webhook = fleet.notify.webhook
    if webhook is not None and webhook.token and isinstance(webhook.url, str):
        yield ("notify", "webhook", "url"), webhook.url


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def two_queues_give_work(fleet: Fleet) -> Iterator[Finding]:
    """Forbid a pool for both tickets and Debusine, because both would use its machines."""
    kinds = {name: type(queue) for name, queue in fleet.queues.items()}
    for name, pool in fleet.pools.items():
        served = sorted(queue for queue in kinds if serves_queue(pool, queue))
        desks = [queue for queue in served if kinds[queue] is TicketQueue]
        servers = [queue for queue in served if kinds[queue] is DebusineQueue]
        if desks and servers:
            yield wrong(
                f"pool '{name}' serves tickets of {desks[0]} and workers of {servers[0]}: both "
                "would use the same machine",
                ("pools", name, "serves") if pool.serves is not None else ("pools", name),
                at="value" if pool.serves is not None else "key",
                hint=f"write serves: [{desks[0]}] or serves: [{servers[0]}]",
            )


_REPORTED = {
    "copr": ("users", "owners"),
    "debusine": ("users", "groups", "workspaces", "scopes"),
    "tickets": ("users", "owners"),
    "world": TEAM_MEMBERS,
}
"""Kind of queue to the keys of a team whose members the queue reports."""


def unknown_team(fleet: Fleet) -> Iterator[Finding]:
    """Warn about a team or member that no queue can report, and about a repeated member."""
    if not fleet.queues:
        return
    known = set[str]()
    yield from _check_members(fleet, known)
    if any(isinstance(queue, TicketQueue | WorldQueue) for queue in fleet.queues.values()):
        return  # these queues report any team
    # Warn about budgets and limits for teams that no queue reports.
    for name, budget in fleet.budgets.items():
        if budget.team is not None and budget.team not in known:
            meant = nearest(budget.team, sorted(known))
            yield unwise(
                f"no queue reports team '{budget.team}', so this budget never counts anything",
                ("budgets", name, "team"),
                hint=f"did you mean {meant}?" if meant else "add its members under `teams`",
            )
    for tag, rule in fleet.tags.items():
        if rule.limits.per.team is not None and not known:
            yield unwise(
                "no queue reports teams, so all requests count as one team",
                ("tags", tag, "limits", "per", "team"),
                hint="add the members of each team under `teams`, or limit the `total`",
            )


def _check_members(fleet: Fleet, known: set[str]) -> Iterator[Finding]:
    """Warn about members that no queue reports; add the teams with other members to `known`."""
    kinds = {kind for queue in fleet.queues.values() for kind in _REPORTED[queue.kind]}
    kinds |= {"groups"} if fleet.members and "users" in kinds else set()
    first: dict[tuple[str, str], str] = {}
    for name, team in sorted(fleet.teams.items()):
        members = [(kind, *each) for kind in TEAM_MEMBERS for each in enumerate(team.of(kind))]
        if not members:
            hint = f"add {', '.join(TEAM_MEMBERS[:-1])} or {TEAM_MEMBERS[-1]}, or remove the team"
            yield unwise(f"team '{name}' has no members", ("teams", name), at="key", hint=hint)
        for kind, number, member in members:
            path: Path = ("teams", name, kind, number)
            if kind not in kinds:
                message = f"no queue of this file reports {kind}, so '{member}' matches nothing"
                said = ", ".join(each for each in TEAM_MEMBERS if each in kinds)
                yield unwise(message, path, hint=f"they report {said}")
            elif not _has_scope(fleet, kind, member):
                message = f"no queue has the scope of '{member}', so it matches nothing"
                yield unwise(message, path, hint="spell it as in `scopes` of the queue")
            else:
                known.add(name)
                other = first.setdefault((kind, member), name)
                if other != name:
                    message = f"'{member}' is in team '{other}' too, and only that one counts"
                    yield unwise(message, path, hint="remove it from one of the teams")


def _has_scope(fleet: Fleet, kind: str, member: str) -> bool:
    """Return whether a queue may have a member's scope; True for a member without scope."""
    scope, is_within, _ = member.partition("/")
    names_scope = kind == "scopes" or (kind == "workspaces" and is_within)
    if not names_scope or any(isinstance(each, WorldQueue) for each in fleet.queues.values()):
        return True
    queues = (queue for queue in fleet.queues.values() if isinstance(queue, DebusineQueue))
    return (member if kind == "scopes" else scope) in {s for queue in queues for s in queue.scopes}
