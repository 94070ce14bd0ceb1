"""A plan tells what would become of what the machines of a provider share."""

from collections.abc import Mapping

from fleet.apply.saved_plan import Selection, find_drift, selected_part
from fleet.model.facts import Base, Unknown
from fleet.model.plan import Plan
from fleet.planner.shared_stacks import parts_of
from fleet.reconcile import reconcile
from fleet.report.plan import plan_to_markdown
from fleet.schema.model import Fleet
from tests.builders import a_fleet, a_pool, a_stack, a_world, some_inputs
from tests.builders.sentences import tells
from tests.rigs.shown import plan_to_text

NETWORK = "network/debian-ci-hetzner-network"
ASKED: Mapping[str, object] = {"network": {"ip_range": "10.20.0.0/16", "zone": "eu-central"}}


def sharing(**shared: object) -> Fleet:
    mode = shared.pop("mode", "apply")
    provider = {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}
    providers = {"hetzner": provider | shared, "desk": {"kind": "sim"}}
    pools = {"builders": a_pool(mode=mode), "other": a_pool(provider="desk")}
    return a_fleet(providers=providers, pools=pools)


def laid(fleet: Fleet, **differing: object) -> Base:
    parts = parts_of(fleet, "hetzner")
    recorded = {"parts": parts, "ids": {part.key: "1" for part in parts}}
    flags = {"laid": True} if "laid" in Base.model_fields else {}
    return Base.model_validate({"serial": 1} | recorded | flags | differing)


def planned(fleet: Fleet, base: Base | Unknown | None = None) -> Plan:
    return reconcile(fleet, a_world(bases={} if base is None else {"hetzner": base}))


def test_plan_counts_machines_outdated_by_a_new_base_resource() -> None:
    fleet = sharing(**ASKED)
    names = [f"debian-ci-builders-{number:04}" for number in (1, 2, 3)]
    workers = tuple(some_inputs(name=name) for name in names)
    ids = {name: str(index) for index, name in enumerate(names[:2])}
    stacks = {"builders": a_stack(provider="hetzner", workers=workers, ids=ids)}

    plan = reconcile(fleet, a_world(stacks=stacks))
    (change,) = plan.bases
    (alone,) = planned(fleet).bases

    assert (change.outdates, alone.outdates) == (2, 0)
    assert change.outdating.startswith("outdates 2 machines")
    assert alone.outdating == ""
    assert f"\n    {change.outdating}\n" in plan_to_text(plan, colour=False)
    assert tells(plan_to_markdown(plan), "1 change", "shared")
    assert change.outdating in plan_to_markdown(plan)


def test_unfinished_update_of_base_is_finished() -> None:
    fleet = sharing(**ASKED)

    (change,) = planned(fleet, laid(fleet, interrupted=True)).bases

    (step,) = change.steps
    assert tells(step, "finish")


def test_saved_plan_differs_when_base_change_differs() -> None:
    fleet = sharing(**ASKED)

    drift = find_drift(planned(fleet), planned(fleet, laid(fleet)))

    (difference,) = drift
    assert tells(difference, "hetzner", "create", NETWORK, "nothing now")


def test_selection_has_only_bases_of_its_pools() -> None:
    plan = planned(sharing(**ASKED))

    assert selected_part(Selection(pools=frozenset({"other"})), plan).bases == ()
    assert selected_part(Selection(pools=frozenset({"builders"})), plan).bases == plan.bases
