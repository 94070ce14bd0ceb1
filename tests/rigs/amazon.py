"""Play AWS at the time of a story, with instances that boot.

Once it has booted, sshd's port answers at the instance's own address, in 127.0.0.0/8.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from typing import Any, Self

import time_machine
from werkzeug.serving import make_server

from tests.rigs.booting import BOOT, Greeter

PORT = 22
NETWORK = "127.19.0.0/16"


class BootingAmazon(AbstractContextManager["BootingAmazon"]):
    """moto at `endpoint`; all that it notes happens when the story says."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        from moto.moto_server.werkzeug_app import (
            DomainDispatcherApplication,
            create_backend_app,
        )

        self._app = DomainDispatcherApplication(create_backend_app)
        self._now = now
        self._open: dict[str, Greeter] = {}
        self._server = make_server("127.0.0.1", 0, self._answer)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for greeter in self._open.values():
            greeter.close()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        self._boot()
        with time_machine.travel(self._now(), tick=False):
            return list(self._app(environ, start))

    def _boot(self) -> None:
        from moto.ec2.models import ec2_backends

        own = ip_network(NETWORK)
        up = {
            str(each.private_ip)
            for regions in ec2_backends.values()
            for backend in regions.values()
            for each in backend.all_instances()
            if each.private_ip
            and ip_address(each.private_ip) in own
            and each.state == "running"
            and self._now() - _aware(each.launch_time) >= BOOT
        }
        for address in self._open.keys() - up:
            self._open.pop(address).close()
        for address in up - self._open.keys():
            self._open[address] = Greeter(address, PORT)


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)
