"""List and change machines and shared resources of an AWS account by tags, and read prices.

An incomplete listing is Unknown, since missing machines would count as deleted. Credentials come
from AWS's default chain (environment, profile, role). No message contains credentials.

If AWS created a shared resource but its reply was lost, the state lacks the resource and its name
is taken. No machine uses it yet, since machines need completely recorded templates.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_pascal

from fleet.clock import utc_now
from fleet.clouds.cloud import raise_first, trimmed
from fleet.errors import SourceUnreachable, needing
from fleet.model.facts import Listing, Machine, MachineState, PriceList, Quote, Unknown
from fleet.model.values import Amount, Line, Moment, moment_or_none
from fleet.schema.model import AwsProvider
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
            # No advice shows the request. The class name distinguishes a broken profile from a
            # role that cannot be assumed.
            other = f"the credentials or settings of AWS cannot be used ({type(error).__name__})"
            kinds = (kind.__name__ for kind in type(error).__mro__)
            advice = next((_FAILURE_ADVICE[k] for k in kinds if k in _FAILURE_ADVICE), other)
            raise SourceUnreachable(f"{place} failed: {advice}") from None

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


_LIST_TIMEOUT_SECONDS = 300
_MAX_FILTER_VALUES = 200
"""Maximum number of values in one filter of AWS."""
# AWS lists a terminated instance for another hour, without cost.
_STATES = {
    "pending": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.STOPPING,
    "stopping": MachineState.STOPPING,
    "stopped": MachineState.STOPPED,
}
_TERMINATED = "terminated"
_SINGLE_INSTANCE_ERRORS = frozenset({"InvalidInstanceID.NotFound", "TagLimitExceeded"})
"""Error codes of a request for several instances that a single instance can cause."""


class _AwsReply(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_pascal)


class _AwsTag(_AwsReply):
    key: Line
    value: Line


class _State(_AwsReply):
    name: Line


class _Instance(_AwsReply):
    instance_id: Line = Field(min_length=1)
    instance_type: Line
    image_id: Line
    launch_time: Moment
    state: _State
    tags: tuple[_AwsTag, ...] = ()
    public_ip_address: Line | None = None
    private_ip_address: Line | None = None

    @property
    def marks(self) -> dict[str, str]:
        return {tag.key: tag.value for tag in self.tags}


class _Reservation(_AwsReply):
    instances: tuple[_Instance, ...]


class _ReservationPage(_AwsReply):
    reservations: tuple[_Reservation, ...]


class AwsMachines(AwsAccount):
    """The instances of one account and region. Implements Provider and MachineApi."""

    def __init__(
        self,
        provider: AwsProvider,
        *,
        now: Callable[[], datetime] = utc_now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(provider.region)
        self._now = now
        self._clock = clock

    def list(self, fleet: str) -> Listing | Unknown:
        """Return the machines whose tag `fleet` has exactly this value; Unknown after an error."""
        read_at = self._now()
        try:
            found = self._instances({"Name": f"tag:{MARK}", "Values": [fleet]})
            ours = [each for each in found if each.marks.get(MARK) == fleet]
            machines = [
                _machine(each)
                for each in sorted(ours, key=lambda m: (m.launch_time, m.instance_id))
            ]
        except SourceUnreachable as error:
            return Unknown.of(error)
        return Listing(
            read_at=read_at,
            machines=tuple(sorted(_make_names_unique(machines), key=lambda machine: machine.name)),
            notes_expiry=True,
        )

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Write the expiry time of machines, by id. Skip machines that do not exist."""
        ids = sorted(machines)
        tag = {"Key": f"{MARK}:expires", "Value": until.isoformat()}
        failed: list[SourceUnreachable] = []
        for start in range(0, len(ids), _MAX_FILTER_VALUES):
            part = {"Name": "instance-id", "Values": ids[start : start + _MAX_FILTER_VALUES]}
            try:
                self._tag([each.instance_id for each in self._instances(part)], tag)
            except SourceUnreachable as error:
                # After a refused batch, extend the other batches, which would expire otherwise.
                failed.append(error)
        raise_first(failed)

    def _tag(self, machines: Sequence[str], tag: Mapping[str, str]) -> None:
        """Set a tag on machines. If AWS refuses because of some machines, tag the others."""
        from botocore.exceptions import ClientError

        if not machines:
            return
        with self._ec2("CreateTags") as ec2:
            try:
                ec2.create_tags(Resources=machines, Tags=[tag])
            except ClientError as error:
                if len(machines) == 1 or code_of(error) not in _SINGLE_INSTANCE_ERRORS:
                    raise
            else:
                return
        middle = len(machines) // 2
        try:
            self._tag(machines[:middle], tag)
        finally:
            self._tag(machines[middle:], tag)

    def delete(self, machine_id: str) -> None:
        """Terminate a machine. Do nothing if it does not exist."""
        with self._ec2("TerminateInstances") as ec2:
            from botocore.exceptions import ClientError

            try:
                ec2.terminate_instances(InstanceIds=[machine_id])
            except ClientError as error:
                if code_of(error) != "InvalidInstanceID.NotFound":
                    raise

    def console(self, machine_id: str) -> str:
        """Return the end of an instance's console output: at most 64 kB, some minutes old.

        https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_GetConsoleOutput.html
        """
        with self._ec2("GetConsoleOutput") as ec2:
            return str(ec2.get_console_output(InstanceId=machine_id).get("Output") or "")

    def _instances(self, chosen: Mapping[str, object]) -> tuple[_Instance, ...]:
        """Return all instances that match a filter, without terminated instances."""
        begun = self._clock()
        found: dict[str, _Instance] = {}
        with self._ec2("DescribeInstances") as ec2:
            pages = ec2.get_paginator("describe_instances").paginate(Filters=[chosen])
            for page in pages:
                if self._clock() - begun > _LIST_TIMEOUT_SECONDS:
                    raise SourceUnreachable(
                        f"EC2 in {self.region}: the list of instances was not read within "
                        f"{_LIST_TIMEOUT_SECONDS} s; the next run tries again"
                    )
                answered = _ReservationPage.model_validate(page).reservations
                found |= {each.instance_id: each for part in answered for each in part.instances}
        return tuple(each for each in found.values() if each.state.name != _TERMINATED)

    def _ec2(self, action: str) -> AbstractContextManager[Any]:
        return self.asked("ec2", action)


def _machine(instance: _Instance) -> Machine:
    marks, state = instance.marks, _STATES.get(instance.state.name)
    name, pool = marks.get(f"{MARK}:worker"), marks.get(f"{MARK}:pool")
    if state is None:
        raise SourceUnreachable(
            f"instance {instance.instance_id} is in the state {instance.state.name!r}, which this "
            "version of fleet does not know"
        )
    if not name or not pool:
        # fleet may neither delete nor count this instance, so the whole list is unusable.
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
        return None  # missing, or set by a user: the next run overwrites it
    return moment_or_none(moment)


def _make_names_unique(machines: "list[Machine]") -> Iterator[Machine]:
    """Yield machines, oldest first, with unique names. The youngest of a name keeps the name.

    The others get their ids: AWS permits equal names, and all machines must be visible.
    """
    youngest = {machine.name: machine.id for machine in machines}
    for machine in machines:
        name = machine.name if youngest[machine.name] == machine.id else machine.id
        yield machine.altered(name=name)


# If no object is in fleet's path, AWS refuses credentials that are limited to this path.
_MISSING_CODES = frozenset({"AccessDenied", "NoSuchEntity"})


class AwsShared(AwsAccount):
    """The shared resources of machines in one account and region, found by tags and names."""

    def clear(self, fleet: str, template: str, known: Collection[str]) -> None:
        """Delete the resources of a launch template that the stack's record, `known`, lacks."""
        parts = {
            # First: AWS refuses to delete a group in use, and then no other resource is deleted.
            f"{template}-group": self._delete_group,
            template: self._delete_template,
            f"{template}-profile": self._delete_profile,
            f"{template}-role": self._delete_role,
        }
        for resource, delete in parts.items():
            if resource not in known:
                delete(fleet, template)

    def _delete_group(self, fleet: str, name: str) -> None:
        with self.asked("ec2", "DescribeSecurityGroups") as ec2:
            chosen = _filters("group-name", name, fleet)
            found = ec2.describe_security_groups(Filters=chosen)["SecurityGroups"]
        for each in found:
            with self.asked("ec2", "DeleteSecurityGroup") as ec2:
                ec2.delete_security_group(GroupId=each["GroupId"])

    def _delete_template(self, fleet: str, name: str) -> None:
        with self.asked("ec2", "DescribeLaunchTemplates") as ec2:
            chosen = _filters("launch-template-name", name, fleet)
            found = ec2.describe_launch_templates(Filters=chosen)["LaunchTemplates"]
        for each in found:
            with self.asked("ec2", "DeleteLaunchTemplate") as ec2:
                ec2.delete_launch_template(LaunchTemplateId=each["LaunchTemplateId"])

    def _delete_profile(self, fleet: str, name: str) -> None:
        found = self._get_marked("InstanceProfile", fleet, name)
        if found is None:
            return
        for role in found["Roles"]:
            with self.asked("iam", "RemoveRoleFromInstanceProfile") as iam:
                iam.remove_role_from_instance_profile(
                    InstanceProfileName=name, RoleName=role["RoleName"]
                )
        with self.asked("iam", "DeleteInstanceProfile") as iam:
            iam.delete_instance_profile(InstanceProfileName=name)

    def _delete_role(self, fleet: str, name: str) -> None:
        if self._get_marked("Role", fleet, name):
            with self.asked("iam", "DeleteRole") as iam:
                iam.delete_role(RoleName=name)

    def _get_marked(self, kind: str, fleet: str, name: str) -> Mapping[str, Any] | None:
        """Return the role or profile with this name; None if absent or without the fleet's tag."""
        with self.asked("iam", f"Get{kind}") as iam:
            from botocore.exceptions import ClientError

            ask = iam.get_role if kind == "Role" else iam.get_instance_profile
            try:
                found: Mapping[str, Any] = ask(**{f"{kind}Name": name})[kind]
            except ClientError as error:
                if code_of(error) in _MISSING_CODES:
                    return None
                raise
        return found if {"Key": MARK, "Value": fleet} in found.get("Tags", ()) else None


def _filters(attribute: str, name: str, fleet: str) -> list[dict[str, object]]:
    """Return EC2 filters for a name and the fleet's tag. Neither value can contain wildcards."""
    said = {attribute: name, f"tag:{MARK}": fleet}
    return [{"Name": key, "Values": [text]} for key, text in said.items()]


_HOURS_PER_MONTH = 744
"""Hours of the longest month, each of which EC2 bills."""
_OFFER_FILTER = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
}
"""Filter for offers that fleet buys: on Linux, shared tenancy, no preinstalled software."""
_IPV4_FILTER = {"group": "VPCPublicIPv4Address"}
_GP3_FILTER = {"productFamily": "Storage", "volumeApiName": "gp3"}


class _Dimension(BaseModel):
    price: dict[Line, Amount] = Field(alias="pricePerUnit")


class _Term(BaseModel):
    dimensions: dict[Line, _Dimension] = Field(alias="priceDimensions")


class _Terms(BaseModel):
    on_demand: dict[Line, _Term] = Field({}, alias="OnDemand")


class _Product(BaseModel):
    attributes: dict[Line, Line]


class _Offer(BaseModel):
    product: _Product
    terms: _Terms

    def prices(self) -> Iterator[tuple[str, Decimal]]:
        """Yield the currency and the amount of each price above zero."""
        for term in self.terms.on_demand.values():
            for dimension in term.dimensions.values():
                yield from (each for each in dimension.price.items() if each[1])


class _SpotPrice(BaseModel):
    name: Line = Field(alias="InstanceType")
    price: Amount = Field(alias="SpotPrice")


class AwsPrices:
    """The reader of prices of machine types in one AWS region."""

    def __init__(self, region: str, types: Collection[str], spot: Collection[str]) -> None:
        """`spot` contains the types whose spot price is also read."""
        self.location = region
        self._types = sorted(types)
        self._spot = sorted(spot)
        # Only a few regions serve the price list of all regions; China has a separate list.
        self._list = AwsAccount("cn-northwest-1" if region.startswith("cn-") else "us-east-1")

    def read(self, now: datetime) -> PriceList:
        """Return the current net prices; raises SourceUnreachable if prices are invalid."""
        spot = self._spot_prices(now)
        currency, quotes = "USD", {}
        try:
            for name in self._types:
                for offer in self._offers("AmazonEC2", {"instanceType": name} | _OFFER_FILTER):
                    for currency, price in offer.prices():  # noqa: B007 - all are in one
                        quotes[name] = _quote(offer.product.attributes, price, spot.get(name))
            return PriceList(
                read_at=now,
                location=self.location,
                currency=currency,
                quotes=quotes,
                address=self._price("AmazonVPC", _IPV4_FILTER, "PublicIPv4:InUseAddress"),
                disk=self._price("AmazonEC2", _GP3_FILTER, "EBS:VolumeUsage.gp3"),
            )
        except (ArithmeticError, ValueError) as error:
            said = str(error).splitlines()[-1].strip()
            raise SourceUnreachable(f"AWS returned impossible prices: {said}") from error

    def _price(self, service: str, asked: Mapping[str, str], usage: str) -> Decimal | None:
        """Return the price of a usage type; None if not sold. Regions may prefix its name."""
        found = (
            trimmed(price)
            for offer in self._offers(service, asked)
            if offer.product.attributes.get("usagetype", "").endswith(usage)
            for _, price in offer.prices()
        )
        return next(found, None)

    def _offers(self, service: str, asked: Mapping[str, str]) -> list[_Offer]:
        chosen = {"regionCode": self.location, **asked}
        filters = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in chosen.items()
        ]
        with self._list.asked("pricing", "GetProducts") as pricing:
            pages = pricing.get_paginator("get_products").paginate(
                ServiceCode=service, Filters=filters
            )
            texts = [text for page in pages for text in page["PriceList"]]
            return [_Offer.model_validate_json(text) for text in texts]

    def _spot_prices(self, now: datetime) -> Mapping[str, Decimal]:
        """Map each type to its current hourly price in the region's most expensive zone."""
        if not self._spot:
            return {}
        dearest: dict[str, Decimal] = {}
        account = AwsAccount(self.location)
        with account.asked("ec2", "DescribeSpotPriceHistory") as ec2:
            pages = ec2.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=self._spot, ProductDescriptions=["Linux/UNIX"], StartTime=now
            )
            for page in pages:
                for each in page["SpotPriceHistory"]:
                    told = _SpotPrice.model_validate(each)
                    dearest[told.name] = max(told.price, dearest.get(told.name, told.price))
        return {name: trimmed(price) for name, price in dearest.items()}


def _quote(attributes: Mapping[str, str], price: Decimal, spot: Decimal | None) -> Quote:
    graviton = "Graviton" in attributes.get("physicalProcessor", "")
    return Quote(
        price=trimmed(price),
        month=trimmed(price * _HOURS_PER_MONTH),
        cores=int(attributes.get("vcpu", "")),
        memory=int(float(attributes.get("memory", "").split(" ")[0].replace(",", "")) * 1024),
        disk=0,  # machines boot from a volume and do not use local disks
        architecture="arm64" if graviton else "amd64",
        spot=spot,
    )
