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
    found: dict[str, dict[Path, GivenRule]] = {}
    for signature in plan.signatures if fleet.powerful else ():
        for key in signature.requests:
            request = requests.get(key) or requests.get(key.rpartition("#")[0])
            own = given.find(request) if request else ()
            found.setdefault(signature.id, {}).update({rule.path: rule for rule in own})
    rules = {name: tuple(each[path] for path in sorted(each)) for name, each in found.items()}
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
                path=("powerful", match.index),
                match=match.rule.match,
                ask=tuple(match.rule.ask),
                reason=match.rule.reason or "",
                contact=match.rule.contact or "",
            )
            for match in {match.index: match for match in matches}.values()
        )

    def contacts(self, rules: tuple[GivenRule, ...], package: str) -> tuple[Contact, ...]:
        """Return the contact of the fleet, then those of the rules of a package."""
        about = words.describe_rule_contact(package)
        found = {rule.contact: about for rule in rules if rule.contact}
        own = {self._fleet.contact: words.FLEET} if self._fleet.contact else {}
        every = own | {name: about for name, about in found.items() if name not in own}
        return tuple(Contact(name=name, about=about) for name, about in every.items())
