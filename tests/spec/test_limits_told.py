"""A plan tells of each limit who has how many machines, who gets one now, and who waits."""

from fleet.model.facts import Request, Worker
from fleet.model.plan import LimitVerdict, Plan
from fleet.reconcile import reconcile
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker

POWER = "extra_powerful"
PATH = ("tags", POWER, "limits")


def decided(*workers: Worker, requests: tuple[Request, ...] = (), **limits: object) -> Plan:
    """Return the plan where a tag of giants has these limits."""
    giants = a_pool(provider="desk", machine="ccx63", provides=[POWER], max=9)
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk"), "giants": giants},
        tags={POWER: {"limits": limits}},
    )
    return reconcile(fleet, a_sim_world(*workers, requests=requests))


def asked(number: int, who: str | None) -> Request:
    return a_request(id=str(number), required=(POWER,), requester=who)


def busy(number: int, **work: object) -> Worker:
    """Return a giant that runs what `work` says; nobody knows what where it says nothing."""
    said = {"required": (POWER,)} | work if work else None
    return a_worker(name=f"debian-ci-giants-{number:04}", pool="giants", busy=True, work=said)


def figures(plan: Plan) -> list[tuple[str | None, int, int, int]]:
    return [(each.who, each.in_use, each.given, each.waiting) for each in plan.limits]


def test_who_has_some_who_gets_some_and_who_waits() -> None:
    requests = (asked(1, "ada"), asked(2, "ada"), asked(3, "ben"))

    plan = decided(busy(1, requester="ada"), requests=requests, per={"submitter": 2})

    assert figures(plan) == [("ada", 1, 1, 1), ("ben", 0, 1, 0)]
    assert plan.limits[0] == LimitVerdict(
        path=(*PATH, "per", "submitter"), who="ada", limit=2, in_use=1, given=1, waiting=1
    )


def test_a_limit_in_all_is_nobody_s() -> None:
    plan = decided(busy(1, requester="eve"), requests=(asked(1, "ada"),), total=1)

    assert figures(plan) == [(None, 1, 0, 1)]
    assert plan.limits[0].path == (*PATH, "total")


def test_who_has_machines_and_asks_for_no_more_is_told_of_too() -> None:
    plan = decided(busy(1, requester="eve"), busy(2, requester="eve"), per={"submitter": 2})

    assert figures(plan) == [("eve", 2, 0, 0)]


def test_work_of_which_nobody_knows_whose_it_is_counts_for_each() -> None:
    plan = decided(
        busy(1), busy(2, task="sbuild"), requests=(asked(1, "ada"),), per={"submitter": 3}
    )

    assert figures(plan) == [("ada", 2, 1, 0)]


def test_work_without_the_tag_counts_for_nobody() -> None:
    plan = decided(busy(1, required=("other",), requester="ada"), per={"submitter": 1}, total=1)

    assert plan.limits == ()
