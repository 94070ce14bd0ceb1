"""Checks of queues, tasks and teams."""

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from ipaddress import ip_address

from fleet.checks.findings import unwise, wrong
from fleet.schema.findings import Finding, Path, did_you_mean, nearest
from fleet.schema.model import (
    TEAM_MEMBERS,
    CoprQueue,
    DebusineQueue,
    Fleet,
    TicketQueue,
    WorldQueue,
    serves_queue,
)
from fleet.schema.rules import BUILD_TASK, SOURCE_TASK
from fleet.tagrules.vocabulary import mentions


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
