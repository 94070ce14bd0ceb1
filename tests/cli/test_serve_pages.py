"""`fleet serve --pages`: the status pages of the last run, live, for everybody who may call."""

import base64
import re
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest

from tests.cli.test_serve import YAML, Heard, counter, served
from tests.rigs.canary import find_leaks
from tests.rigs.resalloc_client import OldClient
from tests.rigs.ticket_service import TOKENS
from tests.rigs.trial import Trial

__all__ = ("counter",)
TOKEN = TOKENS["copr"]
MINE = (
    "{provider: own, machine: {cores: 1, memory: 1GiB, price: 0 EUR/h}, image: trixie,"
    " provides: [mine], workers: {max: 1}}"
)
OWN = """  own:
    kind: hooks
    new: [sh, -c, 'cat; echo "$OF_HOOKS" >&2; exit 1']
    delete: [sh, -c, 'echo "$OF_HOOKS"; exit 1']
    list: [sh, -c, 'echo "$OF_HOOKS" >&2; echo "[]"']
    environment: [OF_HOOKS]
queues:"""


class Browser:
    """Asks one server for pages."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
        connection = HTTPConnection(self._address, timeout=60)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=given)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text


def browser(console: Heard) -> Browser:
    return Browser(console.hear("listening at").split()[2])


def test_served_pages_have_no_scripts_or_cookies(counter: Trial) -> None:
    def look(_: OldClient, console: Heard) -> None:
        here = browser(console)
        for path, kind in (
            ("/", "text/html; charset=utf-8"),
            ("/-/status/workers/", "text/html; charset=utf-8"),
            ("/-/status/money/index.html?from=elsewhere", "text/html; charset=utf-8"),
            ("/style.css", "text/css"),
            ("/status.json", "application/json"),
        ):
            answer, text = here.ask(path)
            assert (answer.status, answer.headers["Content-Type"]) == (200, kind), path
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Set-Cookie"] is None
            assert "<script" not in text

    code, console = served(counter, look, "--pages")

    assert code == 0, console.said


@pytest.mark.slow
def test_served_page_is_not_resent_when_unchanged(counter: Trial) -> None:
    def look(client: OldClient, console: Heard) -> None:
        here = browser(console)
        first, text = here.ask("/-/status/pools/powerful/")
        again, nothing = here.ask("/-/status/pools/powerful/", If_None_Match=first.headers["ETag"])
        assert (again.status, nothing) == (304, "")
        head, nothing = here.ask("/-/status/pools/powerful/", "HEAD")
        assert (head.status, nothing) == (200, "")
        assert int(head.headers["Content-Length"]) == len(text.encode())
        said = len(console.said)
        client.take("extra_powerful")
        console.hear("Applied:", said)
        later, text = here.ask("/-/status/pools/powerful/", If_None_Match=first.headers["ETag"])
        assert later.status == 200
        assert "powerful-0001" in text

    code, console = served(counter, look, "--pages")

    assert code == 0, console.said


def test_server_of_pages_returns_only_pages(counter: Trial) -> None:
    paths = ["/../fleet.yaml", "/%2e%2e/fleet.yaml", "//etc/passwd", "/.fleet/store.db", "/x"]

    def look(_: OldClient, console: Heard) -> None:
        assert [browser(console).ask(path)[0].status for path in paths] == [404] * 5

    code, console = served(counter, look, "--pages")

    assert code == 0, console.said


def check_tokens_are_asked_for(counter: Trial, folder: Path, path: str, *options: str) -> None:
    """Check that where there are tokens, a path of `fleet serve` is for clients with one."""
    tokens = folder / "tokens"
    tokens.write_text(f"copr {TOKEN}\n", encoding="utf-8")
    tokens.chmod(0o600)

    def look(_: OldClient, console: Heard) -> None:
        here = browser(console)
        assert here.ask(path)[0].status == 401
        named = base64.b64encode(f"copr:{TOKEN}".encode()).decode()
        answer, text = here.ask(path, Authorization=f"Basic {named}")
        assert answer.status == 200
        assert TOKEN not in text

    code, console = served(counter, look, *options, "--tokens", str(tokens))

    assert code == 0, console.said


def test_pages_require_a_token_when_tokens_are_configured(counter: Trial, tmp_path: Path) -> None:
    check_tokens_are_asked_for(counter, tmp_path, "/", "--pages")


def test_serve_has_no_pages_without_option(counter: Trial) -> None:
    def look(_: OldClient, console: Heard) -> None:
        assert browser(console).ask("/")[0].status == 404

    code, console = served(counter, look)

    assert code == 0, console.said


def test_pages_contain_no_secret(
    counter: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"OF_HOOKS": "canary-of-hooks-2e", "PHRASE": "canary-passphrase-3d", "TOKEN": TOKEN}
    for name, secret in secrets.items():
        monkeypatch.setenv(name, secret)
    counter.write(
        YAML.replace("queues:", OWN, 1).replace("pools:", f"pools:\n  mine: {MINE}", 1)
        + "state: {passphrase: {env: PHRASE}}\n"
    )
    tokens = tmp_path / "tokens"
    tokens.write_text(f"copr {TOKEN}\n", encoding="utf-8")
    tokens.chmod(0o600)
    read: dict[str, bytes] = {}

    def look(_: OldClient, console: Heard) -> None:
        here = browser(console)
        named = {"Authorization": f"Basic {base64.b64encode(f'copr:{TOKEN}'.encode()).decode()}"}
        left = ["/"]
        while left:
            path = left.pop()
            answer, text = here.ask(path, **named)
            assert answer.status == 200, path
            read[path] = f"{answer.headers}{text}".encode()
            links = [urljoin(path, link) for link in re.findall(r'href="([^"#]+)', text)]
            left += [link for link in dict.fromkeys(links) if link not in (*read, *left)]

    code, console = served(counter, look, "--pages", "--tokens", str(tokens))

    assert code == 0, console.said
    assert {"/status.json", "/style.css"} < read.keys()
    assert any("/pools/mine/" in path for path in read)
    assert find_leaks(secrets, read.items()) == []
    assert find_leaks(secrets, [("what was said", "".join(console.said).encode())]) == []
