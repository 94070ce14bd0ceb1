"""The calls of Resalloc's clients: what each is answered, and what becomes of the ticket."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xmlrpc.client import Fault

import pytest

from fleet.model.facts import Unknown
from fleet.model.tickets import Ticket, find_fault
from fleet.tickets.reasons import ITS_TURN
from tests.builders.sentences import tells
from tests.builders.ticketing import a_ticket_fleet
from tests.rigs.ticket_service import TicketService

NOTHING = {"ready": None, "output": None, "closed": None, "failed": None}
WAITS = {"ready": False, "output": None, "closed": False, "failed": False}
READY = {"ready": True, "output": "192.0.2.1\n", "closed": False, "failed": False}


@pytest.mark.parametrize("number", [9999, "9999", 0, -1, "x", "", "1" * 5000, "²"])
def test_unknown_ticket_is_answered_immediately(number: int | str, shared: TicketService) -> None:
    client = shared.client

    assert (client.collect(number), client.wait(number), client.close(number)) == (
        NOTHING,
        "",
        False,
    )


def test_ticket_without_calls_expires(service: TicketService) -> None:
    """The answer was lost, and its client took another one."""
    lost = service.client.take("extra_powerful")
    kept = service.client.take("extra_powerful")
    service.client.collect(kept)

    service.later(minutes=31)

    assert service.client.collect(lost) == WAITS | {"failed": True}
    assert service.client.collect(kept) == WAITS


def test_command_line_ticket_keeps_its_lease_after_old_client(service: TicketService) -> None:
    number = service.client.take("extra_powerful")
    now = service.clock.now()
    service.book.change(number, lambda each: each._replace(client="", lease=60), now)

    assert service.client.collect(number) == NOTHING
    assert found(service, number).lease == 60


def test_ticket_is_refused_when_queue_is_not_in_fleet_yaml(service: TicketService) -> None:
    service.fleet = a_ticket_fleet(queues={})

    with pytest.raises(Fault, match=r"tickets.*tickets"):
        service.client.take("extra_powerful")


def test_client_gets_fault_while_groups_are_unknown(service: TicketService) -> None:
    service.fleet = a_ticket_fleet(tag={"asked_by": [{"groups": ["porters"]}]})
    service.calls.members = lambda: Unknown(unknown="members.yaml: no such file")

    with pytest.raises(Fault, match=r"members\.yaml"):
        service.client.take("extra_powerful")

    service.calls.members = lambda: {"porters": ("anybody",)}
    assert service.client.collect(service.client.take("extra_powerful"))["failed"] is False


def found(service: TicketService, number: int) -> Ticket:
    ticket = service.book.find(number)
    assert ticket is not None
    return ticket


def test_ticket_call_opens_waits_and_closes(service: TicketService) -> None:
    client = service.client

    number = client.take("arch_x86_64", "extra_powerful")
    answers = [client.collect(number), client.collect(str(number))]
    service.give(number)
    answers.append(client.collect(number))
    rung = service.rung
    closed = client.close(str(number))
    answers.append(client.collect(number))

    assert answers == [WAITS, WAITS, READY, READY | {"closed": True}]
    assert (closed, rung, service.rung) == (True, 1, 2)


def test_ticket_of_lost_machine_is_failed(service: TicketService) -> None:
    number = service.client.take("extra_powerful")
    service.give(number)
    service.lose(number)

    assert service.client.collect(number) == READY | {"failed": True}


@pytest.mark.parametrize(
    ("sandbox", "owner", "submitter"),
    [
        ("@asahi/kernel--ada", "@asahi", "ada"),
        *(
            (sandbox, "anybody", "anybody")
            for sandbox in ("", "s", "a--b", "/p--ada", "o/p--", "o/p", "o/--ada")
        ),
    ],
)
def test_owner_and_submitter_are_in_the_sandbox_of_an_old_client(
    sandbox: str, owner: str, submitter: str, shared: TicketService
) -> None:
    ticket = found(shared, shared.client.take("extra_powerful", sandbox=sandbox))

    assert (ticket.owner, ticket.submitter) == (owner, submitter)
    assert ticket.sandbox == sandbox
    assert ticket.client == "anybody 127.0.0.1"


@pytest.mark.parametrize("name", ["x" * 300, "a\nb", " "])
def test_invalid_sandbox_is_replaced_by_its_digest(name: str, shared: TicketService) -> None:
    # An old client that were refused for it would ask for ever.
    names = (name, name, name * 2, f"{'o' * 300}/ping--ada")
    first, again, other, owned = (
        found(shared, shared.client.take("extra_powerful", sandbox=each)) for each in names
    )

    assert first.sandbox == again.sandbox != other.sandbox
    assert find_fault(["big"], [first.sandbox]) == ""
    assert (owned.owner[:41], len(owned.owner), owned.submitter) == ("o" * 40 + "…", 73, "ada")


def wait_until(service: TicketService, act: Callable[[], object]) -> object:
    """Return what a client hears that waits for a ticket until this is done."""
    number = service.client.take("extra_powerful")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(service.client.wait, number)
        until_so_many_wait(service, 1)
        act()
        return waiting.result(10)


def until_so_many_wait(service: TicketService, many: int) -> None:
    """Return once so many calls wait."""
    while service.calls.waiting < many:
        pass


def test_waiting_client_is_answered_when_its_ticket_changes(service: TicketService) -> None:
    assert wait_until(service, lambda: service.give(1)) == "192.0.2.1\n"
    # Resalloc's own server would have it wait for ever.
    assert wait_until(service, lambda: service.client.close(2)) == ""


@pytest.mark.parametrize(
    ("note", "because"),
    [
        ("", ITS_TURN),
        (
            r"budgets.blue.per_day is 2.00 EUR: 0.52 left today",
            r"budgets\.blue\.per_day .*2\.00 E",
        ),
    ],
)
def test_waiting_client_gets_reason_when_service_stops(
    service: TicketService, note: str, because: str
) -> None:
    def stop() -> None:
        service.book.note({1: note} if note else {})
        service.calls.end()

    with pytest.raises(Fault, match=f"ticket 1 .*{because}"):
        wait_until(service, stop)
    with pytest.raises(Fault, match="collectTicket"):
        service.client.wait(1)


def test_waiting_calls_of_one_client_leave_capacity_for_another(tmp_path: Path) -> None:
    with TicketService(tmp_path, named=True) as service, ThreadPoolExecutor(4) as threads:
        service.calls.bound_waiting(3)
        copr, packit = service.of("copr"), service.of("packit")
        number = copr.take("extra_powerful")
        waits = [threads.submit(service.of("copr").wait, number) for _ in range(2)]
        until_so_many_wait(service, 2)

        with pytest.raises(Fault, match="collectTicket"):
            copr.wait(number)
        other = packit.take("extra_powerful")
        waits.append(threads.submit(service.of("packit").wait, other))
        until_so_many_wait(service, 3)
        copr.close(number)
        packit.close(other)

        assert [each.result(10) for each in waits] == ["", "", ""]


@pytest.mark.parametrize(
    ("name", "arguments", "code", "because"),
    [
        ("takeTicket", ([],), 1, "no ticket.*tag"),
        ("takeTicket", ([f"t{n}" for n in range(1000)],), 1, "no ticket.*50 .*1,000"),
        ("takeTicket", (["x" * 20_000],), 1, "no ticket.*20,000 .*200"),
        ("takeTicket", (["a\nb"],), 1, "no ticket.*unprintable"),
        ("takeTicket", ([1, 2],), 1, "no ticket.*tag"),
        ("takeTicket", (["extra_powerful", "a b"],), 1, "'a b'"),
        *(
            (name, arguments, -32601, r"takeTicket.*collectTicket.*closeTicket")
            for name, arguments in [
                ("system.listMethods", ()),
                ("takeTicket", ()),
                ("takeTicket", ("extra_powerful",)),
                ("takeTicket", (["extra_powerful"], "s", "more")),
                ("takeTicket", (["extra_powerful"], {"a": 1})),
                ("collectTicket", ([1],)),
                ("collectTicket", (True,)),
                ("waitTicket", (True,)),
                ("closeTicket", (True,)),
                ("closeTicket", (1.5,)),
                ("waitTicket", ()),
            ]
        ),
    ],
)
def test_impossible_call_is_refused_with_reason(
    name: str, arguments: tuple[object, ...], code: int, because: str, shared: TicketService
) -> None:
    before = shared.book.tickets()

    with pytest.raises(Fault, match=because) as fault:
        shared.client.call(name, *arguments)

    assert fault.value.faultCode == code
    assert shared.book.tickets() == before


@pytest.mark.parametrize(
    ("limit", "most", "because"),
    [
        ("submitter", 2, r"\bada .*\b2 .*\(most_open_per_submitter: 2\)"),
        ("address", 3, r"127\.0\.0\.1 have 3 .*--tokens.*most_open_per_address"),
    ],
)
def test_client_above_ticket_limit_is_refused_with_reason(
    tmp_path: Path, limit: str, most: int, because: str
) -> None:
    desk = {"kind": "tickets", f"most_open_per_{limit}": most}
    with TicketService(tmp_path, a_ticket_fleet(queues={"tickets": desk})) as service:
        names = ["ada"] * 3 if limit == "submitter" else [f"u{n}" for n in range(4)]
        boxes = [f"{name}/p{n}--{name}" for n, name in enumerate(names)]
        taken = [service.client.take("extra_powerful", sandbox=each) for each in boxes[:-1]]

        with pytest.raises(Fault, match=because):
            service.client.take("extra_powerful", sandbox=boxes[-1])

        if limit == "submitter":
            assert service.client.take("extra_powerful", sandbox="ben/ping--ben") == 3
        else:
            elsewhere = "anybody 127.0.0.2"
            number = service.calls.answer(elsewhere, "takeTicket", [["extra_powerful"]])
            # Without tokens, all are one client.
            assert service.client.close(str(number)) is service.client.close(taken[0]) is True
            assert service.client.take("extra_powerful", sandbox=boxes[-1])


def test_address_limit_excludes_clients_with_a_token(tmp_path: Path) -> None:
    """Copr's backend opens hundreds of tickets, of many submitters, from one address."""
    desk = {"kind": "tickets", "most_open_per_address": 3}
    fleet = a_ticket_fleet(queues={"tickets": desk})
    with TicketService(tmp_path, fleet, named=True) as service:
        boxes = [f"u{n}/p--u{n}" for n in range(5)]
        taken = {service.of("copr").take("extra_powerful", sandbox=each) for each in boxes}

    assert len(taken) == 5


def test_client_gets_failed_ticket_only_when_tag_is_denied(service: TicketService) -> None:
    unknown = service.client.take("extra_powreful")
    assert service.client.collect(unknown) == WAITS
    assert service.client.close(unknown) is True
    service.fleet = a_ticket_fleet(tag={"asked_by": ["rules"]})

    number = service.client.take("arch_x86_64", "extra_powerful")

    assert service.client.collect(number) == WAITS | {"failed": True}
    assert service.client.wait(number) == ""
    assert tells(found(service, number).because, "extra_powerful")
    assert service.book.tickets() == ()
