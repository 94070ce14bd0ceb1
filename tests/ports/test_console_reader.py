"""The contract of the port ConsoleReader, over every provider that keeps consoles."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fleet.clouds.aws.machines import AwsMachines
from fleet.clouds.sim.machines import Menu, SimCloud
from fleet.errors import SourceUnreachable
from fleet.ports import ConsoleReader
from tests.builders import NOW, some_inputs
from tests.fakes.aws import PROVIDER, Amazon
from tests.fakes.engine import FixedClock
from tests.rigs.local_machines import a_local_cloud, a_worker, end_machines

Made = tuple[ConsoleReader, str]


def sim(_: ExitStack, folder: Path) -> Made:
    cloud = SimCloud(folder / "cloud.json", FixedClock(NOW))
    cloud.configure(Menu(types={"ccx33": None}))
    return cloud, cloud.create(some_inputs())


def local(stack: ExitStack, folder: Path) -> Made:
    cloud = a_local_cloud(folder / "machines")
    stack.callback(end_machines, folder / "machines")
    return cloud, cloud.create(a_worker())


def aws(stack: ExitStack, _: Path) -> Made:
    amazon = stack.enter_context(Amazon())
    return AwsMachines(PROVIDER), amazon.launch("b-1", fleet="debian-ci")


@pytest.fixture(params=[sim, local, aws], ids=lambda make: make.__name__)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    make: Callable[[ExitStack, Path], Made] = request.param
    with ExitStack() as stack:
        yield make(stack, tmp_path)


def test_console_is_text(made: Made) -> None:
    reader, machine = made

    assert isinstance(reader, ConsoleReader)
    assert isinstance(reader.console(machine), str)


def test_console_of_missing_machine_is_an_error(made: Made) -> None:
    with pytest.raises(SourceUnreachable):
        made[0].console("i-0123456789abcdef0")
