"""This module holds what every test may ask for: the program, a project, a fixed time zone."""

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings

from tests.process import Completed, RunFleet, clean_environment, fleet_command, run_process
from tests.warm import Warm

settings.register_profile(
    "default",
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("laws", max_examples=2000, deadline=None, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let an author rewrite what the program says; the review reads the difference."""
    parser.addoption("--update-plans", action="store_true", help="rewrite tests/plans/*")
    parser.addoption("--update-docs", action="store_true", help="rewrite README and tutorial")
    parser.addoption(
        "--every-suite",
        action="store_true",
        default=bool(os.environ.get("FLEET_EVERY_SUITE")),
        help="run the role on bookworm and sid too (FLEET_EVERY_SUITE=1)",
    )


def pytest_configure() -> None:
    """Make every run alike: one time zone, one locale, one Hypothesis budget."""
    os.environ.update(TZ="UTC", LC_ALL="C.UTF-8", COLUMNS="100")
    time.tzset()
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return an empty folder for a fleet.yaml; `run_fleet` runs in it."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Return the program as a process that has it loaded, for all tests of this process."""
    with TemporaryDirectory() as folder:
        program = Warm(Path(folder))
        yield program
        program.end()


@pytest.fixture
def run_fleet(project: Path, tmp_path: Path, warm: Warm) -> RunFleet:
    """Return a function that runs `fleet ARGS` as a process in the project folder.

    No colour, no terminal, an environment of its own (`env` adds to it), standard input empty.
    """
    home = tmp_path / "home"
    home.mkdir()

    def run(
        *args: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> Completed:
        # What Python itself looks at when it starts has to be there by then.
        is_cold = any(name.startswith(("PYTHON", "LC_")) for name in env or {})
        return run_process(
            *(fleet_command() if is_cold else warm.command()),
            *args,
            cwd=cwd or project,
            env=clean_environment(home, env),
            stdin=stdin,
        )

    return run
