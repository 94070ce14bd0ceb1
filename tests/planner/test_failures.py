"""What is remembered of failures: which ways to make machines are closed, until when, and why."""

from datetime import timedelta

import pytest

from fleet.model.facts import Attempt, Unknown, WorkerState, World
from fleet.planner.failures import (
    FAILURE_MEMORY,
    MAX_BACKOFF,
    MIN_BACKOFF,
    classify,
    describe_failures,
    find_failing,
    recall,
    settle,
)
from fleet.planner.inventory import take_inventory
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_pool,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    ago,
    an_attempt,
    some_inputs,
)
from tests.builders.deciding import FIRST, with_machines
from tests.builders.sentences import tells

OUT = "out-of-stock"
TWO_POOLS = {"builders": a_pool(provider="desk"), "other": a_pool(provider="desk")}


def closed(*attempts: Attempt, fleet: Fleet | None = None, **way: str) -> str:
    """Return why machines of `builders` are not made, after these tries."""
    fleet = fleet or a_sim_fleet()
    world = a_sim_world(attempts=attempts)
    memory = recall(fleet, world, take_inventory(fleet, world))
    asked = {"pool": "builders", "kind": "ccx33", "market": "on-demand", "provider": "desk"}
    reason, _ = find_failing(memory, **(asked | way))  # type: ignore[arg-type]  # a market is text
    return reason


def some(results: str, *, minutes: float = 10, **said: object) -> list[Attempt]:
    """Return one try for each word, the first the oldest, `minutes` between one and the next."""
    words = results.split()
    return [
        an_attempt(
            result=word,
            worker=f"debian-ci-builders-{number:04}",
            at=ago(minutes=minutes * (len(words) - number) - minutes + 1),
            **said,
        )
        for number, word in enumerate(words)
    ]


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ("debian-1: resource_unavailable: ccx33: 3 of 3 exist", OUT),
        ("error during placement (placement_error, 4d2)", OUT),
        ("InsufficientInstanceCapacity: no c7a.8xlarge in eu-central-1a", OUT),
        ("resource_limit_exceeded: server limit reached", "quota"),
        ("VcpuLimitExceeded: more vCPU than your limit of 32", "quota"),
        ("MaxSpotInstanceCountExceeded", "quota"),
        ("RequestLimitExceeded: slow down", "error"),
        ("rate_limit_exceeded", "error"),
        ("server_error: something went wrong", "error"),
        ("debian-1: local_fault: /srv/m: No space left on device", "gone"),
        ("debian-1: /srv/.fleet/sim-desk.json: cannot be written: the disk is full", "gone"),
        ("/srv/.fleet/x: cannot be written: the disk quota is used up", "gone"),
        ("the store at /srv/s.db does not answer: database or disk is full", "gone"),
        ("saving: write /srv/.fleet/.pulumi/stacks/a.json: no space left on device", "gone"),
        ("open /srv/.pulumi/plugins/x: disk quota exceeded", "gone"),
        ("mkdir /tmp/pulumi-41: no space left on device", "gone"),
        # A provider's own disk
        ("Error: write /var/lib/incus/disks/p.img: no space left on device", "error"),
        ("d-1: new failed: no space left on volume; what ran: sh new.sh", "error"),
        # AWS
        ("InsufficientFreeAddressesInSubnet: not enough free addresses in subnet", OUT),
        ("UnfulfillableCapacity: no capacity pool can serve it", OUT),
        ("Unsupported: type is not supported in your requested Availability Zone (1a)", OUT),
        ("InsufficientAddressCapacity: none left", OUT),
        ("Unsupported: The requested configuration is currently not supported", "error"),
        ("VolumeLimitExceeded", "quota"),
        # OpenStack
        ("No valid host was found. There are not enough hosts available.", OUT),
        ("NoValidHost_Remote: no valid host was found", OUT),
        ("MaxRetriesExceeded: Exhausted all hosts available for retrying build failures", OUT),
        ("No more IP addresses available on network 4d2", OUT),
        ("Quota exceeded (403)", "quota"),
        ("Quota exceeded for cores: Requested 8, but already used 20 of 20 (HTTP 403)", "quota"),
        ("Quota exceeded, too many servers. (HTTP 403)", "quota"),
        ("VolumeSizeExceeds…: Requested volume exceeds allowed gigabytes quota", "quota"),
        ("ERROR (OverLimit): This request was rate-limited (HTTP 413)", "error"),
        # IBM
        ("over_quota: the number of instances would exceed the limit", "quota"),
        ('"code": "quota_exceeded"', "quota"),
        ("status_reasons: cannot_start_capacity: no more capacity in this zone", OUT),
        ("Insufficient capacity for profile bz2-2x8", OUT),
        # GCP
        ("ZONE_RESOURCE_POOL_EXHAUSTED", OUT),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: try a different zone", OUT),
        ("The zone 'x' does not have enough resources available to fulfill the request.", OUT),
        ("Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west3.", "quota"),
        ("QUOTA_EXCEEDED: CPUS_ALL_REGIONS", "quota"),
        ("reason: quotaExceeded", "quota"),
        ("Quota exceeded for quota metric 'Queries' and limit 'Queries per minute'", "error"),
        ("reason: rateLimitExceeded", "error"),
        # Oracle
        ("Out of host capacity.", OUT),
        ("Out of capacity for shape VM.Standard.A1.Flex", OUT),
        # Kubernetes and OpenShift
        ("pods is forbidden: exceeded quota: compute, requested: cpu=8, used: 8", "quota"),
        ("tenant is over quota: 20 of 20 cores", "quota"),
        ("Disk quota exceeded", "error"),
        # Azure
        ("Code: SubscriptionQuotaExceeded: 10 of 10 cores", "quota"),
        ("Code: SkuNotAvailable: Standard_D16 is not available in westeurope", OUT),
        ("AllocationFailed: Allocation failed.", OUT),
        ("ZonalAllocationFailed: no capacity in zone 2", OUT),
        ("OverconstrainedAllocationRequest", OUT),
        ("it results in exceeding approved Total Regional Cores quota", "quota"),
        ("QuotaExceeded: Current Limit: 10", "quota"),
        # a person's own command
        ("debian-1: new reports out-of-stock: new ended with status 1", OUT),
        ("debian-1: new reports quota: new ended with status 1: ZonalAllocationFailed", "quota"),
        ("debian-1: new reports error: new ended with status 1: Quota exceeded", "error"),
        ("debian-1: new ended with status 1: new reports quota: none", "error"),
        ("debian-1: new ended with status 1: write error: Disk quota exceeded", "error"),
    ],
)
def test_refusal_is_classified_by_its_code(said: str, result: str) -> None:
    assert classify(said) == result


@pytest.mark.parametrize(
    "said",
    [
        "uniqueness_error: server name is already used",
        "IdempotentParameterMismatch: the token was used with other parameters",
        "validation_unique_failed: Provided Name is not unique",
        "The resource 'projects/p/zones/z/instances/debian-1' already exists",
        "operation failed: domain 'debian-1' already exists with uuid 4d2",
        'Error: Instance "debian-1" already exists',
        "a server with this name already exists: debian-1",
        "debian-1: new reports name-taken: new ended with status 1: resource_unavailable",
        "the name debian-1 is already in use",
    ],
)
def test_name_is_taken_when_the_provider_reports_it(said: str) -> None:
    assert classify(said, "debian-1") == "name-taken"


@pytest.mark.parametrize(
    "said",
    [
        "volume data-debian already exists",
        "volume data-debian-1 already exists",
        "security group already in use",
        "debian-1: new ended with status 1: the lock file already exists",
        "debian-1-disk already exists",
        "debian-10 already exists",
        "already exists: /var/lib/vm/debian-1.qcow2",
    ],
)
def test_name_is_free_when_another_kind_of_object_exists(said: str) -> None:
    assert classify(said, "debian-1") == "error"


def at_hooks(new: str) -> Fleet:
    """Return a fleet whose pool has machines of own commands with this time limit of `new`."""
    commands = {each: ["sh", each] for each in ("new", "delete", "list")}
    desk = {"kind": "hooks", **commands, "timeouts": {"new": new}}
    machine = {"cores": 4, "memory": "8GiB", "price": "0.10 EUR/h"}
    return a_sim_fleet(
        providers={"desk": desk}, pools={"builders": a_pool(provider="desk", machine=machine)}
    )


HUNG = "debian-ci-builders-0001: new did not finish within 30m and was stopped: register"


@pytest.mark.parametrize(("limit", "minutes"), [("30m", 31), ("1h", 61), ("2h", 122), ("4h", 242)])
def test_pool_closes_when_command_new_hangs(limit: str, minutes: int) -> None:
    hung = some("error error error error", minutes=minutes, detail=HUNG)
    ended = [each.altered(at=each.at - timedelta(minutes=minutes)) for each in hung]

    assert tells(closed(*ended, fleet=at_hooks(limit)), "4", "4")
    assert closed(*ended[1:], fleet=at_hooks(limit)) == ""


def test_attempt_is_failed_when_run_died_before_command_new_ended() -> None:
    begun = a_stack(provider="desk", workers=(some_inputs(),), ids={}, interrupted=True)
    fleet = at_hooks("30m")

    def results(minutes: int) -> list[str]:
        tried = an_attempt(result="starting", at=ago(minutes=minutes))
        world = a_sim_world(attempts=(tried,), stacks={"builders": begun})
        return [each.result for each in settle(fleet, world, take_inventory(fleet, world))]

    assert (results(29), results(31)) == ([], ["error"])


@pytest.mark.parametrize("latest", ["error", "failed", OUT, "quota", "name-taken"])
def test_failures_are_described_from_the_first_one_on(latest: str) -> None:
    fleet = a_sim_fleet()

    def described(results: str) -> str:
        world = a_sim_world(attempts=tuple(some(results, detail="no route")))
        memory = recall(fleet, world, take_inventory(fleet, world))
        return describe_failures(fleet, memory, "builders")

    assert tells(described(f"registered {latest}"), "1", "2026-11-21 07:59:00 UTC", "no route")
    assert tells(described(f"{latest} gone {latest}"), "2")
    assert described(f"{latest} registered") == ""


TAKEN, SOLD = "name-taken ", f"{OUT} "


@pytest.mark.parametrize(
    ("results", "words"),
    [
        pytest.param(TAKEN * 7, None, id="names taken in seven runs"),
        pytest.param(TAKEN * 8, ["8 runs"], id="names taken in eight runs"),
        pytest.param("error error name-taken error error", ["4", "4"], id="name taken in between"),
        pytest.param(f"{SOLD * 2}registered {OUT}", ["in 1 run"], id="success ends a streak"),
        pytest.param(f"registered {OUT} {OUT}", ["2 runs"], id="success before a streak"),
        pytest.param(f"{OUT} gone {OUT}", ["2 runs"], id="no result ends no streak"),
        pytest.param("error", None, id="one error"),
        pytest.param("registered " * 5 + "error", None, id="one error after successes"),
        pytest.param("error error error", None, id="three errors are too few for a rate"),
        pytest.param("failed failed failed failed", ["4", "4"], id="unregistered boots"),
        pytest.param("error " * 4 + "registered", None, id="the latest attempt succeeded"),
        pytest.param(SOLD * 4 + "registered error", None, id="out of stock is no error"),
    ],
)
def test_option_closes_by_its_latest_attempts(results: str, words: list[str] | None) -> None:
    tries = some(results)

    assert tells(closed(*tries), *words) if words else closed(*tries) == ""
    assert closed(*tries) == closed(*reversed(tries))


def test_first_out_of_stock_reply_closes_the_option() -> None:
    assert tells(
        closed(an_attempt(result=OUT, at=ago(minutes=1))),
        "desk",
        "ccx33",
        "in 1 run",
        "2026-11-21 08:02:00 UTC",
    )


def test_failure_leaves_other_types_markets_and_pools_open() -> None:
    out = an_attempt(result=OUT, at=ago(minutes=1))

    assert closed(out, kind="ccx63") == ""
    assert closed(out, market="spot") == ""
    assert closed(out, fleet=a_sim_fleet(pools=TWO_POOLS), pool="other") == ""


def test_out_of_stock_is_retried_after_three_minutes() -> None:
    assert closed(an_attempt(result=OUT, at=NOW - MIN_BACKOFF + timedelta(seconds=1)))
    assert not closed(an_attempt(result=OUT, at=NOW - MIN_BACKOFF))


def test_backoff_doubles_per_failing_run_up_to_half_an_hour() -> None:
    # The latest try was a minute ago; 3, 6, 12, 24, 30, 30 minutes after it is the next.
    ends = [closed(*some(f"{OUT} " * runs)) for runs in range(1, 7)]

    assert [end[-12:-4] for end in ends] == [
        "08:02:00",
        "08:05:00",
        "08:11:00",
        "08:23:00",
        "08:29:00",
        "08:29:00",
    ]
    assert timedelta(minutes=30) == MAX_BACKOFF


def test_many_failures_of_one_run_count_once() -> None:
    tries = [
        an_attempt(result=OUT, at=ago(minutes=1), worker=f"debian-ci-builders-{number:04}")
        for number in range(9)
    ]

    assert "(in 1 run)" in closed(*tries)


def test_failure_is_ignored_after_three_hours() -> None:
    long_ago = an_attempt(result=OUT, at=ago(minutes=1) - FAILURE_MEMORY - timedelta(seconds=1))

    assert "(in 1 run)" in closed(long_ago, an_attempt(result=OUT, at=ago(minutes=1)))


def test_quota_closes_market_in_every_pool_of_provider() -> None:
    fleet = a_sim_fleet(pools=TWO_POOLS)
    full = an_attempt(pool="other", type="ccx63", result="quota", at=ago(minutes=1))

    assert tells(closed(full, fleet=fleet), "desk", "in 1 run", "2026-11-21 08:02:00 UTC")
    assert closed(full, fleet=fleet, market="spot") == ""
    assert closed(full, fleet=fleet, provider="elsewhere") == ""


def test_attempt_of_removed_pool_counts_for_no_pool() -> None:
    assert closed(an_attempt(pool="removed", result="quota", at=ago(minutes=1))) == ""


def test_option_closes_when_half_of_its_attempts_fail() -> None:
    tries = some("registered registered error error", minutes=1)

    assert tells(closed(*tries), "2", "4", "2", "2026-11-21 08:05:00 UTC")


def test_attempt_in_the_future_is_ignored() -> None:
    assert closed(an_attempt(result=OUT, at=NOW + timedelta(minutes=1))) == ""


# what became of tries that an earlier run began

BEGUN = an_attempt(result="starting")


def settled(world: World, *attempts: Attempt) -> list[str]:
    """Return the results of the tries that the world says have ended."""
    fleet = a_sim_fleet()
    known = world.altered(attempts=attempts or (BEGUN,))
    return [each.result for each in settle(fleet, known, take_inventory(fleet, known))]


OVERDUE = with_machines(a_sim_world(starting=(FIRST,)), created_at=ago(minutes=11))
ENDS = {WorkerState.DEAF: ["failed"], WorkerState.ENROLLED: ["failed"]}


@pytest.mark.parametrize("state", sorted(WorkerState))
def test_attempt_is_registered_when_registry_lists_its_worker(state: WorkerState) -> None:
    assert settled(a_sim_world(a_worker(state=state))) == ENDS.get(state, ["registered"])


@pytest.mark.parametrize(
    ("world", "results"),
    [
        pytest.param(a_sim_world(starting=(FIRST,)), [], id="its machine boots"),
        pytest.param(OVERDUE, ["failed"], id="registration is late"),
        pytest.param(a_sim_world(), ["gone"], id="apply died before the creation"),
        pytest.param(a_sim_world(a_worker()).altered(stacks={}), [], id="one source lists it"),
    ],
)
def test_attempt_has_result_of_its_machine(world: World, results: list[str]) -> None:
    assert settled(world) == results


@pytest.mark.parametrize(
    "dark",
    [
        {"providers": {"desk": Unknown(unknown="no answer")}},
        {"stacks": Unknown(unknown="no store")},
        {"stacks": {"builders": Unknown(unknown="no state")}},
    ],
)
def test_attempt_is_open_when_sources_are_unknown(dark: dict[str, object]) -> None:
    assert settled(a_sim_world().altered(**dark)) == []


def test_result_of_attempt_never_changes() -> None:
    assert settled(a_sim_world(), an_attempt(result="error"), an_attempt()) == []


def test_failed_boot_counts_in_the_same_plan() -> None:
    names = [f"debian-ci-builders-{number:04}" for number in range(4)]
    tries = tuple(an_attempt(result="starting", worker=name, at=ago(minutes=1)) for name in names)
    world = with_machines(a_sim_world(starting=tuple(names)), created_at=ago(minutes=11))
    known = world.altered(attempts=tries)
    fleet = a_sim_fleet()
    memory = recall(fleet, known, take_inventory(fleet, known))

    reason, _ = find_failing(memory, "builders", "ccx33", "on-demand", "desk")

    assert tells(reason, "4", "4")
