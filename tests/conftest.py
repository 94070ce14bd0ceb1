"""What every test may ask for: the program, a project, a fixed time zone."""

import functools
import gc
import os
import signal
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import time_machine
from hypothesis import HealthCheck, settings

from fleet.program import connect_satellites
from tests.rigs import postgres
from tests.rigs.golden import Golden
from tests.rigs.inside import run_inside
from tests.rigs.process import Completed, RunFleet, clean_environment, fleet_command, run_process
from tests.rigs.warm import Warm

MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes a private folder in it
GIGABYTE = 2**30

for profile, max_examples in (("default", 5), ("slow", 20)):
    settings.register_profile(
        profile,
        max_examples=max_examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.register_profile("laws", max_examples=2000, deadline=None, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let an author rewrite what the program says; the review reads the difference."""
    parser.addoption("--update-golden", action="store_true", help="rewrite every golden file")
    parser.addoption(
        "--every-suite",
        action="store_true",
        default=bool(os.environ.get("FLEET_EVERY_SUITE")),
        help="run the role on bookworm and sid too (FLEET_EVERY_SUITE=1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make every run alike: one time zone, one locale, one Hypothesis budget."""
    chosen = config.option.markexpr
    if config.args_source is config.ArgsSource.TESTPATHS and "slow" not in chosen:
        config.option.markexpr = f"({chosen}) and not slow" if chosen else "not slow"
    # Tests of the core call it without the program.
    connect_satellites()
    os.environ.update(TZ="UTC", LC_ALL="C.UTF-8", COLUMNS="100")
    time.tzset()
    # What a shell starts in the background ignores interrupts, and so would all that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # What draws has a seed of its own: pytest-randomly need not seed three times a test.
    config.option.randomly_reset_seed = False
    # Until all is collected, nearly everything that is made stays.
    gc.disable()
    # Stores wait for the disk a hundred times a test. Whole images stay out of memory.
    if "not images" in config.option.markexpr and _is_roomy(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_finish() -> None:
    """Spare what collects garbage the hundreds of thousands of objects that stay to the end.

    Nor does it look each few hundred objects: what a test leaves is soon let go all the same.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 20)


def _is_roomy(folder: Path) -> bool:
    """Say whether folders of tests have their place here, programs in them too."""
    if not folder.is_dir():
        return False
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize >= GIGABYTE and not found.f_flag & os.ST_NOEXEC


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return an empty folder for a fleet.yaml; `run_fleet` runs in it."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    """Return the clock of the test, which goes on and can be put forward."""
    with time_machine.travel(datetime.now(UTC)) as clock:
        yield clock


@pytest.fixture(scope="session", autouse=True)
def _no_pause() -> Iterator[None]:
    """Have no test wait for the next GET or listing; ticket ids of a new store start at 1."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("fleet.queues.http.Reader.pause", staticmethod(lambda _: None))
        patched.setattr("fleet.engines.projects.AbsenceCheck.pause", staticmethod(lambda _: None))
        patched.setattr("fleet.state.store.first_id", lambda _: 0)  # ids 1, 2, 3 read well
        yield


@pytest.fixture(scope="session")
def golden(pytestconfig: pytest.Config) -> Golden:
    """Return what compares golden files, or rewrites them with `--update-golden`."""
    return Golden(updates=pytestconfig.getoption("--update-golden"))


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Return the program as a process that has it loaded, for all tests of this process."""
    with TemporaryDirectory() as folder:
        program = Warm(Path(folder))
        yield program
        program.end()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Return the URL of a PostgreSQL for all tests of this process, or skip loudly."""
    if because := postgres.why_not():
        pytest.skip(f"PostgreSQL is NOT TESTED: {because}")
    with postgres.running() as url:
        yield url


@pytest.fixture
def run_fleet(request: pytest.FixtureRequest, project: Path, tmp_path: Path) -> RunFleet:
    """Return a function that runs `fleet ARGS` inside this process, in the project folder.

    No colour, no terminal, an environment of its own (`env` adds to it), standard input empty.
    Where the real engine is beside it, it is a process of its own.
    """
    if request.node.get_closest_marker("engine"):
        forked: RunFleet = request.getfixturevalue("fork_fleet")
        return forked
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)

    def run_once(
        *args: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> Completed:
        assert not stdin, "a process of its own reads standard input: fork_fleet"
        return run_inside(*args, cwd=cwd or project, env=clean_environment(home, env))

    return run_once


@pytest.fixture
def fork_fleet(project: Path, tmp_path: Path, warm: Warm) -> RunFleet:
    """Return the same where `fleet ARGS` is a process of its own."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)

    def run_once(
        *args: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> Completed:
        # What Python itself looks at when it starts has to be there by then.
        is_cold = any(name.startswith(("PYTHON", "LC_")) for name in env or {})
        run = functools.partial(run_process, *fleet_command()) if is_cold else warm.run
        return run(*args, cwd=cwd or project, env=clean_environment(home, env), stdin=stdin)

    return run_once
