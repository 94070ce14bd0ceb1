"""What a request asks for: which tags count, where each is from, which are refused and why."""

import gc
import weakref
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import yaml

from fleet.model.facts import Demand, Request, TaskHistory, Unknown
from fleet.schema.model import Fleet
from fleet.tagrules.derive import QueueContext, queue_context
from fleet.tagrules.requests import Judge, Memberships, TagRequirements
from tests.builders import NOW, a_fleet, a_request
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells

TODAY = date(2026, 11, 21)
PING = {"owner": "praiskup", "project": "ping", "chroot": "fedora-42-x86_64"}


def asking(
    fleet: Fleet, request: Request, *, stored: bool = False, memberships: Memberships | None = None
) -> TagRequirements:
    known: Memberships = {} if memberships is None else memberships
    return Judge(fleet, known, TODAY).ask_of(request, QueueContext(stored=stored))


def by(source: str, **overrides: object) -> Request:
    return a_request(required=["power"], asked={"power": source}, requester="alice", **overrides)


CASES = [*read_blocks(Path(__file__).parent / "asking")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_tags_count_or_are_refused_as_in_their_case(case: Block) -> None:
    found = judged(*case.parts)

    assert describe(found) == case.result
    for about, words in case.because:
        kind, number = about.split() if " " in about else ("refused", about)
        of_kind = {
            "refused": [each.because for each in found.refused],
            "new": [each.because for each in found.differences],
            "origin": [each.because for each in found.origins],
        }
        assert tells(of_kind[kind][int(number)], *words.split())


def judged(fleet: str, request: str, options: str) -> TagRequirements:
    """Return the requirements of a request, all three as YAML."""
    said, asks, more = (yaml.safe_load(f"{{{text}}}") for text in (fleet, request, options))
    if "power" in said:
        rule = {"asked_by": said.pop("power")} | {
            k: said.pop(k) for k in ("otherwise",) if k in said
        }
        said["tags"] = {"power": rule}
    if source := asks.pop("by", ""):
        asks |= {"required": ["power"], "asked": {"power": source}, "requester": "alice"}
    if package := asks.pop("build", ""):
        asks |= PING | {"package": package}
    members = more.pop("members", {})
    dark = Unknown(unknown="members.yaml: gone")
    memberships = dark if members == "unknown" else members
    return asking(a_fleet(**said), a_request(**asks), memberships=memberships, **more)


def describe(found: TagRequirements) -> str:
    """Return the tags that count, each with its source, and the others."""
    counted = {*found.ask.required, *(f"{name}>={least}" for name, least in found.ask.minimums)}
    origins = [f"{each.tag} from {each.source}{_place(each.path)}" for each in found.origins]
    assert {each.tag for each in found.origins} == counted
    refused = [
        f"refused {each.tag} of {each.who}{'' if each.is_sure else ' (unsure)'}{_place(each.path)}"
        for each in found.refused
    ]
    new = [f"new {each.tag}{_place(each.path)}" for each in found.differences]
    return "; ".join((*origins, *refused, *new, *(["held"] if found.held else []))) or "nothing"


def _place(path: Iterable[str | int]) -> str:
    place = ".".join(map(str, path))
    return f" at {place}" if place else ""


MANY = a_fleet(
    tags={
        "memory_gib": {"kind": "number"},
        "power": {
            "asked_by": [
                {"users": ["bob"], "groups": ["g"], "workspaces": ["w"], "scopes": ["kali"]}
            ]
        },
    },
    powerful=[{"match": ".*/kernel", "ask": ["swap"]}],
    derive=[
        {"task": "lintian", "ask": "light"},
        {"source_build": True, "ask": "source"},
        {"from": "host", "ask": "on:{value}"},
        {"history": {"of": "memory", "min_runs": 1}, "ask": "memory_gib>={value}"},
    ],
)
RUNS = TaskHistory(task="sbuild", package="linux", memory_mib=(2048,))
KNOWN = queue_context(Demand(read_at=NOW, history=(RUNS,)))


@pytest.mark.parametrize(
    "difference",
    [
        {"required": ["power", "x"]},
        {"provided": ("x",)},
        {"asked": {"power": "task"}},
        {"requester": "bob"},
        {"groups": ("g",)},
        {"workspace": "w"},
        {"scope": "kali"},
        {"task": "lintian"},
        {"task_data": {"host": "arm64"}},
        {"task_data": {"build_components": ["source"]}},
        {"package": "linux"},
        {"workspace": "base", "package": "kernel"},
    ],
)
def test_requests_are_judged_separately_when_relevant_values_differ(
    difference: dict[str, object],
) -> None:
    judge = Judge(MANY, {}, TODAY)
    other = Request.model_validate(by("user").model_dump() | difference)

    first = judge.ask_of_alike(by("user"), KNOWN)

    shared, alone = judge.ask_of_alike(other, KNOWN), judge.ask_of(other, KNOWN)
    assert [(o.tag, o.path) for o in shared.origins] == [(o.tag, o.path) for o in alone.origins]
    assert replace(shared, origins=()) == replace(alone, origins=()) != replace(first, origins=())


@pytest.mark.parametrize("provided", [(), ("package:firefox",)])
def test_shared_origin_names_no_package(provided: tuple[str, ...]) -> None:
    rule = {"match": "debian/.*", "ask": ["power"], "reason": "they need memory"}
    judge = Judge(a_fleet(powerful=[rule]), {}, TODAY)
    first, second = (
        a_request(scope="debian", workspace="base", package=package)
        for package in ("dash", "firefox")
    )

    judge.ask_of_alike(first, KNOWN)

    shared = judge.ask_of_alike(second.model_copy(update={"provided": provided}), KNOWN)
    assert [(each.tag, "dash" in each.because) for each in shared.origins] == [("power", False)]


def test_requirements_include_minimum_from_history() -> None:
    request = a_request(package="linux")

    found = Judge(MANY, {}, TODAY).ask_of(request, KNOWN)

    assert [name for name, _ in found.ask.minimums] == ["memory_gib"]


def test_provided_tags_count_only_when_a_worker_reads_them() -> None:
    request = a_request(provided=("x",))

    looked_at = Judge(a_fleet(), {}, TODAY).ask_of(request, QueueContext())
    ignored = Judge(a_fleet(), {}, TODAY, with_provided=False).ask_of(request, QueueContext())

    assert (looked_at.ask.provided, ignored.ask.provided) == (frozenset({"x"}), frozenset())


def test_cached_judgement_is_released_with_its_reading() -> None:
    fleet, reading = a_fleet(), QueueContext()
    known: Memberships = {}
    first = Judge(fleet, known, TODAY).ask_of_alike(by("user"), reading)
    assert Judge(fleet, known, TODAY).ask_of_alike(by("user"), reading) is first
    forgotten = weakref.ref(reading)

    del reading
    gc.collect()

    assert forgotten() is None
