"""Whatever clients, machines and clouds do: nobody gets what is another's, and nothing is lost.

Tickets are opened, closed, and left by clients that die; machines boot, never boot and vanish;
a cloud or the store goes blind; time passes; an apply is killed.
"""

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet.errors import StoreFailed
from fleet.plan import Plan
from fleet.tickets import TicketState, close, hear
from tests.laws.ticket_farm import TicketFarm
from tests.ticketing import a_ticket_fleet

NAMES = st.sampled_from(["ada", "ben"])
SANDBOXES = st.sampled_from(["", "s", "s", "t"])
TAGS = st.sampled_from([("arch_x86_64", "extra_powerful"), ("extra_powerful",), ("arch_x86_64",)])
LEASES = st.sampled_from([None, None, 300])
PER_SUBMITTER = 2
IN_ALL = 3
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

    @rule()
    def apply_before_anything_boots(self) -> None:
        self.farm.blind = set()
        self._apply(None)

    def _apply(self, dies_after: int | None) -> None:
        held = {t.machine: t for t in self.farm.desk.tickets() if t.machine}
        try:
            run = self.farm.run(dies_after=dies_after)
        except StoreFailed:
            assert "tickets" in self.farm.blind
            return
        for name in run.deleted:
            assert name not in held or not self.farm.desk.all[held[name].id].is_open
        self._check_everybody_is_told(run.plan)

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
        for places in self.farm.desk.places.values():
            assert len(places) == 1

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
        for _ in range(5):
            self.farm.run()
            self.farm.pass_time(minutes=4)
        assert not [made for made in self.farm.made.values() if made.pool == "powerful"]


TestTickets = Tickets.TestCase
TestTickets.settings = settings(
    max_examples=max(20, settings().max_examples // 5),
    stateful_step_count=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
