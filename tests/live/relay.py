"""Stand between a program and a server on loopback, and get in the way on demand."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK = 65536


class Relay:
    """Passes connections on to a port; may cut them all, or hold back what begins in one way."""

    def __init__(self, target: int, *, held: bytes = b"") -> None:
        """Pass on to the port `target`; `hold` stops what a client sends beginning with `held`."""
        self._target = target
        self._held = held
        self._free = threading.Event()
        self._free.set()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._accept()

    def close(self) -> None:
        """Listen no more and end every connection."""
        self._free.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in tuple(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Have every connection end and every new one refused meanwhile."""
        self.close()
        try:
            yield
        finally:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._accept()

    def hold(self) -> None:
        """Hold back from now on what begins as agreed."""
        self._free.clear()

    def release(self) -> None:
        """Let it pass again."""
        self._free.set()

    def _accept(self) -> None:
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                for ends in ((client, server, self._held), (server, client, b"")):
                    self._open.add(ends[0])
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, held: bytes) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if held and chunk.startswith(held):
                    self._free.wait()
                sink.sendall(chunk)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()
