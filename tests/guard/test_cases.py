"""What guards hold back: each case of `cases/` is a sentence, a plan and what is left of it.

A case has the form `GUARDS | POOLS | ACTIONS -> LEFT; GUARDS THAT SPEAK`. GUARDS has the keys of
`guards` in fleet.yaml and, at `pools`, those of pools. POOLS are the verdicts on pools, with the
costs of their outdated workers. A line `because N: WORDS` has words of the sentence of a guard.
"""

import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from fleet.guard import guard
from fleet.model.plan import Cause, Plan, PoolVerdict, Reason, Release, WorkerVerdict
from fleet.schema.model import Fleet
from tests.builders import (
    a_create,
    a_delete,
    a_drain,
    a_plan,
    a_pool,
    a_pool_verdict,
    a_sim_fleet,
    a_worker_verdict,
)
from tests.builders.cases import Block, read_blocks
from tests.builders.guarding import an_approval, said
from tests.builders.sentences import tells

CASES = [*read_blocks(Path(__file__).parent / "cases")]
MAKE = {"create": a_create, "drain": a_drain, "delete": a_delete}
FIGURES = ("busy", "idle", "other", "unwanted", "draining", "price", "cost_before", "cost_after")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_guards_leave_the_actions_of_their_case(case: Block) -> None:
    left, _, guards = case.result.partition(";")

    before = plan_of(*case.parts[1:])

    plan = guard(fleet_of(case.parts[0]), before)

    assert remaining(plan) == left.strip()
    assert len(plan.actions) + len(plan.withheld) == len(before.actions)
    assert len(plan.releases) + len(plan.unreleased) == len(before.releases)
    assert ", ".join(f"{name} {pool or 'fleet'} {did}" for name, pool, did in said(plan)) == (
        guards.strip()
    )
    for about, words in case.because:
        assert tells(plan.guards[int(about)].because, *words.split())


def remaining(plan: Plan) -> str:
    """Return how many actions and releases are left of each kind, in each pool."""
    shown = {Reason.INTERRUPTED, Reason.REPLACEMENT}
    kinds = Counter(
        (f"{each.action}", f" {each.reason}" if each.reason in shown else "", each.pool)
        for each in plan.actions
    )
    kinds.update(("release", "", each.pool) for each in plan.releases)
    found = (
        f"{kind} {count}{reason}" + (f" in {pool}" if pool != "builders" else "")
        for (kind, reason, pool), count in kinds.items()
    )
    return ", ".join(found) or "nothing"


def fleet_of(text: str) -> Fleet:
    said = yaml.safe_load(f"{{{text}}}")
    pools = said.pop("pools", {"builders": {}})
    made = {name: a_pool(provider="desk", **keys) for name, keys in pools.items()}
    return a_sim_fleet(guards=said, pools=made)


def plan_of(pools: str, actions: str) -> Plan:
    verdicts: list[PoolVerdict] = []
    workers: list[WorkerVerdict] = []
    for pool, *words in items(pools):
        keys = {key: words[words.index(key) + 1] for key in FIGURES if key in words}
        modes = {"removed", "observe", "static"} & {*words}
        mode = {"mode": modes.pop()} if modes else {}
        verdicts.append(a_pool_verdict(**({"pool": pool, "busy": 0} | keys | mode)))
        for cost in words[words.index("old") + 1 :] if "old" in words else ():
            name = f"{pool}-{sum(each.pool == pool for each in workers)}"
            old = a_worker_verdict(worker=name, pool=pool, outdated=True, cost=Decimal(cost))
            workers.append(old)
    done, releases, approvals, names = [], [], [], iter(range(999))
    for verb, *words in items(actions):
        pool = words[words.index("in") + 1] if "in" in words else "builders"
        if verb == "approve":
            approvals.append(an_approval(pool, words[0], int(words[1])))
            continue
        new = "new-" if verb == "create" else ""
        for worker in (f"{new}{pool}-{next(names)}" for _ in range(int(words[0]))):
            if verb == "release":
                keys = {"pool": pool, "worker": worker, "registry": "debian", "because": ""}
                releases.append(Release.model_validate(keys | {"may_work": "idle" not in words}))
                continue
            made = MAKE[verb](**({"pool": pool, "worker": worker} | keys_of(words)))
            done.append(made)
            if "drained" in words:
                workers.append(a_worker_verdict(worker=worker, state="draining"))
    return a_plan(
        actions=done, pools=verdicts, workers=workers, releases=releases, approvals=approvals
    )


def items(text: str) -> Iterator[list[str]]:
    return (each.split() for each in re.split(r",\s*", text) if each.strip())


def keys_of(words: list[str]) -> dict[str, object]:
    """Return the cause, the reason and the price of an action."""
    keys: dict[str, object] = {}
    for word in words[1:]:
        if word in [*Cause]:
            keys["cause"] = Cause(word)
        elif word in [*Reason]:
            keys["reason"] = Reason(word)
        elif word.startswith("0."):
            keys["cost"] = Decimal(word)
    return keys
