"""Call the services of one AWS account and region, with one sentence per failure.

Credentials come from AWS's default chain (environment, profile, role). No message has credentials.
"""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from fleet.errors import SourceUnreachable, needing
from fleet.state.s3 import new_session

MARK = "fleet"
"""The tag whose value is exactly the owner fleet's name. Other tags start with `fleet:`."""
_CONNECT_TIMEOUT_SECONDS = 10
_READ_TIMEOUT_SECONDS = 30
_ADVICE = {
    "AuthFailure": "the credentials are wrong, or the region is not enabled in this account",
    "InvalidClientTokenId": "the credentials are wrong or were deleted",
    "SignatureDoesNotMatch": "the secret key is wrong, or this computer's clock is",
    "RequestExpired": "this computer's clock is wrong, or the session token has expired; renew it",
    "ExpiredToken": "the session token has expired; log in again, or assume the role again",
    "ExpiredTokenException": "the session token has expired; log in again, or assume the role "
    "again",
    "UnauthorizedOperation": "the credentials may not do this; see the policy in "
    "docs/how-to/run-on-aws.md",
    "AccessDeniedException": "the credentials may not do this; see the policy in "
    "docs/how-to/run-on-aws.md",
    "RequestLimitExceeded": "AWS limits the rate of requests; the next run retries",
    "Throttling": "AWS limits the rate of requests; the next run retries",
    "OptInRequired": "this account has not subscribed to EC2 in this region",
}
_DEFAULT_ADVICE = "the provider has a problem; the next run tries again"
# Names of botocore's classes or base classes, for failures without a reply of a server.
_FAILURE_ADVICE = {
    "NoCredentialsError": "no credentials were found; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or run where a role gives them",
    "InvalidRegionError": "that is not the name of a region",
    "EndpointConnectionError": "no connection; is that a region of AWS, and this computer online?",
    "ConnectTimeoutError": "no answer in time; the next run tries again",
    "ReadTimeoutError": "no answer in time; the next run tries again",
    "ConnectionError": "the connection broke off; the next run tries again",
    "HTTPClientError": "the connection broke off; the next run tries again",
    "PaginationError": "its pages never end",
}


class AwsAccount:
    """The connection to one AWS account in one region."""

    def __init__(self, region: str, *, connections: int = 10, tries: int | None = None) -> None:
        # If `tries` is None, AWS's environment variables apply.
        self.region = region
        self._connections = connections
        self._retries = {"mode": "standard", "total_max_attempts": tries} if tries else None
        # Per thread, because a thread closes the connections of its clients after each use.
        self._clients = threading.local()
        self._creation_lock = threading.Lock()

    @contextmanager
    def asked(self, service: str, action: str) -> Iterator[Any]:
        """Yield a client of a service. Raise the client's errors as SourceUnreachable."""
        place = f"{service.upper()} in {self.region}: {action}"
        with needing("aws", place, SourceUnreachable):
            from botocore.exceptions import BotoCoreError, ClientError
            from botocore.parsers import ResponseParserError

        try:
            with closing(self.client(service)) as client:
                yield client
        except ClientError as error:
            code = code_of(error)
            advice = _ADVICE.get(code, _DEFAULT_ADVICE)
            raise SourceUnreachable(f"{place} was refused ({code}): {advice}") from None
        except (ResponseParserError, ValidationError):
            # The cause would show the request, which may contain a secret.
            raise SourceUnreachable(
                f"{place} got an unexpected or incomplete answer; if AWS_ENDPOINT_URL is set, is "
                "it the address of an AWS API?"
            ) from None
        except (BotoCoreError, OSError, ValueError) as error:
            raise SourceUnreachable(f"{place} failed: {_advise(error)}") from None

    def client(self, service: str) -> Any:  # noqa: ANN401 - boto3 makes its classes as it runs
        """Return a client of a service. The caller must close the client's connections."""
        from botocore.config import Config

        # Creating a client is as slow as a request, since it gets a method per operation.
        if made := getattr(self._clients, service, None):
            return made
        patience = Config(
            connect_timeout=_CONNECT_TIMEOUT_SECONDS,
            read_timeout=_READ_TIMEOUT_SECONDS,
            max_pool_connections=self._connections,
            retries=self._retries,
        )
        with self._creation_lock:
            made = self.session.client(service, config=patience)
        setattr(self._clients, service, made)
        return made

    @cached_property
    def session(self) -> Any:  # noqa: ANN401 - same
        """Return the boto3 session, which finds credentials and creates clients."""
        return new_session(region_name=self.region)


def code_of(error: Any) -> str:  # noqa: ANN401 - a ClientError, known only where boto3 is loaded
    """Return the error code in a boto3 ClientError."""
    return str(error.response.get("Error", {}).get("Code") or "without a code")


def _advise(error: Exception) -> str:
    """Return advice for a failure without a server's reply. The advice never shows the request."""
    kinds = (kind.__name__ for kind in type(error).__mro__)
    # The class name distinguishes a broken profile from a role that cannot be assumed.
    other = f"the credentials or settings of AWS cannot be used ({type(error).__name__})"
    return next((_FAILURE_ADVICE[kind] for kind in kinds if kind in _FAILURE_ADVICE), other)
