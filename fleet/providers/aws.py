"""This module lists, vouches for and ends the machines of an AWS account, by their tag.

A listing is whole or it is Unknown: half a list would read as machines that are gone. Credentials
come by AWS's own chain (environment, profile, role) and are in no message.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_pascal

from fleet.errors import SourceUnreachable
from fleet.facts import Listing, Machine, MachineState, Unknown
from fleet.schema.model import AwsProvider

MARK = "fleet"
"""The tag of ownership, compared whole; the others are named after it."""
_DEADLINE = 300
_CONNECT, _SILENCE = 10, 30
_AT_ONCE = 200
"""How many values a filter may have."""
# An instance that is terminated stays listed for an hour, costs nothing and does nothing.
_STATES = {
    "pending": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.STOPPING,
    "stopping": MachineState.STOPPING,
    "stopped": MachineState.STOPPED,
}
_GONE = "terminated"
_ADVICE = {
    "AuthFailure": "the credentials are wrong, or the region is not enabled in this account",
    "InvalidClientTokenId": "the credentials are wrong or were deleted",
    "SignatureDoesNotMatch": "the secret key is wrong, or this computer's clock is",
    "RequestExpired": "this computer's clock is wrong, or the session token is over; renew it",
    "ExpiredToken": "the session token is over; log in again, or let the role be assumed anew",
    "ExpiredTokenException": "the session token is over; log in again, or assume the role anew",
    "UnauthorizedOperation": "the credentials may not do this; see the policy in "
    "docs/how-to/run-on-aws.md",
    "RequestLimitExceeded": "too many questions at once; the next run asks again",
    "Throttling": "too many questions at once; the next run asks again",
    "OptInRequired": "this account has not subscribed to EC2 in this region",
}
_TROUBLE = "the trouble is the provider's; the next run asks again"
# By the name of botocore's class or of what it is derived from: no server answered.
_FAILURES = {
    "NoCredentialsError": "no credentials were found; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY, or run where a role gives them",
    "InvalidRegionError": "that is not the name of a region",
    "EndpointConnectionError": "no connection; is that a region of AWS, and this computer online?",
    "ConnectTimeoutError": "no answer in time; the next run asks again",
    "ReadTimeoutError": "no answer in time; the next run asks again",
    "ConnectionError": "the connection broke off; the next run asks again",
    "HTTPClientError": "the connection broke off; the next run asks again",
    "PaginationError": "its pages do not end",
}


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_pascal)


class _Tag(_Answer):
    key: str
    value: str


class _State(_Answer):
    name: str


class _Instance(_Answer):
    instance_id: str = Field(min_length=1)
    instance_type: str
    image_id: str
    launch_time: AwareDatetime
    state: _State
    tags: tuple[_Tag, ...] = ()
    public_ip_address: str | None = None
    private_ip_address: str | None = None

    @property
    def marks(self) -> dict[str, str]:
        return {tag.key: tag.value for tag in self.tags}


class _Reservation(_Answer):
    instances: tuple[_Instance, ...]


class _Page(_Answer):
    reservations: tuple[_Reservation, ...]


def _utc_now() -> datetime:
    return datetime.now(UTC)


class AwsMachines:
    """What exists in one account and region: Provider and Keeper."""

    def __init__(
        self,
        provider: AwsProvider,
        *,
        now: Callable[[], datetime] = _utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._region = provider.region
        self._now = now
        self._clock = clock

    def list(self, fleet: str) -> Listing | Unknown:
        """Return the machines whose tag `fleet` is exactly this name."""
        read_at = self._now()
        try:
            found = self._instances({"Name": f"tag:{MARK}", "Values": [fleet]})
            ours = [each for each in found if each.marks.get(MARK) == fleet]
            machines = [_machine(each) for each in sorted(ours, key=_age)]
        except SourceUnreachable as error:
            return Unknown(unknown=str(error))
        return Listing(
            read_at=read_at,
            machines=tuple(sorted(_told_apart(machines), key=lambda machine: machine.name)),
            notes_expiry=True,
        )

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Note at machines until when they are vouched for; one that is gone is fine."""
        ids = sorted(machines)
        for start in range(0, len(ids), _AT_ONCE):
            part = {"Name": "instance-id", "Values": ids[start : start + _AT_ONCE]}
            there = [instance.instance_id for instance in self._instances(part)]
            tag = {"Key": f"{MARK}:expires", "Value": until.isoformat()}
            if there:
                with self._ec2("CreateTags") as ec2:
                    ec2.create_tags(Resources=there, Tags=[tag])

    def delete(self, machine_id: str) -> None:
        """Terminate a machine; one that is already gone is fine."""
        from botocore.exceptions import ClientError

        with self._ec2("TerminateInstances") as ec2:
            try:
                ec2.terminate_instances(InstanceIds=[machine_id])
            except ClientError as error:
                if _code(error) != "InvalidInstanceID.NotFound":
                    raise

    def _instances(self, chosen: Mapping[str, object]) -> tuple[_Instance, ...]:
        """Return every instance that a filter chooses and that is there still."""
        begun = self._clock()
        found: dict[str, _Instance] = {}
        with self._ec2("DescribeInstances") as ec2:
            pages = ec2.get_paginator("describe_instances").paginate(Filters=[chosen])
            for page in pages:
                if self._clock() - begun > _DEADLINE:
                    raise SourceUnreachable(
                        f"EC2 in {self._region}: the list of instances was not read within "
                        f"{_DEADLINE} s; the next run asks again"
                    )
                answered = _Page.model_validate(page).reservations
                found |= {each.instance_id: each for part in answered for each in part.instances}
        return tuple(each for each in found.values() if each.state.name != _GONE)

    @contextmanager
    def _ec2(self, action: str) -> Iterator[Any]:
        """Yield a client; what goes wrong with it becomes one sentence."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        place = f"EC2 in {self._region}: {action}"
        try:
            with closing(self._client()) as client:
                yield client
        except ClientError as error:
            code = _code(error)
            advice = _ADVICE.get(code, _TROUBLE)
            raise SourceUnreachable(f"{place} was refused ({code}): {advice}") from None
        except (ResponseParserError, ValidationError):
            # The cause would show what was sent, which may be a secret.
            raise SourceUnreachable(
                f"{place} was answered with something else than was expected, or with half of it; "
                "if AWS_ENDPOINT_URL is set, is it the address of an AWS API?"
            ) from None
        except (BotoCoreError, OSError, ValueError) as error:
            raise SourceUnreachable(f"{place} failed: {_why(error)}") from None

    def _client(self) -> Any:  # noqa: ANN401 - boto3 makes its classes as it runs
        from botocore.config import Config

        patience = Config(connect_timeout=_CONNECT, read_timeout=_SILENCE)
        return self.session.client("ec2", config=patience)

    @cached_property
    def session(self) -> Any:  # noqa: ANN401 - same
        """Return what finds credentials and makes clients."""
        # boto3 is slow to load, and most commands list nothing.
        import boto3
        from botocore.session import get_session

        session = get_session()
        session.register_component("data_loader", _tables())
        return boto3.Session(region_name=self._region, botocore_session=session)


@cache
def _tables() -> Any:  # noqa: ANN401 - botocore has no types
    """Return what botocore knows of services: large, so read once for all accounts."""
    from botocore.loaders import create_loader

    return create_loader()


def _code(error: Any) -> str:  # noqa: ANN401 - a ClientError, known only where boto3 is loaded
    return str(error.response.get("Error", {}).get("Code") or "without a code")


def _why(error: Exception) -> str:
    """Return what a failure means that no server answered with; never what was sent."""
    kinds = (kind.__name__ for kind in type(error).__mro__)
    # A broken profile, a role that cannot be assumed: the kind says which.
    other = f"the credentials or settings of AWS cannot be used ({type(error).__name__})"
    return next((_FAILURES[kind] for kind in kinds if kind in _FAILURES), other)


def _age(instance: _Instance) -> tuple[datetime, str]:
    return (instance.launch_time, instance.instance_id)


def _machine(instance: _Instance) -> Machine:
    marks, state = instance.marks, _STATES.get(instance.state.name)
    name, pool = marks.get(f"{MARK}:worker"), marks.get(f"{MARK}:pool")
    if state is None:
        raise SourceUnreachable(
            f"instance {instance.instance_id} is in the state {instance.state.name!r}, which this "
            "version of fleet does not know"
        )
    if not name or not pool:
        # It is neither ours to delete nor to be counted, so nothing may rest on this list.
        raise SourceUnreachable(
            f"instance {instance.instance_id} carries the tag {MARK} but not both {MARK}:pool and "
            f"{MARK}:worker; remove the first if fleet did not make it, or give it the others"
        )
    return Machine(
        name=name,
        id=instance.instance_id,
        pool=pool,
        type=instance.instance_type,
        state=state,
        created_at=instance.launch_time,
        image=instance.image_id,
        digest=marks.get(f"{MARK}:digest"),
        expires=_expiry(instance),
        address=instance.public_ip_address or instance.private_ip_address,
    )


def _expiry(instance: _Instance) -> datetime | None:
    try:
        moment = datetime.fromisoformat(instance.marks.get(f"{MARK}:expires", ""))
    except ValueError:
        return None  # nobody's, or a person's: the next run notes its own
    return moment if moment.tzinfo else None


def _told_apart(machines: "list[Machine]") -> Iterator[Machine]:
    """Yield machines, the oldest first; of two with one name only the younger keeps it.

    AWS has no names that are unique: the other one goes by its id, so that it is seen.
    """
    youngest = {machine.name: machine.id for machine in machines}
    for machine in machines:
        name = machine.name if youngest[machine.name] == machine.id else machine.id
        yield machine.model_copy(update={"name": name})
