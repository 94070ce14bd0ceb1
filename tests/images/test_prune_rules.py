"""Which versions nothing refers to: cases of `prunings/`; what is unread refers to all."""

import shlex
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from fleet.images.prune import PRUNED, find_forgotten, find_unreferenced, places_of
from fleet.model.facts import Unknown, World
from fleet.model.images import Publication, Upload, Version, recipe_digest
from tests.builders import (
    NOW,
    a_create,
    a_fleet,
    a_listing,
    a_machine,
    a_plan,
    a_stack,
    a_world,
    some_inputs,
)
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells
from tests.builders.versioning import a_version

VERSION = "2026112{}T060000Z"
V1, V2 = (VERSION.format(number) for number in (1, 2))
NAME = "debian-ci-builders-0007"
CASES = [*read_blocks(Path(__file__).parent / "prunings")]
_KEYS = {"recipe_digest": "recipe", "image": "image"}
UNKNOWN = Unknown(unknown="it does not answer")


def version(name: str, state: str = "retired", **overrides: object) -> Version:
    """Return a version that is published at hetzner under its own name."""
    uploaded = Publication(id=f"id-{name}", at=NOW, verified=True)
    values = {"version": name, "state": state, "publications": {"hetzner": uploaded}}
    return a_version(**(values | overrides))


def version_of(number: str, *words: str) -> Version:
    """Return version N with these words about it."""
    pairs = dict(each.split("=", 1) for each in words if "=" in each)
    states = [each for each in words if "=" not in each and each not in ("today", "pruned")]
    uploaded = Publication(id=f"id-{number}", at=NOW, verified=True)
    made: dict[str, object] = {"publications": {pairs.get("at", "hetzner"): uploaded}}
    if "today" in words:
        made["recipe_digest"] = recipe_digest(a_fleet().baked["trixie"])
    if "pruned" in words:
        made["why"] = PRUNED
    if "since" in pairs:
        made["since"] = NOW - timedelta(days=int(pairs["since"].rstrip("d")))
    made |= {key: pairs[name] for key, name in _KEYS.items() if name in pairs}
    return version(VERSION.format(number), states[0] if states else "retired", **made)


def world_of(verb: str, subject: str = "") -> World:
    """Return a world in which a machine or a stack has version N, or a source is dark."""
    seen: dict[str, object] = {"providers": {"hetzner": a_listing()}}
    match verb, subject:
        case "machine", number:
            seen["providers"] = {"hetzner": a_listing(a_machine(name=NAME, image=f"id-{number}"))}
        case "stack", number:
            inputs = some_inputs(name=NAME, image=f"id-{number}")
            seen["stacks"] = {"builders": a_stack(workers=(inputs,))}
        case "dark", "provider":
            seen["providers"] = {"hetzner": UNKNOWN}
        case "no", "provider":
            seen["providers"] = {}
        case "dark", part:
            seen["stacks"] = UNKNOWN if part == "stacks" else {part: UNKNOWN}
    return a_world(**seen)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_versions_are_kept_as_in_their_case(case: Block) -> None:
    versions, keys, seen = case.parts
    said = yaml.safe_load(f"{{{keys.replace('V1', VERSION.format(1))}}}")
    verb, _, subject = seen.partition(" ")
    create = a_create(worker=NAME, inputs=some_inputs(name=NAME, image=f"id-{subject}"))
    plans = {"plan.json": a_plan(actions=(create,))} if verb == "planned" else {}

    found = find_unreferenced(
        a_fleet(**said),
        world_of(verb, subject),
        [version_of(*each.split()) for each in versions.split(",")],
        plans,
    )

    reasons = {each.version[7]: each.kept for each in found if each.kept}
    assert (" ".join(sorted(reasons)) or "none") == case.result
    for number, words in case.because:
        assert tells(reasons[number], *shlex.split(words)), reasons[number]


def test_prune_deletes_no_upload_of_version_built_elsewhere() -> None:
    (gone, _) = find_unreferenced(
        a_fleet(), world_of("quiet"), [version(V1, "failed", elsewhere=True), version(V2)], {}
    )

    assert (gone.kept, gone.places) == ("", {})


def upload(name: str, *, whole: bool = True) -> Upload:
    return Upload(id=name, image="trixie", version=V1, sha256="0", whole=whole, since=NOW)


def test_forgotten_upload_is_complete_unnamed_and_listed_once() -> None:
    account = [upload(f"id-{V1}"), upload("stray"), upload("part", whole=False), upload("named")]
    frozen = {"existing": {"hetzner": "named"}}
    fleet = a_fleet(images={"trixie": {"suite": "trixie", "architecture": "amd64"}, "f": frozen})

    (found,) = find_forgotten(fleet, [version(V1)], {"hetzner": account, "helsinki": account})

    assert (found.place, found.id, found.image, found.version) == (
        *("helsinki", "stray", "trixie", V1),
    )


def test_prune_also_reads_former_stores_of_an_image() -> None:
    place = "file:///srv/images"
    uploaded = Publication(id="there", at=NOW, verified=True)

    assert set(places_of(a_fleet(), [version(V1, publications={place: uploaded})])) == {
        place,
        *a_fleet().providers,
    }
