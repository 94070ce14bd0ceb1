"""What a look at the ports of `ready` says of machines, over listings of Hetzner and AWS alike."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from fleet.clouds.aws.machines import AwsMachines
from fleet.clouds.hcloud.machines import HcloudMachines
from fleet.clouds.ready import CheckStorage, ReadyLooks
from fleet.model.facts import Listing, Machine, Unknown
from fleet.ports import Provider
from fleet.schema.model import Fleet
from fleet.state.store import Store
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW, a_listing, a_machine, a_pool
from tests.builders.sentences import tells
from tests.builders.ticketing import a_ticket_fleet
from tests.fakes.aws import PROVIDER, Amazon
from tests.fakes.engine import FixedClock
from tests.fakes.prober import FakeProber
from tests.rigs.hetzner import a_server

NAME = "demo-builders-0001"
HETZNER = {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}
AMAZON = {"kind": "aws", "region": PROVIDER.region}


@dataclass
class Cloud:
    """A cloud with one machine of the pool `builders`, that runs."""

    provider: Provider
    declared: dict[str, object]


def _hcloud(stack: ExitStack) -> Cloud:
    api = stack.enter_context(SimulatedHetzner())
    a_server(api, NAME)
    machines = HcloudMachines(api.token, base_url=api.endpoint, now=lambda: NOW)
    machines.list("demo")  # it was made: from now on it runs
    return Cloud(machines, dict(HETZNER))


def _aws(stack: ExitStack) -> Cloud:
    amazon = stack.enter_context(Amazon())
    amazon.launch(NAME)
    return Cloud(AwsMachines(PROVIDER, now=lambda: NOW), dict(AMAZON))


@pytest.fixture(params=[_hcloud, _aws])
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    """Return each kind of cloud."""
    make: Callable[[ExitStack], Cloud] = request.param
    with ExitStack() as stack:
        yield make(stack)


class Looking:
    """Looks at the machines of one cloud, as time passes."""

    def __init__(self, cloud: Cloud, memory: Callable[[str], CheckStorage], ready: object) -> None:
        pool = a_pool(provider="cloud", ready=ready)
        self.fleet: Fleet = a_ticket_fleet(
            fleet="demo", providers={"cloud": cloud.declared}, pools={"builders": pool}
        )
        self.prober = FakeProber()
        self.clock = FixedClock(NOW)
        self._cloud = cloud
        self._memory = memory

    def look(self, *, tries: bool = True) -> Machine | Unknown:
        """Return the machine as the next run sees it: each begins with what is noted."""
        prober = self.prober if tries else None
        looks = ReadyLooks(self.fleet, self._memory, prober, self.clock)
        listing = looks({"cloud": self._cloud.provider.list("demo")})["cloud"]
        if isinstance(listing, Unknown):
            return listing
        (machine,) = listing.machines
        return machine

    def boot(self, greeting: str = "SSH-2.0-OpenSSH_9.9") -> None:
        """Have the machine's port answer."""
        listing = self._cloud.provider.list("demo")
        assert isinstance(listing, Listing)
        self.prober.up[listing.machines[0].address or "", 22] = greeting


def seen(machine: Machine | Unknown) -> tuple[int | None, bool]:
    assert isinstance(machine, Machine), machine
    return machine.misses, machine.was_ready


@pytest.fixture
def memory(tmp_path: Path) -> Callable[[str], CheckStorage]:
    """Return where looks are noted: in the store of a fleet."""
    store = Store(f"sqlite:///{tmp_path}/store.db", "demo")
    store.init()
    return store.looks


@pytest.fixture
def looking(cloud: Cloud, memory: Callable[[str], CheckStorage]) -> Looking:
    """Return looks at a pool that asks for ssh's greeting."""
    return Looking(cloud, memory, {"port": 22, "banner": "SSH-"})


def test_machines_are_unknown_when_no_check_can_run(
    looking: Looking, cloud: Cloud, memory: Callable[[str], CheckStorage], tmp_path: Path
) -> None:
    looking.prober.broken = True
    unasked = Looking(cloud, memory, None)
    unasked.boot()
    without_store = Store(f"sqlite:///{tmp_path}/none.db", "demo").looks

    found = looking.look()

    assert isinstance(found, Unknown)
    assert tells(found.unknown, "machines of cloud", "too many open files")
    assert (seen(unasked.look()), unasked.prober.tried) == ((None, False), [])
    looking = Looking(cloud, without_store, {"port": 22})
    assert seen(looking.look(tries=False)) == (None, False)


def test_unchecked_machine_is_unknown_without_affecting_others(
    tmp_path: Path,
) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db", "demo")
    store.init()
    fleet = a_ticket_fleet(
        fleet="demo",
        providers={"cloud": HETZNER},
        pools={"builders": a_pool(provider="cloud", ready={"port": 22})},
    )
    prober = FakeProber()
    prober.up["192.0.2.1", 22] = ""
    prober.unreachable.add("2001:db8::1")
    machines = [
        a_machine(name=f"demo-builders-{n:04}", id=str(n), pool="builders", address=address)
        for n, address in enumerate(("192.0.2.1", "2001:db8::1"), start=1)
    ]
    looks = ReadyLooks(fleet, store.looks, prober, FixedClock(NOW))

    listing = looks({"cloud": a_listing(*machines)})["cloud"]

    assert isinstance(listing, Listing)
    assert [each.misses for each in listing.machines] == [0, None]


def test_machine_is_checked_until_ready_and_then_once_a_minute(looking: Looking) -> None:
    def look_after(seconds: int) -> tuple[int | None, bool]:
        looking.clock.moment += timedelta(seconds=seconds)
        return seen(looking.look())

    first = [look_after(0), look_after(120)]
    machine = looking.look()
    looking.boot("220 mail.example.org")
    other = look_after(0)
    looking.boot()
    tried = list(looking.prober.tried)
    unchanged = seen(looking.look(tries=False))
    assert looking.prober.tried == tried
    ready = look_after(0)
    looking.prober.up.clear()
    later = [look_after(seconds) for seconds in (30, 31, 30, 31, 61)]
    looking.boot()

    assert first == [(1, False), (2, False)]
    assert isinstance(machine, Machine)
    assert machine.looked_since == NOW
    assert (other, unchanged, ready) == ((4, False), (4, False), (0, True))
    assert later == [(0, True), (1, True), (1, True), (2, True), (3, True)]
    assert look_after(61) == (0, True)
