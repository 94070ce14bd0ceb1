"""What goes wrong at Hetzner, or kills an apply, costs nothing but another apply.

Real engine and real provider, the simulated API and a Debusine's database.
"""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from simulators.hetzner.faults import Fault
from tests.faults.cloud_trial import Beginning, CloudTrial
from tests.faults.clouds import Hetzner
from tests.faults.seen import (
    Case,
    Seen,
    apply_meanwhile,
    check_case,
    check_kills_of_deleting,
    check_kills_of_making,
    faults_asked,
    try_all,
    wait,
)

pytestmark = pytest.mark.engine
Act = Callable[[CloudTrial[Hetzner]], None]


def failing(fault: Callable[[], Fault]) -> Act:
    return lambda trial: trial.cloud.api.fail(fault())


def fill_quota(trial: CloudTrial[Hetzner]) -> None:
    trial.cloud.api.state.limits["servers"] = 2


def raise_quota(trial: CloudTrial[Hetzner]) -> None:
    trial.cloud.api.state.limits.clear()
    trial.age()


def sell_out(trial: CloudTrial[Hetzner]) -> None:
    trial.cloud.api.state.stock["ccx33"] = 1


def mistake_token(trial: CloudTrial[Hetzner]) -> None:
    trial.environment["HCLOUD_TOKEN"] = "x" * 64


def correct_token(trial: CloudTrial[Hetzner]) -> None:
    trial.environment["HCLOUD_TOKEN"] = trial.cloud.api.token


CASES = {
    "HTTP 429 with Retry-After, twice": Case(
        failing(lambda: Fault("POST", "/servers", status=429, retry_after=1, count=2)), 0, 2
    ),
    "HTTP 500 on one of two creations": Case(
        failing(lambda: Fault("POST", "/servers", status=500, after=1, count=1)), 5, 1
    ),
    "HTTP 503 on everything": Case(failing(lambda: Fault(status=503, count=None)), 4, 0),
    "the answer to a creation is lost": Case(
        failing(lambda: Fault("POST", "/servers", answer_lost=True, count=1)), 0, 2
    ),
    "HTTP 504, though the server was made": Case(
        failing(lambda: Fault("POST", "/servers", status=504, done=True, count=1)), 0, 2
    ),
    "a second apply meanwhile, which has to wait": Case(apply_meanwhile, 0, 2),
    "the quota is reached": Case(fill_quota, 5, 1, raise_quota),
    "one type is out of stock, and stays so": Case(sell_out, 5, 1, wait),
    "the token is wrong": Case(mistake_token, 4, 0, correct_token),
    "the token is taken away before the creations": Case(
        failing(lambda: Fault("POST", "/servers", status=401, count=None)), 1, 0
    ),
    "half a page of the listing": Case(
        failing(lambda: Fault("GET", "/servers", half_page=True)), 4, 0
    ),
    "the listing breaks off": Case(
        failing(lambda: Fault("GET", "/servers", broken_off=True)), 4, 0
    ),
}
MAKING = (("asked POST /servers", 2), ("done POST /servers", 2))
"""One or both machines are made, and no state names them: test_every_moment.py has all moments."""
DELETING = (("done DELETE /servers/ID", 2),)


@pytest.fixture(scope="session")
def tried(
    request: pytest.FixtureRequest,
    at_hetzner: Beginning[Hetzner],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Future[Seen]]:
    """Return what is to become of each fault that a test of this session asks for."""
    asked = faults_asked(request.session, _CASES_TEST)
    return try_all(at_hetzner, tmp_path_factory.mktemp("faults"), CASES, asked)


@pytest.mark.parametrize("fault", CASES)
def test_next_apply_reaches_desired_state_after_hetzner_fault(
    fault: str, tried: dict[str, Future[Seen]], request: pytest.FixtureRequest
) -> None:
    check_case(Hetzner, fault, CASES[fault], tried[fault].result(), request.config)


_CASES_TEST = test_next_apply_reaches_desired_state_after_hetzner_fault.__name__


def test_next_apply_finishes_two_creations_after_kill(
    at_hetzner: Beginning[Hetzner], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    check_kills_of_making(at_hetzner, tmp_path, MAKING, request.config)


def test_next_apply_finishes_two_deletions_after_kill(
    at_hetzner: Beginning[Hetzner], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    check_kills_of_deleting(at_hetzner, tmp_path, DELETING, request.config)
