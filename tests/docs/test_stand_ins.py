"""Pages that need real parts say what the program says today, as far as stand-ins can show it.

The sessions `live`, `images-boot` and `engine` replay them whole. Here a recorded world stands in
for a Debusine, a few bytes for a disk that was baked, and the embedded engine for Pulumi.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.images.folder import QCOW2, finish_build
from fleet.state.store import Store
from tests.builders.versioning import a_manifest, a_version, open_build
from tests.docs.test_documents import (
    NEED_BAKING,
    NEED_ENGINE,
    NEED_LIVE,
    Shell,
    replayed,
    wording,
)
from tests.rigs.golden import Golden
from tests.rigs.process import ROOT
from tests.rigs.warm import Warm

Instead = Callable[[str], str | None]
PREPARES = ("fleet validate", "fleet state init")


def recorded_worlds(*_: object) -> Instead:
    """Return plans of the worlds that were recorded where the page plans."""
    worlds = iter(sorted((ROOT / "tests/docs/connecting").glob("*.json")))

    def instead(command: str) -> str | None:
        if command == "fleet plan":
            kept = f"fleet plan --world {next(worlds)} | grep -v ^Observed"
            return f"bash -o pipefail -c '{kept}'"
        return command if command.startswith((*PREPARES, "sed -i")) else None

    return instead


def versions_of_a_few_bytes(text: str, project: Path) -> Instead:
    """Return the commands for what is built, with builds that never ran."""
    versions = iter(re.findall(r"^built trixie (\w+)", text, re.MULTILINE))
    images = project / ".fleet/images"
    follow = ("fleet image publish", "fleet image promote", "fleet image rollback")

    def instead(command: str) -> str | None:
        if command.startswith("fleet image build"):
            version = next(versions)
            partial = open_build(images, "trixie", version)
            (partial / QCOW2).write_bytes(b"disk")
            finish_build(partial, a_manifest(version=version))
            store = Store(f"sqlite:///{project}/.fleet/store.db", "debian-ci")
            store.save_image_version(a_version(version=version), was=None)
            return None
        return command if command.startswith((*PREPARES, *follow, "fleet image list")) else None

    return instead


def the_embedded_engine(*_: object) -> Instead:
    """Return what is the same with either engine."""
    return lambda command: command if "fleet apply" in command or command in PREPARES else None


@pytest.mark.parametrize(
    ("name", "stand_ins"),
    [
        *((name, recorded_worlds) for name in NEED_LIVE),
        *((name, versions_of_a_few_bytes) for name in NEED_BAKING),
        *((name, the_embedded_engine) for name in NEED_ENGINE),
    ],
)
def test_page_matches_output_of_stand_ins(
    name: str,
    stand_ins: Callable[[str, Path], Instead],
    tmp_path: Path,
    golden: Golden,
    warm: Warm,
) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    shell = Shell(tmp_path, warm.command())

    instead = stand_ins(text, shell.project)

    def output(command: str, shown: str) -> str:
        run = instead(command)
        printed = shown if run is None else shell.run(run)
        return shown if wording(printed) == wording(shown) else printed

    now = replayed(text, shell, output)

    golden.compare(ROOT / name, now)
