"""Send notices to a webhook or through a mail program, with a time limit.

Redirects are not followed and the reply is not read, so that a token reaches only the server in
fleet.yaml. If the address itself is secret, messages contain only its host.
"""

import os
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from fleet.errors import SourceUnreachable
from fleet.queues.http import Reader, ReadLimits, retry_advice
from fleet.schema.model import Webhook
from fleet.state.processes import Invocation, run
from fleet.state.secrets import PASSED_VARIABLES, HostSecrets

_LIMITS = ReadLimits(connect=5, silence=5, total=10, body_bytes=1024 * 1024)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SECONDS = 20


class WebhookMessenger:
    """Sends each notice as JSON in a POST to a webhook."""

    def __init__(
        self, webhook: Webhook, secrets: HostSecrets, *, limits: ReadLimits = _LIMITS
    ) -> None:
        self._webhook = webhook
        self._secrets = secrets
        self._limits = limits

    def send(self, _subject: str, _text: str, body: Mapping[str, object]) -> None:
        """POST the body to the webhook; raises SourceUnreachable unless the status is 2xx."""
        url = self._webhook.url
        is_secret = not isinstance(url, str)
        address = self._secrets.read(url) if is_secret else str(url)
        headers = {}
        if self._webhook.token is not None:
            headers["Authorization"] = f"Bearer {self._secrets.read(self._webhook.token)}"
        host = self._check(address, headers)
        # If the address itself is secret, messages show only the name of its host.
        shown = host if is_secret else address.partition("?")[0]
        try:
            self._post(address, headers, body, shown)
        except SourceUnreachable as error:
            base = address.partition("?")[0].rstrip("/")
            raise SourceUnreachable(str(error).replace(base, shown)) from None

    def _check(self, address: str, headers: Mapping[str, str]) -> str:
        """Return the host name of an address; raises SourceUnreachable if it is not usable."""
        try:
            parts = urlsplit(address)
            host = parts.hostname if parts.scheme in ("http", "https") else None
        except ValueError:
            host = None
        if not host:
            raise SourceUnreachable("the secret of `url` is no URL")
        if headers and parts.scheme != "https" and host not in _LOOPBACK:
            raise SourceUnreachable("the token is sent over https:// only")
        return host

    def _post(
        self, address: str, headers: Mapping[str, str], body: Mapping[str, object], shown: str
    ) -> None:
        query = dict(parse_qsl(urlsplit(address).query))
        with Reader(address, limits=self._limits) as reader:
            status = reader.change("POST", "", headers, body, query=query).status
        if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            known = HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND
            advice = "is the secret right?" if status in known else retry_advice(status)
            raise SourceUnreachable(f"{shown} answered {status}; {advice}")


class CommandMessenger:
    """Sends each notice with a program, such as `mail`."""

    def __init__(self, command: Sequence[str], environment: Sequence[str], folder: Path) -> None:
        self._command = command
        self._names = (*PASSED_VARIABLES, *environment)
        self._folder = folder

    def send(self, _subject: str, text: str, _body: Mapping[str, object]) -> None:
        """Run the program with the text as its input; raises SourceUnreachable if it fails."""
        run(
            Invocation(
                what="the command",
                command=self._command,
                folder=self._folder,
                environment={k: os.environ[k] for k in self._names if k in os.environ},
                timeout=_SECONDS,
                stdin=f"{text}\n",
            )
        )
