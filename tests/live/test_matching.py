"""contrib/debusine does with the real server's own models what its README says.

tests/contrib/test_debusine_matching.py asks the same of models that imitate these.
"""

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from tests.live.debusine import Server
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


def test_the_example_of_the_readme_is_true_of_the_server_s_own_models(
    server: Server, workspace: Workspace, code: str
) -> None:
    text = (ROOT / "contrib" / "debusine" / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    own = workspace.beside("matching")
    requests = [own.post() for _ in REQUIRED]
    given = json.dumps([WORKERS, REQUIRED, requests, example])

    printed = server.admin("shell", "-v0", stdin=SCRIPT.format(folder=code, given=given))

    take, fit = json.loads(printed.splitlines()[-1])
    assert take == {"matching-big": [POWERFUL], "matching-small": [PLAIN]}
    assert fit == [["matching-small"], [], ["matching-big"]]
