"""Whatever happens, in whatever order: no limit is passed, nothing busy goes, and rest is found.

Requests arrive, start, end and are withdrawn; workers boot, fail and vanish; images are promoted;
fleet.yaml is edited; providers are out of stock; sources go blind; time passes; apply is killed.
"""

from copy import deepcopy
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet.images.promote import promote, take_back
from fleet.model.images import Publication
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_sim_fleet
from tests.builders.versioning import a_version
from tests.laws.invariants import (
    actions_of,
    check,
    check_more_is_no_less,
    check_nothing_bought_twice,
    neighbours,
)
from tests.laws.machine import CLOUDS, QUEUE, Farm, Run

FIGURES = st.integers(0, 3)
KINDS: st.SearchStrategy[tuple[str, ...]] = st.sampled_from([(), ("big",), ("big",), ("rare",)])
NAMES = st.sampled_from(["ada", "ben"])
LIMITS: list[dict[str, Any]] = [
    {},
    {"total": 2},
    {"per": {"submitter": 1}},
    {"per": {"owner": 1, "team": 2}},
    {"per": {"scope": 2}, "total": 3},
]
BUDGETS: list[dict[str, Any]] = [
    {},
    {"all": {"machine_hours_per_hour": 2}},
    {"all": {"per_day": "1 EUR"}},
    {"debian": {"scope": "debian", "per_hour": "0.5 EUR"}},
]
GUARDS: list[dict[str, Any]] = [
    {},
    {"throttle": {"create": {"count": 1}, "delete": {"count": 1}}},
    {"refuse": {"delete": {"share": "100%"}}},
    {"boot_failures": {"stop_after": 2, "of_last": 3}},
]
FLEET_CHANGES = st.sampled_from(
    [
        *({"limits": limits} for limits in LIMITS),
        *({"budgets": budgets} for budgets in BUDGETS),
        *({"guards": guards} for guards in GUARDS),
    ]
)


@st.composite
def workers(draw: st.DrawFn) -> dict[str, Any]:
    """Return how many workers a pool may hold."""
    most = draw(FIGURES)
    said = {"max": most, "min": draw(st.integers(0, most)), "spare": draw(st.integers(0, most))}
    starting = draw(st.none() | st.integers(1, 2))
    return {"workers": said | ({"max_starting": starting} if starting else {})}


POOL_CHANGES = (
    workers()
    | workers()
    | st.sampled_from(["apply", "apply", "observe", "drain", "pause"]).map(lambda m: {"mode": m})
    | st.sampled_from(
        [
            {"budget": {"per_day": "0.5 EUR"}},
            {"retire": {"max_uses": 1}},
            {"retire": {"max_age": "2h"}},
            {"replace": {"at_a_time": "100%"}},
            {"target_wait": "30m"},
            {"machine": {"type": ["ccx13", "ccx33"]}},
        ]
    )
)
AT_REST = 4
"""So many runs in a row see every wait go by: `retire.idle_after` and a step of billing."""
RUNS = 70


def pools_of_old() -> dict[str, dict[str, Any]]:
    """Return the pools as the story begins: two that fit all, one each for big and rare work."""
    return {
        "builders": {"provider": "desk"},
        "big": {"provider": "desk", "machine": "ccx63", "provides": ["big"]},
        "far": {"provider": "shed", "machine": "ccx13"},
        "rare": {"provider": "shed", "provides": ["rare"]},
    }


def is_promoted(farm: Farm) -> bool:
    """Say whether there is a promotion to take back."""
    states = {version.state for version in farm.store.image_versions()}
    return bool(states & {"candidate", "previous"})


class FleetMachine(RuleBasedStateMachine):
    """A fleet, its clouds and its queue."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 1
        self.rests = 0
        """After so many more things the program runs again."""
        self.said: dict[str, Any] = {"pools": pools_of_old()}
        self.farm = Farm(self.written(self.said))

    def written(self, said: dict[str, Any]) -> Fleet:
        """Return fleet.yaml with these parts."""
        pools = {name: a_pool(**deepcopy(pool)) for name, pool in said["pools"].items()}
        image = dict.fromkeys(CLOUDS, f"trixie-{self.version}")
        tags = {"rare": {"on_demand": True}, "big": {"limits": said.get("limits", {})}}
        return a_sim_fleet(
            providers={name: {"kind": "sim"} for name in CLOUDS},
            images={"trixie": {"existing": image}},
            pools=pools,
            tags=tags,
            budgets=said.get("budgets", {}),
            guards=said.get("guards", {}),
        )

    # what happens

    @initialize(
        asked=st.lists(st.tuples(KINDS, NAMES, NAMES), min_size=2, max_size=8),
        limits=st.sampled_from(LIMITS),
        starts=st.integers(0, 4),
    )
    def begin(
        self, asked: list[tuple[tuple[str, ...], str, str]], limits: dict[str, Any], starts: int
    ) -> None:
        """Begin where work runs, machines are idle, and more may wait."""
        self.said |= {"limits": limits}
        self.farm.fleet = self.written(self.said)
        for required, who, scope in asked:
            self.ask(required, who, scope, 0, 0)
        self.check(self.farm.run())
        self.boot(1)
        for _ in range(starts):
            for ready in list(self.farm.starts())[:1]:
                self.farm.start(*ready)

    @rule(required=KINDS, who=NAMES, scope=NAMES, priority=st.integers(0, 1), count=FIGURES)
    def ask(
        self, required: tuple[str, ...], who: str, scope: str, priority: int, count: int
    ) -> None:
        for _ in range(1 + count):
            request = self.farm.ask(
                required=required,
                requester=who,
                owner=scope,
                team=who,
                scope="debian" if scope == "ada" else scope,
                priority=priority,
                expected_seconds=600,
            )
        if count and QUEUE not in self.farm.blind and not self.said.get("budgets"):
            after = reconcile(self.farm.fleet, self.farm.observe())
            del self.farm.waiting[request.id]
            before = reconcile(self.farm.fleet, self.farm.observe())
            self.farm.waiting[request.id] = request
            check_more_is_no_less(before, after, f"{QUEUE}/{request.id}")

    @precondition(lambda self: self.farm.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        del self.farm.waiting[data.draw(st.sampled_from(sorted(self.farm.waiting)))]

    @rule(share=st.sampled_from([1, 2]))
    def start(self, share: int) -> None:
        for _ in range(len(self.farm.made)):
            ready = list(self.farm.starts())[::share]
            if ready:
                self.farm.start(*ready[0])

    @precondition(lambda self: any(made.request for made in self.farm.made.values()))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        busy = sorted(name for name, made in self.farm.made.items() if made.request)
        self.farm.end(data.draw(st.sampled_from(busy)))

    @rule(share=st.sampled_from([1, 2]))
    def boot(self, share: int) -> None:
        for name in sorted(self.farm.made)[::share]:
            self.farm.boot(name)

    @precondition(lambda self: self.farm.made)
    @rule(data=st.data(), gone=st.booleans())
    def lose(self, data: st.DataObject, *, gone: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.farm.made)))
        if gone:
            self.farm.vanish(name)
        else:
            self.farm.made[name].boots = False

    @rule(
        what=st.sampled_from([*CLOUDS, QUEUE, "stack builders", "stack far", "ccx13", "ccx33"]),
    )
    def break_or_mend(self, what: str) -> None:
        farm = self.farm
        if what.startswith("stack"):
            farm.engine.dark ^= {what.removeprefix("stack ")}
        elif what.startswith("ccx"):
            farm.sold_out ^= {what}
        else:
            seeing = reconcile(farm.fleet, farm.observe())
            farm.blind ^= {what}
            if what in farm.blind & {*CLOUDS}:
                check_nothing_bought_twice(seeing, reconcile(farm.fleet, farm.observe()))

    @rule(minutes=st.sampled_from([1, 10, 10, 30, 180, 60 * 26]))
    def pass_time(self, minutes: int) -> None:
        self.farm.pass_time(minutes=minutes)

    # fleet.yaml is edited

    @rule()
    def change_image(self) -> None:
        self.version += 1
        self.farm.fleet = self.written(self.said)

    # versions of images move

    @rule(share=st.sampled_from([None, None, 1, 40, 100]))
    def promote(self, share: int | None) -> None:
        """Promote a new version; with a share it is the candidate, where one is current."""
        self.version += 1
        there = {
            cloud: Publication(id=f"version-{self.version}", at=NOW, verified=True)
            for cloud in CLOUDS
        }
        version = a_version(version=f"{self.version:04}", publications=there)
        store = self.farm.store
        known = store.image_versions()
        has_current = any(each.state == "current" for each in known)
        store.save_image_version(version, was=None)
        store.move_image_versions(
            promote([*known, version], version, NOW, share=share if has_current else None)
        )

    @precondition(lambda self: is_promoted(self.farm))
    @rule()
    def take_back(self) -> None:
        store = self.farm.store
        store.move_image_versions(take_back(store.image_versions(), "trixie", NOW, ""))

    @precondition(lambda self: self.said["pools"])
    @rule(data=st.data(), change=POOL_CHANGES)
    def change_pool(self, data: st.DataObject, change: dict[str, Any]) -> None:
        """Change one pool; those that share neither demand nor a limit with it are left alone."""
        name = data.draw(st.sampled_from(sorted(self.said["pools"])))
        said = self.said | {"pools": deepcopy(self.said["pools"])}
        said["pools"][name] |= change
        before, after = self.farm.fleet, self.written(said)
        world = self.farm.observe()
        plan, then = reconcile(before, world), reconcile(after, world)
        if not (said.get("budgets") or said.get("limits")):
            near = neighbours(plan, name) | neighbours(then, name)
            others = {verdict.pool for verdict in plan.pools} - near
            assert actions_of(plan, others) == actions_of(then, others)
        self.said, self.farm.fleet = said, after

    @rule(data=st.data(), change=st.sampled_from(["remove", "rename", "add"]))
    def change_pools(self, data: st.DataObject, change: str) -> None:
        pools = self.said["pools"]
        taken = {pool.get("previously") for pool in pools.values()}
        if change == "add":
            for name in {*pools_of_old()} - taken:
                pools.setdefault(name, pools_of_old()[name])
        elif pools:
            name = data.draw(st.sampled_from(sorted(pools)))
            pool = pools.pop(name)
            if change == "rename" and "previously" not in pool:
                pools[f"{name}-{len(pools)}"] = pool | {"previously": name}
        self.farm.fleet = self.written(self.said)

    @rule(part=FLEET_CHANGES)
    def change_limits(self, part: dict[str, Any]) -> None:
        self.said |= part
        self.farm.fleet = self.written(self.said)

    # the program runs, after each of these

    @rule(steps=st.integers(1, 4))
    def rest(self, steps: int) -> None:
        self.rests = steps

    @rule(calls=FIGURES)
    def be_killed(self, calls: int) -> None:
        self.check(self.farm.run(dies_after=calls))

    @rule(times=st.integers(1, 3))
    def work_on(self, times: int) -> None:
        for _ in range(times):
            self.farm.pass_time(minutes=10)
            self.boot(1)
            self.start(1)
            self.check(self.farm.run())

    @invariant()
    def run(self) -> None:
        if self.rests:
            self.rests -= 1
        else:
            self.check(self.farm.run())

    def check(self, run: Run) -> None:
        """Check what must hold of each run."""
        check(self.farm, run)

    def teardown(self) -> None:
        """Take everything away that keeps a world from being quiet; it comes to rest."""
        farm = self.farm
        farm.waiting, farm.blind, farm.sold_out, farm.engine.dark = {}, set(), set(), set()
        for made in farm.made.values():
            made.boots = True
            if made.request:
                farm.end(made.name)
        farm.forget(self.gone())
        quiet = 0
        for _ in range(RUNS):
            run = farm.run()
            self.check(run)
            quiet = quiet + 1 if run.plan.is_quiet else 0
            if quiet > AT_REST:
                return
            farm.pass_time(minutes=10)
            self.boot(1)
            farm.forget(self.gone())
        raise AssertionError(f"no rest: {run.plan.actions}")

    def gone(self) -> dict[str, str]:
        """Return the machines that stacks hold and that are gone, with their pool."""
        return {
            name: stack_name
            for stack_name, stack in self.farm.engine.stacks.items()
            for name in stack.ids
            if name not in self.farm.made
        }


FleetMachine.TestCase.settings = settings(
    max_examples=max(2, settings().max_examples // 5),
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestFleetMachine = FleetMachine.TestCase
