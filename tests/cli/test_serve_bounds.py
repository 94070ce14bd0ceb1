"""`fleet serve` where few files may be open: it refuses at once what is too much, and goes on."""

import json
import resource
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fleet.errors import Locked
from fleet.tickets.xml_rpc import Health
from tests.builders import NOW
from tests.cli.test_serve import POOLS, TAGS
from tests.fakes.engine import FixedClock
from tests.rigs.local_machines import until
from tests.rigs.process import clean_environment, fleet_command
from tests.rigs.resalloc_client import OldClient
from tests.rigs.trial import Trial, fleet_yaml


class Served:
    """The service as a process of its own, at `url`."""

    def __init__(self, project: Path, home: Path, most: int) -> None:
        trial = Trial(project)
        pools = {name: pool.replace("max: 4", "max: 1") for name, pool in POOLS.items()}
        trial.write(fleet_yaml(pools=pools, queue="{kind: tickets}", desk="boot: 1s", more=TAGS))
        trial.init()
        limits = (min(most, 1024), most)
        self.process = subprocess.Popen(
            [*fleet_command(), "serve", "--listen", "127.0.0.1:0", "--every", "1s"],
            cwd=project,
            env=clean_environment(home),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),  # noqa: PLW1509 - no thread holds a lock here
        )
        assert self.process.stderr is not None
        line = next(line for line in self.process.stderr if line.startswith(b"listening at "))
        self.url = line.split()[2].decode()
        self.said: list[bytes] = []
        self._listener = threading.Thread(target=lambda: self.said.extend(self._stderr()))
        self._listener.start()

    def _stderr(self) -> Iterator[bytes]:
        assert self.process.stderr is not None
        yield from self.process.stderr

    def open_files(self) -> int:
        return len([*Path(f"/proc/{self.process.pid}/fd").iterdir()])

    def end(self) -> str:
        self.process.terminate()
        try:
            self.process.wait(60)
        finally:
            # Without it, the thread that reads its errors would keep pytest from ending.
            self.process.kill()
        self._listener.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return b"".join(self.said).decode()


def overwhelm(served: Served, half_open: int, waiting: int) -> None:
    """Open connections that say nothing, have others wait for tickets, and let all go."""
    host, _, port = served.url.removeprefix("http://").partition(":")
    client = OldClient(served.url)
    number = client.take("extra_powerful")
    until(lambda: client.collect(number)["ready"])
    waits = client.take("extra_powerful")
    before = served.open_files()
    body = client_call("waitTicket", waits)
    with ExitStack() as held:
        for count, said in ((waiting, body), (half_open, b"POST / HT")):
            for _ in range(count):
                opened = held.enter_context(socket.create_connection((host, int(port)), 30))
                with suppress(OSError):
                    opened.sendall(said)
        assert served.process.poll() is None
    until(lambda: served.open_files() <= before + 2, 60)
    assert isinstance(client.take("extra_powerful"), int)


def client_call(name: str, number: int) -> bytes:
    text = (
        f"<?xml version='1.0'?><methodCall><methodName>{name}</methodName><params><param><value>"
        f"<int>{number}</int></value></param></params></methodCall>"
    ).encode()
    return b"POST /RPC2 HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(text) + text


@pytest.mark.parametrize(
    ("most", "half_open", "waiting"),
    [
        pytest.param(300, 60, 120, marks=pytest.mark.slow),
        pytest.param(1024, 1100, 1100, marks=pytest.mark.crowd),
    ],
)
def test_serve_refuses_excess_connections_and_continues(
    project: Path, tmp_path: Path, most: int, half_open: int, waiting: int
) -> None:
    (tmp_path / "home").mkdir()
    served = Served(project, tmp_path / "home", most)
    try:
        overwhelm(served, half_open, waiting)
        with urlopen(f"{served.url}/healthz", timeout=30) as answer:  # noqa: S310 - http
            assert json.load(answer)["failed_runs_in_a_row"] == 0
    finally:
        said = served.end()

    assert served.process.returncode == 0
    assert "Traceback" not in said


def test_health_counts_runs_in_a_row_that_failed() -> None:
    health = Health(FixedClock(NOW))

    for _ in range(3):
        assert health.tell()[0]
        with pytest.raises(OSError, match="a defect"), health.run():
            raise OSError("a defect")
    with pytest.raises(Locked), health.run():
        raise Locked("another run")
    assert health.tell() == (False, {"failed_runs_in_a_row": 3, "last_run_ended": None})

    with health.run():
        pass
    told = {"failed_runs_in_a_row": 0, "last_run_ended": NOW.isoformat()}
    assert health.tell() == (True, told)


@pytest.mark.slow
def test_serve_answers_get_requests_only_for_health(project: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    served = Served(project, tmp_path / "home", 1024)
    try:
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{served.url}/tickets", timeout=30)  # noqa: S310 - http
        assert refused.value.code == 404
        refused.value.close()
    finally:
        served.end()
