"""Cases of plans as text: a sentence, then `POOL | WORLD -> DECISIONS`.

POOL has the keys of the pool `builders`, and keys of fleet.yaml. WORLD lists workers by number,
each with its state, and the waiting requests. DECISIONS are the whole plan: all actions in their
order, and all workers that are kept. A line `because N: WORDS` has words of the sentence about
worker N, and `because pool:` about the pool. The files are in `tests/planner/decisions/`.
"""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import yaml

from fleet.model.facts import (
    Machine,
    MachineState,
    QueueSample,
    Request,
    Unknown,
    Worker,
    WorkerInputs,
    World,
)
from fleet.model.plan import Delete, Plan
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_listing,
    a_machine,
    a_pool,
    a_reading,
    a_request,
    a_sim_fleet,
    a_stack,
    a_worker,
    a_world,
    some_inputs,
)
from tests.builders.budgeting import a_charge, a_ledger
from tests.builders.cases import read_blocks
from tests.builders.queue_worlds import QUEUE

_OF_FLEET = {
    *("budgets", "cadence", "durations", "guards", "images", "money", "powerful", "providers"),
    *("queues", "tags", "teams"),
}
_NAME = "debian-ci-builders-{:04}"
_OF_WORDS: dict[str, dict[str, object]] = {
    "running": {"running": "90"},
    "sandbox": {"requires": ("sandbox:chroots",)},
    "away": {"away": True},
    "stranded": {"stranded": True},
    "unseen": {"last_seen": None},
}
_OF_TIMES = {
    "seen": ("last_seen", -1),
    "connected": ("connected_since", -1),
    "expires": ("token_expires", 1),
}
_PAIR = re.compile(r"[\w.]+=")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SILENT = Unknown(unknown="no answer")
SAMPLE = QueueSample(listed=1_400, unlisted={"debian": 90_000, "kali": 8_600}, longest=1_400)


class Case(NamedTuple):
    """One sentence: a pool, the world, and what a plan decides."""

    sentence: str
    pool: str
    world: str
    decisions: str
    because: tuple[tuple[str, str], ...]

    @property
    def fleet(self) -> Fleet:
        """Return the fleet whose pool `builders` has these keys."""
        said = yaml.safe_load(f"{{{self.pool}}}")
        if said.pop("hourly", False):
            said["providers"] = {"desk": {"kind": "sim", "billing": {"increment": "1h"}}}
        own = {key: said.pop(key) for key in _OF_FLEET & said.keys()}
        if "at debusine" in self.world:
            enrols = "no admin" not in self.world
            queue = {key: QUEUE[key] for key in QUEUE if enrols or key != "admin"}
            own["queues"] = {"debian": queue}
        if said.pop("removed", False):
            return a_sim_fleet(pools={}, **own)
        pool = said if "static" in said else a_pool(provider="desk", **said)
        return a_sim_fleet(pools={"builders": pool}, **own)


def read_cases(folder: Path) -> Iterator[Case]:
    """Yield the cases of all files of a folder."""
    for block in read_blocks(folder):
        pool, world = block.parts
        yield Case(block.sentence, pool, world, block.result, block.because)


def decided(plan: Plan) -> str:
    """Return all actions of a plan in their order, and the workers that it keeps."""
    done = [
        f"{each.action} {_number(each.worker)} {each.reason}"
        + (" and revoke" if isinstance(each, Delete) and each.revokes else "")
        + (" and release" if isinstance(each, Delete) and each.releases else "")
        for each in plan.actions
    ]
    kept = [
        f"keep {_number(each.worker)} {each.reason}"
        for each in plan.workers
        if each.verdict == "keep"
    ]
    freed = [
        f"release {_number(each.worker)}" + (" maybe at work" if each.may_work else "")
        for each in plan.releases
    ]
    notices = [f"notice {_number(each.partition(':')[0])}" for each in plan.attention]
    return ", ".join((*done, *kept, *freed, *notices)) or "nothing"


_SENTENCES: dict[str, Callable[[Plan], object]] = {
    "pool": lambda plan: plan.pools[0].because,
    "unserved": lambda plan: plan.unserved[0].because,
    "path": lambda plan: ".".join(map(str, plan.unserved[0].path)),
    "cost": lambda plan: f"{plan.optimum.cost:.2f}" if plan.optimum else "",
    "release": lambda plan: plan.releases[0].because,
    "notice": lambda plan: plan.attention[0],
}


def because(plan: Plan, about: str) -> str:
    """Return the sentence about a worker, by its number, or about another part of the plan."""
    if about in _SENTENCES:
        return str(_SENTENCES[about](plan))
    return next(each.because for each in plan.workers if _number(each.worker) == about)


def _number(worker: str) -> str:
    return str(int(worker.rpartition("-")[2]))


def world_of(text: str) -> World:
    """Return the world of such a text."""
    items = [each.split() for each in text.split(",") if each.strip()]
    units = [_Unit(int(item[0]), item[1:]) for item in items if item[0].isdigit()]
    said = [item for item in items if not item[0].isdigit()]
    workers = [unit for unit in units if unit.words[0] not in ("wait", "waits")]
    asked = [unit for unit in units if unit not in workers for _ in range(unit.number)]
    requests = [unit.request(number) for number, unit in enumerate(asked, start=1)]
    rows: tuple[Worker, ...] | None = tuple(row for unit in workers if (row := unit.row))
    if ["no", "registry"] in said:
        rows = None
    reading = a_reading(*requests, workers=None)
    if ["at", "debusine"] in said:
        reading, rows = reading.altered(workers=rows), None
    if ["demand", "sampled"] in said:
        parts = {"stored": True, "estimate": True, "sample": SAMPLE}
        reading = reading.altered(demand=reading.demand.altered(**parts))
    if ["demand", "unknown"] in said:
        reading = reading.altered(demand=_SILENT)
    listing = a_listing(*(each.machine for each in workers if each.is_listed), workers=rows)
    stack = a_stack(
        provider="desk",
        workers=tuple(each.inputs for each in workers if each.is_recorded),
        ids={each.name: each.id for each in workers if each.has_id},
        interrupted=any({"begun", "ending"} & {*each.words} for each in workers),
    )
    seen: dict[str, object] = {
        "queues": {"debian": reading},
        "providers": {"desk": _SILENT if ["machines", "unknown"] in said else listing},
        "stacks": {"builders": stack} if workers else {},
    }
    if ["stacks", "unknown"] in said:
        seen["stacks"] = _SILENT
    spent = [a_charge(item[1]) for item in said if item[0] == "spent"]
    if spent or ["ledger"] in said:
        seen["ledger"] = a_ledger(*spent)
    return a_world(**seen)


class _Unit:
    """A worker by its number and the words about it."""

    def __init__(self, number: int, words: list[str]) -> None:
        self.number = number
        self.words = [word for word in words if not _PAIR.match(word)]
        self.pairs = {
            key: yaml.safe_load(value)
            for key, _, value in (word.partition("=") for word in words if _PAIR.match(word))
        }
        self.name = _NAME.format(number)
        self.id = f"sim-{self.name}"
        self.has_id = not {"begun", "unrecorded", "gone"} & {*words}
        self.is_listed = not {"begun", "ending", "unlisted", "gone"} & {*words} or bool(
            {"listed", "starting"} & {*words}
        )
        self.is_recorded = not {"ending", "unrecorded", "gone"} & {*words}

    def _time(self, word: str, default: float) -> timedelta:
        """Return the duration after a word."""
        if word not in self.words[:-1]:
            return timedelta(seconds=default)
        said = self.words[self.words.index(word) + 1]
        return timedelta(seconds=float(said[:-1]) * _UNITS[said[-1]])

    def request(self, number: int) -> Request:
        """Return a waiting request with these tags; `for` states its age, `lasts` its duration."""
        said: dict[str, object] = {"pending_since": NOW - self._time("for", 300)}
        if "lasts" in self.words:
            said["expected_seconds"] = self._time("lasts", 0).total_seconds()
        ends = [self.words.index(word) for word in ("for", "lasts") if word in self.words]
        tags = tuple(self.words[1 : min(ends, default=len(self.words))])
        return a_request(**({"id": f"{number}", "required": tags} | said | self.pairs))

    @property
    def row(self) -> Worker | None:
        """Return the registration; None if there is none."""
        kind, since = self.words[0], NOW - self._time("for", 300)
        if kind in ("boots", "begun", "ending", "silent"):
            return None
        seen: dict[str, object] = {"draining": "draining" in self.words}
        if kind not in ("idle", "busy"):
            seen["state"] = kind
        if kind == "disconnected" and "for" in self.words:
            seen["last_seen"] = since
        if "uses" in self.words:
            seen["uses"] = int(self.words[self.words.index("uses") + 1])
        for word in self.words:
            seen |= _OF_WORDS.get(word, {})
        for word, (key, sign) in _OF_TIMES.items():
            if word in self.words:
                seen[key] = NOW + sign * self._time(word, 0)
        said = {key[5:]: value for key, value in self.pairs.items() if key.startswith("work.")}
        if "began" in self.words or said:
            lasts = self._time("lasts", 0).total_seconds() or None
            began = NOW - self._time("began", 0) if "began" in self.words else None
            work = {"started_at": began, "expected_seconds": lasts}
            seen["work"] = {"task": "sbuild", "scope": "debian"} | work | said
        seen |= {key: value for key, value in self.pairs.items() if not key.startswith("work.")}
        return a_worker(name=self.name, since=since, busy=kind == "busy", **seen)

    @property
    def machine(self) -> Machine:
        """Return the machine as its provider lists it."""
        made: dict[str, object] = {}
        if "old" in self.words:
            made |= {"digest": "yesterday", "image": "trixie-0"}
        if states := {"failed", "starting"} & {*self.words}:
            made["state"] = MachineState(states.pop())
        if "off" in self.words:
            made["state"] = MachineState.STOPPED
        age = self._time("made", 30 if self.words[0] == "boots" else 3600)
        return a_machine(name=self.name, id=self.id, created_at=NOW - age, **made)

    @property
    def inputs(self) -> WorkerInputs:
        """Return the recorded inputs."""
        return some_inputs(name=self.name)
