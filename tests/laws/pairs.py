"""Draw workers and requests for the forms of matching to be compared on.

Drawn with a seed, not by Hypothesis: the database is asked about a thousand of them at once.
Small numbers of tags in few sizes make about as many pairs that match as pairs that do not.
"""

from collections.abc import Sequence
from random import Random

from fleet.schema.model import Fleet
from fleet.tagrules.debusine import WorkerRow
from fleet.tagrules.offers import Ask, Offer, ask_of_tags, offer_of_tags
from tests.builders import a_fleet
from tests.rigs.debusine_tables import RequestRow

BARE: Fleet = a_fleet(tags={})
"""Nothing is declared: Debusine's own rule and no more."""

DECLARED: Fleet = a_fleet(
    tags={
        "mem": {"kind": "number"},
        "größe": {"kind": "number"},
        "worker:class:powerful": {"exclusive": True},
        "worker:team:*": {"exclusive": True},
        "worker:team:open:*": {"exclusive": False},
        "worker:team:open:not": {"exclusive": True},
        "it's": {"exclusive": True},
    }
)
REFUSED = ["mem>=NaN", "mem>=-1", "mem>=1e3", "mem>=Infinity", f"mem>=1{'0' * 12}", "mem>=٣"]
"""Not numbers as they are written here: plain tags that nobody provides."""

PLAIN = [
    *("worker:build-arch:amd64", "worker:build-arch:i386", "worker:cap:sbuild"),
    *("worker:type:external", "worker:class:big", "worker:team:open:b"),
]
EXCLUSIVE = ["worker:class:powerful", "worker:team:a", "worker:team:open:not", "it's"]
AWKWARD = [
    *("", " ", "it's", '"quoted"', "back\\slash", "{a,b}", "NULL", "%s", "%", "a;--", "tab\there"),
    *("Ä", "A\u0308", "ß", "雪", "\U0001f40e", "\u202e", "line\nbreak", "x" * 254, "x" * 255),
]
MINIMUMS = ["mem>=8", "mem>=8.000001", "mem>=64", "größe>=0", "größe>=999999999999.999999"]
NUMBERS = ["mem=8", "mem=08.000", "mem=64", "größe=0", "größe=999999999999.999999"]
BROUGHT = ["task:scope:debian", "task:group:a", "task:source-package:it's", "雪", "%s", ""]


def draw_request(random: Random, number: int) -> RequestRow:
    """Return a waiting request, now and then with what is hard to compare."""
    required = _some(random, PLAIN, 1.5) + _some(random, EXCLUSIVE, 0.7)
    required += _some(random, [*AWKWARD, *REFUSED, *NUMBERS], 0.3)
    required += _some(random, [*MINIMUMS, "other>=8"], 0.5)
    return RequestRow(
        id=number,
        required=_repeated(random, required),
        provided=_repeated(random, _some(random, BROUGHT, 4)),
        task=random.choice(["sbuild", "noop"]),
        scope=random.choice(["debian", "kali"]),
        priority=random.randint(-1, 1),
    )


def draw_worker(random: Random) -> WorkerRow:
    """Return a worker's row, now and then with what is hard to compare."""
    reported = _some(random, PLAIN, 4.5) + _some(random, NUMBERS, 2)
    reported += _some(random, [*AWKWARD, *REFUSED, *MINIMUMS, "y" * 10_000], 8)
    static: dict[str, object] = {}
    if written := _some(random, [*PLAIN, *EXCLUSIVE, *NUMBERS], 2):
        static["provided_tags"] = list(_repeated(random, written))
    if required := _some(random, BROUGHT, 0.5):
        static["required_tags"] = list(_repeated(random, required))
    if random.random() < 0.1:
        static["tasks_allowlist"] = random.choice([[], ["sbuild"], None])
    dynamic = {"provided_tags": list(_repeated(random, reported))}
    return WorkerRow(
        worker_type=random.choice(["external", "external", "celery"]),
        static_metadata=static,
        dynamic_metadata=random.choice(
            [dynamic, dynamic, dynamic, {}, {"tasks_denylist": ["noop"]}]
        ),
    )


def ask_of(fleet: Fleet, row: RequestRow) -> Ask:
    """Return what the specification is asked of a request."""
    return ask_of_tags(fleet, row.required, row.provided)


def offer_of(fleet: Fleet, row: WorkerRow) -> Offer:
    """Return what the specification is asked of a worker."""
    return offer_of_tags(fleet, row.provides, row.requires)


def _some(random: Random, tags: Sequence[str], usually: float) -> list[str]:
    chance = usually / len(tags)
    return [tag for tag in tags if random.random() < chance]


def _repeated(random: Random, tags: list[str]) -> tuple[str, ...]:
    """Return the tags in any order, some of them twice."""
    every = tags + [tag for tag in tags if random.random() < 0.1]
    random.shuffle(every)
    return tuple(every)
