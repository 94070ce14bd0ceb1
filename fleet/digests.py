"""This module digests what a plan rests on; the order of writing does not count."""

from fleet.facts import World
from fleet.plan import Plan, canonical_json, digest
from fleet.schema.model import Fleet


def seal(plan: Plan) -> Plan:
    """Return the plan with the digest of all it says, warnings aside."""
    blank = plan.digests.model_copy(update={"plan": ""})
    said = plan.model_copy(update={"digests": blank, "warnings": ()})
    sealed = plan.digests.model_copy(update={"plan": digest(said.model_dump(mode="json"))})
    return plan.model_copy(update={"digests": sealed})


def config_digest(fleet: Fleet) -> str:
    """Return the digest of a configuration; the order of keys and of sets does not count."""
    return digest(_canonical(fleet.model_dump(mode="json", by_alias=True)))


def world_digest(world: World) -> str:
    """Return the digest of a world; the order in which it was observed does not count."""
    return digest(_canonical(world.model_dump(mode="json")))


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
