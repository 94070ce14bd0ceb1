"""A way to a PostgreSQL that can be cut: what is open breaks off."""

import contextlib
import socket
import socketserver
import threading
from pathlib import Path
from typing import Self

_NAME = ".s.PGSQL.5432"


class Gateway:
    """A folder with a socket that leads to the one of a server."""

    def __init__(self, folder: Path, server: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._server = server / _NAME
        self._open: list[socket.socket] = []
        self._listening: socketserver.ThreadingUnixStreamServer | None = None

    def lead(self) -> Self:
        """Let through whoever comes."""
        gateway = self

        class Passage(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                gateway.pass_on(self.request)

        self._listening = _Server(str(self.folder / _NAME), Passage)
        threading.Thread(target=self._listening.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def cut(self) -> None:
        """Break off what is open, and let nobody through."""
        if self._listening:
            self._listening.shutdown()
            self._listening.server_close()
            (self.folder / _NAME).unlink()
        self._listening = None
        while self._open:
            with contextlib.suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def pass_on(self, client: socket.socket) -> None:
        """Carry what two ends say to each other, until either is silent for ever."""
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(str(self._server))
            self._open += [client, server]
            back = threading.Thread(target=_carry, args=(server, client), daemon=True)
            back.start()
            _carry(client, server)
            back.join()


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False


def _carry(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while said := one.recv(65536):
            other.sendall(said)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_WR)
