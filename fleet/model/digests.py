"""Compute digests of plans, configurations and observations that ignore the order of records.

Records of long lists are encoded one by one and the lines sorted, so that no JSON of the whole
list is in memory.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_origin

from pydantic_core import to_json

from fleet.model.facts import Demand, Listing, Request, World
from fleet.model.plan import Action, Create, Plan, Signature, Unserved, WorkerVerdict
from fleet.model.values import FOR_PEOPLE, Value, canonical_json, digest
from fleet.schema.model import Fleet


def seal(plan: Plan) -> Plan:
    """Return the plan with its digest. The digest excludes all fields marked FOR_PEOPLE.

    If an older version of fleet saved the plan, the digest includes the sentences.
    """
    is_older = plan.digests.over == "sentences"
    omit: Callable[[type[Value]], _Omitted] = (lambda _: {}) if is_older else _omit_sentences
    blank = plan.altered(
        digests=plan.digests.altered(plan=""),
        **dict.fromkeys(("actions", "signatures", "unserved", "workers"), ()),
    )
    if is_older:
        blank = blank.altered(**_OLDER_FOR_PEOPLE)
    # Newer fields are left out while empty, so that older plans keep their digests.
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
    absent = dict.fromkeys((key for key in later if not getattr(blank, key)), True)
    dumped = blank.model_dump(mode="json", exclude={**omit(Plan), **absent})
    hasher = hashlib.sha256(canonical_json(dumped).encode())
    for lines in (
        (_encode_signature(each, omit(Signature)) for each in plan.signatures),
        _encode_unserved(plan.unserved, omit(Unserved)),
        (_encode_action(each, omit(type(each))) for each in plan.actions),
        (_encode(each, omit(WorkerVerdict)) for each in plan.workers),
    ):
        for line in lines:
            hasher.update(b"\n" + line)
    return plan.altered(digests=plan.digests.altered(plan=hasher.hexdigest()))


_Omitted = Mapping[str, Any]
"""Fields to leave out, in the format of pydantic's `exclude`."""
_OLDER_FOR_PEOPLE: dict[str, object] = {"included": {}, "notices": (), "warnings": ()}
"""Fields that older versions of fleet left out of a plan's digest, with their empty values."""


@cache
def _omit_sentences(kind: type[Value]) -> _Omitted:
    """Return the fields marked FOR_PEOPLE in a value type and in all types nested in it."""
    found: dict[str, Any] = {}
    for name, field in kind.model_fields.items():
        if FOR_PEOPLE in field.metadata:
            found[name] = True
        elif inner := _omit_within(field.annotation):
            found[name] = inner
    return found


def _omit_within(annotation: object) -> _Omitted:
    """Return the fields marked FOR_PEOPLE in the value types that an annotation contains."""
    if isinstance(annotation, type) and issubclass(annotation, Value):
        return _omit_sentences(annotation)
    found: dict[str, Any] = {}
    for part in get_args(annotation):
        found |= _omit_within(part)
    is_listed = get_origin(annotation) in (tuple, dict)
    return {"__all__": found} if found and is_listed else found


def config_digest(fleet: Fleet) -> str:
    """Return the digest of a configuration, regardless of the order of keys and of sets.

    A key with its default value is left out, so that a new optional key changes no digest.
    """

    def find() -> str:
        dumped = fleet.model_dump(
            mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
        )
        return digest(_sort_sets(dumped))

    return fleet.cached("config digest", (), find)


def world_digest(world: World) -> str:
    """Return the digest of an observation, regardless of the order of records."""
    bare = world.altered(
        queues={
            name: reading.altered(
                demand=reading.demand.altered(requests=())
                if isinstance(reading.demand, Demand)
                else reading.demand,
                workers=() if isinstance(reading.workers, tuple) else reading.workers,
            )
            for name, reading in world.queues.items()
        },
        providers={
            name: listing
            if not isinstance(listing, Listing)
            else listing.altered(machines=(), workers=() if listing.workers else listing.workers)
            for name, listing in world.providers.items()
        },
        # Only people read remarks.
        remarks=(),
    )
    hasher = hashlib.sha256(_encode_sorted(bare))
    for header, records in _list_records(world):
        hasher.update(b"\n" + to_json(header))
        hasher.update(b"\n".join([b"", *sorted(map(_encode_record, records))]))
    return hasher.hexdigest()


def _encode_action(action: Action, omitted: _Omitted) -> bytes:
    if not isinstance(action, Create):
        return _encode(action, omitted)
    inputs = action.inputs
    tables = [sorted(inputs.labels.items()), sorted(inputs.settings.items())]
    return _encode(action, {**omitted, "inputs": {"labels", "settings"}}) + to_json(tables)


def _encode_signature(signature: Signature, omitted: _Omitted) -> bytes:
    served = [sorted(by.items()) for by in (signature.by_worker, signature.by_create)]
    later = {} if signature.ruled else {"ruled": True}
    own = {**omitted, "by_worker": True, "by_create": True, **later}
    return _encode(signature, own) + to_json(served)


def _encode_unserved(causes: Iterable[Unserved], omitted: _Omitted) -> Iterator[bytes]:
    """Yield the encoding of each unserved cause. Digests of shared reasons are cached."""
    known: dict[tuple[int, int, int], bytes] = {}
    for each in causes:
        # The plan keeps all these objects alive, so their ids are unique.
        key = id(each.because), id(each.blocked), id(each.decisions)
        if key not in known:
            reasons = to_json([each.because, each.blocked])
            if omitted:
                shared = each.altered(signature="", requests=(), count=0, path=())
                reasons = _encode(shared, omitted)
            known[key] = hashlib.sha256(reasons).digest()
        own = {"because": True, "blocked": True, "decisions": True}
        yield _encode(each, own) + known[key]


def _list_records(world: World) -> Iterator[tuple[tuple[str, str], tuple[Value, ...]]]:
    """Yield each long list of records in an observation, after the kind and name of its source."""
    for name, reading in sorted(world.queues.items()):
        if isinstance(reading.demand, Demand):
            yield ("requests", name), reading.demand.requests
        if isinstance(reading.workers, tuple):
            yield ("workers", name), reading.workers
    for name, listing in sorted(world.providers.items()):
        if isinstance(listing, Listing):
            yield ("machines", name), listing.machines
            yield ("registered", name), listing.workers or ()


def _encode_record(record: Value) -> bytes:
    # Only these fields of a request have sets and keys whose order does not count.
    if isinstance(record, Request) and (record.asked or record.task_data or record.groups):
        return _encode_sorted(record)
    return _encode(record)


def _encode(value: Value, omitted: _Omitted | None = None) -> bytes:
    return value.model_dump_json(exclude=omitted or None).encode()


def _encode_sorted(value: Value) -> bytes:
    return canonical_json(_sort_sets(value.model_dump(mode="json"))).encode()


_SETS = frozenset({"provides", "requires", "serves", "scopes", "static", "groups", "publish"})
_RECORDS = frozenset({"requests", "workers", "machines", "images", "history"})


def _sort_sets(value: object, key: str = "") -> object:
    match value:
        case dict():
            return {name: _sort_sets(part, name) for name, part in value.items()}
        case list() if key in _SETS or key in _RECORDS:
            return sorted((_sort_sets(part) for part in value), key=canonical_json)
        case list():
            return [_sort_sets(part) for part in value]
        case _:
            return value
