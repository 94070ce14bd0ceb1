"""A base is made before anything needs it; what machines use is neither deleted nor made anew."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pytest

from fleet.apply.observe import Sources
from fleet.apply.saved_plan import Selection
from fleet.apply.shared import apply_shared_stacks, apply_shared_stacks_of_saved
from fleet.errors import FleetError
from fleet.model.facts import Base, Listing, Unknown, World
from fleet.model.history import StackOutcome
from fleet.model.orders import Freeze
from fleet.planner.shared_stacks import parts_of
from fleet.ports import Engine, StackStep
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
from tests.builders.sentences import tells
from tests.builders.stores import new_store
from tests.fakes.shared_stack_engine import FakeSharedStackEngine
from tests.fakes.source_reader import FakeSourceReader

NETWORK = "network/debian-ci-hetzner-network"
ASKED = {"network": {"ip_range": "10.20.0.0/16", "zone": "eu-central"}}
WIDER = {"network": {"ip_range": "10.0.0.0/8", "zone": "eu-central"}}
USED = a_stack(
    provider="hetzner",
    workers=(some_inputs(name="debian-ci-builders-0001", settings={"network_ids": "1"}),),
)


def a_sharing_fleet(pools: Mapping[str, object] | None = None, **shared: object) -> Fleet:
    provider = {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}
    providers = {"hetzner": provider | shared, "desk": {"kind": "sim"}}
    return a_fleet(providers=providers, pools=pools or {"builders": a_pool()})


def no_engine(_: str) -> Engine:
    raise FleetError("no pool is touched here")


@dataclass
class TicketDesk:
    """One provider's base, and what was said."""

    engine: FakeSharedStackEngine = field(default_factory=FakeSharedStackEngine)
    said: list[str] = field(default_factory=list)
    selection: Selection | None = None

    def lay(self, fleet: Fleet, **world: object) -> tuple[World, tuple[StackOutcome, ...]]:
        """Bring the base up in a world that knows what is recorded of it."""
        bases = {} if self.engine.base is None else {"hetzner": self.engine.base}
        sources = Sources(
            asking=FakeSourceReader,
            queues={},
            providers={},
            registries={},
            engine_of=no_engine,
            store=new_store(created=False),
            bases={"hetzner": self.engine},
        )
        seen = a_world(**({"bases": bases} | world))
        return apply_shared_stacks(fleet, seen, sources, self.said.append, self.selection)


def laid(fleet: Fleet) -> FakeSharedStackEngine:
    parts = parts_of(fleet, "hetzner")
    ids = {part.key: "1" for part in parts}
    return FakeSharedStackEngine(Base(serial=1, parts=parts, ids=ids, laid=True))


def test_created_base_is_in_observation() -> None:
    desk = TicketDesk()

    world, troubles = desk.lay(a_sharing_fleet(**ASKED))

    base = world.bases["hetzner"]
    assert isinstance(base, Base)
    assert list(base.ids) == [NETWORK]
    assert troubles == ()
    (said,) = desk.said
    assert tells(said, "hetzner", "create", "debian-ci-hetzner-network")


def test_current_base_starts_no_engine() -> None:
    desk = TicketDesk(laid(a_sharing_fleet(**ASKED)))

    desk.lay(a_sharing_fleet(**ASKED))

    assert desk.engine.runs == 0


def test_base_is_applied_again_after_failed_change() -> None:
    desk = TicketDesk(laid(a_sharing_fleet(**ASKED)))
    desk.engine.fails_to_change = {"debian-ci-hetzner-network"}
    desk.lay(a_sharing_fleet(**WIDER))
    desk.engine.fails_to_change.clear()

    _, troubles = desk.lay(a_sharing_fleet(**WIDER))

    assert (desk.engine.runs, troubles) == (2, ())


def test_no_base_is_created_without_shared_resources() -> None:
    desk = TicketDesk()

    desk.lay(a_sharing_fleet())

    assert (desk.engine.runs, desk.engine.base) == (0, None)


def test_unused_base_resource_is_deleted_when_its_key_is_removed() -> None:
    desk = TicketDesk(laid(a_sharing_fleet(**ASKED)))

    world, _ = desk.lay(a_sharing_fleet())

    base = world.bases["hetzner"]
    assert isinstance(base, Base)
    assert base.ids == {}


def test_used_base_resource_is_kept_when_its_key_is_removed() -> None:
    desk = TicketDesk(laid(a_sharing_fleet(**ASKED)))

    world, _ = desk.lay(a_sharing_fleet(), stacks={"builders": USED})

    assert desk.engine.runs == 0
    assert world.bases["hetzner"] == desk.engine.base
    (said,) = desk.said
    assert said.startswith(NETWORK)
    assert said.endswith("in use")


def test_replace_of_used_base_resource_is_refused() -> None:
    desk = TicketDesk(laid(a_sharing_fleet(**ASKED)))
    desk.engine.anew = {"debian-ci-hetzner-network"}

    _, (trouble,) = desk.lay(a_sharing_fleet(**WIDER), stacks={"builders": USED})

    assert trouble.result == "refused"
    assert tells(trouble.error, "replace", "debian-ci-hetzner-network")
    assert desk.engine.runs == 0


def test_replace_of_subnet_of_used_network_is_refused() -> None:
    desk = TicketDesk(laid(a_sharing_fleet(**ASKED)))
    desk.engine.besides = [
        StackStep(worker="debian-ci-hetzner-network-subnet", operation="replace")
    ]

    _, (trouble,) = desk.lay(a_sharing_fleet(**WIDER), stacks={"builders": USED})

    assert (trouble.result, desk.engine.runs) == ("refused", 0)
    assert tells(trouble.error, "replace", "debian-ci-hetzner-network-subnet")


def test_replace_of_group_of_used_template_is_refused() -> None:
    fleet = a_fleet(providers={"hetzner": {"kind": "aws", "region": "eu-central-1"}})
    desk = TicketDesk(laid(fleet))
    (template,) = parts_of(fleet, "hetzner")
    assert isinstance(desk.engine.base, Base)
    desk.engine.base = desk.engine.base.altered(laid=False)
    desk.engine.besides = [StackStep(worker=f"{template.name}-group", operation="replace")]
    inputs = some_inputs(name="debian-ci-builders-0001", settings={"template": template.name})

    _, (trouble,) = desk.lay(
        fleet, stacks={"builders": a_stack(provider="hetzner", workers=(inputs,))}
    )

    assert (trouble.result, desk.engine.runs) == ("refused", 0)
    assert tells(trouble.error, "replace", f"{template.name}-group")


def test_deletion_of_foreign_resource_in_base_is_refused() -> None:
    desk = TicketDesk(laid(a_sharing_fleet(**ASKED)))
    desk.engine.besides = [StackStep(worker="of-anas-experiment", operation="delete")]

    _, (trouble,) = desk.lay(a_sharing_fleet(**WIDER))

    assert (trouble.result, desk.engine.runs) == ("refused", 0)
    assert tells(trouble.error, "delete", "of-anas-experiment")


STRAY = a_machine(name="debian-ci-builders-0007", id="hcloud-7")


@pytest.mark.parametrize(
    ("listing", "because"),
    [
        (a_listing(STRAY), "debian-ci-builders-0007"),
        (Unknown(unknown="it timed out"), "it timed out"),
    ],
)
def test_base_resource_that_may_be_used_is_not_replaced(
    listing: Listing | Unknown, because: str
) -> None:
    desk = TicketDesk(laid(a_sharing_fleet(**ASKED)))
    desk.engine.anew = {"debian-ci-hetzner-network"}

    _, (trouble,) = desk.lay(a_sharing_fleet(**WIDER), providers={"hetzner": listing})

    assert (trouble.result, desk.engine.runs) == ("refused", 0)
    assert because in trouble.error


def test_base_resource_is_kept_when_unrecorded_machine_may_use_it() -> None:
    desk = TicketDesk(laid(a_sharing_fleet(**ASKED)))

    desk.lay(a_sharing_fleet(), providers={"hetzner": a_listing(STRAY)})

    assert desk.engine.runs == 0
    (said,) = desk.said
    assert said.startswith(NETWORK)
    assert "debian-ci-builders-0007" in said


def test_unused_base_resource_may_be_replaced() -> None:
    desk = TicketDesk(laid(a_sharing_fleet(**ASKED)))
    desk.engine.anew = {"debian-ci-hetzner-network"}

    _, troubles = desk.lay(a_sharing_fleet(**WIDER))

    assert troubles == ()
    assert desk.engine.runs == 1


def test_machine_creation_stops_when_its_base_fails() -> None:
    desk = TicketDesk()
    desk.engine.fails = {"debian-ci-hetzner-network"}

    world, (trouble,) = desk.lay(a_sharing_fleet(**ASKED))

    assert trouble.result == "failed"
    assert tells(trouble.pool, "hetzner")
    base = world.bases["hetzner"]
    assert isinstance(base, Base)
    assert base.ids == {}


def test_base_has_no_ids_after_a_failed_replace() -> None:
    desk = TicketDesk(laid(a_sharing_fleet(**ASKED)))
    desk.engine.fails = desk.engine.anew = {"debian-ci-hetzner-network"}

    world, _ = desk.lay(a_sharing_fleet(**WIDER))

    base = world.bases["hetzner"]
    assert isinstance(base, Base)
    assert base.ids == {}


def test_unreadable_base_is_not_changed() -> None:
    desk = TicketDesk(FakeSharedStackEngine(Unknown(unknown="locked")))

    desk.lay(a_sharing_fleet(**ASKED))

    assert desk.engine.runs == 0


def test_base_is_postponed_when_selected_pools_use_other_providers() -> None:
    desk = TicketDesk(selection=Selection(pools=frozenset({"other"})))
    pools = {"builders": a_pool(), "other": a_pool(provider="desk")}

    world, troubles = desk.lay(a_sharing_fleet(pools, **ASKED))

    assert (desk.engine.runs, world.bases, troubles) == (0, {}, ())
    (said,) = desk.said
    assert tells(said, "hetzner", "postponed", "pool")


def test_base_is_postponed_when_its_pools_are_paused_or_observed() -> None:
    desk = TicketDesk(selection=Selection())
    pools = {"a": a_pool(mode="pause"), "b": a_pool(mode="observe")}

    desk.lay(a_sharing_fleet(pools, **ASKED))

    assert desk.engine.runs == 0
    (said,) = desk.said
    assert tells(said, "hetzner", "postponed", "a", "pause", "b", "observe")


def test_base_is_unchanged_when_saved_plan_is_applied_while_frozen() -> None:
    fleet, world = sharing.a_sharing_fleet(**ASKED), sharing.a_waiting_world()
    until = world.time + timedelta(hours=1)
    freeze = Freeze(by="ada", at=world.time, until=until, reason="slow", stops=("creates",))
    saved = Selection(saved=sharing.planned(fleet, world.altered(orders=(freeze,))))
    desk = TicketDesk(selection=saved)

    _, troubles = desk.lay(fleet, time=world.time, orders=(freeze,))

    assert (desk.engine.runs, troubles) == (0, ())


def test_base_is_created_when_one_selected_pool_may_change() -> None:
    desk = TicketDesk(selection=Selection(pools=frozenset({"a", "b"})))
    pools = {"a": a_pool(mode="pause"), "b": a_pool()}

    desk.lay(a_sharing_fleet(pools, **ASKED))

    assert desk.engine.runs == 1


def under_saved(before: Fleet, after: Fleet, anew: str) -> tuple[int, tuple[str, ...]]:
    """Lay what a fleet wants under a plan saved of it; return how many it makes, and its drift."""
    base = sharing.a_base(before, laid=True)
    world = sharing.a_waiting_world(bases={"hetzner": base})
    desk = TicketDesk(FakeSharedStackEngine(base))
    desk.engine.anew = {anew}
    saved = sharing.planned(after, world)

    def lay(world: World) -> tuple[World, tuple[StackOutcome, ...]]:
        return desk.lay(after, queues=world.queues)

    _, troubles, drift = apply_shared_stacks_of_saved(
        Selection(saved=saved), world, lay, partial(sharing.planned, after)
    )
    assert (desk.engine.runs, troubles) == (1, ())
    return len(saved.actions), drift


def test_saved_plan_is_outdated_when_base_resource_was_replaced() -> None:
    before, after = (sharing.a_sharing_fleet(**each) for each in (ASKED, WIDER))

    planned, drift = under_saved(before, after, "debian-ci-hetzner-network")

    assert planned == 1
    assert any("debian-ci-builders-0001" in each for each in drift)


def test_new_base_resource_waits_for_next_plan_when_plan_is_saved() -> None:
    before = sharing.a_sharing_fleet(**ASKED)
    after = sharing.a_sharing_fleet(**ASKED, placement_group="spread")

    assert under_saved(before, after, "") == (0, ())
