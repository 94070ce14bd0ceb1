"""What a check-up says of what works, what does not, and what nobody here can look at."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fleet.apply.observe import Sources
from fleet.cli.doctor import CheckupInputs, examine
from fleet.errors import SourceUnreachable, StoreMissing
from fleet.explain.case import Case
from fleet.model.doctor import (
    CheckResult,
    Diagnosis,
    Machinery,
    QueueWait,
)
from fleet.model.facts import Demand, QueueReading, QueueSample, Unknown, World
from fleet.ports import Engine, Server
from fleet.reconcile import reconcile
from fleet.report.answers import diagnosis_blocks
from fleet.report.terminal import document_to_text
from fleet.schema.model import Fleet
from fleet.state.secrets import HostSecrets
from fleet.state.store import Store
from tests.builders import (
    NOW,
    a_fleet,
    a_pool,
    a_reading,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_world,
    ago,
)
from tests.builders.sentences import tells
from tests.builders.stores import new_store
from tests.builders.ticketing import a_ticket_fleet
from tests.fakes.engine import FakeEngine
from tests.fakes.server import AMD64, NOON, FakeServer
from tests.fakes.source_reader import FakeSourceReader

AMD, RISCV = "worker:build-arch:amd64", "worker:build-arch:riscv64"
FOR_RISCV = a_request(id="5", required=(RISCV,), pending_since=ago(hours=3))
QUEUE = {"kind": "debusine", "url": "https://d.example", "scopes": ["debian"]}
WITH_TICKETS = a_ticket_fleet(queues={"debian": QUEUE, "tickets": {"kind": "tickets"}})
LOOKING = a_fleet(pools={}, images={}, providers={})


def with_token(token: object) -> Fleet:
    queues = {"debian": QUEUE | {"token": token}}
    return a_fleet(pools={}, images={}, providers={}, queues=queues)


def check(  # noqa: PLR0913 - whatever a test is about
    fleet: Fleet | None = None,
    world: World | None = None,
    *,
    server: Server | None = None,
    store: Store | None = None,
    environment: Mapping[str, str] | None = None,
    asked: Mapping[str, object] | None = None,
) -> Diagnosis:
    """Return what is found of a fleet that only looks at a queue, unless a test says otherwise."""
    fleet, world = fleet or LOOKING, world or a_world(providers={})
    tokens = {"DEBUSINE_TOKEN": "t", "HCLOUD_TOKEN": "t"} if environment is None else environment
    sources = Sources(
        asking=FakeSourceReader,
        queues={},
        providers={},
        registries={},
        engine_of=_engine_of,
        store=store or new_store(),
    )
    everyone = CheckupInputs(
        sources=sources,
        secrets=HostSecrets(tokens, Path()),
        servers={"debian": server or FakeServer()},
        **(asked or {}),  # type: ignore[arg-type]  # each test names what it means
    )
    return examine(Case(fleet, world, reconcile(fleet, world)), everyone)


def _engine_of(name: str) -> Engine:
    return FakeEngine("pulumi" if name == "far" else "embedded")


def of(diagnosis: Diagnosis, about: str) -> CheckResult:
    return next(finding for finding in diagnosis.findings if finding.about == about)


def test_doctor_is_ok_when_all_sources_work() -> None:
    found = check()

    assert {finding.result for finding in found.findings} == {"ok"}
    assert found.exit_code == 0


@pytest.mark.parametrize("contact", [None, "admins@example.org"])
def test_contact_is_noted_when_a_fleet_with_pools_has_none(contact: str | None) -> None:
    found = check(a_fleet(contact=contact))

    noted = [finding.result for finding in found.findings if finding.about == "contact"]
    assert noted == ([] if contact else ["notice"])


def test_missing_secret_is_wrong_with_advice() -> None:
    found = check(environment={})

    finding = of(found, "secret queues.debian.token")
    assert (finding.result, finding.fix) == ("wrong", "export DEBUSINE_TOKEN=…")
    assert found.exit_code == 1


@pytest.mark.parametrize(
    ("reference", "fix"),
    [
        ({"file": "no/token"}, "install -m 600 /dev/stdin no/token"),
        ({"command": ["/no/such/pass", "show"]}, "/no/such/pass show"),
    ],
)
def test_advice_differs_by_kind_of_secret(reference: dict[str, object], fix: str) -> None:
    assert of(check(with_token(reference)), "secret queues.debian.token").fix == fix


def test_doctor_advises_chmod_when_secret_file_is_readable_by_others(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    token.chmod(0o644)
    fleet = with_token({"file": str(token)})

    before = of(check(fleet), "secret queues.debian.token")
    token.chmod(0o600)
    after = of(check(fleet), "secret queues.debian.token")

    assert (before.result, before.fix) == ("notice", f"chmod go= {token}")
    assert after.result == "ok"


def test_unreachable_server_is_wrong_and_not_queried_further() -> None:
    found = check(server=FakeServer(broken="could not be reached"))

    assert of(found, "queue debian, server").result == "wrong"
    assert not any(finding.about == "queue debian, token" for finding in found.findings)


def test_refused_token_is_wrong_with_working_command() -> None:
    command = "debusine-admin create_token USER"
    server = FakeServer(refuses="answered with status 403: `x y` makes one", fix=command)

    finding = of(check(server=server), "queue debian, token")

    assert (finding.result, finding.fix) == ("wrong", "debusine-admin create_token USER")


def test_token_without_user_is_wrong() -> None:
    finding = of(check(server=FakeServer(user="")), "queue debian, token")

    assert (finding.result, finding.fix) == ("wrong", "debusine-admin create_token USER")


def test_queue_without_token_is_unchecked() -> None:
    assert of(check(with_token(None)), "queue debian, token").result == "unchecked"


@pytest.mark.parametrize(
    ("minutes", "result", "said"),
    [
        (0, "ok", ("60 s",)),
        (5, "wrong", ("5m", "ahead")),
        (-5, "wrong", ("5m", "behind")),
    ],
)
def test_different_clocks_are_wrong(minutes: int, result: str, said: tuple[str, ...]) -> None:
    server = FakeServer(server_time=NOON + timedelta(minutes=minutes))

    finding = of(check(server=server), "queue debian, clock")

    assert finding.result == result
    assert tells(finding.said, *said)


def test_clock_is_unchecked_when_server_reports_no_time() -> None:
    finding = of(check(server=FakeServer(server_time=None)), "queue debian, clock")

    assert finding.result == "unchecked"


class _WithoutMetrics(FakeServer):
    def counts(self) -> Mapping[str, int]:
        raise SourceUnreachable("open-metrics answered with status 404")


def test_doctor_reports_missing_second_source() -> None:
    finding = of(check(server=_WithoutMetrics()), "queue debian, second witness")

    assert finding.result == "wrong"
    assert "queues.debian.url" in finding.fix


def test_demand_is_wrong_with_grant_command_when_unknown() -> None:
    grant = "debusine-admin workspace grant_role A"
    reading = QueueReading(demand=Unknown(unknown="listed 0", fix=grant), workers=None)

    finding = of(check(world=a_world(queues={"debian": reading})), "queue debian, demand")

    assert (finding.result, finding.fix) == ("wrong", "debusine-admin workspace grant_role A")


def test_sampled_queue_is_a_notice_that_suggests_sql() -> None:
    sample = QueueSample(listed=10, unlisted={"debian": 90}, longest=10)
    demand = Demand(read_at=NOW, estimate=True, sample=sample)
    world = a_world(queues={"debian": QueueReading(demand=demand)})

    finding = of(check(world=world), "queue debian, demand")

    assert (finding.result, finding.fix) == ("notice", "fleet debusine grants")
    assert tells(finding.said, "10", "100")


# what waits without any hope


def test_notice_names_request_when_no_server_worker_can_run_it() -> None:
    finding = of(
        check(world=a_world(queues={"debian": a_reading(FOR_RISCV)})), "queue debian, riscv64"
    )

    assert finding.result == "notice"
    assert finding.said.startswith("request debian/5 waits ")
    assert tells(finding.said, RISCV, "3h")


def test_notice_counts_requests_when_all_workers_are_disconnected() -> None:
    server = FakeServer(architectures={"riscv64": Machinery(registered=2, connected=0)})
    reading = a_reading(FOR_RISCV, FOR_RISCV.altered(id="6", count=2))

    found = check(world=a_world(queues={"debian": reading}), server=server)

    finding = of(found, "queue debian, riscv64")
    assert tells(finding.said, "3 requests", "debian/5")
    assert " 2 " in finding.said


def test_doctor_has_no_notice_when_architecture_has_connected_workers() -> None:
    reading = a_reading(a_request(required=(AMD,)), a_request(id="9"))

    found = check(world=a_world(queues={"debian": reading}))

    assert not any(finding.result == "notice" for finding in found.findings)


def test_doctor_has_no_notice_when_a_pool_creates_the_architecture() -> None:
    images = {"trixie": {"suite": "trixie", "architecture": "arm64"}}
    pools = {"builders": a_pool(provider="desk", machine="cax41")}
    for_arm = a_request(required=("worker:build-arch:arm64",))

    found = check(
        a_sim_fleet(images=images, pools=pools),
        a_sim_world(queues={"debian": a_reading(for_arm)}),
    )

    assert not any(finding.about == "queue debian, arm64" for finding in found.findings)


def test_notice_explains_request_that_no_pool_can_run() -> None:
    found = check(a_sim_fleet(), a_sim_world(requests=(FOR_RISCV,)))

    finding = of(found, "queue debian, requests")
    assert finding.result == "notice"
    assert tells(finding.said, "request debian/5")
    assert RISCV in finding.said
    assert finding.fix == "fleet explain request debian/5"


def test_waits_are_grouped_by_architecture_with_its_workers() -> None:
    waiting = (
        a_request(id="1", required=(AMD,), pending_since=ago(minutes=10)),
        a_request(id="2", required=(AMD,), pending_since=ago(minutes=20)),
        a_request(id="3", required=(AMD,), pending_since=ago(minutes=60)),
        a_request(id="4", pending_since=None),
    )

    found = check(world=a_world(queues={"debian": a_reading(*waiting)}))

    assert found.waits == (
        QueueWait(
            queue="debian",
            architecture="amd64",
            waiting=3,
            oldest_seconds=3600,
            median_seconds=1200,
            machinery=AMD64,
        ),
        QueueWait(
            queue="debian",
            architecture="any",
            waiting=1,
            oldest_seconds=None,
            median_seconds=None,
            machinery=Machinery(),
        ),
    )


def test_waits_have_no_workers_when_server_is_down() -> None:
    world = a_world(queues={"debian": a_reading(FOR_RISCV)})

    (wait,) = check(world=world, server=FakeServer(broken="down")).waits

    assert (wait.architecture, wait.machinery) == ("riscv64", None)


# machines and state


def test_workers_without_registry_are_not_ok() -> None:
    reading = a_reading(workers=None)

    finding = of(check(world=a_world(queues={"debian": reading})), "queue debian, workers")

    assert (finding.result, finding.fix) == ("unchecked", "fleet debusine grants")


def test_unlistable_provider_is_wrong() -> None:
    world = a_world(providers={"hetzner": Unknown(unknown="the token is wrong")})

    finding = of(check(a_fleet(), world), "provider hetzner, machines")

    assert (finding.result, finding.said) == ("wrong", "the token is wrong")


def test_missing_store_is_wrong_with_init_command_when_pools_exist() -> None:
    finding = of(
        check(a_sim_fleet(), a_sim_world(), store=new_store(created=False)), "state, store"
    )

    assert (finding.result, finding.fix) == ("wrong", "fleet state init")


def test_missing_store_is_reported_once_when_a_queue_needs_it() -> None:
    store = new_store(created=False)
    with pytest.raises(StoreMissing) as missing:
        store.last_runs(1)
    gone = Unknown(unknown=str(missing.value))
    reading = QueueReading(demand=gone, workers=gone)

    found = check(WITH_TICKETS, a_sim_world(queues={"tickets": reading}), store=store)

    assert [each.about for each in found.findings if each.said == gone.unknown] == ["state, store"]


def test_ticket_queue_has_no_finding_about_registered_workers() -> None:
    found = check(WITH_TICKETS, a_sim_world(queues={"tickets": a_reading(workers=())}))

    assert not [each for each in found.findings if each.about == "queue tickets, workers"]


def test_store_finding_shows_last_run_to_the_minute() -> None:
    store = new_store()
    store.begin_run(started=datetime(2026, 11, 22, 22, 27, 17, 73165, tzinfo=UTC))

    assert "2026-11-22 22:27 UTC" in of(check(store=store), "state, store").said


def test_missing_store_is_a_notice_when_fleet_has_no_pools() -> None:
    found = check(store=new_store(created=False))

    assert of(found, "state, store").result == "notice"
    assert found.exit_code == 0


def test_lock_notice_has_holder_and_unlock_command() -> None:
    found = check(asked={"lock": lambda: ("me@here:7", "noon")})

    finding = of(found, "state, lock")
    assert finding.result == "notice"
    assert "me@here:7 since noon" in finding.said
    assert finding.fix == "fleet state unlock"


def test_doctor_reports_unknown_and_interrupted_stacks() -> None:
    stacks = {"a": Unknown(unknown="it was there before"), "b": a_stack(interrupted=True)}

    found = check(world=a_world(stacks=stacks))

    assert of(found, "pool a, stack").result == "wrong"
    assert of(found, "pool b, stack").fix == "fleet apply"


# what else is asked


def test_unchecked_fact_has_unchecked_result() -> None:
    found = check(asked={"unchecked": {"provider hetzner, quotas": "its API does not tell"}})

    assert of(found, "provider hetzner, quotas").result == "unchecked"


def test_failed_check_is_wrong_with_command() -> None:
    def fail() -> tuple[CheckResult, ...]:
        raise SourceUnreachable("it refuses `x y`", fix="fleet debusine grants --check")

    finding = of(
        check(asked={"further": {"queue debian, database": fail}}), "queue debian, database"
    )

    assert (finding.result, finding.fix) == ("wrong", "fleet debusine grants --check")


def test_doctor_text_lists_wrong_results_before_ok_results() -> None:
    found = check(environment={}, world=a_world(queues={"debian": a_reading(FOR_RISCV)}))
    text = document_to_text(diagnosis_blocks(found), colour=False)

    assert tells(text.splitlines()[0], "debian-ci", "1 wrong", "1", "0")
    order = [text.index(f"\n{heading}\n") for heading in ("Wrong", "To note", "Works", "Next")]
    assert order == sorted(order)
    assert "      fix: export DEBUSINE_TOKEN=…\n" in text
    assert "riscv64" in text.partition("\n\nNext\n")[0].splitlines()[-1]
