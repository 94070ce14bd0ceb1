"""The servers of a simulated Hetzner Cloud boot: their port answers after a while.

A server answers at its own address, in 127.0.0.0/8, as one with sshd does: with a greeting.
"""

import socketserver
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Self

from simulators.hetzner.server import SimulatedHetzner
from simulators.hetzner.wire import Request
from tests.rigs.loopback import free_ports

BOOT = timedelta(seconds=40)
GREETING = b"SSH-2.0-OpenSSH_9.9\r\n"


class Greeter(socketserver.ThreadingTCPServer):
    """Greets whoever connects to a port, and hangs up."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: str, port: int, greeting: bytes = GREETING) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.sendall(greeting)

        super().__init__((address, port), Handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        """Listen no longer."""
        self.shutdown()
        self._thread.join()
        self.server_close()


class BootingServers:
    """Opens the port of each server once it has booted, and closes it when it is gone."""

    def __init__(self, api: SimulatedHetzner, now: Callable[[], datetime]) -> None:
        (self.port,) = free_ports(1)
        self.dead: set[str] = set()
        """Names of servers whose port does not answer, or not any more."""
        self._api = api
        self._now = now
        self._open: dict[str, Greeter] = {}
        api.state.on_loopback = True
        api.watch = self._watch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for greeter in self._open.values():
            greeter.close()

    def _watch(self, when: str, request: Request) -> None:
        if when != "asked" or (request.method, request.path) != ("GET", "/servers"):
            return
        up = {
            each["public_net"]["ipv4"]["ip"]
            for each in self._api.state.servers.values()
            if each["name"] not in self.dead
            and self._now() - datetime.fromisoformat(each["created"]) >= BOOT
        }
        for address in self._open.keys() - up:
            self._open.pop(address).close()
        for address in up - self._open.keys():
            self._open[address] = Greeter(address, self.port)
