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


def test_open_port_answers(tried: Tried) -> None:
    assert tried.prober.answers(HOST, tried.up, "")


def test_port_with_expected_banner_answers(tried: Tried) -> None:
    assert tried.prober.answers(HOST, tried.up, "SSH-")


@pytest.mark.parametrize("banner", ["220 ", "SSH-2.0-OpenSSH_9.9\r\nand more"])
def test_port_with_other_banner_does_not_answer(tried: Tried, banner: str) -> None:
    assert not tried.prober.answers(HOST, tried.up, banner)


def test_closed_port_does_not_answer(tried: Tried) -> None:
    assert not tried.prober.answers(HOST, tried.down, "")
