"""Digest what a plan rests on; the order of writing does not count.

What comes in great numbers is written by record, straight to bytes: a record's fields have an
order of their own, and sorted lines need no value of the whole.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic_core import to_json

from fleet.model.facts import Demand, Listing, Machine, QueueReading, Request, World
from fleet.model.images import ImageVersion
from fleet.model.plan import Action, Create, Plan, Signature, Unserved
from fleet.model.values import FOR_PEOPLE, Value, canonical_json, digest
from fleet.schema.model import Fleet
from fleet.schema.remembered import remembered


def seal(plan: Plan) -> Plan:
    """Return the plan with the digest of all it says, what only people read aside."""
    fields = Plan.model_fields.items()
    for_people = {
        name: field.get_default(call_default_factory=True)
        for name, field in fields
        if FOR_PEOPLE in field.metadata
    }
    blank = plan.altered(
        digests=plan.digests.altered(plan=""),
        **dict.fromkeys(("actions", "signatures", "unserved", "workers"), ()),
        **for_people,
    )
    # A plan without base stacks to change is digested as before plans told of them; others too.
    later = (
        "bases",
        "included",
        "limits",
        "notices",
        "prices",
        "promotions",
        "rules",
        "waiting_versions",
    )
    absent = {key for key in later if not getattr(blank, key)}
    dumped = blank.model_dump(mode="json", exclude=absent)
    said = hashlib.sha256(canonical_json(dumped).encode())
    for lines in (
        map(_signature, plan.signatures),
        _unserved(plan.unserved),
        map(_action, plan.actions),
        map(_json, plan.workers),
    ):
        for line in lines:
            said.update(b"\n" + line)
    return plan.altered(digests=plan.digests.altered(plan=said.hexdigest()))


def config_digest(fleet: Fleet) -> str:
    """Return the digest of a configuration; the order of keys and of sets does not count.

    A key with its default does not count, written or left out: one more of them changes no digest.
    """
    return remembered(fleet, "config digest", (), lambda: _config_digest(fleet))


def _config_digest(fleet: Fleet) -> str:
    said = fleet.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return digest(_canonical(said))


def world_digest(world: World) -> str:
    """Return the digest of a world; the order in which it was observed does not count."""
    bare = world.altered(
        queues={name: _without_records(reading) for name, reading in world.queues.items()},
        providers={
            name: listing
            if not isinstance(listing, Listing)
            else listing.altered(machines=(), workers=() if listing.workers else listing.workers)
            for name, listing in world.providers.items()
        },
    )
    # A fleet without base stacks is digested as it was before there were any.
    absent: dict[str, Any] = {} if world.bases else {"bases": True}
    absent |= {"delete_seconds": True} if world.delete_seconds is None else {}
    # So is a version that serves as before there were states.
    bare_versions = {n: keys for n, each in enumerate(world.versions) if (keys := _unsaid(each))}
    absent |= {"images": bare_versions} if bare_versions else {}
    # And a queue of which no rules are read.
    plain_queues = [name for name, reading in world.queues.items() if not reading.rules]
    absent |= {"queues": {name: {"rules"} for name in plain_queues}} if plain_queues else {}
    said = hashlib.sha256(_canonical_bytes(bare, absent))
    for header, line, records in _records(world):
        said.update(b"\n" + to_json(header))
        said.update(b"\n".join([b"", *sorted(map(line, records))]))
    return said.hexdigest()


def _unsaid(version: ImageVersion) -> set[str]:
    """Return what a version has said nothing of, as recordings of older fleets do not."""
    plain = {"state", "share"} if version.state == "current" else set[str]()
    later = ("since", "by_rule", "built_in", "way", "rentals")
    return plain | {key for key in later if not getattr(version, key)}


_TABLES = {"inputs": {"labels", "settings"}}


def _action(action: Action) -> bytes:
    if not isinstance(action, Create):
        return _json(action)
    inputs = action.inputs
    tables = [sorted(inputs.labels.items()), sorted(inputs.settings.items())]
    return _json(action, exclude=_TABLES) + to_json(tables)


def _signature(signature: Signature) -> bytes:
    served = [sorted(by.items()) for by in (signature.by_worker, signature.by_create)]
    later: set[str] = set() if signature.ruled else {"ruled"}
    return _json(signature, exclude={"by_worker", "by_create"} | later) + to_json(served)


def _unserved(causes: Iterable[Unserved]) -> Iterator[bytes]:
    """Yield the requests without a machine; many share their reasons."""
    known: dict[tuple[int, ...], bytes] = {}
    for each in causes:
        # The plan keeps them all: no id comes twice.
        key = (id(each.because), *map(id, each.blocked))
        if key not in known:
            reasons = to_json([each.because, each.blocked])
            known[key] = hashlib.sha256(reasons).digest()
        yield _json(each, exclude={"because", "blocked"}) + known[key]


def _without_records(reading: QueueReading) -> QueueReading:
    demand, workers = reading.demand, reading.workers
    if isinstance(demand, Demand):
        demand = demand.altered(requests=())
    if isinstance(workers, tuple):
        workers = ()
    return reading.altered(demand=demand, workers=workers)


_Records = tuple[tuple[str, str], Callable[[Any], bytes], tuple[Value, ...]]
"""A source, how each of its records is written, and these."""


def _records(world: World) -> Iterator[_Records]:
    """Yield the long lists of a world."""
    for name, reading in sorted(world.queues.items()):
        if isinstance(reading.demand, Demand):
            yield ("requests", name), _request, reading.demand.requests
        if isinstance(reading.workers, tuple):
            yield ("workers", name), _json, reading.workers
    for name, listing in sorted(world.providers.items()):
        if isinstance(listing, Listing):
            yield ("machines", name), _machine, listing.machines
            yield ("registered", name), _json, listing.workers or ()


def _request(request: Request) -> bytes:
    if request.asked or request.task_data or request.groups:
        return _canonical_bytes(request)
    return _json(request)


def _machine(machine: Machine) -> bytes:
    # A machine without a look at its port has the digest of earlier versions.
    unseen = {"misses", "was_ready", "looked_since"} if machine.misses is None else None
    return _json(machine, exclude=unseen)


def _json(value: Value, *, exclude: set[str] | dict[str, set[str]] | None = None) -> bytes:
    return value.model_dump_json(exclude=exclude).encode()


def _canonical_bytes(value: Value, exclude: dict[str, Any] | None = None) -> bytes:
    dumped = value.model_dump(mode="json", exclude=exclude)
    return canonical_json(_canonical(dumped)).encode()


_SETS = frozenset({"provides", "requires", "serves", "scopes", "static", "groups", "publish"})
_RECORDS = frozenset({"requests", "workers", "machines", "images", "history"})


def _canonical(value: object, key: str = "") -> object:
    match value:
        case dict():
            return {name: _canonical(part, name) for name, part in value.items()}
        case list() if key in _SETS or key in _RECORDS:
            return sorted((_canonical(part) for part in value), key=canonical_json)
        case list():
            return [_canonical(part) for part in value]
        case _:
            return value
