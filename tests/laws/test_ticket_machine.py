"""Whatever clients, machines and clouds do: nobody gets what is another's, and nothing is lost.

Tickets are opened, closed, and left by clients that die; machines boot, never boot, break and
vanish, and cannot be cleaned; a cloud or the store goes blind; time passes; an apply is killed,
and so is the service that clients call.
"""

from collections import Counter
from datetime import timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet.errors import StoreFailed
from fleet.model.plan import Plan
from fleet.model.tickets import TicketState, close, hear
from fleet.tickets.service import collected
from tests.builders.ticketing import a_ticket_fleet
from tests.laws.ticket_clients import Service
from tests.laws.ticket_demand import Demand
from tests.laws.ticket_farm import TicketFarm

NAMES = st.sampled_from(["ada", "ben"])
SANDBOXES = st.sampled_from(["", "s", "s", "t"])
TAGS = st.sampled_from([("arch_x86_64", "extra_powerful"), ("extra_powerful",), ("arch_x86_64",)])
LEASES = st.sampled_from([None, None, 300])
PER_SUBMITTER = 2
IN_ALL = 3
FATES = st.sampled_from(["answered", "answered", "answered", "killed", "no store"])
MOST_RUNS = 2
"""A machine that nobody asks for any more is drained by one run, and deleted by the next."""
PLAIN = {
    "provider": "shed",
    "machine": "ccx13",
    "image": "builder",
    "workers": {"max": 2},
    "retire": {"idle_after": "1m"},
}


class Tickets(RuleBasedStateMachine):
    """A fleet whose powerful machines are made on demand, and what happens to it."""

    @initialize(reuse=st.booleans(), starting=st.sampled_from([None, 1]))
    def begin(self, reuse: bool, starting: int | None) -> None:  # noqa: FBT001 - Hypothesis draws it
        limits = {"per": {"submitter": PER_SUBMITTER}, "total": IN_ALL}
        workers = {"max": 4} | ({"max_starting": starting} if starting else {})
        powerful = {
            "provider": "desk",
            "machine": "ccx63",
            "image": "builder",
            "provides": ["extra_powerful"],
            "workers": workers,
        }
        powerful |= {"reuse": {"opportunity": "3m", "max_uses": 2}} if reuse else {}
        existing = {"desk": "b-1", "shed": "b-1"}
        self.farm = TicketFarm(
            a_ticket_fleet(
                providers={"desk": {"kind": "sim"}, "shed": {"kind": "sim"}},
                images={"builder": {"existing": existing, "provides": ["arch_x86_64"]}},
                pools={"powerful": powerful, "plain": PLAIN},
                tags={"extra_powerful": {"on_demand": True, "exclusive": True, "limits": limits}},
            )
        )
        self.service = Service(self.farm)
        idle = timedelta(minutes=3) if reuse else timedelta()
        self.demand = Demand(self.farm, "powerful", idle)

    @rule(wanted=st.lists(st.tuples(NAMES, SANDBOXES, TAGS, FATES), min_size=1, max_size=3))
    def take(self, wanted: list[tuple[str, str, tuple[str, ...], str]]) -> None:
        """Take tickets of the service, which may be killed before it answers."""
        for name, place, tags, fate in wanted:
            self.service.take(name, place, tags, fate)

    @precondition(lambda self: self.service.known)
    @rule(data=st.data(), fate=FATES)
    def give_back(self, data: st.DataObject, fate: str) -> None:
        """Close a ticket of the service, which may be killed before it answers."""
        known = sorted(self.service.known)
        self.service.close(data.draw(st.sampled_from(known)), fate)

    @precondition(lambda self: self.service.known)
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """Start the service again: what a client is told of its ticket stays the same."""
        number = data.draw(st.sampled_from(sorted(self.service.known)))
        assert self.service.collect(number) == collected(self.farm.desk.all[number])

    @precondition(lambda self: self.farm.desk.tickets())
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        """Close some tickets, preferably such as have a machine."""
        each = st.sampled_from(
            sorted(self.farm.desk.tickets(), key=lambda t: (not t.machine, t.id))
        )
        for ticket in data.draw(st.lists(each, min_size=1, max_size=3, unique=True)):
            self.farm.desk.change(ticket.id, lambda t: close(t, self.farm.now), self.farm.now)

    @precondition(lambda self: self.farm.desk.tickets())
    @rule(data=st.data())
    def check(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.farm.desk.tickets()))
        self.farm.desk.change(ticket.id, lambda t: hear(t, self.farm.now), self.farm.now)

    @precondition(lambda self: self.farm.made)
    @rule(data=st.data())
    def never_boot(self, data: st.DataObject) -> None:
        self.farm.made[data.draw(st.sampled_from(sorted(self.farm.made)))].boots = False

    @precondition(lambda self: self.farm.made)
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.farm.made)))
        pool = self.farm.made[name].pool
        self.farm.vanish(name)
        self.farm.forget({name: pool})

    @precondition(lambda self: self.farm.made)
    @rule(data=st.data())
    def break_down(self, data: st.DataObject) -> None:
        known = self.farm.desk.known
        given_out_first = sorted(self.farm.made, key=lambda name: (name not in known, name))
        name = data.draw(st.sampled_from(given_out_first))
        self.farm.broken.add((name, self.farm.made[name].created_at))
        self.farm.blind = set()
        self._apply(None)

    @precondition(lambda self: any(t.machine and t.sandbox for t in self.farm.desk.tickets()))
    @rule(data=st.data(), release=st.sampled_from(["cleans", "fails", "is not tried"]))
    def hand_on(self, data: st.DataObject, release: str) -> None:
        """Close a ticket, open another of its sandbox, apply; its machine is cleaned or not."""
        held = [t for t in self.farm.desk.tickets() if t.machine and t.sandbox]
        ticket = data.draw(st.sampled_from(held))
        cleaner = self.farm.cleaner
        cleaner.troubles = {ticket.machine: "no room"} if release == "fails" else {}
        cleaner.untried = {ticket.machine} if release == "is not tried" else set()
        self.farm.desk.change(ticket.id, lambda t: close(t, self.farm.now), self.farm.now)
        same = {"tags": ticket.tags, "submitter": ticket.submitter, "owner": ticket.owner}
        self.farm.open(**same, sandbox=ticket.sandbox)
        self.farm.blind = set()
        self._apply(None)

    @rule(minutes=st.sampled_from([1, 5, 30]))
    def pass_time(self, minutes: int) -> None:
        self.farm.pass_time(minutes=minutes)

    @rule(
        wanted=st.lists(st.tuples(TAGS, NAMES, SANDBOXES, LEASES), max_size=3),
        dies_after=st.sampled_from([None, None, None, None, 0, 1, 2]),
        blind=st.sampled_from([None, None, None, None, "desk", "shed", "tickets"]),
    )
    def apply(
        self,
        wanted: list[tuple[tuple[str, ...], str, str, int | None]],
        dies_after: int | None,
        blind: str | None,
    ) -> None:
        """Open tickets, have what boots be up, and apply; killed, or in the dark, now and then."""
        for tags, name, sandbox, lease in wanted:
            self.farm.open(tags=tags, submitter=name, owner=name, sandbox=sandbox, lease=lease)
        for name in list(self.farm.made):
            self.farm.boot(name)
        self.farm.blind = {blind} if blind else set()
        self._apply(dies_after)

    @rule(wanted=st.lists(st.tuples(TAGS, NAMES, SANDBOXES), min_size=1, max_size=2))
    def serve(self, wanted: list[tuple[tuple[str, ...], str, str]]) -> None:
        """Open tickets, and apply until what was ordered for them is up and given out."""
        for tags, name, sandbox in wanted:
            self.farm.open(tags=tags, submitter=name, owner=name, sandbox=sandbox)
        self.farm.blind = set()
        self._apply(None)
        for name in list(self.farm.made):
            self.farm.boot(name)
        self._apply(None)

    @rule()
    def apply_before_anything_boots(self) -> None:
        self.farm.blind = set()
        self._apply(None)

    def _apply(self, dies_after: int | None) -> None:
        held = {t.machine: t for t in self.farm.desk.tickets() if t.machine}
        overdue = self.demand.overdue()
        try:
            run = self.farm.run(dies_after=dies_after)
        except StoreFailed:
            assert "tickets" in self.farm.blind
            return
        for name in run.deleted:
            assert name not in held or not self.farm.desk.all[held[name].id].is_open
        for name in (t.machine for t in self.farm.desk.tickets() if t.machine in self.farm.made):
            is_seen = self.farm.made[name].cloud not in self.farm.blind
            assert not (is_seen and self.farm.is_broken(name)), name
        self._check_everybody_is_told(run.plan)
        sees_all = dies_after is None and not self.farm.blind
        assert self.demand.outlive(overdue if sees_all else []) < MOST_RUNS

    def _check_everybody_is_told(self, plan: Plan) -> None:
        told = self.farm.told(plan)
        for ticket in self.farm.desk.tickets() if "tickets" not in self.farm.blind else ():
            if ticket.state is TicketState.WAITING:
                assert told[f"tickets/{ticket.id}"], ticket

    @invariant()
    def no_machine_has_two_tickets(self) -> None:
        held = [t.machine for t in self.farm.desk.tickets() if t.machine]
        assert len(held) == len(set(held))

    @invariant()
    def no_ticket_had_two_machines_and_no_machine_two_sandboxes(self) -> None:
        machines = Counter(number for number, _ in self.farm.desk.leases)
        assert all(count == 1 for count in machines.values())
        for sandboxes in self.farm.desk.sandboxes.values():
            assert len(sandboxes) == 1

    @invariant()
    def no_machine_is_given_before_it_was_cleaned(self) -> None:
        assert self.farm.desk.given_dirty == []

    @invariant()
    def machines_on_demand_are_watched(self) -> None:
        self.demand.look()

    @invariant()
    def a_ticket_whose_client_was_not_told_of_it_expires(self) -> None:
        taken = {t.id: t for t in self.farm.desk.tickets() if t.client}
        assert all(taken[number].lease for number in taken.keys() - self.service.known)

    @invariant()
    def limits_hold(self) -> None:
        held = [
            ticket
            for ticket in self.farm.desk.tickets()
            if ticket.machine and "extra_powerful" in ticket.tags
        ]
        assert len(held) <= IN_ALL
        by_submitter = Counter(ticket.submitter for ticket in held)
        assert all(count <= PER_SUBMITTER for count in by_submitter.values())

    def teardown(self) -> None:
        """Without demand nothing is held: what was on demand goes, however it stood."""
        if not hasattr(self, "farm"):
            return  # it never began
        self.farm.blind = set()
        for ticket in self.farm.desk.tickets():
            self.farm.desk.change(ticket.id, lambda t: close(t, self.farm.now), self.farm.now)
        # Three minutes of `reuse` at most, a run that drains, and one that deletes.
        for _ in range(6):
            self.farm.run()
            self.farm.pass_time(minutes=1)
        assert not [made for made in self.farm.made.values() if made.pool == "powerful"]


TestTickets = Tickets.TestCase
TestTickets.settings = settings(
    max_examples=max(min(20, settings().max_examples), settings().max_examples // 5),
    stateful_step_count=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
