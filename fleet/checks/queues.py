"""What is wrong or unwise in queues."""

import re
from collections.abc import Iterator
from ipaddress import ip_address

from fleet.schema.findings import Finding, Path, did_you_mean
from fleet.schema.model import CoprQueue, DebusineQueue, Fleet, ImageRecipe, TicketQueue
from fleet.tagrules import serves_queue
from fleet.tagrules.vocabulary import mentions


def unknown_queue(fleet: Fleet) -> Iterator[Finding]:
    """Require that a queue that is named, by a pool or a Copr, is declared under `queues`."""
    for name, pool in fleet.pools.items():
        for number, queue in enumerate(pool.serves or ()):
            if queue not in fleet.queues:
                yield Finding(
                    "unknown-queue",
                    f"there is no queue '{queue}'",
                    ("pools", name, "serves", number),
                    hint=did_you_mean(queue, fleet.queues)
                    or f"declare it: queues: {{{queue}: …}}",
                )
    desks = [name for name, queue in fleet.queues.items() if isinstance(queue, TicketQueue)]
    for name, copr in fleet.queues.items():
        if isinstance(copr, CoprQueue) and copr.tickets is not None and copr.tickets not in desks:
            yield Finding(
                "unknown-queue",
                f"there is no queue '{copr.tickets}' of kind tickets",
                ("queues", name, "tickets"),
                hint=did_you_mean(copr.tickets, desks)
                or f"declare it: queues: {{{copr.tickets}: {{kind: tickets}}}}",
            )


def admin_without_read(fleet: Fleet) -> Iterator[Finding]:
    """Warn where workers can be told, but not read: no machine would ever be let go."""
    for name, queue in fleet.queues.items():
        if isinstance(queue, DebusineQueue) and queue.admin and not queue.read:
            yield Finding(
                "admin-without-read",
                f"fleet makes workers of queue '{name}', but cannot see which are idle: "
                "it lets none of their machines go",
                ("queues", name, "admin"),
                severity="warning",
                at="key",
                hint="add `read: {env: FLEET_DEBUSINE_DSN}`, a role that "
                "`fleet debusine grants` prints",
            )


_NEAR = 0.8
_TASKS = frozenset(
    {
        "any",
        "assemblesignedsource",
        "autopkgtest",
        "blhc",
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
    }
)
"""Tasks of Debusine's workers, and the word for every other one; a queue may have more."""
_TAG = "worker:task:worker:"


def misspelt_task(fleet: Fleet) -> Iterator[Finding]:
    """Warn of a task that nobody has, but nearly."""
    if not fleet.durations:
        return
    import difflib

    tasks = sorted(_TASKS | set(_named(fleet)))
    for task in fleet.durations:
        close = difflib.get_close_matches(task, tasks, n=1, cutoff=_NEAR)
        if task not in tasks and close:
            yield Finding(
                "misspelt-task",
                f"no task is known that is called '{task}': nothing takes this duration",
                ("durations", task),
                severity="warning",
                at="key",
                hint=f"did you mean '{close[0]}'?",
            )


def _named(fleet: Fleet) -> Iterator[str]:
    """Yield the tasks that fleet.yaml speaks of elsewhere."""
    yield from (rule.task for rule in fleet.derive if rule.task is not None)
    for mention in mentions(fleet):
        if mention.tag.startswith(_TAG):
            yield mention.tag.removeprefix(_TAG).partition(":")[0]


_IN_CLEAR = re.compile(r"http://(\[[^]]+\]|[^/:?#]+)")


def token_in_clear(fleet: Fleet) -> Iterator[Finding]:
    """Require https of a server that gets tokens of ours or of workers, but for this computer."""
    for path, url in _told_tokens(fleet):
        found = _IN_CLEAR.match(url)
        host = found[1].strip("[]") if found else ""
        if found and not _is_here(host):
            yield Finding(
                "token-in-clear",
                f"tokens for {host} would go over the network in clear",
                path,
                hint="write https://; a server of this computer, as localhost, may be http://",
            )


def _told_tokens(fleet: Fleet) -> Iterator[tuple[Path, str]]:
    for name, queue in fleet.queues.items():
        if isinstance(queue, DebusineQueue) and (queue.token or queue.admin):
            yield ("queues", name, "url"), queue.url
    for name, image in fleet.images.items():
        if isinstance(image, ImageRecipe) and image.api_url:
            yield ("images", name, "api_url"), image.api_url


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def two_queues_give_work(fleet: Fleet) -> Iterator[Finding]:
    """Refuse pools that serve tickets and a Debusine: neither asks the other what it gave out."""
    kinds = {name: type(queue) for name, queue in fleet.queues.items()}
    for name, pool in fleet.pools.items():
        served = sorted(queue for queue in kinds if serves_queue(pool, queue))
        desks = [queue for queue in served if kinds[queue] is TicketQueue]
        servers = [queue for queue in served if kinds[queue] is DebusineQueue]
        if desks and servers:
            yield Finding(
                "two-queues-give-work",
                f"pool {name} serves the tickets of {desks[0]} and the workers of {servers[0]}: "
                "each would give work to a machine that is busy for the other",
                ("pools", name, "serves") if pool.serves is not None else ("pools", name),
                at="value" if pool.serves is not None else "key",
                hint=f"write serves: [{desks[0]}] or serves: [{servers[0]}]",
            )
