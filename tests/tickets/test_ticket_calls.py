"""The calls of Resalloc's clients: what each is answered, and what becomes of the ticket."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xmlrpc.client import Fault

import pytest

from fleet.model.facts import Unknown
from fleet.model.tickets import TicketState, find_fault
from fleet.tickets.handout import ITS_TURN
from tests.builders.sentences import tells
from tests.builders.ticketing import a_ticket_fleet
from tests.rigs.ticket_service import TicketService

NOTHING = {"ready": None, "output": None, "closed": None, "failed": None}
WAITS = {"ready": False, "output": None, "closed": False, "failed": False}
READY = {"ready": True, "output": "192.0.2.1\n", "closed": False, "failed": False}


def test_ticket_call_opens_waits_and_closes(service: TicketService) -> None:
    client = service.client

    number = client.take("arch_x86_64", "extra_powerful")
    answers = [client.collect(number)]
    service.give(number)
    answers.append(client.collect(number))
    closed = client.close(number)
    answers.append(client.collect(number))

    assert answers == [WAITS, READY, READY | {"closed": True}]
    assert closed is True


def test_open_and_close_calls_wake_the_loop(service: TicketService) -> None:
    number = service.client.take("extra_powerful")
    after_taking = service.rung
    service.client.collect(number)
    service.client.close(number)

    assert (after_taking, service.rung) == (1, 2)


def test_ticket_id_may_be_a_string(service: TicketService) -> None:
    number = service.client.take("extra_powerful")

    assert service.client.collect(str(number)) == WAITS
    assert service.client.close(str(number)) is True


@pytest.mark.parametrize("number", [9999, "9999", 0, -1, "x", "", "1" * 5000, "²"])
def test_unknown_ticket_is_answered_immediately(number: int | str, shared: TicketService) -> None:
    client = shared.client

    assert (client.collect(number), client.wait(number), client.close(number)) == (
        NOTHING,
        "",
        False,
    )


def test_ticket_of_lost_machine_is_failed(service: TicketService) -> None:
    number = service.client.take("extra_powerful")
    service.give(number)
    service.lose(number)

    assert service.client.collect(number) == READY | {"failed": True}


def test_owner_and_submitter_of_an_old_client_are_in_its_sandbox(shared: TicketService) -> None:
    number = shared.client.take("extra_powerful", sandbox="@asahi/kernel--ada")

    ticket = shared.book.find(number)
    assert ticket is not None
    assert (ticket.owner, ticket.submitter) == ("@asahi", "ada")
    assert ticket.sandbox == "@asahi/kernel--ada"


@pytest.mark.parametrize("sandbox", ["", "s", "a--b", "/p--ada", "o/p--", "o/p", "o/--ada"])
def test_client_without_sandbox_name_is_its_own_owner(sandbox: str, shared: TicketService) -> None:
    number = shared.client.take("extra_powerful", sandbox=sandbox)

    ticket = shared.book.find(number)
    assert ticket is not None
    assert (ticket.owner, ticket.submitter) == ("anybody", "anybody")
    assert ticket.client == "anybody 127.0.0.1"


@pytest.mark.parametrize("name", ["x" * 300, "a\nb", " "])
def test_invalid_sandbox_is_replaced_by_its_digest(name: str, shared: TicketService) -> None:
    # An old client that were refused for it would ask for ever.
    numbers = [
        shared.client.take("extra_powerful", sandbox=each) for each in (name, name, name * 2)
    ]

    first, again, other = map(shared.book.find, numbers)
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.sandbox == again.sandbox != other.sandbox
    assert find_fault(["big"], [first.sandbox]) == ""


@pytest.mark.parametrize("call", ["collectTicket", "waitTicket", "closeTicket"])
def test_boolean_ticket_id_is_refused(call: str, shared: TicketService) -> None:
    with pytest.raises(Fault) as refused:
        shared.client.call(call, True)

    assert refused.value.faultCode == -32601


def test_tag_with_a_blank_is_refused(service: TicketService) -> None:
    with pytest.raises(Fault) as refused:
        service.client.call("takeTicket", ["extra_powerful", "a b"])

    assert refused.value.faultCode == 1
    assert "'a b'" in refused.value.faultString
    assert service.book.tickets() == ()


def test_invalid_owner_is_accepted_as_an_owner(shared: TicketService) -> None:
    number = shared.client.take("extra_powerful", sandbox=f"{'o' * 300}/ping--ada")

    ticket = shared.book.find(number)
    assert ticket is not None
    assert (ticket.owner[:41], len(ticket.owner), ticket.submitter) == ("o" * 40 + "…", 73, "ada")


# waiting


def test_waiting_client_is_answered_when_ticket_gets_machine(service: TicketService) -> None:
    number = service.client.take("extra_powerful")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(service.client.wait, number)
        until_somebody_waits(service)
        service.give(number)

        assert waiting.result(10) == "192.0.2.1\n"


def test_waiting_client_is_answered_when_ticket_is_closed(service: TicketService) -> None:
    """Resalloc's own server would have it wait for ever."""
    number = service.client.take("extra_powerful")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(service.client.wait, number)
        until_somebody_waits(service)
        service.client.close(number)

        assert waiting.result(10) == ""


def test_waiting_client_gets_reason_when_service_stops(service: TicketService) -> None:
    number = service.client.take("extra_powerful")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(service.client.wait, number)
        until_somebody_waits(service)
        service.calls.end()

        with pytest.raises(Fault, match=f"ticket {number} waits: {ITS_TURN}"):
            waiting.result(10)


def until_somebody_waits(service: TicketService) -> None:
    """Return once a call waits."""
    while not service.calls.waiting:
        pass


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


def until_so_many_wait(service: TicketService, many: int) -> None:
    """Return once so many calls wait."""
    while service.calls.waiting < many:
        pass


# answers that were lost


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
    ticket = service.book.find(number)
    assert ticket is not None
    assert ticket.lease == 60


# who asks


def test_client_lists_and_closes_only_its_tickets(tmp_path: Path) -> None:
    with TicketService(tmp_path, named=True) as service:
        number = service.of("copr").take("extra_powerful")
        other = service.of("packit")

        assert (other.collect(number), other.close(number)) == (NOTHING, False)

        ticket = service.book.find(number)
        assert ticket is not None
        assert (ticket.state, ticket.client) == (TicketState.WAITING, "copr")
        assert service.of("copr").close(number) is True


# what is refused


@pytest.mark.parametrize(
    ("tags", "because"),
    [
        ([], "tag"),
        ([f"t{number}" for number in range(1000)], "50 .*1,000"),
        (["x" * 20_000], "20,000 .*200"),
        (["a\nb"], "unprintable"),
        ([1, 2], "tag"),
    ],
)
def test_unprovidable_tags_are_refused_with_reason(
    tags: list[object], because: str, shared: TicketService
) -> None:
    before = shared.book.tickets()

    with pytest.raises(Fault, match=because) as caught:
        shared.client.call("takeTicket", tags)

    assert tells(caught.value.faultString, "no ticket")
    assert shared.book.tickets() == before


def test_ticket_with_unknown_tag_waits_and_can_be_closed(service: TicketService) -> None:
    number = service.client.take("extra_powreful")

    assert service.client.collect(number) == {
        "ready": False,
        "output": None,
        "closed": False,
        "failed": False,
    }
    assert service.client.close(number) is True


def test_client_above_ticket_limit_is_refused_with_reason(tmp_path: Path) -> None:
    desk = {"kind": "tickets", "most_open_per_submitter": 2}
    with TicketService(tmp_path, a_ticket_fleet(queues={"tickets": desk})) as service:
        for _ in range(2):
            service.client.take("extra_powerful", sandbox="ada/ping--ada")

        with pytest.raises(Fault, match=r"\bada .*\b2 .*\(most_open_per_submitter: 2\)"):
            service.client.take("extra_powerful", sandbox="ada/pong--ada")

        assert service.client.take("extra_powerful", sandbox="ben/ping--ben") == 3


def test_address_limit_counts_all_submitters(tmp_path: Path) -> None:
    desk = {"kind": "tickets", "most_open_per_address": 3}
    with TicketService(tmp_path, a_ticket_fleet(queues={"tickets": desk})) as service:
        taken = [service.client.take("extra_powerful", sandbox=f"u{n}/p--u{n}") for n in range(3)]

        with pytest.raises(Fault, match=r"127\.0\.0\.1 have 3 .*--tokens.*most_open_per_address"):
            service.client.take("extra_powerful", sandbox="u9/p--u9")

        assert service.calls.answer("anybody 127.0.0.2", "takeTicket", [["extra_powerful"]])
        assert service.client.close(taken[0]) is True
        assert service.client.take("extra_powerful", sandbox="u9/p--u9")


def test_address_limit_excludes_clients_with_a_token(tmp_path: Path) -> None:
    """Copr's backend opens hundreds of tickets, of many submitters, from one address."""
    desk = {"kind": "tickets", "most_open_per_address": 3}
    fleet = a_ticket_fleet(queues={"tickets": desk})
    with TicketService(tmp_path, fleet, named=True) as service:
        taken = [
            service.of("copr").take("extra_powerful", sandbox=f"u{n}/p--u{n}") for n in range(5)
        ]

    assert len(set(taken)) == 5


def test_ticket_without_token_is_open_to_every_client(service: TicketService) -> None:
    number = service.calls.answer("anybody 127.0.0.2", "takeTicket", [["extra_powerful"]])

    assert service.client.close(str(number)) is True


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("system.listMethods", ()),
        ("takeTicket", ()),
        ("takeTicket", ("extra_powerful",)),
        ("takeTicket", (["extra_powerful"], "s", "more")),
        ("takeTicket", (["extra_powerful"], {"a": 1})),
        ("collectTicket", ([1],)),
        ("closeTicket", (1.5,)),
        ("waitTicket", ()),
    ],
)
def test_unknown_call_error_lists_calls(
    name: str, arguments: tuple[object, ...], shared: TicketService
) -> None:
    with pytest.raises(Fault, match=r"takeTicket.*collectTicket.*closeTicket") as fault:
        shared.client.call(name, *arguments)

    assert fault.value.faultCode == -32601


def test_call_fails_while_store_is_missing_and_then_works(
    service: TicketService, tmp_path: Path
) -> None:
    (tmp_path / "store.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(Fault, match="no store"):
        service.client.take("extra_powerful")

    (tmp_path / "elsewhere.db").rename(tmp_path / "store.db")

    assert service.client.take("extra_powerful") == 1


def test_ticket_is_refused_when_queue_is_not_in_fleet_yaml(service: TicketService) -> None:
    service.fleet = a_ticket_fleet(queues={})

    with pytest.raises(Fault, match=r"tickets.*tickets"):
        service.client.take("extra_powerful")


# tags that a ticket may not have


def test_client_gets_failed_ticket_when_tag_is_denied(service: TicketService) -> None:
    service.fleet = a_ticket_fleet(tag={"asked_by": ["rules"]})

    number = service.client.take("arch_x86_64", "extra_powerful")

    assert service.client.collect(number) == {
        "ready": False,
        "output": None,
        "closed": False,
        "failed": True,
    }
    assert service.client.wait(number) == ""
    ticket = service.book.find(number)
    assert ticket is not None
    assert tells(ticket.because, "extra_powerful")
    assert service.book.tickets() == ()


def test_client_gets_fault_while_groups_are_unknown(service: TicketService) -> None:
    service.fleet = a_ticket_fleet(tag={"asked_by": [{"groups": ["porters"]}]})
    service.calls.members = lambda: Unknown(unknown="members.yaml: no such file")

    with pytest.raises(Fault, match=r"members\.yaml"):
        service.client.take("extra_powerful")

    service.calls.members = lambda: {"porters": ("anybody",)}
    assert service.client.collect(service.client.take("extra_powerful"))["failed"] is False


def test_waiting_client_gets_budget_that_blocks_it(service: TicketService) -> None:
    number = service.client.take("extra_powerful")
    service.book.note({number: "budgets.blue.per_day is 2.00 EUR: 0.52 left today"})
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(service.client.wait, number)
        until_somebody_waits(service)
        service.calls.end()

        with pytest.raises(Fault, match=rf"ticket {number} .*budgets\.blue\.per_day .*2\.00 E"):
            waiting.result(10)
