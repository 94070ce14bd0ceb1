"""Pages with commands, followed literally by the program of the wheel."""

import re
from pathlib import Path

import pytest

from tests.docs.test_documents import NEED_ENGINE, Shell, replayed, steady
from tests.rigs.installed import Installed, install
from tests.rigs.local_machines import end_machines
from tests.rigs.process import ROOT

LISTED = sorted(
    set(re.findall(r"\]\(how-to/([\w-]+)\.md\)", (ROOT / "docs/index.md").read_text("utf-8")))
)
_FORGE, _SERVER = "an account at a forge", "a Debusine server"
NOT_FOLLOWED = {
    "approve-in-gitlab": f"{_FORGE}; tests/gitlab runs its pipeline",
    "bake-an-image": "root, and an archive of Debian; tests/images bakes",
    "bake-at-debusine": _SERVER,
    "comment-on-merge-requests": _FORGE,
    "connect-debusine": f"{_SERVER}; tests/live follows it",
    "images-in-gitlab": _FORGE,
    "install": "a package index; the other tests here install",
    "keep-a-history": _FORGE,
    "monitor-with-prometheus": "Prometheus; tests/contrib has one",
    "release": "a clone, and the right to publish",
    "run-as-a-service": "root",
    "run-in-forgejo": _FORGE,
    "run-in-github": _FORGE,
    "run-in-gitlab": f"{_FORGE}; tests/gitlab runs its pipeline",
    "run-the-benchmark": "a clone, whose benchmark it runs",
    "serve-tickets": "a port of its own; tests/tickets serves its clients",
    "try-hetzner-without-an-account": "a clone, whose stand-in plays Hetzner",
}
"""Each how-to that nobody can follow with the wheel alone, and what it needs."""
FOLLOWED = (
    "README.md",
    "docs/tour.md",
    "docs/tutorial.md",
    *(f"docs/how-to/{name}.md" for name in LISTED if name not in NOT_FOLLOWED),
)
OFTEN = tuple(
    f"docs/how-to/{name}.md" for name in ("share-state", "try-on-a-laptop", "write-policies")
)
"""What needs an extra, data files or local machines of the wheel; the others are `long`."""


def _marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    if name in NEED_ENGINE:
        return (pytest.mark.engine,)
    return (pytest.mark.slow,) if name in OFTEN else (pytest.mark.slow, pytest.mark.long)


@pytest.fixture(scope="module")
def everything(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Return an environment with what the pages use, of which `aws` is no part."""
    extras = ("hcloud", "images", "policies", "postgres", "s3")
    return install(wheel, tmp_path_factory.mktemp("everything"), extras)


@pytest.mark.parametrize("name", [pytest.param(name, marks=_marks(name)) for name in FOLLOWED])
def test_wheel_matches_output_of_page(name: str, everything: Installed, tmp_path: Path) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    # What a page starts of the checkout beside fleet finds that on PYTHONPATH; fleet must not.
    program = ("env", "-u", "PYTHONPATH", str(everything.program))

    try:
        now = replayed(text, Shell(tmp_path, program))
    finally:
        end_machines(tmp_path)

    assert steady(now) == steady(text)


def test_excluded_pages_are_in_the_index() -> None:
    assert NOT_FOLLOWED.keys() <= set(LISTED)


@pytest.mark.parametrize("name", FOLLOWED)
def test_page_of_the_wheel_test_has_commands(name: str) -> None:
    assert "```console\n" in (ROOT / name).read_text(encoding="utf-8")
