"""This module says which tags an administrator has to give a pool's workers in Debusine.

A worker reports what it can do, but gives itself no class; Debusine carries no numbers, so that a
figure is a class for each rung that it reaches.
"""

from collections.abc import Mapping
from decimal import Decimal

from fleet.schema.model import Fleet, Pool
from fleet.tagrules.ladder import ladder, rungs_for
from fleet.tagrules.offers import ask_of_tags, offer_of_pool
from fleet.tagrules.sizes import CLASS


def rungs_of(fleet: Fleet) -> tuple[Decimal, ...]:
    """Return the rungs of a file: its own minimums are exact."""
    asked = [rule.ask for rule in fleet.powerful] + [[rule.ask] for rule in fleet.derive]
    return rungs_for(ask_of_tags(fleet, tags).minimums for tags in asked)


def static_tags(fleet: Fleet, name: str) -> Mapping[str, tuple[str, ...]]:
    """Return what the workers of a pool are said to provide and require, by Debusine's words."""
    pool = fleet.pools[name]
    offer = offer_of_pool(fleet, name, ())
    classes = sorted(tag for tag in offer.provides if tag.startswith(CLASS))
    climbed = [tag for each, n in offer.numbers for tag in ladder(each, n, rungs_of(fleet))]
    plain = [tag for tag in pool.provides if "=" not in tag]
    return {
        "provided_tags": tuple(dict.fromkeys([*plain, *classes, *climbed])),
        "required_tags": tuple(pool.requires) if isinstance(pool, Pool) else (),
    }
