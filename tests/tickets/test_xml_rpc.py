"""XML-RPC over HTTP: what is no call is refused in a sentence, and costs little."""

import socket
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from select import select
from typing import Any
from urllib.parse import urlsplit
from xmlrpc.client import Fault, ProtocolError, dumps

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.tickets.xml_rpc import MOST_BYTES, Bounds, XmlRpcServer, find_client, read_call
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


def post(body: bytes, *headers: str) -> bytes:
    """Return a request."""
    lines = ["POST /RPC2 HTTP/1.0", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def test_a_call_is_answered(server: XmlRpcServer) -> None:
    answer = OldClient(server.url).call("anything", 1, "a", ["b"], {"c": False})

    assert answer == ["anybody 127.0.0.1", "anything", 1, "a", ["b"], {"c": False}]


def test_what_xml_cannot_say_does_not_keep_the_rest_from_a_client() -> None:
    """A command of one's own may colour what it prints of a machine."""
    said = "host: \x1b[32mbuilder-1\x1b[0m\x00 \udcff\n"
    with XmlRpcServer(("127.0.0.1", 0), lambda *_: said) as server:
        answer = OldClient(server.url).call("collectTicket", 1)

    assert answer == "host: \ufffd[32mbuilder-1\ufffd[0m\ufffd \ufffd\n"


@pytest.mark.parametrize("body", [BOMB, OUTSIDE], ids=["bomb", "outside"])
def test_a_call_with_entities_of_its_own_is_refused_before_they_are_read(
    body: str, server: XmlRpcServer
) -> None:
    answer = send(server, post(body.encode()))

    assert b"document type" in answer


@pytest.mark.parametrize(
    "body",
    [
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
def test_what_is_no_call_is_told_so(body: bytes, server: XmlRpcServer) -> None:
    answer = send(server, post(body))

    assert answer.startswith(b"HTTP/1.0 200")
    assert b"<fault>" in answer


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
def test_whatever_is_sent_is_a_call_or_a_fault(pieces: list[str]) -> None:
    with suppress(Fault):
        name, _ = read_call("".join(pieces).encode())
        assert isinstance(name, str)


def test_a_call_that_is_too_long_is_refused(server: XmlRpcServer) -> None:
    with pytest.raises(ProtocolError) as caught:
        OldClient(server.url).call("x", "a" * MOST_BYTES)

    assert caught.value.errcode == 413


@pytest.mark.parametrize("length", ["", "-1", "x", "1" * 30, "²"])
def test_a_call_that_does_not_say_how_long_it_is_is_refused(
    length: str, server: XmlRpcServer
) -> None:
    answer = send(server, f"POST / HTTP/1.0\r\nContent-Length: {length}\r\n\r\n".encode("latin-1"))

    assert answer.startswith(b"HTTP/1.0 411")


def test_a_client_that_breaks_off_gets_no_answer_and_others_do(server: XmlRpcServer) -> None:
    at = urlsplit(server.url)
    with socket.create_connection((at.hostname, at.port or 0)) as connection:
        connection.sendall(b"POST / HTTP/1.0\r\nContent-Length: 100\r\n\r\n<method")

    assert OldClient(server.url).call("x") == ["anybody 127.0.0.1", "x"]


def test_what_is_no_post_is_refused(server: XmlRpcServer) -> None:
    for line, status in ((b"GET /", b"404"), (b"PUT /", b"501"), (b"GET /healthz", b"200")):
        assert status in send(server, line + b" HTTP/1.0\r\n\r\n").splitlines()[0]


def test_more_calls_at_once_than_may_be_are_turned_away_and_come_again() -> None:
    with XmlRpcServer(("127.0.0.1", 0), echo, bounds=Bounds(calls=1)) as server:
        at = urlsplit(server.url)
        with socket.create_connection((at.hostname, at.port or 0)):
            # Nothing is sent: who still sends while it is turned away may not hear why.
            assert send(server).startswith(b"HTTP/1.0 503")

        assert OldClient(server.url, patience=100_000).call("x") == ["anybody 127.0.0.1", "x"]


def test_a_client_that_says_a_letter_now_and_then_has_no_more_time_than_others() -> None:
    with XmlRpcServer(("127.0.0.1", 0), echo, bounds=Bounds(patience=0.2)) as server:
        at = urlsplit(server.url)
        with socket.create_connection((at.hostname, at.port or 0), timeout=10) as connection:
            letters = 0
            with suppress(BrokenPipeError, ConnectionResetError):
                while letters < 200 and not select([connection], [], [], 0.02)[0]:
                    connection.sendall(b"P")
                    letters += 1

    assert 0 < letters < 200


# who asks


def basic(said: str) -> str:
    """Return what a client with a name and a token in its URL sends."""
    return f"Basic {b64encode(said.encode()).decode()}"


def test_a_client_is_known_by_its_token() -> None:
    assert find_client(basic("copr:an-invented-token"), TOKENS) == "copr"


@pytest.mark.parametrize(
    "said",
    [
        None,
        "",
        basic("copr:wrong"),
        basic("copr:"),
        basic("empty:"),
        basic("nobody:an-invented-token"),
        basic(":"),
        "Basic x",
        "Basic ÿ",
        f"Basic {b64encode(bytes([255])).decode()}",
        "Bearer an-invented-token",
    ],
)
def test_who_has_no_token_is_nobody(said: str | None) -> None:
    assert find_client(said, TOKENS) is None


def test_where_there_are_no_tokens_everybody_is_one_client() -> None:
    assert find_client(None, {}) == "anybody"


def test_nobody_is_answered_with_what_is_expected() -> None:
    with XmlRpcServer(("127.0.0.1", 0), echo, tokens=TOKENS) as server:
        answer = send(server, post(dumps((), "x").encode()))

    assert answer.startswith(b"HTTP/1.0 401")
    assert b"NAME:TOKEN" in answer
