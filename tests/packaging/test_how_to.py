"""Pages with commands, followed literally by the program of the wheel."""

from pathlib import Path

import pytest

from tests.docs.test_documents import Shell, replayed, steady
from tests.rigs.installed import Installed, install
from tests.rigs.local_machines import end_machines
from tests.rigs.process import ROOT

pytestmark = pytest.mark.slow

FOLLOWED = (
    "README.md",
    *(f"docs/how-to/{name}.md" for name in ("begin", "add-a-pool", "stop-changes")),
)
"""What a stranger reads first; each command is a process of its own, which takes its time."""


@pytest.fixture(scope="module")
def everything(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment with what the pages use, of which `aws` is no part."""
    extras = ("hcloud", "images", "policies", "postgres", "s3")
    return install(wheel, tmp_path_factory.mktemp("everything"), extras)


@pytest.mark.parametrize("name", FOLLOWED)
def test_the_wheel_says_what_a_page_shows(
    name: str, everything: Installed, tmp_path: Path
) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    # What a page starts of the checkout beside fleet finds that on PYTHONPATH; fleet must not.
    program = ("env", "-u", "PYTHONPATH", str(everything.program))

    try:
        now = replayed(text, Shell(tmp_path, program))
    finally:
        end_machines(tmp_path)

    assert steady(now) == steady(text)
