"""The rules of the allow-list that apply to builds, and the contacts of fleet.yaml."""

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import NamedTuple

from fleet.explain.values import Contact, GivenRule
from fleet.model.facts import Request, World
from fleet.model.plan import Plan
from fleet.schema.findings import Path
from fleet.schema.model import Fleet
from fleet.tagrules.allow import AllowList
from fleet.words import waiting as words


class Responsible(NamedTuple):
    """The contact of the fleet, and the allow-list rules that apply to waiting requests."""

    contact: str = ""
    rules: Mapping[str, tuple[GivenRule, ...]] = MappingProxyType({})
    """Id of a signature to the rules of its requests."""


def find_responsible(fleet: Fleet, world: World, plan: Plan) -> Responsible:
    """Return the contact of a fleet, and the rules that apply to its waiting requests."""
    given = GivenRules(fleet, world.time.date())
    requests = {f"{q}/{r.id}": r for q, demand in world.demands() for r in demand.requests}
    rules = {}
    for signature in plan.signatures if fleet.powerful else ():
        found: dict[Path, GivenRule] = {}
        for key in signature.requests:
            if request := requests.get(key) or requests.get(key.rpartition("#")[0]):
                found |= {rule.path: rule for rule in given.find(request)}
        rules[signature.id] = tuple(found[path] for path in sorted(found))
    return Responsible(fleet.contact or "", rules)


class GivenRules:
    """Finds the allow-list rules that apply to builds, and the contacts for questions."""

    def __init__(self, fleet: Fleet, today: date) -> None:
        self._rules = AllowList(fleet, today) if fleet.powerful else None
        self._fleet = fleet

    def find(self, request: Request) -> tuple[GivenRule, ...]:
        """Return the rules that apply to a request, in the order of fleet.yaml."""
        matches = self._rules.rules_for(request) if self._rules else ()
        return tuple(
            GivenRule(
                path=("powerful", index),
                match=rule.match,
                ask=tuple(rule.ask),
                reason=rule.reason or "",
                contact=rule.contact or "",
            )
            for index, rule in {match.index: match.rule for match in matches}.items()
        )

    def contacts(self, rules: tuple[GivenRule, ...], package: str) -> tuple[Contact, ...]:
        """Return the contact of the fleet, then those of the rules of a package."""
        own = {self._fleet.contact: words.FLEET} if self._fleet.contact else {}
        about = words.RULE_CONTACT(package=package or "this build")
        others = {rule.contact: about for rule in rules if rule.contact}
        return tuple(
            Contact(name=name, about=text) for name, text in ({**own, **others, **own}).items()
        )
