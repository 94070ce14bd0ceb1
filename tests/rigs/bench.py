"""Plans applied over written fakes, told in text: the steps of tests/apply/stories/*.txt.

`#1` is the machine debian-ci-builders-0001, `other#1` the same of pool `other`.

Given:

- `fleet {…}` has these keys of fleet.yaml, `pool {…}` these of pool builders, at a queue that
  enrols; `stack #1` is recorded, and later `emptied`; `busy #1` runs request 90, `attempt #1` has
  started;
- `engine NAME` is one of `ENGINES`; `engine fails #1 WORDS`, `engine dies #1` at its creation,
  `engine keeps #1` as it deletes it, `engine heals`, and `engine lost #1`: its machine is gone;
- `fails VERB #1 refused` has that call of the registry fail: `unreachable`, `refused` or `killed`;
  `limit 1` enrols one more worker only, `heals` ends all that fails;
- `no registry` and `no api` are edges that are missing, `api silent` does not answer, and
  `api meets` waits until it is asked for both machines;
- `expired #1 draining` is a worker whose machine expired long ago, `lists #1` one that is listed.

Done:

- `apply ACTION, …` with `create #1 at QUEUE type=T image=I market=M`, `drain #1`,
  `delete #1 revokes releases`, `release #1`, `approve #1 #2`, `refusing`, `rivals a b`,
  `dark stacks` (`stack`, `provider`), `unrecorded #1`, `no pools`, `backwards` and `ending`;
  `settle` applies it after the accounts; `vanished 1` applies the plan of two busy workers whose
  machines are gone, with an approval of one; `sweep STACKS` sweeps expired machines, `orphans
  REASON` deletes #1 and #2 beside a creation of #3, `forget #1` forgets it.

Seen: `> 0 builders applied +#1 ~#2 -#3` is the exit code and what was created, drained and deleted
in each pool, `freed #1` after it a worker without a machine and `left other` a pool that was not
begun; `> killed`, `> refused WORDS` and `> failed WORDS`; `error WORDS` are in the first pool's
error, `said WORDS` in a line of what was said, `last WORDS` in the last; `calls` are all calls of
the registry in their order; `machines`, `images`, `recorded`, `api` (those left there), `tokens`,
`stacks`, `spent`, `attempts` and `tried #1 TYPE MARKET IMAGE ERROR` are what there is.
"""

import re
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import yaml

from fleet.apply.observe import Sequential, Sources
from fleet.apply.pool import with_orphans
from fleet.apply.rebuild import forget_machine
from fleet.apply.run import apply_plan, settle_accounts
from fleet.cli.machine import sweep, sweep_machines
from fleet.engines.projects import two_step_change
from fleet.errors import FleetError, Locked, PlanRefused, SourceUnreachable, StackFailed
from fleet.guard import guard
from fleet.model.facts import Listing, Stack, Unknown, Worker, WorkerInputs, World
from fleet.model.history import Outcome, StackOutcome
from fleet.model.plan import ApprovalVerdict, Plan, Reason, Release
from fleet.model.user_data import UserData, read_user_data
from fleet.planner.inventory import take_inventory
from fleet.ports import NO_USER_DATA, EngineTask, Progress, StackChange, StackRef, StackStep, Tell
from fleet.ports import Enrolment as OneEnrolment
from fleet.reconcile import reconcile
from tests.builders import (
    NOW,
    a_create,
    a_delete,
    a_drain,
    a_guard_result,
    a_listing,
    a_machine,
    a_plan,
    a_pool,
    a_pool_verdict,
    a_reading,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    a_world,
    ago,
    an_attempt,
    some_inputs,
)
from tests.builders.deciding import FIRST, SECOND, THIRD, with_machines
from tests.builders.queue_worlds import QUEUE, a_debusine_world, ours
from tests.builders.sentences import tells
from tests.builders.sources import some_sources
from tests.fakes.engine import FakeEngine, Killed
from tests.fakes.machine_api import FakeMachineApi
from tests.fakes.queue import FakeProvider
from tests.fakes.registry import FakeRegistry
from tests.fakes.supports_concurrency import FakeSupportsConcurrency

_ACTIONS = ("create", "drain", "delete")
REF = StackRef(project="sim", name="debian-ci-builders", provider="desk", pool="builders")
_LOST = Unknown(unknown="there is no store")
_DARK: Mapping[str, Mapping[str, object]] = {
    "stacks": {"stacks": _LOST},
    "stack": {"stacks": {"builders": _LOST}},
    "provider": {"providers": {"desk": Unknown(unknown="no answer")}},
}
_FAULTS: Mapping[str, Callable[[str], BaseException]] = {
    "unreachable": lambda call: SourceUnreachable(f"no answer to {call}"),
    "refused": lambda call: PlanRefused(f"{call} is not of fleet debian-ci"),
    "killed": lambda _: Killed(),
}


class Replacing(FakeEngine):
    """An engine that is about to do more than the plan says."""

    def preview(self, ref: StackRef, workers: object) -> tuple[StackStep, ...]:  # noqa: ARG002
        """Return a replacement beside a creation."""
        return (
            StackStep(worker=FIRST, operation="replace"),
            StackStep(worker=SECOND, operation="create"),
        )


class Ending(FakeEngine):
    """An engine whose held changes are never given up in good order: its process is gone."""

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[StackChange]:
        """Hold a change."""
        yield two_step_change(self, ref, workers)
        raise StackFailed("the engine's process ended in the middle")


class OnAFullDisk(FakeEngine):
    """An engine that makes machines, and whose state is as it was before."""

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> NoReturn:
        """Apply the changes, and lose the record."""
        super().up(ref, workers, progress, user_data)
        before = Stack(engine=self.name, provider=ref.provider, serial=1, interrupted=True)
        self.stacks[ref.name] = before
        raise StackFailed("the disk is full")


class TakenMeanwhile(FakeEngine):
    """An engine whose stack another run holds, but for the first two changes."""

    prepared = 0

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[StackChange]:
        """Hold a change, twice."""
        self.prepared += 1
        if self.prepared > 2:
            raise Locked("another run holds it")
        yield two_step_change(self, ref, workers)


ENGINES = {
    "replaces": Replacing,
    "ends": Ending,
    "has-a-full-disk": OnAFullDisk,
    "is-taken": TakenMeanwhile,
}


class ScriptedRegistry(FakeRegistry):
    """Keeps all calls in their order; fails as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.faults: dict[str, str] = {}
        self.most = 99

    def enrol(self, enrolment: OneEnrolment) -> str:
        """Make a worker known, unless there are enough."""
        self._check("enrol", enrolment.worker)
        if len(self.enrolled) >= self.most:
            raise SourceUnreachable("the database does not answer")
        token = super().enrol(enrolment)
        self.calls.append(f"enrol {enrolment.worker}")
        return token

    def confirm(self, tell: Tell) -> None:
        """See that what was told stands."""
        self._check("confirm", "all")
        super().confirm(tell)

    def _check(self, verb: str, worker: str) -> None:
        fault = self.faults.get(f"{verb} {worker}") or self.faults.get(f"{verb} all")
        if fault:
            raise _FAULTS[fault](f"{verb} {worker}")


def _scripted(verb: str) -> Callable[[ScriptedRegistry, str], None]:
    def call(self: ScriptedRegistry, worker: str) -> None:
        self._check(verb, worker)
        getattr(FakeRegistry, verb)(self, worker)
        self.calls.append(f"{verb} {worker}")

    return call


for _verb in ("drain", "disable", "revoke", "release"):
    setattr(ScriptedRegistry, _verb, _scripted(_verb))


class MeetingMachineApi(FakeSupportsConcurrency, FakeMachineApi):
    """Deletes two machines only when it is asked for both at the same time."""

    def __init__(self) -> None:
        FakeSupportsConcurrency.__init__(self)
        FakeMachineApi.__init__(self)
        self.met = threading.Barrier(2, timeout=60)

    def delete(self, machine_id: str) -> None:
        """Wait for the other deletion, and delete."""
        self.met.wait()
        super().delete(machine_id)


class Backwards(Sequential):
    """Begins with the last."""

    def run(self, tasks: Sequence[EngineTask]) -> None:
        """Carry out tasks."""
        super().run(tuple(reversed(tasks)))


class Bench:
    """One fleet over fakes, and what became of its last plan."""

    def __init__(self) -> None:
        self.sources = some_sources()
        self.engine = FakeEngine()
        self.registry = ScriptedRegistry()
        self.api, self.elsewhere = FakeMachineApi(), FakeMachineApi()
        self.fleet = a_sim_fleet(queues={"debian": QUEUE})
        self.said: list[str] = []
        self.ended = ""
        self.error = ""
        self._missing: set[str] = set()
        self._workers: list[Worker] = []
        self._listed: list[str] = []

    def play(self, steps: list[str]) -> None:
        """Do each step, or see that it is as it says."""
        for step in steps:
            verb, _, rest = step.partition(" ")
            method = "see" if verb == ">" else f"do_{verb}"
            try:
                getattr(self, method)(rest)
            except AssertionError as wrong:
                told = f"{self.ended} {self.error}\n{self.said}"
                raise AssertionError(f"{step}: {wrong}\n{told}") from wrong

    # given

    def do_fleet(self, keys: str) -> None:
        """Have a fleet with these keys."""
        said = yaml.safe_load(keys)
        if "pools" in said:
            said["pools"] = {n: a_pool(provider="desk", **p) for n, p in said["pools"].items()}
        self.fleet = a_sim_fleet(**({"queues": {"debian": QUEUE}} | said))

    def do_pool(self, keys: str) -> None:
        """Have a pool with these keys."""
        self.do_fleet(f"{{pools: {{builders: {keys}}}}}")

    def do_stack(self, names: str) -> None:
        """Have machines that the stack holds."""
        self.engine.up(REF, [some_inputs(name=n) for n in _names(names)], lambda _: None)

    def do_emptied(self, _: str) -> None:
        """Have the stack hold no machine any more."""
        self.engine.up(REF, [], lambda _: None)

    def do_busy(self, names: str) -> None:
        """Have workers run something."""
        self.registry.running = dict.fromkeys(_names(names), "90")

    def do_attempt(self, name: str) -> None:
        """Have a try be recorded that has started."""
        tried = an_attempt(worker=_name(name), result="starting")
        self.sources.store.record_attempts([tried])

    def do_engine(self, words: str) -> None:
        """Have another engine, or tell it how to fail."""
        how, *rest = words.split(" ", 2)
        match how, rest:
            case "fails", [name, *says]:
                self.engine.fails = {_name(name)}
                self.engine.says = "".join(says) or self.engine.says
            case "dies", [name]:
                self.engine.dies_at = _name(name)
            case "keeps", [name]:
                self.engine.begins_to_delete = {_name(name)}
            case "lost", [name]:
                del self.engine.machines[_name(name)]
            case "heals", []:
                self.engine.dies_at = None
            case _:
                self.engine = ENGINES[how]()

    def do_fails(self, words: str) -> None:
        """Have a call of the registry fail."""
        verb, worker, how = words.split()
        self.registry.faults[f"{verb} {_name(worker)}"] = how

    def do_limit(self, count: str) -> None:
        """Have the registry enrol so many more."""
        self.registry.most = len(self.registry.enrolled) + int(count)

    def do_no(self, edge: str) -> None:
        """Have an edge be missing."""
        self._missing.add(edge)

    def do_api(self, words: str) -> None:
        """See which machines are left there, or have it be silent."""
        if words in ("silent", "meets"):
            self.api = MeetingMachineApi() if words == "meets" else self.api
            self.api.silent = words == "silent"
            return
        left = [_name(each.removeprefix("sim-")) for each in self.api.expiries]
        assert left == _names(words), left

    def do_expired(self, words: str) -> None:
        """Have a worker whose machine expired."""
        name, *state = words.split()
        self._workers.append(a_worker(name=_name(name), draining="draining" in state))
        self.api.expiries[f"sim-{_name(name)}"] = None

    def do_lists(self, names: str) -> None:
        """Have the provider list these machines."""
        self._listed = _names(names)

    # done

    def do_apply(self, actions: str, *, settles: bool = False) -> None:
        """Apply a plan that does this."""
        parts = [each.split() for each in actions.split(",") if each.strip()]
        said: dict[str, Any] = {"actions": [_action(*p) for p in parts if p[0] in _ACTIONS]}
        world: dict[str, Any] = {}
        edges: dict[str, Any] = {}
        rivals: list[str] = []
        for words in (each for each in parts if each[0] not in _ACTIONS):
            match words:
                case ["release", name]:
                    gone = {"worker": _name(name), "registry": "debian", "because": "it is gone"}
                    said["releases"] = (Release(pool="builders", **gone),)
                case ["approve", *names]:
                    said["approvals"] = (_approval(names),)
                case ["no", "pools"]:
                    said["pools"] = ()
                case ["refusing"]:
                    said["guards"] = (a_guard_result(),)
                case ["rivals", *rivals]:
                    pass
                case ["dark", part]:
                    world |= _DARK[part]
                case ["unrecorded", name]:
                    inputs = some_inputs(name=_name(name))
                    begun = a_stack(provider="desk", workers=(inputs,), interrupted=True)
                    world["stacks"] = {"builders": begun}
                case _:
                    edges |= self._ways()[words[0]]
        pools = dict.fromkeys(("builders", *(each.pool for each in said["actions"])))
        said.setdefault("pools", [a_pool_verdict(pool=p, provider="desk") for p in pools])
        machines = (a_machine(name=n, id=f"fake-{n}") for n in self._listed)
        stack = self.engine.stacks.get(REF.name)
        seen = {
            "queues": {"debian": a_reading(rivals=rivals)},
            "providers": {"desk": a_listing(*machines, workers=())},
            "stacks": {"builders": stack} if stack else {},
            "attempts": self.sources.store.attempts(10),
        }
        self._carry_out(a_world(**(seen | world)), a_plan(**said), settles=settles, **edges)

    def _ways(self) -> Mapping[str, dict[str, Any]]:
        """Return how pools are run."""
        return {
            "backwards": {"executor": Backwards()},
            "ending": {"is_ending": lambda: bool(self.said)},
        }

    def do_settle(self, actions: str) -> None:
        """Settle the accounts, then apply."""
        self.do_apply(actions, settles=True)

    def do_vanished(self, approved: str) -> None:
        """Apply the plan of two busy workers whose machines are gone."""
        terms = f"guard: delete, pool: builders, reason: why, expires: {NOW.date()}"
        if approved:
            self.do_fleet(f"{{approvals: [{{{terms}, count: {approved}}}]}}")
        workers = [ours(name, busy=True) for name in (FIRST, SECOND)]
        world = a_debusine_world(*workers, machines=())
        self._carry_out(world, guard(self.fleet, reconcile(self.fleet, world)))

    def do_sweep(self, stacks: str) -> None:
        """Sweep what has expired."""
        seen = with_machines(a_sim_world(*self._workers), expires=ago(hours=2))
        listing = seen.providers["desk"]
        assert isinstance(listing, Listing)
        noted = listing.altered(notes_expiry=True, read_at=NOW)
        kept = {"lost": _LOST, "none": {}, "empty": {"builders": a_stack(provider="desk")}}
        world = seen.altered(providers={"desk": noted}, stacks=kept[stacks])
        fleet = a_sim_fleet()
        plan = guard(fleet, sweep(fleet, world))
        self._end(lambda tell: sweep_machines(fleet, world, plan, self._edges("desk"), tell))

    def do_orphans(self, words: str) -> None:
        """Delete two machines that no stack holds, at a provider beside one of equal names."""
        reason, *more = words.split()
        queues = ("debian", "deaf" if "deaf" in more else "debian")
        deletes = [
            a_delete(worker=n, registry=q, reason=Reason(reason), releases="releases" in more)
            for n, q in zip((FIRST, SECOND), queues, strict=True)
        ]
        plan = a_plan(actions=deletes, pools=(a_pool_verdict(provider="desk"),))
        here = a_listing(a_machine(name=FIRST, id=FIRST), a_machine(name=SECOND, id=SECOND))
        there = a_listing(a_machine(name=FIRST, id=SECOND), a_machine(name=SECOND, id=FIRST))
        world = a_world(providers={"attic": there, "desk": here})
        for each in (self.api, self.elsewhere):
            each.expiries |= {FIRST: None, SECOND: None}
        ends = [int(each.removeprefix("ends-after=")) for each in more if "=" in each]
        edges = self._edges(is_ending=lambda: bool(ends) and len(self.said) >= ends[0])
        made = StackOutcome(pool="builders", result="applied", created=(THIRD,))

        def delete(tell: Tell) -> Outcome:
            return Outcome(plan="", stacks=(with_orphans(made, world, plan, edges, tell),))

        self._end(delete)
        assert len(self.elsewhere.expiries) == 2

    def do_forget(self, words: str) -> None:
        """Forget a machine while #2 alone is listed, and a source says what it does."""
        name, *more = words.split()
        stack = self.engine.stacks[REF.name]
        workers: list[Worker] = []
        providers: dict[str, object] = {}
        stacks: object = {"builders": stack}
        for how in more:
            match how:
                case "elsewhere":
                    other = a_machine(name=FIRST, id="other", pool="else")
                    providers["attic"] = a_listing(other, workers=())
                case "begun":
                    begun = stack.altered(ids={SECOND: stack.ids[SECOND]}, interrupted=True)
                    stacks = {"builders": begun}
                case "dark-stack":
                    stacks = {"builders": _LOST, "b": a_stack()}
                case "dark-stacks":
                    stacks = _LOST
                case "busy" | "away":
                    said: dict[str, object] = {"busy": True, "running": "7", "away": how == "away"}
                    workers = [a_worker(name=FIRST, machine=FIRST, **said)]
                case state:
                    workers = [a_worker(name=FIRST, machine=FIRST, state=state)]
        listing = a_listing(a_machine(name=SECOND, id=f"fake-{SECOND}"), workers=workers)
        world = a_world(providers={"desk": listing} | providers, stacks=stacks)
        self.ended = ""
        try:
            pool, queue = forget_machine(a_sim_fleet(), world, _name(name), self._edges("desk"))
            self.ended = f"forgotten {pool} {queue or ''}".rstrip()
        except FleetError as error:
            kind = "refused" if isinstance(error, PlanRefused) else "failed"
            self.ended, self.error = kind, str(error)

    def _edges(self, registry: str = "debian", **more: object) -> Sources:
        registries = {} if "registry" in self._missing else {registry: self.registry}
        apis = {} if "api" in self._missing else {"attic": self.elsewhere, "desk": self.api}
        return some_sources(
            self.sources.store,
            self.engine,
            providers={"desk": FakeProvider(NOW)},
            registries=registries,
            enrollers=registries,
            machine_apis=apis,
            **more,
        )

    def _carry_out(
        self,
        world: World,
        plan: Plan,
        *,
        settles: bool = False,
        **more: Any,  # noqa: ANN401 - edges
    ) -> None:
        edges = self._edges(**more)

        def carry_out(tell: Tell) -> Outcome:
            if settles:
                inventory = take_inventory(self.fleet, world)
                settle_accounts(self.fleet, world, inventory, edges, tell)
            return apply_plan(self.fleet, world, plan, edges, tell)

        self._end(carry_out)

    def _end(self, act: Callable[[Tell], Outcome]) -> None:
        self.said.clear()
        self.registry.calls.clear()
        self.ended, self.error = "killed", ""
        try:
            outcome = act(self.said.append)
        except Killed:
            return
        self.error = " ".join([*(each.error for each in outcome.stacks[:1]), *outcome.refused])
        self.ended = "; ".join([str(outcome.exit_code), *map(_told, outcome.stacks)])
        self.ended = self.ended.replace(";", "", 1)
        self.ended += "".join(f" freed {_short(each)}" for each in outcome.released)
        self.ended += "".join(f" left {each}" for each in outcome.left)

    # seen

    def see(self, expected: str) -> None:
        """See how the last plan ended."""
        assert self.ended == expected, self.ended

    def do_error(self, words: str) -> None:
        """See words of the error."""
        assert tells(self.error, *shlex.split(_named(words)))

    def do_said(self, words: str) -> None:
        """See words of a line that was said; `nothing` of none."""
        if words == "nothing":
            assert not self.said
        else:
            parts = shlex.split(_named(words))
            assert any(tells(each, *parts) for each in self.said)

    def do_last(self, words: str) -> None:
        """See words of the last line."""
        assert tells(self.said[-1], *shlex.split(_named(words)))

    def do_calls(self, calls: str) -> None:
        """See all calls of the registry."""
        made = map(str.split, self.registry.calls)
        found = ", ".join(f"{verb} {_short(name)}" for verb, name in made)
        assert found == calls, found

    def do_machines(self, names: str) -> None:
        """See which machines there are."""
        assert sorted(self.engine.machines) == _names(names), self.engine.machines

    def do_recorded(self, names: str) -> None:
        """See which machines the stack holds."""
        assert sorted(self.engine.stacks[REF.name].ids) == _names(names)

    def do_tokens(self, names: str) -> None:
        """See whose tokens are valid."""
        assert sorted(self.registry.tokens) == _names(names), self.registry.tokens

    def do_stacks(self, names: str) -> None:
        """See which stacks are recorded, at the serial of the engine."""
        records = self.sources.store.stacks()
        assert [each.name for each in records] == names.split(), records
        serials = [self.engine.stacks[each.name].serial for each in records]
        assert [each.serial for each in records] == serials

    def do_spent(self, count: str) -> None:
        """See for how many machines approvals are spent."""
        assert sum(map(len, self.sources.store.spent().values())) == int(count)

    def do_attempts(self, words: str) -> None:
        """See what the store remembers of each try."""
        tries = self.sources.store.attempts(10)
        assert " ".join(f"{_short(each.worker)}={each.result}" for each in tries) == words, tries

    def do_tried(self, words: str) -> None:
        """See type, market, image and error of a try of now."""
        name, *expected = shlex.split(words)
        (tried,) = [a for a in self.sources.store.attempts(10) if a.worker == _name(name)]
        assert [tried.type, tried.market, tried.image, tried.detail] == expected, tried
        assert tried.at == NOW

    def do_images(self, words: str) -> None:
        """See the image of each machine."""
        made = sorted(self.engine.machines.values(), key=lambda each: each.name)
        assert " ".join(f"{_short(each.name)}={each.image}" for each in made) == words, made

    def given(self, name: str) -> UserData:
        """Return the user data of a machine."""
        return read_user_data(self.engine.given[_name(name)])


def _name(text: str) -> str:
    pool, mark, number = text.partition("#")
    return f"debian-ci-{pool or 'builders'}-{number:0>4}" if mark else text


def _named(text: str) -> str:
    return re.sub(r"[a-z]*#\d+", lambda found: _name(found[0]), text)


def _names(text: str) -> list[str]:
    return [_name(each) for each in text.split()]


def _short(name: str) -> str:
    pool, number = name.removeprefix("debian-ci-").rsplit("-", 1)
    return f"{'' if pool == 'builders' else pool}#{int(number)}"


def _action(verb: str, name: str, *more: str) -> Any:  # noqa: ANN401 - any action
    said = dict(each.partition("=")[::2] for each in more if "=" in each)
    pool = name.partition("#")[0] or "builders"
    common: dict[str, object] = {"worker": _name(name), "pool": pool}
    if "at" in more:
        common["registry"] = more[more.index("at") + 1]
    if verb == "create":
        settings = {"market": said.pop("market")} if "market" in said else {}
        inputs = some_inputs(name=_name(name), settings=settings, **said)
        return a_create(inputs=inputs, serves=("debian/1",), **common)
    if verb == "drain":
        return a_drain(**common)
    flags = {key: True for key in ("revokes", "releases") if key in more}
    reason = {"reason": Reason(said["reason"])} if "reason" in said else {}
    return a_delete(**common, **flags, **reason)


def _approval(names: list[str]) -> ApprovalVerdict:
    return ApprovalVerdict(
        digest="a",
        path=("approvals", 0),
        guard="delete",
        pool="builders",
        count=5,
        passes=tuple(map(_name, names)),
        reason="move to ccx63",
        expires=NOW.date(),
    )


def _told(stack: StackOutcome) -> str:
    marks = {"+": stack.created, "~": stack.drained, "-": stack.deleted}
    done = [f"{mark}{_short(each)}" for mark, names in marks.items() for each in names]
    return " ".join([stack.pool, stack.result, *done])
