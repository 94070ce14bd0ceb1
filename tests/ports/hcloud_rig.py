"""Drive the real engine with Hetzner's real provider over the simulated API."""

import multiprocessing
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleet.clouds.hcloud.machines import HcloudMachines
from fleet.engines.projects import ProviderAccount
from fleet.engines.pulumi import PulumiEngine
from fleet.model.facts import WorkerInputs
from simulators.hetzner.server import SimulatedHetzner
from simulators.hetzner.wire import Request
from tests.ports.engines import (
    REF,
    id_in,
    kill_family,
    names_in,
    quiet,
    sha256_of,
    skip_without_cli,
)
from tests.rigs.hetzner import a_server

NOTES = {"expires": "20261122T090000Z", "commit": "0123456"}
PLUGIN = "pulumi-resource-hcloud"


class HcloudRig:
    """The real engine and the real provider; their cloud is simulated."""

    ref = REF.altered(project="hcloud")

    def __init__(self, folder: Path, api: SimulatedHetzner) -> None:
        self.folder = folder
        self.api = api
        self.cloud = HcloudMachines(api.token, base_url=api.endpoint)
        self.engine = an_engine(folder, api.endpoint, api.token)
        self.blocker: dict[str, object] = {}

    def machines(self) -> list[str]:
        return names_in(self.cloud)

    def given(self, worker: str) -> str:
        return sha256_of(self.api.state.user_data.get(int(id_in(self.cloud, worker)), ""))

    def refuse(self, worker: str) -> None:
        self.blocker = a_server(self.api, name=worker, labels={"fleet": "somebody-else"})

    def heal(self) -> None:
        self._remove(self.blocker["id"])

    def lose(self, worker: str) -> None:
        self._remove(int(id_in(self.cloud, worker)))

    def die_making(self, worker: str, workers: Sequence[WorkerInputs]) -> None:
        """Kill the CLI, its plugin and its parent when the server is made, before the answer."""
        made = threading.Event()
        killed = threading.Event()

        def watch(when: str, request: Request) -> None:
            if when == "done" and request.method == "POST" and request.path == "/servers":
                made.set()
                killed.wait(300)

        self.api.watch = watch
        child = multiprocessing.get_context("spawn").Process(
            target=_up_in_a_child,
            args=(self.folder, self.api.endpoint, self.api.token, list(workers)),
        )
        child.start()
        assert made.wait(300), f"{worker} was to be made"
        kill_family(child.pid or 0)
        killed.set()
        child.join()
        child.close()
        self.api.watch = lambda _, __: None

    def labels(self, worker: str) -> dict[str, str]:
        """Return the labels that a server has."""
        server = self.api.state.resources["servers"][int(id_in(self.cloud, worker))]
        return dict(server["labels"])

    def _remove(self, server_id: object) -> None:
        self.cloud.delete(str(server_id))


def an_engine(folder: Path, endpoint: str, token: str) -> PulumiEngine:
    """Return the real engine as fleet wires it for Hetzner."""
    account = ProviderAccount(
        HcloudMachines(token, base_url=endpoint),
        environment=lambda: {"HCLOUD_TOKEN": token, "HCLOUD_ENDPOINT": endpoint},
        inputs={"notes": NOTES},
    )
    return PulumiEngine(
        f"file://{folder / 'state'}",
        folder / "home",
        lambda: "a passphrase for tests",
        {"desk": account, "hetzner": account},
    )


def skip_without_plugin() -> None:
    """Skip a test loudly where the Pulumi CLI or Hetzner's plugin is absent."""
    skip_without_cli()
    named = os.environ.get("FLEET_PULUMI_PLUGINS", "")
    if shutil.which(PLUGIN, path=os.pathsep.join((named, os.environ.get("PATH", "")))) is None:
        pytest.skip(f"Hetzner's provider is NOT TESTED: {PLUGIN} is not here")


def _up_in_a_child(folder: Path, endpoint: str, token: str, workers: list[WorkerInputs]) -> None:
    an_engine(folder, endpoint, token).up(REF.altered(project="hcloud"), workers, quiet)
