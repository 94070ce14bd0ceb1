"""This module serves in the background: from entering to leaving, in a thread of its own."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any, Self


class BackgroundServer:
    """Has a server answer while somebody is inside."""

    def __init__(self, server: HTTPServer) -> None:
        self._server = server
        self.port = server.server_port

    def __enter__(self) -> Self:
        """Begin to answer."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no longer."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class LoopbackServer(ThreadingHTTPServer):
    """Listens on the loopback; says nothing of clients that hang up, and all of its own faults."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's own types
        """Say nothing where a machine was switched off, or a test gave up."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)
