"""What a check-up says of what works, what does not, and what nobody here can look at.

Each case of `findings/` has what is there, as keys of YAML, and findings: `ABOUT: RESULT`, with
the fix after `=`.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.cli.doctor import CheckupInputs, examine
from fleet.errors import SourceUnreachable, StoreMissing
from fleet.explain.case import Case
from fleet.model.doctor import CheckResult, Diagnosis, Machinery
from fleet.model.facts import Demand, QueueReading, QueueSample, Request, Unknown, World
from fleet.ports import Engine
from fleet.reconcile import reconcile
from fleet.report.answers import diagnosis_blocks
from fleet.report.terminal import document_to_text
from fleet.schema.model import Fleet
from fleet.state.secrets import HostSecrets
from tests.builders import (
    NOW,
    a_fleet,
    a_pool,
    a_reading,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_world,
    ago,
)
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells
from tests.builders.sources import some_sources
from tests.builders.stores import new_store
from tests.builders.ticketing import a_ticket_fleet
from tests.fakes.engine import FakeEngine
from tests.fakes.server import NOON, FakeServer

QUEUE = {"kind": "debusine", "url": "https://d.example", "scopes": ["debian"]}
TICKETS, PULUMI = {"kind": "tickets"}, {"kind": "sim", "engine": "pulumi"}
ARM = {"images": {"trixie": {"suite": "trixie", "architecture": "arm64"}}}
CASES = [*read_blocks(Path(__file__).parent / "findings")]


class _WithoutMetrics(FakeServer):
    def counts(self) -> Mapping[str, int]:
        raise SourceUnreachable("open-metrics answered with status 404")


def _fail() -> tuple[CheckResult, ...]:
    raise SourceUnreachable("it refuses `x y`", fix="fleet debusine grants --check")


ASKED: dict[str, dict[str, Any]] = {
    "lock": {"lock": lambda: ("me@here:7", "noon")},
    "quota": {"unchecked": {"provider hetzner, quotas": "its API does not tell"}},
    "database": {"further": {"queue debian, database": _fail}},
    "cli": {"lacking": {"far": "install it"}},
}


def _engine_of(name: str) -> Engine:
    return FakeEngine("pulumi" if name == "far" else "embedded")


def fleet_of(kind: str, said: dict[str, Any]) -> Fleet:
    """Return a fleet that only looks at a queue, unless another kind is named."""
    bare: dict[str, object] = {"pools": {}, "images": {}, "providers": {}}
    if "token" in said:
        bare["queues"] = {"debian": QUEUE | {"token": said["token"]}}
    arm = {"b": a_pool(provider="desk", machine="cax41")}
    makers: dict[str, Callable[[], Fleet]] = {
        "": lambda: a_fleet(**bare),
        "pools": lambda: a_fleet(contact=said.get("contact")),
        "sim": a_sim_fleet,
        "arm": lambda: a_sim_fleet(**ARM, pools=arm),
        "tickets": lambda: a_ticket_fleet(queues={"debian": QUEUE, "tickets": TICKETS}),
        "pulumi": lambda: a_fleet(providers={"far": PULUMI}, pools={}),
        "recorded": lambda: a_fleet(queues={"debian": {"kind": "world", "path": "world.json"}}),
    }
    return makers[kind]()


def requests_of(said: dict[str, Any]) -> tuple[Request, ...]:
    """Return what waits: the architecture, for how many minutes, and in which number."""
    found = []
    for number, (name, minutes, count) in enumerate(said.get("waits", ()), 1):
        since = None if minutes is None else ago(minutes=minutes)
        required = (f"worker:build-arch:{name}",) if name else ()
        asked = a_request(id=f"{number}", required=required, pending_since=since, count=count)
        found.append(asked)
    return tuple(found)


def world_of(kind: str, said: dict[str, Any]) -> World:
    """Return a world with a queue, in which a part may be unknown."""
    requests = requests_of(said)
    seen: dict[str, Any] = {} if kind in ("sim", "arm", "pools") else {"providers": {}}
    if requests or "workers" in said:
        seen["queues"] = {"debian": a_reading(*requests, workers=said.get("workers", ()))}
    if "demand" in said:
        demand: Demand | Unknown = Unknown(**said["demand"])
        if said["demand"].get("unknown") == "sampled":
            sample = QueueSample(listed=10, unlisted={"debian": 90}, longest=10)
            demand = Demand(read_at=NOW, estimate=True, sample=sample)
        seen["queues"] = {"debian": QueueReading(demand=demand, workers=None)}
    if "machines" in said:
        seen["providers"] = {"hetzner": Unknown(unknown=said["machines"])}
    if "stacks" in said:
        dark = Unknown(unknown="it was there before")
        seen["stacks"] = {"a": dark, "b": a_stack(interrupted=True)}
    return a_sim_world(**seen) if kind in ("sim", "arm") else a_world(**seen)


def check(text: str = "") -> Diagnosis:
    """Return what is found where these things are."""
    said: dict[str, Any] = yaml.safe_load(f"{{{text}}}")
    kind = said.get("fleet", "")
    fleet, world = fleet_of(kind, said), world_of(kind, said)
    server = dict(said.get("server", {}))
    if "ahead" in server:
        late = server.pop("ahead")
        server["server_time"] = None if late is None else NOON + timedelta(minutes=late)
    if "away" in server:
        server["architectures"] = {server.pop("away"): Machinery(registered=2, connected=0)}
    maker = _WithoutMetrics if server.pop("no_metrics", False) else FakeServer
    asked: dict[str, Any] = ASKED.get(said.get("asked", ""), {})
    inputs = CheckupInputs(
        sources=some_sources(new_store(created=said.get("store", True)), engine_of=_engine_of),
        secrets=HostSecrets(
            said.get("environment", {"DEBUSINE_TOKEN": "t", "HCLOUD_TOKEN": "t"}), Path()
        ),
        servers={"debian": maker(**server)},
        **asked,
    )
    return examine(Case(fleet, world, reconcile(fleet, world)), inputs)


def of(diagnosis: Diagnosis, about: str) -> CheckResult | None:
    return next((each for each in diagnosis.findings if each.about == about), None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_doctor_has_the_findings_of_its_case(case: Block) -> None:
    found = check(*case.parts)

    for expected in case.result.split(" / "):
        about, _, result = expected.partition(": ")
        finding = of(found, about)
        if finding is None:
            assert result == "absent", found.findings
            continue
        fix = f" = {finding.fix}".rstrip() if "=" in result else ""
        assert f"{finding.result}{fix}" == result
        assert all(tells(finding.said, *words.split()) for _, words in case.because), finding


@pytest.mark.parametrize(
    ("text", "results", "code"),
    [("", {"ok"}, 0), ("environment: {}", {"ok", "wrong"}, 1), ("store: false", {"ok"}, 0)],
)
def test_exit_code_is_1_only_when_something_is_wrong(
    text: str, results: set[str], code: int
) -> None:
    found = check(text)

    assert {finding.result for finding in found.findings} - {"notice"} == results
    assert found.exit_code == code


def test_doctor_advises_chmod_when_secret_file_is_readable_by_others(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    found = []
    for mode in (0o644, 0o600):
        token.chmod(mode)
        found.append(of(check(f"token: {{file: '{token}'}}"), "secret queues.debian.token"))

    before, after = found
    assert before is not None
    assert after is not None
    assert (before.result, before.fix) == ("notice", f"chmod go= {token}")
    assert after.result == "ok"


def test_missing_store_is_reported_once_when_a_queue_needs_it() -> None:
    store = new_store(created=False)
    with pytest.raises(StoreMissing) as missing:
        store.last_runs(1)
    gone = Unknown(unknown=str(missing.value))
    fleet = fleet_of("tickets", {})
    inputs = CheckupInputs(
        sources=some_sources(store, engine_of=_engine_of),
        secrets=HostSecrets({"DEBUSINE_TOKEN": "t"}, Path()),
        servers={"debian": FakeServer()},
    )
    for reading in (QueueReading(demand=gone, workers=gone), a_reading(workers=())):
        world = a_sim_world(queues={"tickets": reading})
        found = examine(Case(fleet, world, reconcile(fleet, world)), inputs)

        assert [each.about for each in found.findings if each.said == gone.unknown] == [
            "state, store"
        ]
        assert of(found, "queue tickets, workers") is None


def test_store_finding_shows_last_run_to_the_minute() -> None:
    store = new_store()
    store.begin_run(started=datetime(2026, 11, 22, 22, 27, 17, 73165, tzinfo=UTC))
    fleet, world = fleet_of("", {}), world_of("", {})
    inputs = CheckupInputs(
        sources=some_sources(store), secrets=HostSecrets({}, Path()), servers={}
    )

    found = of(examine(Case(fleet, world, reconcile(fleet, world)), inputs), "state, store")

    assert found is not None
    assert "2026-11-22 22:27 UTC" in found.said


def test_doctor_text_lists_wrong_results_before_ok_results() -> None:
    found = check("environment: {}, waits: [[riscv64, 180, 1]]")
    text = document_to_text(diagnosis_blocks(found), colour=False)

    assert tells(text.splitlines()[0], "debian-ci", "1 wrong", "1", "0")
    order = [text.index(f"\n{heading}\n") for heading in ("Wrong", "To note", "Works", "Next")]
    assert order == sorted(order)
    assert "      fix: export DEBUSINE_TOKEN=…\n" in text
    assert "riscv64" in text.partition("\n\nNext\n")[0].splitlines()[-1]
