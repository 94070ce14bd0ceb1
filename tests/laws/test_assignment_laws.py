"""Whatever the tickets, machines and limits: what assignment promises of each pass."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fleet.model.tickets import Limit, Ticket
from fleet.tickets.assignment import ReadyMachine, Suitable, Terms, assign
from tests.builders import NOW, ago
from tests.builders.ticketing import a_ticket

OWNERS = st.sampled_from(["ada", "ben", "eve"])
SANDBOXES = st.sampled_from(["", "s", "t"])
KINDS = ("a", "b", "c")
LIMITS = st.lists(
    st.builds(
        lambda of, most: Limit(("limits", of), most, of),
        st.sampled_from(["owner", "sandbox", "total"]),
        st.integers(0, 3),
    ),
    max_size=2,
    unique_by=lambda limit: limit.of,
).map(tuple)


@st.composite
def passes(draw: st.DrawFn) -> tuple[list[Ticket], list[ReadyMachine], dict[str, Suitable]]:
    """Return tickets that wait, free machines, and what suits the tickets of each tag."""
    tickets = [
        a_ticket(
            number,
            owner=draw(OWNERS),
            sandbox=draw(SANDBOXES),
            tags=(draw(st.sampled_from(KINDS)),),
            priority=draw(st.integers(-1, 1)),
            background=draw(st.booleans()),
            opened_at=ago(minutes=draw(st.integers(0, 90))),
        )
        for number in range(1, draw(st.integers(0, 8)) + 1)
    ]
    machines = [
        ReadyMachine(f"m{number}", draw(st.sampled_from(KINDS)), draw(SANDBOXES))
        for number in range(draw(st.integers(0, 6)))
    ]
    limits = draw(LIMITS)
    kinds = st.dictionaries(st.sampled_from(KINDS), st.integers(-2, 2))
    last = st.frozensets(st.sampled_from(KINDS))
    after = {tag: draw(last) for tag in KINDS}
    return (
        tickets,
        machines,
        {tag: Suitable(draw(kinds), limits, last, last) for tag, last in after.items()},
    )


@given(passes(), st.randoms())
def test_assignment_pass_keeps_its_invariants(
    drawn: tuple[list[Ticket], list[ReadyMachine], dict[str, Suitable]], random: st.DataObject
) -> None:
    tickets, machines, suitable = drawn
    shuffled = sorted(tickets, key=lambda _: random.random())  # type: ignore[attr-defined]  # Hypothesis' own Random

    def suits(ticket: Ticket) -> Suitable:
        return suitable[ticket.tags[0]]

    done = assign(tickets, machines, suits, Terms(), NOW)

    leases = dict(done.leases)
    by_id = {ticket.id: ticket for ticket in tickets}
    by_name = {machine.name: machine for machine in machines}
    # No ticket gets two machines, and no machine goes twice.
    assert len(set(leases.values())) == len(leases) == len(done.leases)
    for number, name in leases.items():
        assert by_name[name].kind in suits(by_id[number]).kinds
        assert by_name[name].sandbox in ("", by_id[number].sandbox)
    # Limits hold.
    waiting = by_id.keys() - leases.keys()
    for limit in suitable["a"].limits:
        held = Counter(limit.whose(by_id[number]) for number in leases)
        assert all(count <= limit.most for count in held.values())
        waiting -= {n for n in waiting if held[limit.whose(by_id[n])] >= limit.most}
    # Nobody waits for want of a machine while one that fits is free.
    left = [machine for machine in machines if machine.name not in leases.values()]
    for number in waiting:
        mine = suits(by_id[number]).kinds
        own = by_id[number].sandbox
        assert not [m for m in left if m.kind in mine and m.sandbox in ("", own)]
    # What a ticket called up goes to no other while it waits for want of a machine.
    for number in waiting:
        called = suits(by_id[number]).kinds.keys() - suits(by_id[number]).last
        for other, name in leases.items():
            machine = by_name[name]
            if machine.kind in called and machine.sandbox in ("", by_id[number].sandbox):
                assert machine.kind not in suits(by_id[other]).last
    # The order of what is read changes nothing.
    assert assign(shuffled, list(reversed(machines)), suits, Terms(), NOW) == done


@given(st.integers(1, 400), st.integers(0, 50))
def test_ticket_is_served_despite_any_later_tickets(newer: int, ahead: int) -> None:
    """A ticket that waited for a step of ageing per place before it is the very first."""
    old = a_ticket(1, opened_at=ago(minutes=10 * (ahead + 101)), priority=0)
    held = [a_ticket(1000 + number, machine=f"x{number}") for number in range(ahead)]
    others = [
        a_ticket(2 + number, owner=f"o{number}", priority=1, opened_at=NOW)
        for number in range(newer)
    ]
    suitable = Suitable({"a": 0})

    done = assign(
        [old, *held, *others], [ReadyMachine("m", "a")], lambda _: suitable, Terms(), NOW
    )

    assert done.leases[0].ticket == 1
