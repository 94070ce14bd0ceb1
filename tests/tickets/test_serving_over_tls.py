"""The service beyond this computer: over TLS, to clients that name themselves."""

import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from xmlrpc.client import ProtocolError

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fleet.tickets.connections import Bounds
from fleet.tickets.xml_rpc import XmlRpcServer, load_tls
from tests.builders import NOW
from tests.rigs.resalloc_client import AGAIN, OldClient

TOKENS = {"copr": "an-invented-token-of-copr"}


def a_certificate(path: Path) -> Path:
    """Write a file with a key and what says that it is of 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fleet")])
    here = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=9000))
        .not_valid_after(NOW + timedelta(days=9000))
        .add_extension(here, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(pem)
    )
    return path


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the certificate of the server."""
    return a_certificate(tmp_path_factory.mktemp("tls") / "server.pem")


@pytest.fixture(scope="module")
def server(certificate: Path) -> Iterator[XmlRpcServer]:
    tls = load_tls(str(certificate), None)
    with XmlRpcServer(("127.0.0.1", 0), who, tokens=TOKENS, tls=tls) as running:
        yield running


def who(client: str, name: str, arguments: Sequence[Any]) -> object:
    """Answer with who asks."""
    return [client, name, *arguments]


def test_client_that_trusts_the_certificate_sends_its_token(
    server: XmlRpcServer, certificate: Path
) -> None:
    url = server.url.replace("//", f"//copr:{TOKENS['copr']}@")

    client = OldClient(url, trusting=ssl.create_default_context(cafile=certificate))

    assert server.url.startswith("https://127.0.0.1:")
    assert client.call("closeTicket", 1) == ["copr", "closeTicket", 1]


def test_client_without_trusted_ca_fails(server: XmlRpcServer) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        OldClient(server.url).call("closeTicket", 1)


def test_client_without_tls_gets_no_response(server: XmlRpcServer) -> None:
    with pytest.raises(AGAIN):
        OldClient(server.url.replace("https:", "http:")).call("closeTicket", 1)


def test_renewed_certificate_and_tokens_apply_to_next_call(
    certificate: Path, tmp_path: Path
) -> None:
    newer = a_certificate(tmp_path / "newer.pem")
    trusting = ssl.create_default_context(cafile=newer)
    tls = load_tls(str(certificate), None)
    with XmlRpcServer(("127.0.0.1", 0), who, tokens=TOKENS, tls=tls) as running:
        url = running.url.replace("//", "//packit:an-invented-token-of-packit@")
        client = OldClient(url, trusting=trusting)
        with pytest.raises(ssl.SSLCertVerificationError):
            client.call("closeTicket", 1)

        running.renew({"packit": "an-invented-token-of-packit"}, load_tls(str(newer), None))

        assert client.call("closeTicket", 1) == ["packit", "closeTicket", 1]
        with pytest.raises(ProtocolError, match="401"):
            OldClient(running.url, trusting=trusting).call("closeTicket", 1)


HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"


@pytest.mark.parametrize("said", [b"", HALF_HELLO, b"POST / HTTP/1.0\r\n\r\n"])
def test_silent_tls_connections_leave_capacity_for_calls(certificate: Path, said: bytes) -> None:
    trusting = ssl.create_default_context(cafile=certificate)
    tls = load_tls(str(certificate), None)
    bounds = Bounds(calls=8, idle=40)
    with (
        XmlRpcServer(("127.0.0.1", 0), who, tokens=TOKENS, tls=tls, bounds=bounds) as running,
        ExitStack() as held,
    ):
        before = threading.active_count()
        for _ in range(100):
            silent = socket.create_connection(("127.0.0.1", running.port), timeout=10)
            held.enter_context(silent)
            with suppress(OSError):
                silent.sendall(said)

        assert threading.active_count() <= before + 1
        url = running.url.replace("//", f"//copr:{TOKENS['copr']}@")
        client = OldClient(url, trusting=trusting)
        assert client.call("closeTicket", 1) == ["copr", "closeTicket", 1]


def test_slow_body_over_tls_uses_no_thread(certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=certificate)
    tls = load_tls(str(certificate), None)
    with XmlRpcServer(("127.0.0.1", 0), who, tokens=TOKENS, tls=tls) as running:
        before = threading.active_count()
        plain = socket.create_connection(("127.0.0.1", running.port), timeout=10)
        with trusting.wrap_socket(plain, server_hostname="127.0.0.1") as slow:
            slow.sendall(b"POST /RPC2 HTTP/1.1\r\nContent-Length: 60000\r\n\r\n")

            assert threading.active_count() <= before + 1
