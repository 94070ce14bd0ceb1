"""Build plans that have something to say in every part of every surface."""

from decimal import Decimal

from fleet.explain.values import ExplainedReason, Explanation
from fleet.model.facts import BaseChange
from fleet.model.images import WaitingVersion
from fleet.model.plan import (
    CLOCK_RULE,
    Estimate,
    LimitVerdict,
    MissingRule,
    Plan,
    PoolVerdict,
    Promotion,
    Reason,
    RefusedTag,
    Release,
    Resume,
    RuledTag,
    RulesVerdict,
    TagDifference,
    WorkerVerdict,
)
from fleet.model.values import UnknownFigure
from tests.builders import (
    a_create,
    a_delete,
    a_drain,
    a_guard_result,
    a_plan,
    a_pool_verdict,
    a_signature,
    a_warning,
    a_worker_verdict,
    ago,
    an_idle_verdict,
    an_unserved,
)
from tests.builders.budgeting import a_budget_verdict
from tests.builders.guarding import an_approval

_AMD64 = "worker:build-arch:amd64"
_POWERFUL = "worker:class:powerful"


def a_telling_plan() -> Plan:
    """Return a plan in which every section of its text says something."""
    return a_plan(
        actions=(
            a_create(worker="debian-ci-builders-0003"),
            a_create(worker="debian-ci-builders-0004", serves=("102", "103", "104")),
            a_drain(worker="debian-ci-builders-0002"),
            a_delete(pool="powerful", worker="debian-ci-powerful-0001", saves=Decimal("0.5815")),
        ),
        withheld=(a_delete(pool="old", worker="debian-ci-old-0001"),),
        workers=(
            a_worker_verdict(),
            an_idle_verdict(worker="debian-ci-builders-0002", verdict="drain"),
            an_idle_verdict(
                worker="debian-ci-powerful-0001", pool="powerful", type="ccx63", verdict="delete"
            ),
        ),
        pools=_telling_pools(),
        signatures=(
            a_signature(id="r", required=("worker:build-arch:riscv64",), requests=("107", "108")),
        ),
        unserved=(
            an_unserved(
                signature="r",
                requests=("107", "108"),
                because="no pool provides worker:build-arch:riscv64",
                path=("pools",),
            ),
        ),
        guards=(a_guard_result(pool="old"), a_guard_result(guard="cost", result="passed")),
        unknown=("queue copr: no answer; pools that serve it delete nothing",),
        warnings=(a_warning(),),
        cost_before=Decimal("0.8215"),
        cost_after=Decimal("0.48"),
    )


def a_lively_plan() -> Plan:
    """Return the plan of a fleet on an ordinary day: much at work, one 24-hour build waiting."""
    return a_plan(
        actions=(
            a_create(worker="debian-ci-builders-0006"),
            a_drain(worker="debian-ci-builders-0002"),
        ),
        workers=_lively_workers(),
        pools=_lively_pools(),
        signatures=(
            a_signature(
                id="b",
                priority=10,
                requests=("debian/10349",),
                required=(_AMD64, _POWERFUL),
                pools=("powerful",),
            ),
            a_signature(id="a", requests=("debian/10351", "debian/10352", "debian/10353")),
            a_signature(
                id="c",
                required=("worker:build-arch:riscv64",),
                requests=("debian/10360", "debian/10361"),
                pools=(),
            ),
        ),
        unserved=(
            an_unserved(
                signature="b",
                requests=("debian/10349",),
                because="tag worker:class:powerful is at limits.total (1); debian/10217 holds it",
            ),
            an_unserved(
                signature="c",
                requests=("debian/10360", "debian/10361"),
                because="no pool provides worker:build-arch:riscv64",
            ),
        ),
        guards=(
            a_guard_result(
                guard="throttle-create",
                result="throttled",
                because="80 to create: the first 50 now, the rest next run",
                way_out="",
            ),
        ),
        unknown=("queue copr: no answer; pools that serve it delete nothing",),
        cost_before=Decimal("1.1815"),
        cost_after=Decimal("1.3015"),
    )


def a_blind_plan() -> Plan:
    """Return the plan of a fleet of which nothing could be read, its static workers included."""
    return a_plan(
        pools=(
            a_pool_verdict(
                busy=0,
                cost_before=Decimal(0),
                cost_after=Decimal(0),
                because="creates no machines: machines of provider hetzner are unknown: no answer",
                not_known=("machines", "workers", "cost"),
            ),
            a_pool_verdict(
                pool="legacy",
                mode="static",
                busy=0,
                price=Decimal(0),
                cost_before=Decimal(0),
                cost_after=Decimal(0),
                provider=None,
                because="its machines are static: fleet does not change them",
                not_known=("machines", "workers"),
            ),
        ),
        unread=("debian",),
        unknown=(
            (
                "demand of queue debian is unknown: no answer (no machine is deleted in the "
                "pools that serve it)"
            ),
            (
                "machines of provider hetzner are unknown: no answer (no machine is created "
                "or deleted there)"
            ),
        ),
    )


def a_half_blind_plan() -> Plan:
    """Return the plan of a lively fleet, one queue and the machines of one pool of it unread."""
    plan = a_lively_plan()
    unread = a_pool_verdict(
        pool="far",
        busy=0,
        cost_before=Decimal(0),
        cost_after=Decimal(0),
        because="its demand is unknown",
        not_known=("machines", "workers", "cost"),
    )
    unheard = a_worker_verdict(
        worker="debian-ci-rest-0001",
        pool="rest",
        registry=None,
        state="assumed",
        running=None,
        cost=UnknownFigure(unknown="no price is known"),
        reason=Reason.NO_REGISTRY,
        because="no queue reports whether it is busy",
    )
    rest = a_pool_verdict(
        pool="rest", busy=0, starting=1, not_known=("workers", "cost", "price"), price=Decimal(0)
    )
    return plan.altered(
        pools=(*plan.pools, unread, rest),
        workers=(*plan.workers, unheard),
        unread=("copr",),
        attention=("debian-ci-builders-0005: its worker did not register in time",),
    )


def _telling_pools() -> tuple[PoolVerdict, ...]:
    return (
        a_pool_verdict(
            busy=1,
            idle=1,
            max=20,
            create=2,
            drain=1,
            cost_before=Decimal("0.24"),
            cost_after=Decimal("0.48"),
            because="2 of 4 waiting requests fit no worker that exists",
        ),
        a_pool_verdict(
            pool="powerful",
            mode="drain",
            busy=0,
            other=1,
            delete=1,
            max=2,
            cost_before=Decimal("0.5815"),
            cost_after=Decimal(0),
            because="its pool has mode: drain",
        ),
    )


def _lively_workers() -> tuple[WorkerVerdict, ...]:
    return (
        _builder(1, running="debian/10341", since=ago(hours=3, minutes=12)),
        an_idle_verdict(
            worker="debian-ci-builders-0002",
            verdict="drain",
            since=ago(minutes=20),
            reason=Reason.IDLE_TOO_LONG,
            because="idle for 20 min; 15 min are allowed",
        ),
        _builder(3, state="draining", running="debian/10310", since=ago(hours=26)),
        _builder(
            4,
            state="starting",
            running=None,
            since=ago(seconds=40),
            registry=None,
            reason=Reason.STARTING,
            because="its machine is booting",
        ),
        _builder(
            5,
            state="disconnected",
            running=None,
            outdated=True,
            reason=Reason.DISCONNECTED,
            because="its worker is not connected",
        ),
        _builder(9, inactive=True, state="disabled", running=None),
        a_worker_verdict(
            worker="debian-ci-powerful-0001",
            pool="powerful",
            running="debian/10217",
            since=ago(hours=19, minutes=5),
            type="ccx63",
            cost=Decimal("0.5815"),
            because="it runs debian/10217",
        ),
        a_worker_verdict(
            worker="builder-01",
            pool="legacy",
            running="debian/10330",
            since=ago(minutes=50),
            type=None,
            image=None,
            cost=Decimal(0),
            reason=Reason.STATIC,
            because="static machine: fleet does not change it",
        ),
    )


def _lively_pools() -> tuple[PoolVerdict, ...]:
    return (
        a_pool_verdict(
            busy=2,
            idle=1,
            starting=1,
            other=1,
            max=20,
            create=1,
            drain=1,
            cost_before=Decimal("0.60"),
            cost_after=Decimal("0.72"),
            because="3 waiting requests are served here",
            provides=(_AMD64, "worker:class:big"),
        ),
        a_pool_verdict(
            pool="powerful",
            max=2,
            type="ccx63",
            price=Decimal("0.5815"),
            cost_before=Decimal("0.5815"),
            cost_after=Decimal("0.5815"),
            because="its limit of 1 machine is in use",
            provides=(_AMD64, _POWERFUL),
        ),
        a_pool_verdict(
            pool="legacy",
            mode="static",
            max=1,
            price=Decimal(0),
            cost_before=Decimal(0),
            cost_after=Decimal(0),
            provider=None,
            type=None,
            image=None,
            provides=(),
            because="its machines are static: fleet does not change them",
        ),
        a_pool_verdict(
            pool="arm",
            mode="pause",
            busy=0,
            max=8,
            type="cax41",
            cost_before=Decimal(0),
            cost_after=Decimal(0),
            because="creates no machines: mode is pause",
        ),
    )


def a_noted_plan() -> Plan:
    """Return a plan with the parts that the others are without: notes, limits, shared parts."""
    noted = a_signature(
        id="n",
        requests=("109",),
        refused=(RefusedTag(tag="big", who="ada", because="ada may not ask for it"),),
        differences=(TagDifference(tag="slow", because="a newer rule adds it"),),
        ruled=(RuledTag(tag="fast", path=("tags", "fast")),),
        dropped=("near",),
    )
    gone = {"pool": "builders", "registry": "debian", "because": "its machine is gone"}
    return a_plan(
        signatures=(noted,),
        releases=[Release.model_validate(gone | {"worker": f"gone-{n}"}) for n in range(20)],
        resumes=(Resume.model_validate(gone | {"worker": "held-1"}),),
        bases=(BaseChange(provider="far", create=("network/a",), delete=("firewall/c",)),),
        promotions=(_promotion(),),
        waiting_versions=(_waiting_version(),),
        budgets=(a_budget_verdict(),),
        limits=[
            LimitVerdict(
                path=("tags", "big", "limits", "per", "submitter"),
                who=f"user-{n}",
                limit=2,
                in_use=1,
                given=0,
                waiting=0,
            )
            for n in range(20)
        ],
        rules=(
            RulesVerdict(
                queue="debian",
                place="base",
                state="differs",
                missing=(MissingRule(path=("powerful", 0), entry="a/b"),),
                extra=("c/d",),
            ),
        ),
        approvals=(an_approval("builders", "delete", 2),),
        estimates=(Estimate(queue="copr", listed=9, because="it is long"),),
        attention=("look at gone-1",),
        remarks=("queue debian was read twice",),
        warnings=(a_warning(rule=CLOCK_RULE, message="the clock is late"),),
    )


def _promotion() -> Promotion:
    return Promotion(
        image="trixie",
        version="20261121",
        was="candidate",
        now="current",
        reason=Reason.NEWER_VERSION,
        because="its candidates ran 20 jobs",
        cost=None,
    )


def _waiting_version() -> WaitingVersion:
    return WaitingVersion(
        image="sid",
        version="20261120",
        state="candidate",
        since=ago(hours=1),
        because="promote.after is 2 d",
        command="fleet image promote sid 20261120",
    )


def _builder(number: int, **overrides: object) -> WorkerVerdict:
    return a_worker_verdict(**({"worker": f"debian-ci-builders-{number:04}"} | overrides))


def an_explanation(**overrides: object) -> Explanation:
    """Return why request 101 waits."""
    defaults = {
        "kind": "request",
        "name": "debian/101",
        "headline": "debian/101 waits: no machine in this run",
        "facts": ("it waits for 5 min",),
        "reasons": (
            ExplainedReason(
                because="pool builders is at workers.max (3)",
                path=("pools", "builders", "workers", "max"),
            ),
        ),
        "next_steps": ("raise pools.builders.workers.max",),
    }
    return Explanation.model_validate(defaults | overrides)
