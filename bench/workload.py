"""Invent a queue and pools of the size that the figures speak of, always the same.

Tags look like Debusine's: a request requires its task, a capability, an architecture, a type, now
and then a class and a minimum of memory; it brings its scope and its source package. A pool
provides most tasks for two architectures and some classes; few are exclusive, few want a scope.
"""

import random
from collections.abc import Sequence
from decimal import Decimal

from fleet.tagrules.offers import Ask, Offer

TASKS = [f"worker:task:worker:task{n}:version:1" for n in range(20)]
ARCHITECTURES = [f"worker:build-arch:arch{n}" for n in range(8)]
CLASSES = [f"worker:class:class{n}" for n in range(12)]
PACKAGES = [f"task:source-package:package{n}" for n in range(30_000)]
SCOPES = ("debian", "kali")
SPECIAL = 0.1
"""The share of requests that ask for a class, and of pools that are exclusive."""
HARD_TO_PLEASE = 0.2
"""The share of requests with a minimum, and of pools that want a scope."""
EXTERNAL = "worker:type:external"


def offers_of(count: int, *, plain: bool = False) -> dict[str, Offer]:
    """Return what this many pools offer; `plain` leaves out what Debusine does not know."""
    chance = random.Random(4)  # noqa: S311 - the same pools in every run
    return {f"pool-{n:03}": _offer(chance, plain=plain) for n in range(count)}


def signatures_of(count: int, *, plain: bool = False) -> list[Ask]:
    """Return this many different asks."""
    chance = random.Random(5)  # noqa: S311 - the same asks in every run
    asks: dict[Ask, None] = {}
    while len(asks) < count:
        asks[_ask(chance, plain=plain)] = None
    return list(asks)


def requests_of(signatures: Sequence[Ask], count: int) -> list[Ask]:
    """Return this many requests in these signatures, each with sets of its own."""
    chance = random.Random(6)  # noqa: S311 - the same requests in every run
    drawn = [*signatures, *chance.choices(signatures, k=count - len(signatures))]
    chance.shuffle(drawn)
    return [Ask(frozenset([*a.required]), frozenset([*a.provided]), a.minimums) for a in drawn]


def _ask(chance: random.Random, *, plain: bool) -> Ask:
    task = chance.randrange(len(TASKS))
    required = {EXTERNAL, TASKS[task], f"worker:cap:cap{task % 10}", chance.choice(ARCHITECTURES)}
    if chance.random() < SPECIAL:
        required.add(chance.choice(CLASSES))
    least = Decimal(chance.choice([2, 8, 32]))
    asks_much = chance.random() < HARD_TO_PLEASE and not plain
    return Ask(
        required=frozenset(required),
        provided=frozenset([f"task:scope:{chance.choice(SCOPES)}", chance.choice(PACKAGES)]),
        minimums=(("memory_gib", least),) if asks_much else (),
    )


def _offer(chance: random.Random, *, plain: bool) -> Offer:
    exclusive = frozenset(
        chance.sample(CLASSES, 1) if not plain and chance.random() < SPECIAL else []
    )
    provides = [EXTERNAL, *chance.sample(ARCHITECTURES, 2), *chance.sample(TASKS, 15)]
    provides += [*chance.sample(CLASSES, 4), *(f"worker:cap:cap{n}" for n in range(7))]
    has = Decimal(chance.choice([4, 16, 64, 256]))
    return Offer(
        provides=frozenset(provides) | exclusive,
        requires=frozenset(["task:scope:debian"] if chance.random() < HARD_TO_PLEASE else []),
        exclusive=exclusive,
        numbers=(("memory_gib", has),) if not plain else (),
    )
