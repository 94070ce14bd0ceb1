"""Stories of a trial fleet, told in text: a title, then a step in each line below it.

Verbs:

- `idle` and `two` are fleets of one pool with two idle machines: `begin_idle` and `begin_two`;
  `tickets QUEUE` is one whose machines are asked for by tickets: `ticket_yaml`; `rack KEY=VALUE`
  is one whose machines own commands make, and which has a ticket: `a_rack`;
- `pool NAME {…}` is a pool of fleet.yaml, and `fleet KEY …` the keys `desk`, `queue` or `more` of
  `fleet_yaml`, in place of those of a trial; `edit "OLD" "NEW"` changes the text later, of
  which `base` keeps a copy in base.yaml;
- `wait 1 2 big:3` has requests wait, and no other, `queue [{…}]` these; `age 2m` has all have
  happened earlier, `later 2m` moves the clock, `at -2d STEP` does a step at another time of it,
  `noon` moves it there, and `runs 3` applies as often, a second after each other;
- `assign MACHINE 7`, `free MACHINE`, `drain MACHINE`, `disable MACHINE` and `lose MACHINE` happen
  at the provider, `stray NAME KEY=VALUE` makes a machine of nobody there, and `expire 54h` has
  machines expire that much earlier; `a-history` is one of four hours; `end-orders` and
  `sql STATEMENT` happen in the store; `version VERSION STATE` is remembered, and `remember {…}` is
  a version with these values; `build VERSION` is in the folder of images, and
  `boots POOL IMAGE=RESULT` ended so, a minute apart;
- `file FILE TEXT` writes a file, or `file FILE` with the deeper lines below it; `copy FILE NEW`
  does, where its name in it is the new one, `replace FILE "OLD" "NEW"` changes a part of it,
  `kept FILE` writes what the last command told, and `fixture FILE NAME` copies one of tests/;
  `break FILE` fills a file with rubbish, or leaves `break FILE 5000` bytes of it; `move FILE NAME`
  and `remove FILE` are in the folder, `empty` removes all, and `sh COMMAND` runs a shell;
- `$ apply` runs a command, which exits with 0; `$4 apply` with 4, and `$* apply` with any code;
  none ends in a traceback, and what exits with 2 writes nothing to standard output; `quiet` says
  so of another command, and `quiet 1` that it writes one line in all;
- `> a b` are words that the last command told in this order, `>! a` is what it did not tell, and
  `says a` all that it told; after `each plan, status` such words are those of each of these;
  `json a.0.b VALUE` is a value of its JSON, `json a.*.b [V]` are those of a list, `keys a.0 k l`
  its keys, and `changed a b` are two values that differ; `obey "fleet approve"` runs the command
  that it told in a line;
- `recall TIME` adds world.json to history.zst as of then; `has FILE a b` is in a file, and
  `page FILE a b` what a reader of a page sees;
- `seen KEY JSON` writes what is observed to seen.json, with another value of a key;
- `plan delete MACHINE reason, …` is what a plan does, `worker MACHINE state reason` what it says
  of a worker, `creates POOL:TYPE` what it makes; `machines`, `made`, `recorded`, `draining`,
  `images`, `markets`, `versions`, `files`, `attempts MACHINE=RESULT` and `ticket 1 MACHINE` are
  what there is; `pool-says POOL WORDS` is in the sentence about a pool, `spent AMOUNT` the most
  that a budget has spent, `charges MOST LEAST` the rows of the ledger, and `rows VALUE QUERY` a
  row of the store; no file has changed between `note` and `same`, and no charge between `note`
  and `uncharged`.

A machine is written as `builders-1`. A title that ends in `(slow)` is a slow test. What begins
with `given NAME` is no story: its steps stand for the step `given NAME`. A story is told for each
of its lines `with a | b`, with these in place of `{1}` and `{2}`.
"""

import json
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
import yaml

from fleet.model.facts import Listing, WorkerInputs
from fleet.model.images import Publication
from fleet.state.history import append
from tests.builders import NOW, an_attempt
from tests.builders.recording import a_job, record_fixed, write
from tests.builders.sentences import tells
from tests.builders.versioning import a_version
from tests.rigs.process import ROOT
from tests.rigs.publishing import a_build
from tests.rigs.racks import a_rack, made
from tests.rigs.trial import BUILDERS, ONE, WARM, Trial, fleet_yaml


def _part_of(found: Any, path: list[str]) -> Any:  # noqa: ANN401 - of any JSON
    """Return the part of a value at a path, where `*` is each item of a list."""
    if not path:
        return found
    part, *rest = path
    if part == "*":
        return [_part_of(each, rest) for each in found]
    return _part_of(found[int(part) if part.lstrip("-").isdigit() else part], rest)


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def read_stories(folder: Path) -> list[object]:
    """Return the stories of a folder as parameters of a test: the steps of each."""
    found: list[object] = []
    for path in sorted(folder.glob("*.txt")):
        lines = path.read_text(encoding="utf-8").splitlines()
        text = "\n".join(line for line in lines if line.strip()[:1] not in {"", "#"})
        given: dict[str, list[str]] = {}
        for part in re.split(r"\n(?=\S)", text):
            title, *written = re.split(r"\n(?=(?:  )?\S)", part)
            written = [textwrap.dedent(step).strip() for step in written]
            steps = [each for step in written for each in given.get(step, [step])]
            if title.startswith("given "):
                given[title] = steps
                continue
            marks = [pytest.mark.slow] if title.endswith("(slow)") else []
            name = f"{path.stem}: {title.removesuffix(' (slow)')}"
            found += [
                pytest.param(told, id=f"{name} {case}".rstrip(), marks=marks)
                for case, told in _tell_cases(steps)
            ]
    return found


def _tell_cases(steps: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the steps for each line `with`, and once where there is none."""
    cases = [step.removeprefix("with ") for step in steps if step.startswith("with ")]
    steps = [step for step in steps if not step.startswith("with ")]
    for case in cases or [""]:
        told = "\n\n".join(steps)
        for number, part in enumerate(case.split(" | "), 1):
            told = told.replace(f"{{{number}}}", part.strip())
        yield case, told.split("\n\n")


POOLS = {
    "normal": "{provider: desk, machine: ccx13, image: trixie, workers: {max: 4},"
    " reuse: {opportunity: 5m}}",
    "powerful": "{provider: desk, machine: ccx63, image: trixie, provides: [extra_powerful],"
    " workers: {max: 4}}",
}
TAGS = """\
tags:
  arch_x86_64: {}
  extra_powerful: {on_demand: true, exclusive: true, limits: {per: {submitter: 1}, total: 2}}
"""


def ticket_yaml(queue: str = "{kind: tickets}", desk: str = "boot: 1m", more: str = TAGS) -> str:
    """Return the fleet.yaml of a trial whose machines are asked for by tickets."""
    written = fleet_yaml(pools=POOLS, queue=queue, desk=desk, more=more)
    return written.replace("architecture: amd64}", "architecture: amd64, provides: [arch_x86_64]}")


def begin_idle(trial: Trial) -> None:
    """Have two idle machines, which nothing that waits needs."""
    pool = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}"
    trial.write(fleet_yaml(pools={"builders": pool}))
    trial.wait_for("1", "2")
    trial.apply()
    trial.age(minutes=2)
    trial.wait_for()


def begin_two(trial: Trial) -> None:
    """Have two machines, the first of which is busy; the loop keeps both."""
    trial.write(fleet_yaml(pools={"builders": WARM}))
    trial.wait_for("1", "2")
    trial.apply()
    trial.age(minutes=2)
    trial.cloud.assign(ONE, "1")
    trial.wait_for()


_WRONG_USAGE = 2
HISTORY = "history.jsonl.zst"
HISTORY_BEGIN = datetime(2026, 11, 2, 6, tzinfo=UTC)


def begin_history(trial: Trial) -> None:
    """Have four hours of history, with a build every quarter of an hour, and a main.yaml."""
    jobs = [
        a_job(
            nth,
            HISTORY_BEGIN + nth * timedelta(minutes=15),
            1200 + 60 * (nth % 7),
            owner="<b>ann|",
        )
        for nth in range(1, 14)
    ]
    end, every = HISTORY_BEGIN + timedelta(hours=4), timedelta(minutes=10)
    write(trial.folder / HISTORY, record_fixed(jobs, HISTORY_BEGIN, end, every=every, machines=2))
    trial.write(fleet_yaml(pools={"builders": BUILDERS.replace("10m", "5m")}))
    text = fleet_yaml(pools={"builders": BUILDERS.replace("max: 4", "max: 4, spare: 1")})
    (trial.folder / "main.yaml").write_text(text, encoding="utf-8")


class Story:
    """A trial fleet that does what a story says."""

    def __init__(self, trial: Trial, clock: time_machine.Traveller) -> None:
        self.trial = trial
        self.prefix = "trial"
        self._clock = clock
        self._pools: dict[str, str] = {}
        self._more: dict[str, str] = {}
        self._said = ""
        self._commands: list[str] = []
        self._noted: dict[str, bytes] = {}
        self._charged: list[object] = []

    def play(self, steps: list[str]) -> None:
        """Do each step, or see that it is as it says."""
        for step in steps:
            try:
                self._do(step)
            except AssertionError as wrong:
                raise AssertionError(f"{step}: {wrong}\n{self._said[:3000]}") from wrong

    def _do(self, step: str) -> None:
        verb, _, rest = step.partition(" ")
        if verb == "at":
            ahead, _, rest = rest.partition(" ")
            self._later(ahead)
            self._do(rest)
            self._later(ahead[1:] if ahead[0] == "-" else f"-{ahead}")
        elif "\n" in step:
            head, _, text = step.partition("\n")
            self._file(head.removeprefix("file "), f"{textwrap.dedent(text)}\n")
        elif verb == "each":
            self._commands = rest.split(", ")
        elif verb[:1] == ">" and self._commands:
            for command in self._commands:
                self._run("*", command)
                self._hear(verb[1:], self._named(rest))
        elif verb[:1] in "$>":
            self._commands = []
            getattr(self, "_run" if verb[0] == "$" else "_hear")(verb[1:], self._named(rest))
        else:
            words = self._words(verb, rest if verb == "fixture" else self._named(rest))
            getattr(self, f"_{verb.replace('-', '_')}")(*words)

    def _named(self, text: str) -> str:
        name = rf"{self.prefix}-\1-000\2"
        return re.sub(r"(?<![\w-])(?!sim-)([a-z]+)-(\d)(?![\w-])", name, text)

    @staticmethod
    def _words(verb: str, rest: str) -> list[str]:
        if verb in {"pool", "fleet", "json", "seen"}:
            return rest.split(" ", 1)
        if verb == "rows":
            return rest.split(" ")
        return (
            [rest]
            if verb in {"tickets", "queue", "sql", "sh", "remember"} and rest
            else shlex.split(rest)
        )

    def _run(self, code: str, rest: str) -> None:
        ended, self._said = self.trial.do(*shlex.split(rest))
        assert code == "*" or ended == int(code or 0), ended
        assert "Traceback" not in self._said
        if ended == _WRONG_USAGE:
            self._quiet()

    def _quiet(self, lines: str = "") -> None:
        assert self.trial.printed == ""
        assert not lines or self._said.count("\n") == int(lines), self._said

    def _hear(self, absent: str, rest: str) -> None:
        joined = " ".join(self._said.split())
        if absent:
            number = r"(?<!\d)" if rest[:1].isdigit() else ""
            assert not re.search(number + re.escape(rest), joined)
        else:
            parts = shlex.split(rest)
            assert tells(self._said, *parts) or tells(joined, *parts)

    def _pool(self, name: str, text: str) -> None:
        self._pools[name] = text
        self._fleet("more", self._more.get("more", "").rstrip("\n"))

    def _fleet(self, key: str, text: str) -> None:
        self._more[key] = text if key != "more" else text.replace("\\n", "\n") + "\n"
        chosen: dict[str, Any] = {**self._more, "pools": self._pools or None}
        self.trial.write(fleet_yaml(**chosen))

    def _idle(self) -> None:
        self.trial.begun(begin_idle)

    def _two(self) -> None:
        self.trial.begun(begin_two)

    def _a_history(self) -> None:
        self.trial.begun(begin_history)

    def _note(self) -> None:
        self._noted = self.trial.files()
        if (self.trial.folder / ".fleet/store.db").exists():
            self._charged = self._ledger()

    def _uncharged(self) -> None:
        assert self._ledger() == self._charged

    def _ledger(self) -> list[object]:
        rows = self.trial.rows("SELECT * FROM fleet_ledger ORDER BY 1, 2")
        marks = self.trial.rows("SELECT * FROM fleet_about WHERE key = 'charged_until'")
        return [*rows, *marks]

    def _charges(self, most: str, least: str = "0") -> None:
        count = len(self.trial.rows("SELECT * FROM fleet_ledger"))
        assert int(least) <= count <= int(most), count

    def _spent(self, most: str) -> None:
        found = [float(each["spent"]) for each in self.trial.plan()["budgets"]]
        assert 0 < max(found) <= float(most), found

    def _attempts(self, *tries: str) -> None:
        found = [f"{worker}={result}" for worker, result in self.trial.attempts()]
        assert found == [*tries], found

    def _markets(self, *names: str) -> None:
        found = [each.inputs.settings.get("market", "-") for each in self.trial.made()]
        assert sorted(found) == sorted(names), found

    def _pool_says(self, pool: str, *words: str) -> None:
        found = {each["pool"]: each["because"] for each in self.trial.plan()["pools"]}
        assert tells(found[pool], *words), found[pool]

    def _break(self, file: str, left: str = "") -> None:
        path = self.trial.folder / file
        rubbish = b"binary\0rubbish" * 100
        path.write_bytes(path.read_bytes()[: int(left)] if left else rubbish)

    def _move(self, file: str, name: str) -> None:
        (self.trial.folder / file).rename(self.trial.folder / name)

    def _replace(self, file: str, old: str, new: str) -> None:
        text = (self.trial.folder / file).read_text(encoding="utf-8")
        old, new = (each.replace("\\n", "\n") for each in (old, new))
        assert old in text, text
        self._file(file, text.replace(old, new))

    def _sh(self, command: str) -> None:
        subprocess.run(["sh", "-c", command], cwd=self.trial.folder, check=True)

    def _fixture(self, path: str, name: str) -> None:
        shutil.copy(ROOT / "tests" / path, self.trial.folder / name)

    def _noon(self) -> None:
        now = datetime.now(UTC)
        noon = now.replace(hour=12, minute=0)
        self._clock.move_to(noon if noon > now else noon + timedelta(days=1))

    def _kept(self, file: str) -> None:
        self._file(file, self._said)

    def _has(self, file: str, *words: str) -> None:
        text = (self.trial.folder / file).read_text(encoding="utf-8")
        assert [word for word in words if word not in text] == [], text

    def _page(self, file: str, *words: str) -> None:
        text = (self.trial.folder / file).read_text(encoding="utf-8")
        shown = " ".join(re.sub(r"<[^>]*>", " ", text).split())
        assert tells(shown, *words), shown

    def _same(self, *but: str) -> None:
        found = self.trial.files()
        changed = {
            name for name in {*found, *self._noted} if found.get(name) != self._noted.get(name)
        }
        assert changed <= {*but}, changed

    def _tickets(self, queue: str = "{kind: tickets}") -> None:
        self.trial.write(ticket_yaml(queue))

    def _says(self, text: str) -> None:
        assert self._said == f"{text}\n"

    def _rack(self, *words: str) -> None:
        given: dict[str, Any] = dict(word.split("=", 1) for word in words)
        if "most" in given:
            given["most"] = int(given["most"])
        self.prefix = "rack"
        shutil.rmtree(self.trial.folder / ".fleet")
        a_rack(self.trial.folder, given.pop("first", ". ./new.sh"), **given)

    def _sql(self, statement: str) -> None:
        assert self.trial.sql(statement) != 0

    def _rows(self, value: str, *query: str) -> None:
        assert self.trial.rows(" ".join(query)) == [(value,)]

    def _base(self) -> None:
        shutil.copy(self.trial.folder / "fleet.yaml", self.trial.folder / "base.yaml")

    def _json(self, path: str, value: str = "") -> None:
        found = self._part(path)
        shown = found if isinstance(found, str) else json.dumps(found)
        assert shown == value, shown

    def _keys(self, path: str, *keys: str) -> None:
        assert [*self._part(path)] == [*keys], self._part(path)

    def _recall(self, at: str) -> None:
        world = json.loads((self.trial.folder / "world.json").read_text(encoding="utf-8"))
        text, moment = json.dumps(world | {"time": at}), datetime.fromisoformat(at)
        append(str(self.trial.folder / "history.zst"), text, moment)

    def _changed(self, before: str, after: str) -> None:
        assert self._part(before) != self._part(after)

    def _part(self, path: str) -> Any:  # noqa: ANN401 - of any JSON
        begin = re.search(r"^[{\[]", self._said, re.MULTILINE)
        assert begin is not None
        found = json.JSONDecoder().raw_decode(self._said, begin.start())[0]
        return _part_of(found, path.split("."))

    def _obey(self, begin: str) -> None:
        (told,) = re.findall(rf"{re.escape(begin)}[^`\n]*", self._said)
        self._run("", told.removeprefix("fleet "))

    def _copy(self, old: str, new: str) -> None:
        text = (self.trial.folder / old).read_text(encoding="utf-8")
        self._file(new, text.replace(Path(old).name, Path(new).name))

    def _seen(self, key: str, value: str) -> None:
        world = {**self.trial.world(), key: json.loads(value)}
        self._file("seen.json", json.dumps(world))

    def _runs(self, count: str) -> None:
        for _ in range(int(count)):
            _, self._said = self.trial.do("apply")
            self._clock.shift(1.1)

    def _version(self, version: str, state: str) -> None:
        uploaded = Publication(id=f"trixie-{version}", at=NOW, verified=True)
        self.trial.remember(
            a_version(version=version, state=state, publications={"desk": uploaded})
        )

    def _remember(self, values: str) -> None:
        self.trial.remember(a_version(**yaml.safe_load(values)))

    def _build(self, version: str) -> None:
        a_build(self.trial.folder / ".fleet/images/trixie" / version, version=version)

    def _boots(self, pool: str, *results: str) -> None:
        begin = datetime.now(UTC) - timedelta(hours=1)
        for number, (image, _, result) in enumerate(each.partition("=") for each in results):
            worker, at = f"trial-{pool}-{number:04}", begin + timedelta(minutes=number)
            tried = an_attempt(pool=pool, worker=worker, image=image, result=result, at=at)
            self.trial.store().record_attempts([tried])

    def _stray(self, name: str, label: str) -> None:
        key, _, value = label.partition("=")
        worker = WorkerInputs(name=name, type="ccx33", image="trixie", labels={key: value})
        self.trial.cloud.create(worker)

    def _expire(self, duration: str) -> None:
        earlier = timedelta(**{_UNITS[duration[-1]]: int(duration[:-1])})
        for machine in self._listing().machines:
            assert machine.expires is not None
            self.trial.cloud.extend([machine.id], machine.expires - earlier)

    def _creates(self, *wanted: str) -> None:
        actions = [each for each in self.trial.plan()["actions"] if each["action"] == "create"]
        found = [f"{each['pool']}:{each['inputs']['type']}" for each in actions]
        assert sorted(found) == [*wanted], found

    def _made(self, *names: str) -> None:
        assert made(self.trial) == [*names], made(self.trial)

    def _empty(self) -> None:
        for path in self.trial.folder.iterdir():
            (shutil.rmtree if path.is_dir() else Path.unlink)(path)

    def _files(self, *names: str) -> None:
        found = sorted(path.name for path in self.trial.folder.iterdir())
        assert found == [*names], found

    def _file(self, name: str, text: str = "") -> None:
        path = self.trial.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("\\n", "\n"), encoding="utf-8")

    def _queue(self, requests: str) -> None:
        self.trial.queue(*({**each, "id": str(each["id"])} for each in yaml.safe_load(requests)))

    def _remove(self, file: str) -> None:
        (self.trial.folder / file).unlink()

    def _edit(self, old: str, new: str) -> None:
        self.trial.change(*(each.replace("\\n", "\n") for each in (old, new)))

    def _wait(self, *names: str) -> None:
        big = [name.removeprefix("big:") for name in names if name.startswith("big:")]
        self.trial.wait_for(*(name for name in names if ":" not in name), big=big)

    def _age(self, duration: str) -> None:
        self.trial.age(**{_UNITS[duration[-1]]: float(duration[:-1])})

    def _later(self, duration: str) -> None:
        self._clock.shift(timedelta(**{_UNITS[duration[-1]]: int(duration[:-1])}))

    def _assign(self, machine: str, request: str | None = None) -> None:
        self.trial.cloud.assign(machine, request)

    _free = _assign

    def _drain(self, machine: str) -> None:
        self.trial.cloud.drain(machine)

    def _disable(self, machine: str) -> None:
        self.trial.cloud.disable(machine)

    def _lose(self, machine: str) -> None:
        found = (each.id for each in self._listing().machines if each.name == machine)
        self.trial.cloud.delete(next(found))

    def _end_orders(self) -> None:
        self.trial.end_orders()

    def _listing(self) -> Listing:
        listing = self.trial.cloud.list("trial")
        assert isinstance(listing, Listing), listing
        return listing

    def _machines(self, *names: str) -> None:
        assert self.trial.machines() == [*names], self.trial.machines()

    def _recorded(self, *names: str) -> None:
        assert self.trial.recorded() == [*names], self.trial.recorded()

    def _images(self, *names: str) -> None:
        assert [each.inputs.image for each in self.trial.made()] == [*names]

    def _versions(self, *states: str) -> None:
        found = {f"{version}={state}" for version, state in self.trial.versions().items()}
        assert found == {*states}, found

    def _draining(self, *names: str) -> None:
        workers = self._listing().workers or ()
        found = [each.name for each in workers if each.draining]
        assert found == [*names], found

    def _plan(self, *words: str) -> None:
        actions = self.trial.plan()["actions"]
        found = [f"{each['action']} {each['worker']} {each['reason']}" for each in actions]
        wanted = " ".join(words).split(", ") if words != ("nothing",) else []
        assert sorted(found) == sorted(wanted), found

    def _worker(self, name: str, state: str, reason: str) -> None:
        (found,) = [each for each in self.trial.plan()["workers"] if each["worker"] == name]
        assert (found["state"], found["reason"]) == (state, reason), found

    def _ticket(self, number: str, machine: str = "") -> None:
        tickets = {str(each["id"]): each for each in self.trial.json("ticket", "list")}
        assert tickets[number]["machine"] == machine, tickets
