"""`fleet ticket --server`: a client with a token that stands in no address and no argument."""

from pathlib import Path

import pytest

from fleet.errors import FleetError, SourceUnreachable, WrongUsage
from fleet.program import build_parser
from fleet.tickets.commands import run
from tests.builders import NOW
from tests.cli.test_serve import Heard
from tests.fakes.engine import FixedClock
from tests.fakes.waiter import FakeWaiter
from tests.rigs.ticket_service import TOKENS, TicketService


class Client:
    """`fleet ticket` against a service, with the token of Copr in a file."""

    def __init__(self, service: TicketService, folder: Path) -> None:
        self.service = service
        self.netrc = folder / "netrc"
        self.netrc.write_text(f"machine 127.0.0.1 login copr password {TOKENS['copr']}\n")
        self.netrc.chmod(0o600)
        self.said: list[str] = []

    def do(self, *options: str, server: str = "") -> int:
        """Run a command; what it says is in `said`."""
        console = Heard()
        at = ["--server", server or self.service.url, "--netrc", str(self.netrc)]
        args = build_parser().parse_args(["ticket", *options, *at])
        try:
            clock = FixedClock(NOW)
            return run(args, console, FakeWaiter(clock), clock)
        finally:
            self.said = console.said


@pytest.fixture
def client(tmp_path: Path):  # type: ignore[no-untyped-def] # noqa: ANN201 - a generator
    """Return a client of a service that asks for tokens."""
    with TicketService(tmp_path, named=True) as service:
        yield Client(service, tmp_path)


def test_client_with_token_opens_waits_and_closes_a_ticket(client: Client) -> None:
    assert client.do("open", "--tag", "extra_powerful", "--sandbox", "ada/ping--ada") == 0
    (number,) = client.said
    assert client.do("check", number) == 1
    client.service.give(int(number))

    assert client.do("wait", number, "--for", "1m") == 0

    assert client.said == ["192.0.2.1"]
    ticket = client.service.book.find(int(number))
    assert ticket
    assert (ticket.client, ticket.submitter) == ("copr", "ada")
    assert client.do("close", number) == 0
    assert client.do("check", number) == 1


def test_token_in_the_address_is_refused_and_not_repeated(client: Client) -> None:
    at = client.service.url.replace("//", f"//copr:{TOKENS['copr']}@")

    with pytest.raises(WrongUsage, match="--netrc") as refused:
        client.do("check", "1", server=at)

    assert TOKENS["copr"] not in str(refused.value)


def test_token_file_readable_by_others_is_refused(client: Client) -> None:
    client.netrc.chmod(0o640)

    with pytest.raises(FleetError, match="chmod 600"):
        client.do("open", "--tag", "extra_powerful")


def test_token_is_not_sent_in_clear_to_another_computer(client: Client) -> None:
    client.netrc.write_text(f"machine tickets.example.org login copr password {TOKENS['copr']}\n")

    with pytest.raises(WrongUsage, match="https://"):
        client.do("check", "1", server="http://tickets.example.org:49100")


def test_client_error_shows_netrc_line_when_token_is_missing(client: Client) -> None:
    client.netrc.write_text("")

    with pytest.raises(FleetError, match=r"machine HOST login NAME password TOKEN"):
        client.do("open", "--tag", "extra_powerful")


def test_client_error_hides_contents_of_invalid_netrc(client: Client) -> None:
    client.netrc.write_text("a-token-alone-in-a-file")

    with pytest.raises(FleetError) as refused:
        client.do("check", "1")

    assert "a-token-alone" not in str(refused.value)
    assert "machine HOST login NAME" in str(refused.value)


def test_client_reports_unreachable_server(client: Client) -> None:
    with pytest.raises(SourceUnreachable, match=r"http://127\.0\.0\.1:1\b"):
        client.do("check", "1", server="http://127.0.0.1:1")


@pytest.mark.parametrize("server", ["tickets.example.org", "ftp://x", "http://", "http://x:y"])
def test_client_refuses_invalid_server_address(client: Client, server: str) -> None:
    with pytest.raises(WrongUsage):
        client.do("check", "1", server=server)


def test_client_refuses_options_that_server_ignores(client: Client) -> None:
    with pytest.raises(WrongUsage, match="--team"):
        client.do("open", "--tag", "x", "--team", "kernel")


def test_ticket_of_another_client_is_unknown(client: Client) -> None:
    number = client.service.of("packit").take("extra_powerful")

    with pytest.raises(FleetError, match=f" {number} "):
        client.do("check", str(number))
