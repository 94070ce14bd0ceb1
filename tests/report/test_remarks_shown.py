"""A remark of an edge on its reading is shown once by every surface."""

from fleet.model.digests import seal, world_digest
from fleet.observation import Observation, observing, remark
from fleet.reconcile import reconcile
from fleet.report.plan import plan_to_markdown
from fleet.report.status import status_of
from fleet.site.files import Shown, site
from tests.builders import a_plan, a_sim_fleet, a_sim_world
from tests.rigs.shown import plan_to_text, status_to_text

REMARK = "prices of hetzner are of March"


def test_every_output_shows_a_remark_once() -> None:
    plan = a_plan(remarks=(REMARK,))

    for text in (
        plan_to_text(plan, colour=False),
        status_to_text(plan, colour=False),
        plan_to_markdown(plan),
        site(Shown(plan, {}))["index.html"],
    ):
        assert text.count(REMARK) == 1
    assert status_of(plan).remarks == (REMARK,)


def test_observation_has_a_remark_once_when_an_edge_repeats_it() -> None:
    with observing(Observation()) as observation:
        remark(REMARK)
        remark(REMARK)
    remark("outside of an observation")

    assert observation.remarks() == (REMARK,)


def test_digest_is_independent_of_remarks() -> None:
    fleet, world = a_sim_fleet(), a_sim_world()
    remarked = world.altered(remarks=(REMARK,))

    plan = reconcile(fleet, remarked)

    assert plan.remarks == (REMARK,)
    assert world_digest(remarked) == world_digest(world)
    assert plan.digests == reconcile(fleet, world).digests
    assert seal(plan.altered(remarks=())).digests == plan.digests
