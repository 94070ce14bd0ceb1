"""`fleet explain`: why a request waits, a pool wants N, a worker stays or goes."""

import json
import re
from pathlib import Path

from tests.builders.sentences import tells
from tests.rigs.process import ROOT, RunFleet


def test_explain_suggests_build_when_image_is_unpublished(
    run_fleet: RunFleet, project: Path
) -> None:
    case = ROOT / "tests/plans/the-starter-without-a-baked-image-makes-no-machine"
    for name in ("fleet.yaml", "world.json"):
        (project / name).write_bytes((case / name).read_bytes())

    explained = run_fleet("explain", "request", "3", "--world", "world.json")

    assert tells(explained.stdout.splitlines()[-1], "build", "publish", "`fleet image due`")


def test_explain_suggests_approval_for_refused_fitting_pool(
    run_fleet: RunFleet, project: Path
) -> None:
    case = ROOT / "tests/plans/what-a-rival-provisioner-would-make-too-is-not-bought"
    text = (case / "fleet.yaml").read_text(encoding="utf-8")
    other = (
        "  other: {provider: h, machine: ccx33, image: i, provides: [gpu], workers: {max: 5}}\n"
    )
    (project / "fleet.yaml").write_text(text + other, encoding="utf-8")
    world = json.loads((case / "world.json").read_text(encoding="utf-8"))
    requests = world["queues"]["q"]["demand"]["requests"]
    requests += [requests[0] | {"id": str(n), "required": ["gpu"]} for n in range(100, 103)]
    (project / "world.json").write_text(json.dumps(world), encoding="utf-8")

    explained = run_fleet("explain", "request", "100", "--world", "world.json")

    approvals = re.findall(r"{guard: rival, pool: (\w+)", " ".join(explained.stdout.split()))
    assert {*approvals} == {"other"}
