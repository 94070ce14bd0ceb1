"""XML-RPC over HTTP: what is no call is refused in a sentence, and costs little."""

import socket
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from select import select
from typing import Any
from urllib.parse import urlsplit
from xmlrpc.client import Fault, ProtocolError, dumps

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.tickets.connections import MOST_BYTES, Bounds, Places
from fleet.tickets.refusals import WrongTokens
from fleet.tickets.xml_rpc import XmlRpcServer, find_client, read_call
from tests.rigs.local_machines import until
from tests.rigs.resalloc_client import OldClient

BOMB = """<?xml version="1.0"?>
<!DOCTYPE bomb [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;">]>
<methodCall><methodName>takeTicket</methodName><params><param><value>&d;</value></param></params>
</methodCall>"""
OUTSIDE = """<!DOCTYPE x [<!ENTITY file SYSTEM "file:///etc/passwd">]>
<methodCall><methodName>&file;</methodName></methodCall>"""
CALL_OF_INT = (
    b"<methodCall><methodName>x</methodName><params><param><value><int>%s</int></value></param>"
    b"</params></methodCall>"
)
TOKENS = {"copr": "an-invented-token", "empty": ""}


def echo(client: str, name: str, arguments: Sequence[Any]) -> object:
    """Answer with what was asked, and by whom."""
    return [client, name, *arguments]


@pytest.fixture(scope="module")
def server() -> Iterator[XmlRpcServer]:
    with XmlRpcServer(("127.0.0.1", 0), echo) as running:
        yield running


def send(server: XmlRpcServer, *pieces: bytes) -> bytes:
    """Send bytes as they are, and return all that comes back."""
    at = urlsplit(server.url)
    with socket.create_connection((at.hostname, at.port or 0), timeout=10) as connection:
        for piece in pieces:
            connection.sendall(piece)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


def connected(server: XmlRpcServer) -> socket.socket:
    at = urlsplit(server.url)
    return socket.create_connection((at.hostname, at.port or 0), timeout=10)


def post(body: bytes, *headers: str) -> bytes:
    """Return a request."""
    lines = ["POST /RPC2 HTTP/1.0", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def basic(said: str) -> str:
    """Return what a client with a name and a token in its URL sends."""
    return f"Basic {b64encode(said.encode()).decode()}"


def test_invalid_xml_characters_are_replaced() -> None:
    """A command of one's own may colour what it prints of a machine."""
    said = "host: \x1b[32mbuilder-1\x1b[0m\x00 \udcff\n"
    with XmlRpcServer(("127.0.0.1", 0), lambda *_: said) as server:
        answer = OldClient(server.url).call("collectTicket", 1)

    assert answer == "host: \ufffd[32mbuilder-1\ufffd[0m\ufffd \ufffd\n"


@pytest.mark.parametrize(
    "body",
    [
        BOMB.encode(),
        OUTSIDE.encode(),
        b"",
        b"no XML",
        b"<methodCall>",
        b"\xff\xfe\x00",
        CALL_OF_INT % b"x",
        b"<methodCall><params/></methodCall>",
        b"<methodResponse><params/></methodResponse>",
        b"<a/>",
        CALL_OF_INT % (b"9" * 10_000),
        b"<value>" * 9_000,
        dumps(Fault(1, "x")).encode(),
        dumps(Fault(1, "x")).encode().replace(b"<int>1<", b"<int>%d<" % (1 << 40)),
    ],
)
def test_invalid_call_gets_a_fault(body: bytes, server: XmlRpcServer) -> None:
    answer = send(server, post(body))

    assert answer.startswith(b"HTTP/1.0 200")
    assert b"<fault>" in answer
    assert (b"document type" in answer) == (b"<!DOCTYPE" in body)


@given(
    st.lists(
        st.sampled_from(
            [
                *(
                    f"<{slash}{tag}>"
                    for slash in ("", "/")
                    for tag in (
                        "methodCall",
                        "methodName",
                        "params",
                        "param",
                        "value",
                        "array",
                        "data",
                        "struct",
                        "member",
                        "name",
                        "int",
                        "string",
                        "boolean",
                        "double",
                        "base64",
                        "nil",
                        "fault",
                        "dateTime.iso8601",
                        "bigdecimal",
                        "methodResponse",
                    )
                ),
                "1",
                "x",
                " ",
                "&amp;",
                "&x;",
                "é",
            ]
        )
    )
)
def test_any_request_is_a_call_or_a_fault(pieces: list[str]) -> None:
    with suppress(Fault):
        name, _ = read_call("".join(pieces).encode())
        assert isinstance(name, str)


def test_other_method_than_post_is_refused(server: XmlRpcServer) -> None:
    for line, status in ((b"GET /", b"404"), (b"PUT /", b"501"), (b"GET /healthz", b"200")):
        assert status in send(server, line + b" HTTP/1.0\r\n\r\n").splitlines()[0]


def test_calls_above_the_limit_are_refused_and_retried() -> None:
    free = threading.Event()

    def answer(client: str, name: str, arguments: Sequence[Any]) -> object:
        free.wait(30)
        return echo(client, name, arguments)

    with XmlRpcServer(("127.0.0.1", 0), answer, bounds=Bounds(calls=1)) as server:
        with connected(server) as held:
            held.sendall(post(dumps((), "x").encode()))
            until(lambda: send(server, post(dumps((), "x").encode())).startswith(b"HTTP/1.0 503"))
            free.set()

        assert OldClient(server.url, patience=100_000).call("x") == ["anybody 127.0.0.1", "x"]


def test_slow_client_has_limited_time() -> None:
    with XmlRpcServer(("127.0.0.1", 0), echo, bounds=Bounds(patience=0.2)) as server:
        at = urlsplit(server.url)
        with socket.create_connection((at.hostname, at.port or 0), timeout=10) as connection:
            letters = 0
            with suppress(BrokenPipeError, ConnectionResetError):
                while letters < 200 and not select([connection], [], [], 0.02)[0]:
                    connection.sendall(b"P")
                    letters += 1

    assert 0 < letters < 200


def threads() -> int:
    return threading.active_count()


SILENT = {
    "nothing": b"",
    "half a line": b"POST / HT",
    "headers without an end": b"POST / HTTP/1.0\r\nContent-Length: 60000\r\n",
    "half a body": b"POST / HTTP/1.0\r\nContent-Length: 60000\r\n\r\n<method",
    "a body too long": b"POST / HTTP/1.0\r\nContent-Length: 90000000\r\n\r\n<method",
}


@pytest.mark.parametrize("said", SILENT)
def test_silent_connections_use_no_thread_and_no_capacity(said: str) -> None:
    with (
        XmlRpcServer(("127.0.0.1", 0), echo, bounds=Bounds(calls=4, idle=30)) as server,
        ExitStack() as held,
    ):
        before = threads()
        for _ in range(60):
            silent = held.enter_context(connected(server))
            with suppress(OSError):
                silent.sendall(SILENT[said])

        assert threads() <= before + 1
        assert OldClient(server.url).call("x") == ["anybody 127.0.0.1", "x"]


def test_wrong_tokens_are_counted_reported_and_delayed() -> None:
    noted: list[str] = []
    wrong = post(dumps((), "x").encode(), f"Authorization: {basic('copr:wrong')}")
    right = post(dumps((), "x").encode(), f"Authorization: {basic('copr:an-invented-token')}")
    with XmlRpcServer(("127.0.0.1", 0), echo, tokens=TOKENS, note=noted.append) as server:
        took = [timed(lambda: send(server, wrong)) for _ in range(5)]

        assert all(answer.startswith(b"HTTP/1.0 401") for _, answer in took)
        assert took[4][0] > 0.7 > took[0][0]
        assert send(server, right).startswith(b"HTTP/1.0 200")
        assert server.wrong_tokens == 5
    assert [line for line in noted if "127.0.0.1" in line] == noted
    assert len(noted) == 1
    assert not any("an-invented-token" in line or "wrong token in 5" in line for line in noted)


def timed(act: Callable[[], bytes]) -> tuple[float, bytes]:
    began = time.monotonic()
    answer = act()
    return time.monotonic() - began, answer


@pytest.mark.parametrize("clients", [1, 2, 5, 30])
def test_capacity_remains_when_every_client_uses_its_maximum(clients: int) -> None:
    places = Places(100)
    held = Counter(
        name for _ in range(100) for name in map(str, range(clients)) if places.take(name)
    )

    assert places.take("newcomer")
    assert held.total() < 100
    assert max(held.values()) - min(held.values()) <= 2
    for name, many in held.items():
        for _ in range(many):
            places.release(name)
    assert sum(places.take("again") for _ in range(100)) == 75


def test_call_gets_a_response_in_any_pieces(server: XmlRpcServer) -> None:
    with connected(server) as aborted:
        aborted.sendall(b"POST / HTTP/1.0\r\nContent-Length: 100\r\n\r\n<method")
    answer = OldClient(server.url).call("anything", 1, "a", ["b"], {"c": False})
    assert answer == ["anybody 127.0.0.1", "anything", 1, "a", ["b"], {"c": False}]

    whole = post(dumps(("a",), "x").encode())
    letters = [whole[at : at + 1] for at in range(len(whole))]
    for pieces in (letters, [whole.replace(b"Length: ", b"Length: 0000000000")]):
        assert b"anybody 127.0.0.1" in send(server, *pieces)


@pytest.mark.parametrize(
    ("length", "status"),
    [
        *((length, 413) for length in ("1000000000", "1" * 30, "9" * 5_000)),
        *((length, 411) for length in ("", "-1", "x", "²")),
    ],
)
def test_call_without_a_possible_length_is_refused(
    length: str, status: int, server: XmlRpcServer
) -> None:
    head = f"POST / HTTP/1.0\r\nContent-Length: {length}\r\n\r\n".encode("latin-1")
    body = b"a" * 2**20 if status == 413 else b""

    assert send(server, head, body).startswith(b"HTTP/1.0 %d" % status)
    with pytest.raises(ProtocolError) as caught:
        OldClient(server.url).call("x", "a" * MOST_BYTES)
    assert caught.value.errcode == 413


@pytest.mark.parametrize(
    "said",
    [
        *(None, "", "Basic x", "Basic ÿ", "Bearer an-invented-token"),
        *(basic(f"{name}:{token}") for name, token in (("copr", "wrong"), ("copr", ""))),
        *(basic("empty:"), basic("nobody:an-invented-token"), basic(":")),
        f"Basic {b64encode(bytes([255])).decode()}",
    ],
)
def test_client_without_valid_token_is_unknown(said: str | None) -> None:
    assert find_client(said, TOKENS) is None
    assert find_client(basic("copr:an-invented-token"), TOKENS) == "copr"
    assert find_client(None, {}) == "anybody"


def test_call_without_token_gets_401_and_is_not_counted() -> None:
    with XmlRpcServer(("127.0.0.1", 0), echo, tokens=TOKENS) as server:
        answer = send(server, post(dumps((), "x").encode()))

        assert answer.startswith(b"HTTP/1.0 401")
        assert b"NAME:TOKEN" in answer
        assert server.wrong_tokens == 0


def test_wrong_tokens_are_reported_in_one_line_and_delayed() -> None:
    noted: list[str] = []
    wrong = WrongTokens(noted.append)

    for number in range(500):
        wrong.count(f"2001:db8:{number:x}::{number}", number / 100)
    wrong.report(70.0)
    delays = [wrong.count("192.0.2.1", 71.0) for _ in range(20)]

    assert (len(noted), "499" in noted[1], wrong.total) == (2, True, 520)
    assert (delays[:3], delays[-1]) == ([0, 0, 0], 8)
    assert wrong.count("192.0.2.2", 71.0) == wrong.count("192.0.2.1", 170.0) == 0
