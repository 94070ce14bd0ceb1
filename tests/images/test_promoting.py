"""Promotions of a plan are carried out as planned, but for what somebody moved meanwhile."""

from decimal import Decimal

import pytest

from fleet.images.promote import promote_all
from fleet.model.images import State, Version
from fleet.model.plan import Promotion, Reason
from fleet.reconcile import reconcile
from tests.builders import NOW, a_plan, a_pool, a_sim_fleet, a_sim_world
from tests.builders.sentences import tells
from tests.builders.stores import new_store
from tests.builders.versioning import a_version

OLD, NEW = "20261114T060000Z", "20261121T060000Z"
CURRENT = a_version(version=OLD, state="current")


def promotion(now: State, was: State = "tested", share: int = 0) -> Promotion:
    return Promotion(
        image="trixie",
        version=NEW,
        was=was,
        now=now,
        share=share,
        reason=Reason.NEWER_VERSION,
        because="it passed its test",
        cost=Decimal(0),
    )


def promoted(
    step: Promotion, *versions: Version
) -> tuple[tuple[str, ...], dict[str, State], list[str], list[str]]:
    """Return what was moved, the states after it, the journal, and what was told."""
    store = new_store()
    for each in versions:
        store.save_image_version(each, was=None)
    journal, said = list[str](), list[str]()
    done = promote_all(a_plan(promotions=(step,)), store, NOW, journal.append, said.append)
    return done, {each.version: each.state for each in store.image_versions()}, journal, said


def test_planned_candidate_is_added_next_to_current() -> None:
    done, states, journal, said = promoted(promotion("candidate", share=20), CURRENT, a_version())

    assert done == (f"trixie {NEW}",)
    assert states == {OLD: "current", NEW: "candidate"}
    for lines in (journal, said):
        assert [tells(each, "trixie", "candidate", "20%", NEW) for each in lines] == [True]


@pytest.mark.parametrize(
    ("now", "states", "step"),
    [
        ("current", {OLD: "previous", NEW: "current"}, ""),
        ("retired", {OLD: "current", NEW: "retired"}, f"image trixie: retire {NEW}"),
    ],
)
def test_candidate_is_promoted_or_retired_as_planned(
    now: State, states: dict[str, State], step: str
) -> None:
    candidate = a_version(state="candidate", share=20)

    _, after, journal, _ = promoted(promotion(now, was="candidate"), CURRENT, candidate)

    assert after == states
    assert not step or journal == [step]


def test_planned_promotion_is_skipped_when_version_was_moved() -> None:
    done, states, journal, said = promoted(
        promotion("current", was="candidate"), CURRENT, a_version(state="retired")
    )

    assert (done, journal) == ((), [])
    assert states == {OLD: "current", NEW: "retired"}
    (line,) = said
    assert tells(line, "trixie", "current", NEW, "failed", f"image trixie {NEW}", "candidate")


@pytest.mark.parametrize(
    ("modes", "moved"), [(("observe", "pause"), 0), (("observe", "apply"), 1), (("apply",), 1)]
)
def test_no_version_is_promoted_for_unchanged_pools(modes: tuple[str, ...], moved: int) -> None:
    pools = {
        f"p{n}": a_pool(provider="desk", image="trixie", mode=mode) for n, mode in enumerate(modes)
    }
    recipe = {"suite": "trixie", "architecture": "amd64", "publish": ["desk"]}
    fleet = a_sim_fleet(pools=pools, images={"trixie": recipe})
    facts = (CURRENT.fact, a_version(state="tested").fact)
    published = {"ids": {"desk": "an image"}, "by_rule": True}
    world = a_sim_world(images=tuple(each.altered(**published) for each in facts))

    plan = reconcile(fleet, world)

    assert len(plan.promotions) == moved
    assert len(plan.waiting_versions) == 1 - moved
