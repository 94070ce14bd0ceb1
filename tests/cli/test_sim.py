"""`fleet sim hcloud`: Hetzner's API on this computer, until Ctrl-C."""

import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.rigs.process import RunFleet, clean_environment, fleet_command

SERVER = {"name": "one", "server_type": "ccx13", "image": "debian-13"}


class Running:
    """A simulation that runs as a process, and what it has said so far."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*fleet_command(), "sim", "hcloud", *arguments],
            cwd=folder,
            env=clean_environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = [self.process.stdout.readline() for _ in range(5)]
        exports = dict(re.findall(r"export (\w+)=(\S+)", "".join(self.said)))
        self.endpoint = exports["HCLOUD_ENDPOINT"]
        self.headers = {"Authorization": f"Bearer {exports['HCLOUD_TOKEN']}"}

    def interrupt(self) -> tuple[str, int]:
        """Press Ctrl-C; return what is said then, and the exit code."""
        self.process.send_signal(signal.SIGINT)
        _, noted = self.process.communicate(timeout=60)
        return noted, self.process.returncode


@pytest.fixture
def simulate(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    begun: list[Running] = []

    def begin(*arguments: str) -> Running:
        begun.append(Running(tmp_path, *arguments))
        return begun[-1]

    yield begin
    for each in begun:
        each.process.kill()
        each.process.communicate()


def test_it_says_how_to_ask_it_and_ends_with_ctrl_c(simulate: Callable[..., Running]) -> None:
    running = simulate()

    listed = httpx.get(f"{running.endpoint}/servers", headers=running.headers)
    ended = running.interrupt()

    assert listed.json()["servers"] == []
    assert ended == ("ended; 0 servers are forgotten\n", 0)


def test_what_exists_may_outlive_it(simulate: Callable[..., Running]) -> None:
    first = simulate("--state", "cloud.json")
    made = httpx.post(f"{first.endpoint}/servers", json=SERVER, headers=first.headers)
    ended = first.interrupt()

    second = simulate("--state", "cloud.json")
    listed = httpx.get(f"{second.endpoint}/servers", headers=second.headers).json()

    assert (made.status_code, ended) == (201, ("ended; 1 servers are kept in cloud.json\n", 0))
    assert [server["name"] for server in listed["servers"]] == ["one"]


def test_a_port_that_is_taken_is_named(run_fleet: RunFleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        refused = run_fleet("sim", "hcloud", "--port", str(port))

    assert refused.returncode == 1
    assert f"port {port} of this computer cannot be listened at (Address already" in refused.stderr


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_a_port_that_is_none_is_wrong_usage(run_fleet: RunFleet, port: str) -> None:
    refused = run_fleet("sim", "hcloud", f"--port={port}")

    assert refused.returncode == 2
    assert len(refused.stderr) < 500
