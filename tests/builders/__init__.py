"""Build valid values for tests: name only what matters to the sentence."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from fleet.model.facts import (
    Attempt,
    Demand,
    Listing,
    Machine,
    MachineState,
    QueueReading,
    Request,
    Stack,
    Worker,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.model.history import Outcome, StackOutcome
from fleet.model.plan import (
    Cause,
    Create,
    Delete,
    Digests,
    Drain,
    GuardResult,
    Notice,
    Plan,
    PoolVerdict,
    Reason,
    Signature,
    Unserved,
    Warning_,
    WorkerVerdict,
)
from fleet.schema.model import Fleet, Pool

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
"""The time of every plan and world here, unless a test says otherwise."""

_IN_WORKERS = ("max", "min", "spare", "max_starting")


def ago(**duration: float) -> datetime:
    """Return a time before NOW, for instance five minutes."""
    return NOW - timedelta(**duration)


# fleet.yaml


def a_pool(**overrides: object) -> Pool:
    """Return a pool of ccx33 machines; max, min, spare and max_starting may stand here."""
    workers = {"max": 3} | {key: overrides.pop(key) for key in _IN_WORKERS if key in overrides}
    defaults = {"provider": "hetzner", "machine": "ccx33", "image": "trixie", "workers": workers}
    return Pool.model_validate(defaults | overrides)


def a_fleet(**overrides: object) -> Fleet:
    """Return a fleet with one provider, one queue, one image and the pool `builders`."""
    defaults: dict[str, object] = {
        "fleet": "debian-ci",
        "providers": {
            "hetzner": {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}
        },
        "queues": {
            "debian": {
                "kind": "debusine",
                "url": "https://debusine.example.org",
                "scopes": ["debian"],
                "token": {"env": "DEBUSINE_TOKEN"},
            }
        },
        "images": {"trixie": {"suite": "trixie", "architecture": "amd64"}},
        "pools": {"builders": a_pool()},
    }
    return Fleet.model_validate(defaults | overrides)


# facts


def a_request(**overrides: object) -> Request:
    """Return one request that anything may run, pending for five minutes."""
    defaults = {"id": "101", "task": "sbuild", "pending_since": ago(minutes=5), "scope": "debian"}
    return Request.model_validate(defaults | overrides)


def a_worker(**overrides: object) -> Worker:
    """Return an idle worker of the pool `builders`; busy=True makes it run a request."""
    busy = overrides.pop("busy", False)
    work: dict[str, object] = {"state": WorkerState.BUSY, "running": "90"} if busy else {}
    name = overrides.get("name", "debian-ci-builders-0001")
    defaults: dict[str, object] = {
        "name": name,
        "machine": name,
        "pool": "builders",
        "state": WorkerState.IDLE,
        "since": ago(minutes=5),
        "last_seen": ago(seconds=30),
    }
    return Worker.model_validate(defaults | work | overrides)


def a_machine(**overrides: object) -> Machine:
    """Return a running machine of the pool `builders`."""
    defaults = {
        "name": "debian-ci-builders-0001",
        "id": "hcloud-1",
        "pool": "builders",
        "type": "ccx33",
        "state": MachineState.RUNNING,
        "created_at": ago(hours=1),
        "image": "trixie-1",
    }
    return Machine.model_validate(defaults | overrides)


def some_inputs(**overrides: object) -> WorkerInputs:
    """Return what the machine of a worker of `builders` is made from."""
    defaults = {"name": "debian-ci-builders-0001", "type": "ccx33", "image": "trixie-1"}
    return WorkerInputs.model_validate(defaults | overrides)


def a_stack(**overrides: object) -> Stack:
    """Return the stack of a pool that holds nothing."""
    defaults = {"engine": "embedded", "provider": "hetzner", "serial": 1}
    return Stack.model_validate(defaults | overrides)


def a_listing(*machines: Machine, **overrides: object) -> Listing:
    """Return what a provider lists: these machines, read now."""
    defaults = {"read_at": NOW, "machines": machines}
    return Listing.model_validate(defaults | overrides)


def an_attempt(**overrides: object) -> Attempt:
    """Return a try to make a machine for `builders` ten minutes ago, which registered."""
    defaults = {
        "pool": "builders",
        "worker": "debian-ci-builders-0001",
        "type": "ccx33",
        "image": "trixie-1",
        "at": ago(minutes=10),
        "result": "registered",
    }
    return Attempt.model_validate(defaults | overrides)


def a_reading(*requests: Request, **overrides: object) -> QueueReading:
    """Return what one queue says: these requests wait, and no worker is registered."""
    defaults = {"demand": Demand(read_at=NOW, requests=requests), "workers": ()}
    return QueueReading.model_validate(defaults | overrides)


def a_world(**overrides: object) -> World:
    """Return a world in which everything was read and nothing exists or waits."""
    defaults: dict[str, object] = {
        "fleet": "debian-ci",
        "time": NOW,
        "queues": {"debian": a_reading()},
        "providers": {"hetzner": a_listing()},
    }
    return World.model_validate(defaults | overrides)


# plan


def a_create(**overrides: object) -> Create:
    """Return the creation of one ccx33 in `builders`, for request 101."""
    worker = overrides.get("worker", "debian-ci-builders-0001")
    defaults = {
        "pool": "builders",
        "worker": worker,
        "inputs": some_inputs(name=worker),
        "reason": Reason.REQUESTS_WAIT,
        "cause": Cause.DEMAND,
        "because": "1 request waits and no idle worker fits it",
        "cost": Decimal("0.12"),
        "serves": ("101",),
    }
    return Create.model_validate(defaults | overrides)


def a_drain(**overrides: object) -> Drain:
    """Return the draining of a worker that has been idle for too long."""
    defaults = {
        "pool": "builders",
        "worker": "debian-ci-builders-0001",
        "registry": "debian",
        "reason": Reason.IDLE_TOO_LONG,
        "cause": Cause.DEMAND,
        "because": "idle for 20 min; 15 min are allowed",
    }
    return Drain.model_validate(defaults | overrides)


def a_delete(**overrides: object) -> Delete:
    """Return the deletion of a worker that is drained and idle."""
    defaults = {
        "pool": "builders",
        "worker": "debian-ci-builders-0001",
        "registry": "debian",
        "reason": Reason.IDLE_TOO_LONG,
        "cause": Cause.DEMAND,
        "because": "drained, and idle for 25 min; 15 min are allowed",
        "saves": Decimal("0.12"),
    }
    return Delete.model_validate(defaults | overrides)


def a_worker_verdict(**overrides: object) -> WorkerVerdict:
    """Return the verdict on a busy worker: it stays."""
    defaults = {
        "worker": "debian-ci-builders-0001",
        "pool": "builders",
        "registry": "debian",
        "verdict": "keep",
        "reason": Reason.BUSY,
        "because": "runs request 90; a busy worker is never deleted",
        "state": "busy",
        "running": "90",
        "since": ago(minutes=5),
        "image": "trixie-1",
        "type": "ccx33",
        "cost": Decimal("0.12"),
    }
    return WorkerVerdict.model_validate(defaults | overrides)


def an_idle_verdict(**overrides: object) -> WorkerVerdict:
    """Return the verdict on a worker that is idle since a few minutes: it stays."""
    defaults = {
        "reason": Reason.IDLE_RECENTLY,
        "because": "idle for 5 min; 15 min are allowed",
        "state": "idle",
        "running": None,
    }
    return a_worker_verdict(**(defaults | overrides))


def a_pool_verdict(**overrides: object) -> PoolVerdict:
    """Return the verdict on the pool `builders`: one worker, busy, nothing to change."""
    defaults = {
        "pool": "builders",
        "mode": "apply",
        "because": "nothing waits that it could run",
        "busy": 1,
        "max": 3,
        "price": Decimal("0.12"),
        "cost_before": Decimal("0.12"),
        "cost_after": Decimal("0.12"),
        "provider": "hetzner",
        "type": "ccx33",
        "image": "trixie",
        "provides": ("worker:build-arch:amd64",),
        "stack": "debian-ci-builders",
        "serial": 1,
    }
    return PoolVerdict.model_validate(defaults | overrides)


def a_signature(**overrides: object) -> Signature:
    """Return one waiting request that the pool `builders` may serve."""
    requests = overrides.get("requests", ("101",))
    assert isinstance(requests, tuple)
    defaults = {
        "id": "5196a1",
        "queue": "debian",
        "required": ("worker:build-arch:amd64",),
        "priority": 0,
        "count": len(requests),
        "requests": requests,
        "pools": ("builders",),
    }
    return Signature.model_validate(defaults | overrides)


def an_unserved(**overrides: object) -> Unserved:
    """Return one request that gets no machine because the pool is full."""
    requests = overrides.get("requests", ("101",))
    assert isinstance(requests, tuple)
    defaults = {
        "signature": "5196a1",
        "requests": requests,
        "count": len(requests),
        "because": "the pool builders is at its max of 3",
        "path": ("pools", "builders", "workers", "max"),
    }
    return Unserved.model_validate(defaults | overrides)


def a_guard_result(**overrides: object) -> GuardResult:
    """Return a guard that refuses deletions in `builders`."""
    defaults = {
        "guard": "delete",
        "pool": "builders",
        "result": "refused",
        "because": "12 of 14 workers would be deleted (86 %); at most 30 % and 10 are allowed",
        "way_out": "add an approval for guard delete, pool builders, count 12",
        "path": ("guards", "refuse", "delete", "share"),
    }
    return GuardResult.model_validate(defaults | overrides)


def a_warning(**overrides: object) -> Warning_:
    """Return a warning about a rule that expires soon."""
    defaults = {
        "rule": "expires-soon",
        "message": "this rule expires in 7 days",
        "place": "fleet.yaml:18:5",
    }
    return Warning_.model_validate(defaults | overrides)


def a_notice(**overrides: object) -> Notice:
    """Return a notice that a rule of the allow-list expires in a week."""
    defaults = {
        "kind": "allow-list",
        "key": "allow-list 0123456789abcdef",
        "path": ("powerful", 0),
        "until": NOW.date() + timedelta(days=7),
        "said": "allow-list rule `debian/.*/chromium` expires on 2026-11-28",
    }
    return Notice.model_validate(defaults | overrides)


def a_plan(**overrides: object) -> Plan:
    """Return a plan of the fleet `debian-ci` in which nothing exists and nothing changes."""
    defaults = {
        "fleet": "debian-ci",
        "time": NOW,
        "currency": "EUR",
        "digests": Digests(config="c" * 64, world="d" * 64, plan="e" * 64),
    }
    return Plan.model_validate(defaults | overrides)


def a_stack_outcome(**overrides: object) -> StackOutcome:
    """Return the outcome of the pool `builders`: one worker was created."""
    defaults = {"pool": "builders", "result": "applied", "created": ("debian-ci-builders-0001",)}
    return StackOutcome.model_validate(defaults | overrides)


def an_outcome(*stacks: StackOutcome, **overrides: object) -> Outcome:
    """Return what an apply did to these pools."""
    defaults = {"plan": "e" * 64, "stacks": stacks}
    return Outcome.model_validate(defaults | overrides)


# a pool `builders` at the simulated provider, seen by every witness


def a_sim_fleet(**overrides: object) -> Fleet:
    """Return a fleet whose pool `builders` is at the simulated provider `desk`."""
    pools = overrides.pop("pools", {"builders": a_pool(provider="desk")})
    defaults = {"providers": {"desk": {"kind": "sim"}}, "pools": pools}
    return a_fleet(**(defaults | overrides))


def a_sim_world(
    *workers: Worker,
    requests: tuple[Request, ...] = (),
    starting: tuple[str, ...] = (),
    **overrides: object,
) -> World:
    """Return a world in which each worker has its machine, and `starting` ones none yet.

    Workers register at the provider itself; listing and stack agree on every machine.
    """
    pool_of = {worker.name: worker.pool or "builders" for worker in workers}
    pool_of |= dict.fromkeys(starting, "builders")
    machines = tuple(
        a_machine(
            name=name,
            id=f"sim-{name}",
            pool=pool,
            created_at=ago(seconds=30) if name in starting else ago(hours=1),
        )
        for name, pool in pool_of.items()
    )
    stacks = {
        pool: a_stack(
            provider="desk",
            workers=tuple(some_inputs(name=n) for n, p in pool_of.items() if p == pool),
            ids={n: f"sim-{n}" for n, p in pool_of.items() if p == pool},
        )
        for pool in set(pool_of.values())
    }
    defaults: dict[str, object] = {
        "queues": {"debian": a_reading(*requests, workers=None)},
        "providers": {"desk": a_listing(*machines, workers=workers)},
        "stacks": stacks,
    }
    return a_world(**(defaults | overrides))


def rekeyed(value: object, turn: Callable[[list[str]], list[str]]) -> object:
    """Return a document with the keys of each mapping in another order."""
    if isinstance(value, dict):
        return {key: rekeyed(value[key], turn) for key in turn(list(value))}
    return [rekeyed(each, turn) for each in value] if isinstance(value, list) else value
