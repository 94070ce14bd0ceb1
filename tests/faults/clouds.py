"""The clouds that trials of faults are made at: simulated, on the loopback."""

import copy
import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from simulators.hetzner.project import Project
from simulators.hetzner.server import SimulatedHetzner
from simulators.hetzner.wire import Request
from tests.fakes.aws import PROVIDER, aws_environment, install_double
from tests.fakes.aws_api import SimulatedAws

Watch = Callable[[str], None]


class Api(Protocol):
    """What plays a cloud, on the loopback."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *reason: object) -> None: ...

    def heal(self) -> None:
        """Have nothing fail any more."""


class Cloud(Protocol):
    """A cloud that can be looked into, copied and told to fail."""

    api: Api
    provider: ClassVar[str]
    """What fleet.yaml says of it."""
    image: ClassVar[str]
    machine: ClassVar[str]
    create: ClassVar[str]
    """The request that makes a machine, as moments are called."""
    delete: ClassVar[str]
    watch: Watch
    """Called with "asked REQUEST" before each request is answered, "done REQUEST" after its deed;
    a ConnectionAbortedError from the first has it be neither done nor answered."""

    def __enter__(self) -> Self:
        self.api.__enter__()
        return self

    def __exit__(self, *reason: object) -> None:
        self.api.__exit__(*reason)

    def heal(self) -> None:
        """Have nothing fail any more."""
        self.api.heal()

    def environment(self, folder: Path) -> Mapping[str, str]:
        """Return what fleet needs in its environment; the folder is the trial's own."""

    def machines(self) -> list[tuple[str, str]]:
        """Return the names and ids of the machines that exist, sorted."""

    def given(self, name: str) -> str:
        """Return the user data of a machine."""

    def vanish(self, *names: str) -> None:
        """Take machines away, as anybody with the credentials can."""

    def date(self, moment: datetime, *names: str) -> None:
        """Have machines be made at another moment."""

    def contents(self) -> object:
        """Return a copy of all that is there."""

    def fill(self, contents: Any) -> None:  # noqa: ANN401 - what another of its kind has returned
        """Have this be there, and nothing else."""


class Hetzner(Cloud):
    """Hetzner Cloud, with its real provider."""

    provider = "{kind: hcloud, location: fsn1, token: {env: HCLOUD_TOKEN}}"
    image = "debian-13"
    machine = "{type: [ccx33, ccx43]}"
    create, delete = "POST /servers", "DELETE /servers/ID"

    def __init__(self) -> None:
        self.api: SimulatedHetzner = SimulatedHetzner()
        self.watch: Watch = lambda _: None
        self.api.watch = lambda when, request: self.watch(f"{when} {_name_of(request)}")

    def environment(self, folder: Path) -> Mapping[str, str]:
        """Return the endpoint, the token and the plugin."""
        assert folder.is_dir()
        return {
            "HCLOUD_ENDPOINT": self.api.endpoint,
            "HCLOUD_TOKEN": self.api.token,
            "FLEET_PULUMI_PLUGINS": os.environ["FLEET_PULUMI_PLUGINS"],
        }

    def machines(self) -> list[tuple[str, str]]:
        """Return the servers."""
        servers = self.api.state.servers.items()
        return sorted((each["name"], str(number)) for number, each in servers)

    def given(self, name: str) -> str:
        """Return the user data of a server."""
        return self.api.state.user_data[self._number_of(name)]

    def vanish(self, *names: str) -> None:
        """Take servers away."""
        for name in names:
            del self.api.state.servers[self._number_of(name)]

    def date(self, moment: datetime, *names: str) -> None:
        """Have servers be created at another moment."""
        for name in names:
            server = self.api.state.servers[self._number_of(name)]
            server["created"] = moment.isoformat(timespec="seconds")

    def contents(self) -> Project:
        """Return a copy of the project."""
        return copy.deepcopy(self.api.state)

    def fill(self, contents: Project) -> None:
        """Have this project be there."""
        self.api.state = copy.deepcopy(contents)

    def _number_of(self, name: str) -> int:
        servers = self.api.state.servers.items()
        return next(number for number, each in servers if each["name"] == name)


class Aws(Cloud):
    """AWS, with a double of its provider."""

    provider = f"{{kind: aws, region: {PROVIDER.region}}}"
    image = "ami-12345678"
    machine = "{type: [c7a.2xlarge, c7a.4xlarge], disk: 40GiB, market: [spot, on-demand]}"
    create, delete = "RunInstances", "TerminateInstances"

    def __init__(self) -> None:
        self.api: SimulatedAws = SimulatedAws()
        self.watch: Watch = lambda _: None
        self.api.watch = lambda when, action: self.watch(f"{when} {action}")

    def environment(self, folder: Path) -> Mapping[str, str]:
        """Return the endpoint, credentials and the double."""
        plugins = folder / "plugins"
        plugins.mkdir(exist_ok=True)
        install_double(plugins)
        return {
            **aws_environment(self.api.url),
            "AWS_MAX_ATTEMPTS": "3",
            "FLEET_PULUMI_PLUGINS": str(plugins),
            "FLEET_AWS_DOUBLE": str(folder),
            # The SDK warns of names that nobody here uses.
            "PYTHONWARNINGS": "error,ignore:aws.:DeprecationWarning",
        }

    def machines(self) -> list[tuple[str, str]]:
        """Return the instances."""
        return self.api.named()

    def given(self, name: str) -> str:
        """Return the user data of an instance."""
        return self.api.given(name)

    def vanish(self, *names: str) -> None:
        """Terminate instances."""
        self.api.end(*names)

    def date(self, moment: datetime, *names: str) -> None:
        """Have instances be launched at another moment."""
        self.api.launched(moment, *names)

    def contents(self) -> Mapping[str, Any]:
        """Return a copy of the account."""
        return self.api.contents()

    def fill(self, contents: Mapping[str, Any]) -> None:
        """Have another account's contents be there."""
        self.api.fill(contents)


def _name_of(request: Request) -> str:
    """Return the name of a request, the same in every run."""
    words = ["ID" if each.isdecimal() else each for each in request.path.split("/")]
    return f"{request.method} {'/'.join(words)}"
