"""`python -m simulators.hetzner`: Hetzner's API on this computer, until Ctrl-C."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.rigs.process import ROOT, Completed, clean_environment, run_process
from tests.rigs.repeats import slow_but

COMMAND = (sys.executable, "-m", "simulators.hetzner")
SERVER = {"name": "one", "server_type": "ccx13", "image": "debian-13"}


def environment(folder: Path) -> dict[str, str]:
    return clean_environment(folder, {"PYTHONPATH": str(ROOT)})


class Running:
    """A simulation that runs as a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            env=environment(folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        printed = "".join(self.process.stdout.readline() for _ in range(5))
        exports = dict(re.findall(r"export (\w+)=(\S+)", printed))
        self.endpoint = exports["HCLOUD_ENDPOINT"]
        self.headers = {"Authorization": f"Bearer {exports['HCLOUD_TOKEN']}"}

    def interrupt(self) -> tuple[str, int]:
        """Press Ctrl-C; return what is printed to standard error, and the exit code."""
        self.process.send_signal(signal.SIGINT)
        _, printed = self.process.communicate(timeout=60)
        return printed, self.process.returncode


@pytest.fixture
def simulate(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        started.append(Running(tmp_path, *arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def run(folder: Path, *arguments: str) -> Completed:
    return run_process(*COMMAND, *arguments, cwd=folder, env=environment(folder))


@pytest.mark.slow
def test_simulator_prints_usage_and_stops_with_ctrl_c(simulate: Callable[..., Running]) -> None:
    running = simulate()

    listed = httpx.get(f"{running.endpoint}/servers", headers=running.headers)
    printed, code = running.interrupt()

    assert listed.json()["servers"] == []
    assert code == 0
    assert "0 servers" in printed


@pytest.mark.slow
def test_state_file_keeps_resources_after_restart(simulate: Callable[..., Running]) -> None:
    first = simulate("--state", "cloud.json")
    made = httpx.post(f"{first.endpoint}/servers", json=SERVER, headers=first.headers)
    printed, code = first.interrupt()

    second = simulate("--state", "cloud.json")
    listed = httpx.get(f"{second.endpoint}/servers", headers=second.headers).json()

    assert (made.status_code, code) == (201, 0)
    assert re.search(r"1 servers .*cloud\.json", printed)
    assert [server["name"] for server in listed["servers"]] == ["one"]


@pytest.mark.slow
def test_error_names_port_in_use_or_invalid_state_file(tmp_path: Path) -> None:
    (tmp_path / "cloud.json").write_text("{}", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        refused = run(tmp_path, "--port", str(port))
    invalid = run(tmp_path, "--state", "cloud.json")

    assert (refused.returncode, invalid.returncode) == (1, 1)
    assert f"port {port} " in refused.stderr
    assert "Address already in use" in refused.stderr
    assert invalid.stderr.startswith("cloud.json ")


@pytest.mark.parametrize("port", slow_but(["http"], ["65536", "-1", "http"]))
def test_wrong_port_is_a_usage_error(tmp_path: Path, port: str) -> None:
    refused = run(tmp_path, f"--port={port}")

    assert refused.returncode == 2
    assert len(refused.stderr) < 500
