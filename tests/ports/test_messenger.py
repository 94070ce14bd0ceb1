"""The contract of Messenger: the fake, a webhook and a program; and servers that misbehave."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from fleet.errors import SecretMissing, SourceUnreachable
from fleet.ports import Messenger
from fleet.queues.http import ReadLimits
from fleet.queues.webhook import CommandMessenger, WebhookMessenger
from fleet.schema.model import EnvSecret, Webhook
from fleet.state.secrets import HostSecrets
from tests.fakes.messenger import FakeMessenger
from tests.rigs.loopback import Answer, Loopback, html, redirect

SECRET = "a-secret-of-the-webhook"
BODY: dict[str, object] = {"format": "fleet-notices-1", "text": "ää: it ends"}
QUICK = ReadLimits(connect=1, silence=0.2, total=0.6, body_bytes=1000)


@pytest.fixture
def server() -> Iterator[Loopback]:
    with Loopback(lambda _: Answer(200, b"ok")) as server:
        yield server


def a_webhook(url: str, folder: Path, *, secret: bool = False) -> WebhookMessenger:
    """Return one with a token; its address may be a secret too."""
    secrets = HostSecrets({"TOKEN": SECRET, "URL": url}, folder)
    address = EnvSecret(env="URL") if secret else url
    webhook = Webhook.model_construct(url=address, token=EnvSecret(env="TOKEN"))
    return WebhookMessenger(webhook, secrets, limits=QUICK)


def a_program(folder: Path, *command: str) -> CommandMessenger:
    return CommandMessenger(command or ("sh", "-c", "cat > said"), (), folder)


@pytest.mark.parametrize("kind", ["fake", "webhook", "program"])
def test_message_is_accepted_or_refused(kind: str, server: Loopback, tmp_path: Path) -> None:
    good: dict[str, Messenger] = {
        "fake": FakeMessenger(),
        "webhook": a_webhook(server.url, tmp_path),
        "program": a_program(tmp_path),
    }
    bad: dict[str, Messenger] = {
        "fake": FakeMessenger(is_up=False),
        "webhook": a_webhook("http://127.0.0.1:1/", tmp_path),
        "program": a_program(tmp_path, "false"),
    }

    good[kind].send("subject", "text", BODY)

    with pytest.raises(SourceUnreachable):
        bad[kind].send("subject", "text", BODY)


def test_webhook_gets_json_with_its_token_and_query(server: Loopback, tmp_path: Path) -> None:
    a_webhook(f"{server.url}/hook?version=2", tmp_path).send("subject", "text", BODY)

    (received,) = server.received
    assert (received.method, received.path, received.query) == ("POST", "/hook", {"version": "2"})
    assert received.headers["authorization"] == f"Bearer {SECRET}"
    assert received.headers["content-type"] == "application/json"
    assert json.loads(received.body) == BODY
    webhook = Webhook.model_construct(url=server.url, token=EnvSecret(env="TOKEN"))
    with pytest.raises(SecretMissing):
        WebhookMessenger(webhook, HostSecrets({}, tmp_path)).send("subject", "text", BODY)
    assert len(server.received) == 1


@pytest.mark.parametrize(
    "fault", ["500", "401", "hold", "drop", "truncate", "redirect", "large", "garbage"]
)
def test_misbehaving_webhook_is_bounded_and_gets_no_secret(fault: str, tmp_path: Path) -> None:
    with ExitStack() as open_now:
        other = open_now.enter_context(Loopback(lambda _: Answer(200, b"")))
        answers = {
            "500": Answer(500, SECRET.encode()),
            "401": Answer(401, b""),
            "redirect": redirect(f"{other.url}/stolen"),
            "large": Answer(200, b"x" * 5000),
            "garbage": html(200),
        }
        answer = answers.get(fault, Answer(200, b"x" * 100))
        server = open_now.enter_context(Loopback(lambda _: answer))
        server.faults.hold = fault == "hold"
        server.faults.drop = {1} if fault == "drop" else ()
        server.faults.truncate = {1} if fault == "truncate" else ()
        messenger = a_webhook(f"{server.url}/hooks/{SECRET}", tmp_path, secret=True)

        if fault == "garbage":
            messenger.send("subject", "text", BODY)
        else:
            with pytest.raises(SourceUnreachable) as refused:
                messenger.send("subject", "text", BODY)
            assert SECRET not in str(refused.value)
            assert refused.value.__cause__ is None

        assert len(server.received) == 1
        assert other.received == []


@pytest.mark.parametrize("url", ["no url", "ftp://h/x", "http://[", "http://hooks.example.org/x"])
def test_invalid_or_unsafe_address_gets_no_message(url: str, tmp_path: Path) -> None:
    with pytest.raises(SourceUnreachable):
        a_webhook(url, tmp_path, secret=True).send("subject", "text", BODY)


def test_program_gets_text_without_variables_of_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCLOUD_TOKEN", SECRET)

    a_program(tmp_path, "sh", "-c", "cat > said; env >> said").send("subject", "it ends", BODY)

    said = (tmp_path / "said").read_text("utf-8")
    assert said.startswith("it ends\n")
    assert SECRET not in said
