"""A server in the background answers from entering to leaving, and leaves nothing behind."""

import socket
import threading
from http.server import SimpleHTTPRequestHandler

import pytest

from fleet.queues.http import BackgroundServer, LoopbackServer


def test_threads_end_when_the_block_fails() -> None:
    before = set(threading.enumerate())

    with (
        pytest.raises(ZeroDivisionError),
        BackgroundServer(LoopbackServer(SimpleHTTPRequestHandler)),
    ):
        raise ZeroDivisionError

    # One that answered an earlier test may end meanwhile.
    assert set(threading.enumerate()) <= before


def test_server_answers_only_while_block_runs() -> None:
    with BackgroundServer(LoopbackServer(SimpleHTTPRequestHandler)) as server:
        socket.create_connection(("127.0.0.1", server.port)).close()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port))
