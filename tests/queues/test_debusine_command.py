"""What only the admin command can get wrong: its answer and its words.

How it fails to run: tests/queues/test_debusine_pools.py.
"""

import hashlib
import json
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest

from fleet.errors import SourceUnreachable, WorkerBusy
from fleet.queues.debusine.connection import ask_command
from fleet.queues.debusine.registry import SENT, CommandChannel, DebusineRegistry
from tests.ports.registries import WORKER, DebusinePlace, an_enrolment, tables
from tests.ports.stores import postgres_url
from tests.rigs.debusine_tables import Tables
from tests.rigs.process import ROOT, clean_environment, run_process

__all__ = ["postgres_url", "tables"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["echo", "hello"], "echo hello shell printed no result"),
        (["sh", "-c", "sleep 60"], r"0\.5s.*may"),
        (["sh", "-c", "exit 3"], "status 3"),
    ],
)
def test_admin_command_without_response_is_named(command: list[str], words: str) -> None:
    channel = CommandChannel(command, partial(ask_command, seconds=0.5))

    with pytest.raises(SourceUnreachable, match=words):
        DebusineRegistry("debian", "debian", channel).drain(WORKER)


@pytest.mark.slow
def test_admin_command_supports_all_worker_operations(tables: Tables, postgres_url: str) -> None:
    place = DebusinePlace(
        tables, CommandChannel([sys.executable, "-m", "tests.fakes.debusine_admin", postgres_url])
    )

    assert place.register(WORKER, place.registry.enrol(an_enrolment()))
    place.assign(WORKER, 90)
    with pytest.raises(WorkerBusy, match="has request 90"):
        place.registry.disable(WORKER)
    place.vanish(WORKER)
    place.registry.release(WORKER)

    assert place.holder_of(90) is None
    assert not place.may_talk(WORKER)


def test_admin_command_receives_no_token(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    script = tmp_path / "debusine-admin.py"
    answer = json.dumps([[None, None, {"static": {}, "awaited": True, "held": []}], None])
    script.write_text(
        f"import pathlib, re, sys\ntext = sys.stdin.read()\n"
        f"pathlib.Path({str(heard)!r}).write_text(text)\n"
        f"print(re.search('fleet-answer:[0-9a-f]+:', text).group() + {answer!r})\n",
        encoding="utf-8",
    )
    registry = DebusineRegistry("debian", "debian", CommandChannel([sys.executable, str(script)]))

    with pytest.raises(SourceUnreachable, match=r"debian-builders-0001 .*enrolled"):
        registry.enrol(an_enrolment())

    assert "digest" in heard.read_text(encoding="utf-8")
    assert len(heard.read_text(encoding="utf-8").splitlines()) == 1


def test_sent_module_has_recorded_digest() -> None:
    content = (ROOT / "fleet" / "queues" / "debusine" / "changes.py").read_bytes()

    assert hashlib.sha256(content).hexdigest() == SENT, "update registry.SENT"


@pytest.mark.slow
def test_module_is_sent_from_a_zip_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "fleet.zip", "w") as packed:
        for path in (ROOT / "fleet").rglob("*.py"):
            packed.write(path, path.relative_to(ROOT))
    script = (
        "import sys, fleet; from fleet.queues.debusine import changes, registry\n"
        "assert '.zip' in fleet.__file__\n"
        "print(registry.CommandChannel(sys.argv[1:]).run([(changes.look, {})]))\n"
    )
    admin = (
        "import re, sys; text = sys.stdin.read()\n"
        "mark = re.search('fleet-answer:[0-9a-f]+:', text)\n"
        "print(mark.group() + '[[' + str(text.count('def enrol')) + '], null]')"
    )
    done = run_process(
        *(sys.executable, "-c", script, sys.executable, "-c", admin),
        cwd=tmp_path,
        env=clean_environment(tmp_path, {"PYTHONPATH": str(tmp_path / "fleet.zip")}),
    )

    assert (done.stdout, done.stderr) == ("[1]\n", "")
