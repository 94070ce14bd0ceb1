"""What waits in a Copr, as its frontend lists it for the backend, in the shapes of its API 6."""

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fleet.model.facts import Demand, QueueReading, Request, Unknown, Work, Worker, WorkerState
from fleet.model.tickets import Given, bounded, close
from fleet.queues.copr import BUILD, LIST, CoprFrontend
from fleet.schema.model import CoprQueue
from fleet.state.store import Store
from fleet.tagrules.names import names_of
from fleet.tickets.desk import StoredTicketDesk
from fleet.tickets.store import DatabaseTickets
from tests.builders.sentences import tells
from tests.builders.ticketing import a_ticket, a_ticket_fleet
from tests.fakes.engine import FixedClock
from tests.rigs.debusine import NOW
from tests.rigs.loopback import Answer, Loopback, Received, html, redirect
from tests.rigs.process import RunFleet

SOURCE = {
    "task_id": 8112340,
    "build_id": 8112340,
    "project_owner": "praiskup",
    "sandbox": "praiskup/ping--praiskup",
    "background": False,
    "chroot": None,
}
BUILD_42 = {
    "task_id": "8112300-fedora-42-x86_64",
    "build_id": 8112300,
    "project_owner": "@asahi",
    "sandbox": "@asahi/kernel--ada",
    "background": False,
    "chroot": "fedora-42-x86_64",
    "tags": ["extra_powerful"],
}
MARKED = {"Content-Type": "application/json", "Copr-FE-BE-API-Version": "6"}
MOST = {"most": 9, "most_of_submitter": 9}
NAMED = {"project_dirname": "kernel:pr:7", "package_name": "kernel", "submitter": "ada"}


def build(number: int, **more: object) -> dict[str, object]:
    """Return a build like BUILD_42 with another number."""
    return {**BUILD_42, "task_id": f"{number}-fedora-42-x86_64", "build_id": number, **more}


def serving(*jobs: object, records: dict[str, Any] | None = None) -> Callable[[Received], Answer]:
    """Return a frontend that lists these jobs, and has the records of some of them."""

    def answer(received: Received) -> Answer:
        if received.path == LIST:
            return Answer(200, json.dumps(jobs).encode(), MARKED)
        record = (records or {}).get(received.path.removeprefix(BUILD))
        missing = Answer(404, b'{"msg": "Specified task ID not found"}')
        return Answer(200, json.dumps(record).encode()) if record else missing

    return answer


def read(server: Loopback, **more: Any) -> Demand:  # noqa: ANN401 - as the frontend takes it
    demand = frontend(server, **more).read(NOW).demand
    assert isinstance(demand, Demand), demand
    return demand


def frontend(server: Loopback, names: int = 100, **more: Any) -> CoprFrontend:  # noqa: ANN401 - same
    return CoprFrontend(CoprQueue(kind="copr", url=server.url, names=names), **more)


def test_build_requires_tags_of_a_backend_ticket() -> None:
    with Loopback(serving(BUILD_42, SOURCE, None)) as server:
        demand = read(server)

    source, binary = demand.requests
    assert demand.estimate  # the frontend omits a build
    assert binary.required == ("arch_x86_64", "copr_builder", "extra_powerful")
    assert (binary.owner, binary.project, binary.requester) == ("@asahi", "kernel", "ada")
    assert binary.sandbox == "@asahi/kernel--ada"
    assert source.required == ("arch_noarch", "copr_builder")
    assert names_of(source) == ("praiskup/ping/srpm-builds/",)


def test_builds_form_groups_in_the_order_of_the_backend() -> None:
    jobs = [
        build(1, background=True),
        {**SOURCE, "task_id": "4", "build_id": 4, "background": True},
        *(build(number) for number in (12, 9, 100)),
        SOURCE,
    ]
    with Loopback(serving(*jobs)) as server:
        found = read(server).requests

    ordered = sorted(found, key=lambda request: -request.priority)
    assert [(each.id, each.count) for each in ordered] == [
        *(("8112340", 1), ("9-fedora-42-x86_64", 3), ("4", 1), ("1-fedora-42-x86_64", 1))
    ]


NEEDS = ("arch_x86_64", "copr_builder", "extra_powerful")
KERNEL = "@asahi/kernel--ada"
LONG = f"@asahi/{'kernel' * 40}--ada"


def a_desk(*tickets: Request, works: Sequence[Work] = ()) -> QueueReading:
    """Return a desk with waiting tickets, and a busy machine for each work."""
    busy = [
        Worker(name=f"m{n}", state=WorkerState.BUSY, running=str(n), work=work)
        for n, work in enumerate(works, start=1)
    ]
    idle = Worker(name="m9", state=WorkerState.IDLE)
    demand = Demand(read_at=NOW, requests=tickets)
    return QueueReading(demand=demand, workers=(*busy, idle))


def a_request(**more: object) -> Request:
    return Request.model_validate({"id": "1", "required": NEEDS, "sandbox": KERNEL} | more)


AT_WORK = Work(required=NEEDS, sandbox=KERNEL)
COVERED = {
    "its ticket waits": (a_desk(a_request(), a_request(sandbox="@asahi/kernel--ben")), KERNEL, 1),
    "its machine works": (a_desk(works=[AT_WORK]), KERNEL, 1),
    "its long sandbox is cut": (a_desk(a_request(sandbox=bounded(LONG))), LONG, 1),
    "a rule added tags": (a_desk(a_request(required=NEEDS[:2], package="kernel")), KERNEL, 1),
    "its package is unknown": (a_desk(a_request(required=NEEDS[:2])), KERNEL, 2),
}


@pytest.mark.parametrize("case", COVERED)
def test_build_of_a_ticket_is_not_counted_again(case: str) -> None:
    """The frontend lists what has begun too: its backend would begin it again after a crash."""
    desk, sandbox, count = COVERED[case]
    builds = [build(number, sandbox=sandbox) for number in (1, 2)]
    with Loopback(serving(*builds)) as server:
        (found,) = read(server, ticketed=lambda _: desk).requests

    assert (found.id, found.count) == (f"{3 - count}-fedora-42-x86_64", count)
    assert (found.sandbox, found.provided) == (bounded(sandbox), (f"sandbox:{bounded(sandbox)}",))


@pytest.mark.parametrize(
    ("records", "names", "packages"),
    [
        ({1: "kernel"}, 9, {"1": "kernel"}),
        ({1: "kernel", 2: "kernel"}, 9, {"1": "kernel"}),
        ({1: "kernel", 2: "mesa"}, 9, {}),
        ({1: "kernel", 2: None}, 9, {}),
        ({1: "kernel"}, 0, {}),
    ],
    ids=["one", "alike", "either", "unnamed", "not-asked"],
)
def test_package_of_running_build_is_reported_when_unambiguous(
    records: dict[int, str | None], names: int, packages: dict[str, str]
) -> None:
    desk = a_desk(works=[AT_WORK, AT_WORK.altered(package="gcc")])
    told = {
        f"{number}-fedora-42-x86_64": {**NAMED, "package_name": name}
        for number, name in records.items()
    }
    with Loopback(serving(*map(build, records), records=told)) as server:
        reading = frontend(server, names=names, ticketed=lambda _: desk).read(NOW)

    assert reading.packages == packages


def test_build_being_published_is_not_demand(
    tmp_path: Path,
) -> None:
    """Its backend has closed the ticket; the frontend lists it until its repository is made."""
    store = Store(f"sqlite:///{tmp_path}/store.db", "copr")
    store.init()
    book = DatabaseTickets(store.begin, "tickets")
    desk = StoredTicketDesk(a_ticket_fleet(), book, FixedClock(NOW))
    for minutes in (9, 11):
        ticket = book.open(a_ticket(tags=NEEDS, sandbox=KERNEL), **MOST)
        at = NOW - timedelta(minutes=minutes)
        book.lease([Given(ticket.id, f"m{minutes}", "usual", "", at)], at)
        book.change(ticket.id, partial(close, now=at), at)
    withdrawn = book.open(a_ticket(tags=NEEDS, sandbox=KERNEL), **MOST)
    book.change(withdrawn.id, lambda each: close(each, NOW), NOW)

    with Loopback(serving(build(1), build(2), build(3))) as server:
        (found,) = read(server, ticketed=desk.read, closed=desk.closed).requests

    assert (found.id, found.count) == ("2-fedora-42-x86_64", 2)


AWAY = Unknown(unknown="the store is away")


@pytest.mark.parametrize(
    ("gone", "what"),
    [
        (QueueReading(demand=AWAY, workers=()), "ticket"),
        (QueueReading(demand=Demand(read_at=NOW), workers=AWAY), "machine"),
    ],
)
def test_builds_are_unknown_while_tickets_are_unreadable(gone: QueueReading, what: str) -> None:
    with Loopback(serving(BUILD_42)) as server:
        demand = frontend(server, ticketed=lambda _: gone).read(NOW).demand

    assert isinstance(demand, Unknown)
    assert tells(demand.unknown, what, "unknown", AWAY.unknown)


def test_packages_are_read_when_rules_need_names() -> None:
    records = {str(build(n)["task_id"]): NAMED for n in (1, 2, 3)}
    with Loopback(serving(build(3), build(2), build(1), records=records)) as server:
        found = read(server, names=2, with_names=True).requests
        asked = [received.path for received in server.received]

    assert [(r.count, names_of(r)) for r in found] == [
        (2, ("@asahi/kernel:pr:7/fedora-42-x86_64/kernel",)),
        (1, ()),
    ]
    assert asked == [LIST, BUILD + "1-fedora-42-x86_64", BUILD + "2-fedora-42-x86_64"]


@pytest.mark.parametrize(("told", "deadline"), [(7200, 7200), (0, None), (None, None), (-1, None)])
def test_record_of_build_has_its_time_limit(told: int | None, deadline: int | None) -> None:
    records = {str(BUILD_42["task_id"]): NAMED | {"timeout": told}}
    with Loopback(serving(BUILD_42, records=records)) as server:
        (found,) = read(server, with_names=True).requests

    assert found.deadline_seconds == deadline


@pytest.mark.parametrize("instead", [None, html()], ids=["started meanwhile", "unreadable"])
def test_build_without_a_readable_record_has_no_name(instead: Answer | None) -> None:
    with Loopback(serving(BUILD_42)) as server:
        if instead:
            server.faults.instead[BUILD + str(BUILD_42["task_id"])] = instead
        (found,) = read(server, with_names=True).requests

    assert (found.count, found.package, names_of(found)) == (1, None, ())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (html(), "answered with an HTML page instead of JSON"),
        (Answer(200, b'[{"task_id": "1"'), "Invalid JSON"),
        (Answer(200, b'{"msg": "hello"}'), "valid array"),
        (Answer(200, b'[{"task_id": "1"}]'), "at 0.build_id: Field required"),
        (Answer(200, b"[]"), "header Copr-FE-BE-API-Version"),
        (Answer(403, b""), "status 403"),
        (Answer(404, b""), "status 404"),
        (Answer(429, b""), "status 429: too many requests"),
        (Answer(500, b""), "status 500"),
        (redirect("https://login.example.org/"), "redirects to the host login.example.org"),
    ],
)
def test_invalid_list_is_unknown_demand(answer: Answer, said: str) -> None:
    with Loopback(serving()) as server:
        server.faults.instead[LIST] = answer
        reading = frontend(server).read(NOW)

    assert isinstance(reading.demand, Unknown)
    assert said in reading.demand.unknown


def waiting(minutes: float = 2, **more: object) -> QueueReading:
    """Return a desk at which a ticket of Copr's backend waits."""
    since = NOW - timedelta(minutes=minutes)
    return a_desk(a_request(**{"id": "4", "pending_since": since} | more))


def test_empty_list_is_unknown_while_a_build_ticket_waits() -> None:
    with Loopback(serving()) as server:
        demand = frontend(server, ticketed=lambda _: waiting()).read(NOW).demand

    assert isinstance(demand, Unknown)
    assert tells(demand.unknown, f"{server.url}{LIST}", "no build")
    assert tells(demand.unknown, "1 ticket", "4", "`fleet ticket close`")


@pytest.mark.parametrize(
    "desk",
    [
        waiting(minutes=1.9),
        waiting(sandbox=" ticket 4"),
        waiting(required=("arch_x86_64",)),
        waiting(pending_since=None),
    ],
    ids=["cancelled just now", "alone", "not of a backend", "of no age"],
)
def test_empty_list_is_accepted_when_only_other_tickets_wait(desk: QueueReading) -> None:
    with Loopback(serving()) as server:
        assert read(server, ticketed=lambda _: desk).requests == ()


FLEET = """\
fleet: copr
providers: {desk: {kind: sim}}
queues:
  tickets: {kind: tickets}
  copr: {kind: copr, url: "URL", tickets: tickets}
images: {builder: {existing: {desk: b-1}, provides: [copr_builder, arch_x86_64]}}
pools:
  usual: {provider: desk, machine: ccx33, image: builder, workers: {max: 9}}
"""


def test_machines_are_planned_for_builds_and_for_tickets(
    project: Path, run_fleet: RunFleet
) -> None:
    ticket = ("--tag", "copr_builder", "--tag", "arch_x86_64", "--sandbox", "@asahi/kernel--ada")
    with Loopback(serving(build(7, tags=[]), build(8, tags=[]))) as server:
        (project / "fleet.yaml").write_text(FLEET.replace("URL", server.url), encoding="utf-8")
        run_fleet("state", "init")
        run_fleet("ticket", "open", *ticket)
        planned = run_fleet("plan", "--json")

    served = [action["serves"] for action in json.loads(planned.stdout)["actions"]]
    assert served == [["copr/8-fedora-42-x86_64"], ["tickets/1"]]


def test_newer_rule_is_a_difference_when_name_is_known(project: Path, run_fleet: RunFleet) -> None:
    rule = "powerful: [{match: '@asahi/kernel/.*/kernel', dirs: true, ask: [extra_powerful]}]\n"
    rule += "tags: {extra_powerful: {asked_by: [rules]}}\n"
    named, other = build(7, tags=[]), build(8, tags=[])
    with Loopback(serving(named, other, records={str(named["task_id"]): NAMED})) as server:
        text = FLEET.replace("URL", server.url) + rule
        (project / "fleet.yaml").write_text(text, encoding="utf-8")
        run_fleet("state", "init")
        planned = json.loads(run_fleet("plan", "--json").stdout)

    told = {key: s["differences"] for s in planned["signatures"] for key in s["requests"]}
    assert [each["tag"] for each in told["copr/7-fedora-42-x86_64"]] == ["extra_powerful"]
    assert told["copr/8-fedora-42-x86_64"] == []
