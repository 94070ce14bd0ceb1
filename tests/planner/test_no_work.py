"""A version whose worker gets no work from the queues of fleet.yaml is promoted by no rule."""

import pytest

from fleet.model.images import ImageVersion
from fleet.model.plan import Plan
from fleet.reconcile import reconcile
from tests.builders import NOW, a_pool, a_sim_fleet, a_sim_world, ago
from tests.builders.sentences import tells

OLD, NEW = "20261107T060000Z", "20261114T060000Z"
DEBUSINE: dict[str, object] = {
    "kind": "debusine",
    "url": "https://deb.example",
    "scopes": ["debian"],
}
TICKETS: dict[str, object] = {"kind": "tickets"}
UNSHARE = "worker:executor:unshare"
SBUILD = "worker:task:worker:sbuild:version"


def a_version(version: str = NEW, state: str = "tested", **said: object) -> ImageVersion:
    facts = {"ids": {"desk": version}, "since": ago(hours=1), "by_rule": True}
    named = {"image": "trixie", "version": version, "state": state}
    return ImageVersion.model_validate({**facts, **named, **said})


def plan_of(
    *versions: ImageVersion,
    queue: dict[str, object] = DEBUSINE,
    asked: tuple[str, ...] = (),
    recipe: dict[str, object] | None = None,
    serves: list[str] | None = None,
) -> Plan:
    declared = {"suite": "trixie", "architecture": "amd64", "publish": ["desk"]}
    pool = a_pool(provider="desk", image="trixie", **({"serves": serves} if serves else {}))
    fleet = a_sim_fleet(
        pools={"builders": pool},
        images={"trixie": {**declared, **(recipe or {})}},
        queues={"deb": queue, "other": TICKETS},
    )
    requests = [{"id": "1", "task": "sbuild", "required": [each]} for each in asked]
    reading = {"demand": {"read_at": NOW, "requests": requests}, "workers": []}
    return reconcile(fleet, a_sim_world(images=versions, queues={"deb": reading}))


def promoted(plan: Plan) -> list[tuple[str, str]]:
    return [(each.version, each.now) for each in plan.promotions]


def waits(plan: Plan) -> str:
    """Return why the one version that waits does."""
    assert plan.promotions == ()
    (waiting,) = plan.waiting_versions
    return waiting.because


@pytest.mark.parametrize("state", ["tested", "candidate"])
@pytest.mark.parametrize("queue", [DEBUSINE, TICKETS])
@pytest.mark.parametrize("worker", ["0.11.3+deb13u1", "0.15.0", "0.9"])
def test_version_waits_when_its_worker_reports_no_tags(
    state: str, queue: dict[str, object], worker: str
) -> None:
    current = a_version(OLD, "current")
    late = a_version(state=state, worker=worker, since=ago(hours=9), share=20)

    plan = plan_of(current, late, queue=queue)

    assert tells(waits(plan), worker, "images.trixie.worker_version")


def test_version_waits_without_current_one_when_its_worker_is_old() -> None:
    assert tells(waits(plan_of(a_version(worker="0.11.3"))), "0.11.3")


@pytest.mark.parametrize("worker", ["0.16.2~bpo13+1", "0.100", "1.0", ""])
def test_version_is_promoted_when_its_worker_reports_tags(worker: str) -> None:
    assert promoted(plan_of(a_version(worker=worker))) == [(NEW, "current")]


@pytest.mark.parametrize("unproven", [("worker",), ("executor:unshare",), ()])
def test_version_waits_when_test_proves_none_of_its_executors(unproven: tuple[str, ...]) -> None:
    assert tells(waits(plan_of(a_version(unproven=unproven))), "deb", "images.trixie.provides")


@pytest.mark.parametrize(
    "unproven", [("executor:qemu",), ("executor:incus-vm", "task:sbuild"), ()]
)
def test_version_is_promoted_when_task_without_executor_is_proven(
    unproven: tuple[str, ...],
) -> None:
    task = "worker:task:worker:simplesystemimagebuild:version:1"
    version = a_version(provides=("worker:cap:mmdebstrap", task), unproven=unproven)

    assert promoted(plan_of(version)) == [(NEW, "current")]


def test_version_is_promoted_when_recipe_claims_its_executor() -> None:
    version = a_version(unproven=("executor:unshare",))

    assert promoted(plan_of(version, recipe={"provides": [UNSHARE]})) == [(NEW, "current")]


def test_version_waits_when_its_recipe_claims_a_refuted_executor() -> None:
    version = a_version(unproven=("executor:qemu",))

    assert waits(plan_of(version, recipe={"provides": [UNSHARE]}))


@pytest.mark.parametrize(
    ("claim", "unproven", "counts"),
    [
        (UNSHARE, ("executor:qemu",), False),
        (UNSHARE, ("executor:unshare",), True),
        (UNSHARE, ("worker",), True),
        (f"{SBUILD}:1", ("task:sbuild",), True),
        (f"{SBUILD}:1", ("executor:unshare",), False),
        ("team:kernel", (), True),
    ],
)
def test_claim_of_recipe_counts_when_no_job_tested_it(
    claim: str, unproven: tuple[str, ...], *, counts: bool
) -> None:
    proven = a_version(state="current", provides=("worker:cap:sbuild",), unproven=unproven)

    (pool,) = plan_of(proven, recipe={"provides": [claim]}).pools

    assert (claim in pool.provides) is counts


def test_version_is_promoted_when_its_pools_serve_no_debusine_queue() -> None:
    version = a_version(unproven=("worker",))

    assert promoted(plan_of(version, serves=["other"])) == [(NEW, "current")]


def test_version_tested_before_jobs_existed_is_promoted() -> None:
    assert promoted(plan_of(a_version())) == [(NEW, "current")]


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ((f"{SBUILD}:2",), True),
        ((f"{SBUILD}:2", f"{SBUILD}:1"), False),
        ((f"{SBUILD}:1",), False),
        (("worker:task:worker:lintian:version:7",), False),
        ((), False),
    ],
)
def test_version_waits_when_queues_require_other_task_versions(
    asked: tuple[str, ...], *, held: bool
) -> None:
    version = a_version(provides=(UNSHARE, f"{SBUILD}:1"), unproven=())

    plan = plan_of(version, asked=asked)

    assert (plan.promotions == ()) is held
    assert [
        tells(each.because, f"{SBUILD}:2", f"{SBUILD}:1") for each in plan.waiting_versions
    ] == ([True] * held)


def test_plan_names_the_newest_version_when_its_test_failed() -> None:
    failed = a_version(state="failed", why="task:sbuild failed: no sbuild", ids={})

    assert "task:sbuild" in waits(plan_of(a_version(OLD, "current"), failed))


def test_plan_names_no_failed_version_when_a_newer_one_is_current() -> None:
    failed = a_version(OLD, "failed", why="task:sbuild failed: no sbuild", ids={})

    assert plan_of(failed, a_version(NEW, "current")).waiting_versions == ()
