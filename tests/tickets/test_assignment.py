"""Who gets which machine: by fit, priority, turn and age, within limits and sandboxes."""

from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from fleet.model.facts import Ledger
from fleet.model.tickets import Ticket
from fleet.schema.model import Fleet
from fleet.tickets.tenancy import Tenancy
from tests.builders import NOW
from tests.builders.cases import Block, read_blocks
from tests.builders.ticketing import (
    a_tenancy,
    a_ticket,
    a_ticket_fleet,
    a_ticket_world,
    leases_of,
)

CASES = [*read_blocks(Path(__file__).parent / "assignments")]
TAG = "arch_x86_64"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_tickets_get_the_machines_of_their_case(case: Block) -> None:
    assert outcome_of(*case.parts) == case.result


def outcome_of(tickets: str, machines: str, rules: str) -> str:
    """Return the leases as text."""
    each = [ticket_of(*words.split()) for words in tickets.split(",")]
    free = [machine_of(*words.split()) for words in machines.split(",")]
    fleet = fleet_of(rules, {known.pool for known in free})
    busy = [a_tenancy(machine=t.machine, pool=free[0].pool, uses=1) for t in each if t.machine]
    pool_of = {known.machine: known.pool for known in (*free, *busy)}
    world = a_ticket_world(fleet, each, pool_of, [*busy, *(k for k in free if k.uses)])
    leases = leases_of(fleet, world.altered(ledger=Ledger(charged_until=NOW)))
    return ", ".join(f"{ticket} {machine}" for ticket, machine in leases) or "nothing"


def ticket_of(number: str, *pairs: str) -> Ticket:
    said = {
        key: yaml.safe_load(value) for key, _, value in (pair.partition("=") for pair in pairs)
    }
    if age := said.pop("for", ""):
        unit = {"m": "minutes", "h": "hours"}[age[-1]]
        said["opened_at"] = NOW - timedelta(**{unit: int(age[:-1])})
    if "machine" in said:
        said["state"] = "ready"
    return a_ticket(int(number), **said)


def machine_of(name: str, pool: str = "big", sandbox: str = "") -> Tenancy:
    """Return the record of a free machine."""
    return a_tenancy(machine=name, pool=pool, sandbox=sandbox, uses=bool(sandbox))


def fleet_of(rules: str, names: set[str]) -> Fleet:
    """Return a fleet of these pools, all of which provide the tags of every ticket."""
    pools: dict[str, dict[str, object]] = {
        name: {"provides": ["container"], "machine": "ccx33" if name == "cheap" else "ccx63"}
        for name in names
    }
    queue: dict[str, object] = {"kind": "tickets"}
    tags: dict[str, object] = {"wanted": {"on_demand": True}}
    budgets: dict[str, object] = {}
    for word, *rest in (rule.split() for rule in rules.split(";") if rule.strip()):
        pairs = dict(pair.partition("=")[::2] for pair in rest)
        match word:
            case "suits":
                if last := pairs.pop("last", ""):
                    pools[last]["provides"] = ["container", "wanted"]
                for name in names - pairs.keys():
                    pools[name]["serves"] = []
                for name in names & pairs.keys():
                    pools[name]["priorities"] = {TAG: int(pairs[name] or 0)}
            case "limit":
                limit = (
                    {"total": int(rest[1])}
                    if rest[0] == "total"
                    else {"per": {rest[0]: int(rest[1])}}
                )
                tags[TAG] = {"limits": limit}
            case "blocked":
                queue["blocked"] = rest
            case "low":
                tags["container"] = {"priority": "low"}
            case "budget":
                budgets["blue"] = {"team": "blue", "per_day": f"{rest[0]} EUR"}
            case _:
                queue["prefer_reuse"] = int(word.partition("=")[2])
    pool = {"provider": "desk", "image": "builder", "workers": {"max": 20}}
    return a_ticket_fleet(
        queues={"tickets": queue},
        pools={name: pool | {"reuse": {"opportunity": "1h"}} | own for name, own in pools.items()},
        tags=tags,
        budgets=budgets,
        durations={"any": "1h"},
    )


def test_ticket_gets_a_free_machine_with_the_tag_that_it_may_waive() -> None:
    pool = {"provider": "desk", "image": "builder", "workers": {"max": 2}}
    fleet = a_ticket_fleet(
        pools={
            "a": pool | {"machine": "ccx33"},
            "b": pool | {"machine": "ccx63", "provides": ["container"]},
        },
        tags={"container": {"otherwise": {"after": "1m", "drop": True}}},
    )
    tickets = [a_ticket(number, tags=(TAG, "container")) for number in (1, 2)]

    world = a_ticket_world(fleet, tickets, {"m1": "a", "m2": "b"})

    assert leases_of(fleet, world) == [(1, "m2"), (2, "m1")]
