"""Ask the services of one AWS account and region; each failure is a sentence.

Credentials come by AWS's own chain (environment, profile, role) and are in no message.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any

from pydantic import ValidationError

from fleet.errors import SourceUnreachable, needing
from fleet.state.s3 import new_session

MARK = "fleet"
"""The tag of ownership, compared whole; the others are named after it."""
_CONNECT, _SILENCE = 10, 30
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
    "RequestLimitExceeded": "too many requests at once; the next run tries again",
    "Throttling": "too many requests at once; the next run tries again",
    "OptInRequired": "this account has not subscribed to EC2 in this region",
}
_TROUBLE = "the provider has a problem; the next run tries again"
# By the name of botocore's class or of what it is derived from: no server answered.
_FAILURES = {
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
    """One account and region."""

    def __init__(self, region: str, *, connections: int = 10, tries: int | None = None) -> None:
        # Without a number of tries those of the environment count, as AWS documents them.
        self.region = region
        self._connections = connections
        self._retries = {"mode": "standard", "total_max_attempts": tries} if tries else None
        self._clients: dict[str, Any] = {}

    @contextmanager
    def asked(self, service: str, action: str) -> Iterator[Any]:
        """Yield a client; what goes wrong with it becomes one sentence."""
        place = f"{service.upper()} in {self.region}: {action}"
        with needing("aws", place, SourceUnreachable):
            from botocore.exceptions import BotoCoreError, ClientError
            from botocore.parsers import ResponseParserError

        try:
            with closing(self.client(service)) as client:
                yield client
        except ClientError as error:
            code = code_of(error)
            advice = _ADVICE.get(code, _TROUBLE)
            raise SourceUnreachable(f"{place} was refused ({code}): {advice}") from None
        except (ResponseParserError, ValidationError):
            # The cause would show what was sent, which may be a secret.
            raise SourceUnreachable(
                f"{place} got an unexpected or incomplete answer; if AWS_ENDPOINT_URL is set, is "
                "it the address of an AWS API?"
            ) from None
        except (BotoCoreError, OSError, ValueError) as error:
            raise SourceUnreachable(f"{place} failed: {_why(error)}") from None

    def client(self, service: str) -> Any:  # noqa: ANN401 - boto3 makes its classes as it runs
        """Return a client of a service; the caller closes its connections."""
        from botocore.config import Config

        # Each has a method for every operation, and takes as long to make as a question.
        if service in self._clients:
            return self._clients[service]
        patience = Config(
            connect_timeout=_CONNECT,
            read_timeout=_SILENCE,
            max_pool_connections=self._connections,
            retries=self._retries,
        )
        made = self.session.client(service, config=patience)
        return self._clients.setdefault(service, made)

    @cached_property
    def session(self) -> Any:  # noqa: ANN401 - same
        """Return what finds credentials and makes clients."""
        return new_session(region_name=self.region)


def code_of(error: Any) -> str:  # noqa: ANN401 - a ClientError, known only where boto3 is loaded
    """Return the code that AWS refuses with."""
    return str(error.response.get("Error", {}).get("Code") or "without a code")


def _why(error: Exception) -> str:
    """Return what a failure means that no server answered with; never what was sent."""
    kinds = (kind.__name__ for kind in type(error).__mro__)
    # A broken profile, a role that cannot be assumed: the kind says which.
    other = f"the credentials or settings of AWS cannot be used ({type(error).__name__})"
    return next((_FAILURES[kind] for kind in kinds if kind in _FAILURES), other)
