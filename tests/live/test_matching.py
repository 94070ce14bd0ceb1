"""contrib/debusine does with the real server's own models what its README says.

tests/contrib/test_debusine_matching.py asks the same of models that imitate these.
"""

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from tests.live.debusine import Server
from tests.live.test_chromium import make_build
from tests.live.workspace import Workspace
from tests.rigs.process import ROOT

CODE = "opt/fleet-live"
NEEDED = ("fleet", "contrib")
WORKERS = {
    "matching-big": [["worker:class:powerful"], ["arch", "memory_gib=128"]],
    "matching-small": [[], ["arch", "memory_gib=16"]],
}
PLAIN, LARGE, POWERFUL, RUNNING = 0, 1, 2, 3
REQUIRED = [
    ["arch"],
    ["arch", "memory_gib>=64"],
    ["memory_gib>=64", "worker:class:powerful"],
    ["arch"],
]
# What it writes is taken back: the server's scheduler sees nothing of it.
SCRIPT = """
import json, sys
sys.path.insert(0, {folder!r})
from django.db import transaction
from django.utils.timezone import now
from debusine.db.models import Token, Worker, WorkRequest

workers, required, requests, code = json.loads({given!r})

def run(worker, request):
    names = {{"Worker": Worker, "WorkRequest": WorkRequest, "worker": worker, "request": request}}
    exec(code, names)
    return names

with transaction.atomic():
    made = {{
        name: Worker.objects.create(
            name=name,
            registered_at=now(),
            token=Token.objects.create(token_type=Token.Types.WORKER),
            static_metadata={{"provided_tags": static}},
            dynamic_metadata={{"provided_tags": dynamic}},
        )
        for name, (static, dynamic) in workers.items()
    }}
    for number, tags in zip(requests, required):
        WorkRequest.objects.filter(pk=number).update(
            scheduler_tags_required=tags, status="pending", worker=None
        )
    WorkRequest.objects.filter(pk=requests[-1]).update(status="running")
    rows = [WorkRequest.objects.get(pk=number) for number in requests]
    take = {{
        name: [
            requests.index(each.pk)
            for each in run(worker, rows[0])["can_take"].filter(pk__in=requests).order_by("pk")
        ]
        for name, worker in made.items()
    }}
    fit = [
        sorted(
            each.name for each in run(made["matching-big"], row)["can_run"] if each.name in made
        )
        for row in rows[:3]
    ]
    transaction.set_rollback(True)
print(json.dumps([take, fit]))
"""


def examples() -> list[str]:
    """Return the Python of the README."""
    text = (ROOT / "contrib" / "debusine" / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def code(server: Server) -> Iterator[str]:
    """Return the folder in the server's chroot that has this project's modules."""
    folder = server.inside.root / CODE
    shutil.rmtree(folder, ignore_errors=True)
    for name in NEEDED:
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=skipped)
    yield f"/{CODE}"
    shutil.rmtree(folder)


def test_readme_example_works_with_models_of_server(
    server: Server, workspace: Workspace, code: str
) -> None:
    example, _ = examples()
    own = workspace.beside("matching")
    requests = [own.post() for _ in REQUIRED]
    given = json.dumps([WORKERS, REQUIRED, requests, example])

    printed = server.admin("shell", "-v0", stdin=SCRIPT.format(folder=code, given=given))

    take, fit = json.loads(printed.splitlines()[-1])
    assert take == {"matching-big": [POWERFUL], "matching-small": [PLAIN]}
    assert fit == [["matching-small"], [], ["matching-big"]]


FLEET = """\
fleet: hook
providers: {here: {kind: sim}}
queues: {debian: {kind: world, path: world.json}}
images: {sid: {suite: sid, architecture: amd64}}
pools: {big: {provider: here, machine: ccx63, image: sid, provides: [powerful], workers: {max: 1}}}
powerful:
  - {match: "debian/hook/amd64/libre.*", task: sbuild, ask: [powerful]}
  - {match: "debian/hook/amd64/chromium", ask: [powerful], expires: 2026-01-31}
"""
HOOKED = """
import json, sys
sys.path.insert(0, {folder!r})
from django.db import transaction
from django.utils.timezone import now
from debusine.db.models import Token, Worker, WorkRequest

requests, workers, code = json.loads({given!r})
exec(code, {{"FLEET_YAML": {path!r}}})

with transaction.atomic():
    for name, metadata in workers.items():
        Worker.objects.create(
            name=name,
            registered_at=now(),
            token=Token.objects.create(token_type=Token.Types.WORKER),
            static_metadata=metadata,
        )
    found = {{}}
    for name, number in requests.items():
        request = WorkRequest.objects.get(pk=number)
        request.apply_task_configuration()
        can_run = Worker.objects.filter(request.get_task().workers())
        found[name] = [
            "powerful" in request.scheduler_tags_required,
            sorted(each.name for each in can_run if each.name in workers),
        ]
    transaction.set_rollback(True)
print(json.dumps(found))
"""
SBUILD = (
    *("worker:type:external", "worker:build-arch:amd64", "worker:cap:sbuild"),
    *("worker:executor:unshare", "worker:task:worker:sbuild:version:1"),
)


def test_hooked_task_requires_tags_of_matching_allow_list_rule(
    server: Server, workspace: Workspace, code: str
) -> None:
    _, example = examples()
    own = workspace.beside("hook")
    names = ("libreoffice", "chromium", "hello")
    requests = {name: own.post("sbuild", **make_build(own, name, "1")) for name in names}
    workers = {
        "hook-big": {"provided_tags": [*SBUILD, "powerful"]},
        "hook-small": {"provided_tags": [*SBUILD]},
        "hook-drained": {"provided_tags": [*SBUILD, "powerful"], "tasks_allowlist": []},
        "hook-other": {"provided_tags": [*SBUILD, "powerful"], "tasks_denylist": ["sbuild"]},
    }
    (server.inside.root / CODE / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    given = json.dumps([requests, workers, example])
    path = f"{code}/fleet.yaml"

    printed = server.admin(
        "shell", "-v0", stdin=HOOKED.format(folder=code, given=given, path=path)
    )

    assert json.loads(printed.splitlines()[-1]) == {
        "libreoffice": [True, ["hook-big"]],
        "chromium": [False, ["hook-big", "hook-small"]],
        "hello": [False, ["hook-big", "hook-small"]],
    }
