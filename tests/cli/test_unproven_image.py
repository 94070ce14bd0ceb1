"""A pool that lacks only tags which a version of its image would prove: no edit is proposed."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.model.facts import World
from fleet.model.images import ImageVersion
from tests.builders import a_request, a_sim_world
from tests.builders.sentences import tells
from tests.rigs.process import RunFleet

AMD64, SBUILD = "worker:build-arch:amd64", "worker:cap:sbuild"
UNSHARE, QEMU = "worker:executor:unshare", "worker:executor:qemu"
TASK = "worker:task:worker:sbuild:version:1"
NOOP = "worker:task:worker:noop:version:1"
RECIPE: dict[str, Any] = {"suite": "sid", "architecture": "amd64", "publish": ["desk"]}
POOL: dict[str, Any] = {"provider": "desk", "machine": "ccx33", "workers": {"max": 3}}


def explain(
    run_fleet: RunFleet,
    project: Path,
    *required: str,
    recipe: dict[str, object] | None = None,
    versions: tuple[ImageVersion, ...] = (),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the plan says of a request, and the explanation."""
    fleet = {
        "fleet": "demo",
        "providers": {"desk": {"kind": "sim", "boot": "1m"}},
        "queues": {"debian": {"kind": "world", "path": "world.json"}},
        "images": {
            "mine": RECIPE | (recipe or {}),
            "near": {"existing": {"desk": "n"}, "architecture": "amd64", "provides": [UNSHARE]},
        },
        "pools": {"mine": POOL | {"image": "mine"}, "near": POOL | {"image": "near"}},
    }
    (project / "fleet.yaml").write_text(yaml.safe_dump(fleet, sort_keys=False), encoding="utf-8")
    request = a_request(id="1", required=required)
    world: World = a_sim_world(requests=(request,), fleet="demo", images=versions)
    (project / "world.json").write_text(world.model_dump_json(), encoding="utf-8")
    found = []
    for command in (("plan",), ("explain", "request", "debian/1")):
        ran = run_fleet(*command, "--world", "world.json", "--json")
        assert (ran.returncode, ran.stderr) == (0, "")
        found.append(json.loads(ran.stdout))
    (unserved,) = found[0]["unserved"]
    return unserved, found[1]


@pytest.mark.parametrize(
    ("required", "recipe"),
    [
        ((AMD64, UNSHARE, SBUILD), {}),
        ((AMD64, UNSHARE, TASK), {}),
        ((NOOP,), {}),
        (("worker:executor:incus-lxc",), {"enable_backends": ["incus"]}),
        (
            (QEMU, "worker:cap:mmdebstrap"),
            {"enable_backends": ["qemu"], "enable_tasks": ["mmdebstrap"]},
        ),
    ],
)
def test_first_version_is_the_remedy_when_it_may_prove_the_tags(
    run_fleet: RunFleet, project: Path, required: tuple[str, ...], recipe: dict[str, object]
) -> None:
    unserved, explained = explain(run_fleet, project, *required, recipe=recipe)

    assert unserved["path"] == ["pools", "mine", "image"]
    assert tells(unserved["because"], "mine", "desk", *sorted({*required} - {AMD64}))
    assert not explained["never"]
    assert tells(explained["next_steps"][0], "fleet image due")
    changes = [change for each in explained["suggestions"] for change in each["changes"]]
    assert {change["path"][1] for change in changes} <= {"near"}
