"""The contract of the port Prober, over the fake and over TCP on the loopback."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from fleet.clouds.ready import TcpProber
from fleet.ports import Prober
from tests.fakes.prober import FakeProber
from tests.rigs.booting import Greeter
from tests.rigs.loopback import free_ports

HOST = "127.0.0.1"


@dataclass
class Tried:
    """A prober, a port that answers and one that does not."""

    prober: Prober
    up: int
    down: int


def _fake(_: ExitStack) -> Tried:
    prober = FakeProber()
    prober.up[HOST, 22] = "SSH-2.0-OpenSSH_9.9\r\n"
    return Tried(prober, 22, 23)


def _tcp(stack: ExitStack) -> Tried:
    up, down = free_ports(2)
    greeter = Greeter(HOST, up)
    stack.callback(greeter.close)
    return Tried(TcpProber(), up, down)


@pytest.fixture(params=[_fake, _tcp])
def tried(request: pytest.FixtureRequest) -> Iterator[Tried]:
    """Return each kind of prober."""
    make: Callable[[ExitStack], Tried] = request.param
    with ExitStack() as stack:
        yield make(stack)


@pytest.mark.parametrize(
    ("banner", "answers"),
    [("", True), ("SSH-", True), ("220 ", False), ("SSH-2.0-OpenSSH_9.9\r\nand more", False)],
)
def test_open_port_answers_with_its_banner(tried: Tried, banner: str, *, answers: bool) -> None:
    assert tried.prober.answers(HOST, tried.up, banner) is answers
    assert not tried.prober.answers(HOST, tried.down, banner)
