"""A base is made before anything needs it; what machines use is neither deleted nor made anew."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fleet.apply.run import apply_shared_stacks, apply_shared_stacks_of_saved
from fleet.apply.saved_plan import Selection
from fleet.model.facts import Base, Unknown, World
from fleet.model.history import StackOutcome
from fleet.model.orders import Freeze
from fleet.planner.shared_stacks import parts_of
from fleet.ports import StackStep
from fleet.schema.model import Fleet
from tests.builders import (
    a_fleet,
    a_listing,
    a_machine,
    a_pool,
    a_stack,
    a_world,
    sharing,
    some_inputs,
)
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells
from tests.builders.sources import some_sources
from tests.fakes.shared_stack_engine import FakeSharedStackEngine

CASES = [*read_blocks(Path(__file__).parent / "bases")]
NET = "debian-ci-hetzner-network"
PARTS: dict[str, dict[str, Any]] = {
    "net": {"network": {"ip_range": "10.20.0.0/16", "zone": "eu-central"}},
    "wide": {"network": {"ip_range": "10.0.0.0/8", "zone": "eu-central"}},
    "nothing": {},
}
STRAY = a_machine(name="debian-ci-builders-0007", id="hcloud-7")


def a_sharing_fleet(parts: str, pools: str = "builders") -> Fleet:
    """Return a fleet whose machines share parts; pools as `NAME:MODE` or `NAME@PROVIDER`."""
    if parts == "template":
        return a_fleet(providers={"hetzner": {"kind": "aws", "region": "eu-central-1"}})
    provider = {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}
    made = {}
    for each in pools.split(","):
        name, _, mode = each.partition(":")
        name, _, at = name.partition("@")
        made[name] = a_pool(provider=at or "hetzner", mode=mode or "apply")
    providers = {"hetzner": provider | PARTS[parts], "desk": {"kind": "sim"}}
    return a_fleet(providers=providers, pools=made)


class Bench:
    """One provider's base, and what was said."""

    def __init__(self, base: Base | Unknown | None = None) -> None:
        self.engine = FakeSharedStackEngine(base)
        self.said: list[str] = []
        self.selection: Selection | None = None

    def lay(self, fleet: Fleet, **world: object) -> tuple[World, tuple[StackOutcome, ...]]:
        """Bring the base up in a world that knows what is recorded of it."""
        bases = {} if self.engine.base is None else {"hetzner": self.engine.base}
        sources = some_sources(bases={"hetzner": self.engine})
        seen = a_world(**({"bases": bases} | world))
        return apply_shared_stacks(fleet, seen, sources, self.said.append, self.selection)


def laid(parts: str) -> Base | Unknown | None:
    if parts in ("none", "locked"):
        return Unknown(unknown="locked") if parts == "locked" else None
    found = parts_of(a_sharing_fleet(parts), "hetzner")
    return Base(serial=1, parts=found, ids={each.key: "1" for each in found}, laid=True)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_base_is_laid_as_in_its_case(case: Block) -> None:
    before, after, *more = case.parts
    words = dict(each.partition("=")[::2] for each in " ".join(more).split())
    bench = Bench(laid(before))
    world = prepare(bench, words, after)
    fleet = a_sharing_fleet(after, words.get("pools", "builders"))

    seen, troubles = bench.lay(fleet, **world)

    base = seen.bases.get("hetzner")
    ids = " ".join(each.partition("/")[0] for each in base.ids) if isinstance(base, Base) else "-"
    results = " ".join(f" {each.result}" for each in troubles)
    assert f"runs {bench.engine.runs}; ids {ids or 'none'};{results or ' fine'}" == case.result
    for about, told in case.because:
        lines = bench.said if about == "said" else [each.error for each in troubles]
        lines = [each.pool for each in troubles] if about == "pool" else lines
        assert any(tells(each, *told.replace("NET", NET).split()) for each in lines), lines
    assert bool(bench.said) or "said" not in dict(case.because)


def prepare(bench: Bench, words: dict[str, str], after: str) -> dict[str, Any]:
    """Have the engine do what the words say, and return what the world has."""
    engine = bench.engine
    for key in words.keys() & {"fails", "fails_to_change", "anew"}:
        setattr(engine, key, {NET})
    if "select" in words:
        chosen = words["select"]
        bench.selection = Selection(pools=frozenset(filter(None, chosen.split(","))))
    if "besides" in words:
        (part, *_) = parts_of(a_sharing_fleet(after), "hetzner")
        name, operation = words["besides"].split(":")
        engine.besides = [StackStep(worker=name.replace("PART", part.name), operation=operation)]
    if after == "template" and isinstance(engine.base, Base):
        engine.base = engine.base.altered(laid=False)
    world: dict[str, Any] = {}
    if "used" in words:
        (part, *_) = parts_of(a_sharing_fleet("net" if after == "nothing" else after), "hetzner")
        settings = {"template": part.name} if after == "template" else {"network_ids": "1"}
        inputs = some_inputs(settings=settings)
        world["stacks"] = {"builders": a_stack(provider="hetzner", workers=(inputs,))}
    if "stray" in words:
        world["providers"] = {"hetzner": a_listing(STRAY)}
    if "unlisted" in words:
        world["providers"] = {"hetzner": Unknown(unknown="it timed out")}
    return world


def test_base_is_applied_again_after_failed_change() -> None:
    bench = Bench(laid("net"))
    bench.engine.fails_to_change = {NET}
    bench.lay(a_sharing_fleet("wide"))
    bench.engine.fails_to_change.clear()

    _, troubles = bench.lay(a_sharing_fleet("wide"))

    assert (bench.engine.runs, troubles) == (2, ())


def test_base_is_unchanged_when_saved_plan_is_applied_while_frozen() -> None:
    fleet, world = sharing.a_sharing_fleet(**PARTS["net"]), sharing.a_waiting_world()
    until = world.time + timedelta(hours=1)
    freeze = Freeze(by="ada", at=world.time, until=until, reason="slow", stops=("creates",))
    bench = Bench()
    bench.selection = Selection(
        saved=sharing.planned(fleet, world.altered(orders=(freeze,))),
    )

    _, troubles = bench.lay(fleet, time=world.time, orders=(freeze,))

    assert (bench.engine.runs, troubles) == (0, ())


def under_saved(after: Fleet, anew: str) -> tuple[int, tuple[str, ...]]:
    """Lay what a fleet wants under a plan saved of it; return how many it makes, and its drift."""
    base = sharing.a_base(sharing.a_sharing_fleet(**PARTS["net"]), laid=True)
    world = sharing.a_waiting_world(bases={"hetzner": base})
    bench = Bench(base)
    bench.engine.anew = {anew}
    saved = sharing.planned(after, world)

    def lay(world: World) -> tuple[World, tuple[StackOutcome, ...]]:
        return bench.lay(after, queues=world.queues)

    _, troubles, drift = apply_shared_stacks_of_saved(
        Selection(saved=saved), world, lay, partial(sharing.planned, after)
    )
    assert (bench.engine.runs, troubles) == (1, ())
    return len(saved.actions), drift


def test_saved_plan_is_outdated_when_base_resource_was_replaced() -> None:
    planned, drift = under_saved(sharing.a_sharing_fleet(**PARTS["wide"]), NET)

    assert planned == 1
    assert any("debian-ci-builders-0001" in each for each in drift)


def test_new_base_resource_waits_for_next_plan_when_plan_is_saved() -> None:
    fleet = sharing.a_sharing_fleet(**PARTS["net"], placement_group="spread")

    assert under_saved(fleet, "") == (0, ())
