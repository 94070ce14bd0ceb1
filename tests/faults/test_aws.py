"""What goes wrong at AWS, or kills an apply, costs nothing but another apply.

Real engine, a double of its provider (tests/fakes/aws_plugin.py), moto and a Debusine's database.
"""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.aws_api import Fault
from tests.faults import test_hetzner
from tests.faults.cloud_trial import THREE, Beginning, CloudTrial
from tests.faults.clouds import Aws
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
SPOT = "InstanceMarketOptions"
"""What a call has that asks for a spot machine."""
CHEAP = "InstanceType=c7a.2xlarge"
"""What a call has that asks for the type that is taken first."""
EACH = 3
"""How often a call is tried."""
Act = Callable[[CloudTrial[Aws]], None]


def failing(*faults: Fault) -> Act:
    def strike(trial: CloudTrial[Aws]) -> None:
        for fault in faults:
            trial.cloud.api.fail(replace(fault))

    return strike


def raise_quota(trial: CloudTrial[Aws]) -> None:
    trial.cloud.heal()
    trial.age()


def sell_out(trial: CloudTrial[Aws]) -> None:
    fault = Fault("RunInstances", "InsufficientInstanceCapacity", 500, having=CHEAP, count=None)
    trial.cloud.api.fail(fault)
    assert trial.fleet("apply").returncode == 1


CASES = {
    "RequestLimitExceeded, twice": Case(
        failing(Fault("RunInstances", "RequestLimitExceeded", 503, count=2)), 0, 2
    ),
    "RequestLimitExceeded on every creation": Case(
        failing(Fault("RunInstances", "RequestLimitExceeded", 503, count=None)), 1, 0
    ),
    "HTTP 500 on one of two creations": Case(
        failing(Fault("RunInstances", "InternalError", 500, having=THREE, count=None)), 5, 1
    ),
    "HTTP 503 on everything": Case(
        failing(Fault(code="Unavailable", status=503, count=None)), 4, 0
    ),
    "the answer to a creation is lost": Case(
        failing(Fault("RunInstances", answer_lost=True, count=1)), 0, 2
    ),
    "every answer to a creation is lost": Case(
        failing(Fault("RunInstances", answer_lost=True, count=None)), 0, 2
    ),
    "HTTP 500, though the instance was made": Case(
        failing(Fault("RunInstances", "InternalError", 500, done=True, count=None)), 0, 2
    ),
    "a second apply meanwhile, which has to wait": Case(apply_meanwhile, 0, 2),
    "the quota is reached": Case(
        failing(Fault("RunInstances", "VcpuLimitExceeded", after=1, count=None)),
        5,
        1,
        raise_quota,
    ),
    "spot has none of it, and stays so": Case(
        failing(
            Fault("RunInstances", "InsufficientInstanceCapacity", 500, having=SPOT, count=None)
        ),
        1,
        0,
        wait,
    ),
    "the spot quota is reached, and stays so": Case(
        failing(Fault("RunInstances", "MaxSpotInstanceCountExceeded", having=SPOT, count=None)),
        1,
        0,
        wait,
    ),
    "one type is out on both markets: spot was tried first": Case(sell_out, 1, 0, wait),
    "the credentials are wrong": Case(
        failing(Fault(code="AuthFailure", status=401, count=None)), 4, 0
    ),
    "the session token runs out before the creations": Case(
        failing(Fault("RunInstances", "RequestExpired", count=None)), 1, 0
    ),
    "half a page of the listing": Case(failing(Fault("DescribeInstances", halved=True)), 4, 0),
    "the second page of the listing is refused": Case(
        failing(
            Fault("DescribeInstances", continued=True, count=1),
            Fault("DescribeInstances", "InternalError", 500, count=EACH),
        ),
        4,
        0,
    ),
}
MAKING = (("asked RunInstances", 2), ("done RunInstances", 2))
"""One or both machines are made, and no state names them: test_every_moment.py has all moments."""
DELETING = (("done TerminateInstances", 2),)


def _marks(fault: str) -> tuple[pytest.MarkDecorator, ...]:
    """Return `long` for what is tried at Hetzner too."""
    return (pytest.mark.long,) if fault in test_hetzner.CASES else ()


@pytest.fixture(scope="session")
def tried(
    request: pytest.FixtureRequest,
    at_aws: Beginning[Aws],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Future[Seen]]:
    """Return what is to become of each fault that a test of this session asks for."""
    asked = faults_asked(request.session, _CASES_TEST)
    return try_all(at_aws, tmp_path_factory.mktemp("faults"), CASES, asked)


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=_marks(fault)) for fault in CASES])
def test_next_apply_reaches_desired_state_after_aws_fault(
    fault: str, tried: dict[str, Future[Seen]], request: pytest.FixtureRequest
) -> None:
    check_case(Aws, fault, CASES[fault], tried[fault].result(), request.config)


_CASES_TEST = test_next_apply_reaches_desired_state_after_aws_fault.__name__


def test_next_apply_finishes_two_creations_after_kill(
    at_aws: Beginning[Aws], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    check_kills_of_making(at_aws, tmp_path, MAKING, request.config)


def test_next_apply_finishes_two_deletions_after_kill(
    at_aws: Beginning[Aws], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    check_kills_of_deleting(at_aws, tmp_path, DELETING, request.config)
