"""The interface of all kinds of providers in fleet.yaml."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from fleet.clouds.ready import Slots
from fleet.engines.projects import ProviderAccount
from fleet.errors import SecretMissing, SourceUnreachable
from fleet.model.facts import Listing, Unknown
from fleet.model.values import moment_or_none
from fleet.ports import Clock, PriceReader, Provider, Publisher
from fleet.schema.model import Fleet, secrets_in
from fleet.schema.units import EnvSecret
from fleet.state.secrets import HostSecrets
from fleet.state.storage import Storage

P = TypeVar("P")

_ENGINE_VARIABLES = re.compile(r"(AWS|AZURE|GOOGLE|PULUMI)_.*")
"""Pattern of environment variables with credentials of providers, backends and engines."""
_COMMON_VARIABLES = re.compile(
    r"HOME|LANG|LANGUAGE|LC_.*|LOGNAME|PATH|SHELL|SSL_CERT_.*|TMPDIR|TZ|USER|XDG_.*"
    r"|(?i:(all|ftp|http|https|no)_proxy)"
)
"""Pattern of environment variables that any program may need."""
_LABEL_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class Site:
    """The context of a provider: its fleet, the folder of fleet.yaml, and the secrets."""

    name: str
    fleet: Fleet
    folder: Path
    """Folder of fleet.yaml. Relative paths in fleet.yaml start here."""
    storage: Storage
    secrets: HostSecrets
    clock: Clock
    slots: Slots | None = None
    """Limits of concurrent work. None means that machines are only listed, without livechecks."""

    @property
    def bare_environment(self) -> dict[str, str]:
        """Return the environment of child processes, without variables that may be secret."""
        return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


class Cloud(ABC, Generic[P]):
    """A provider. Each kind implements `open` and may override the other methods.

    `open` returns a Provider, which lists machines. This object may implement other protocols too.
    A `LocalCloud` creates machines for the embedded engine. A `MachineApi` deletes machines
    without their stack. A `Registry` registers workers. A `MachineCleaner` cleans machines that
    tickets released.
    """

    lists_all = True
    """Whether a listing always has all machines. False means that it may omit a machine."""
    has_shared_stack = False
    """Whether machines share resources, such as a network, that have a separate stack."""

    def __init__(self, site: Site, declared: P) -> None:
        self.site = site
        self.declared = declared

    @abstractmethod
    def open(self) -> Provider:
        """Return the object that lists machines; raises SecretMissing if a secret is missing."""

    @cached_property
    def machines(self) -> Provider:
        """The result of `open`. If a secret is missing, the listing of machines is Unknown."""
        try:
            return self.open()
        except SecretMissing as error:
            return _Unreadable(str(error))

    def prepare(self) -> None:
        """Do the one-time setup before the first change of an apply."""

    def account(self, labels: Mapping[str, str]) -> ProviderAccount:
        """Return the data for the Pulumi engine. `labels` are set on new machines only."""
        return ProviderAccount(
            self.machines, environment=self.environment, inputs={"notes": labels}
        )

    def environment(self) -> Mapping[str, str]:
        """Return additional environment variables for the Pulumi engine."""
        return withheld_variables(self.site.fleet, os.environ)

    def adoptable(self, fleet: str) -> Mapping[str, str] | Unknown:  # noqa: ARG002 - for kinds that adopt
        """Map the key of each existing shared resource that the stack can adopt to its id."""
        return {}

    def prices(self) -> PriceReader | None:
        """Return the reader of prices for plans; None if the provider has no price API."""
        return None

    def todays_prices(self, types: Collection[str], spot: Collection[str]) -> PriceReader | None:  # noqa: ARG002 - for kinds that can be asked
        """Return the reader of these types' current prices, which are only compared, not used.

        `spot`: types with a spot price to read. None without a price API, or if `prices` reads it.
        """
        return None

    def publisher(self) -> Publisher | None:
        """Return the publisher of images; None if the provider stores no images."""
        return None

    @property
    def image_folder(self) -> Path | None:
        """Folder of published images; None if the provider does not store images as files."""
        return None

    def temporary(self, before: datetime, *, delete: bool) -> Iterable[str]:  # noqa: ARG002 - for kinds that make some
        """Yield leftovers of builds and uploads killed before a time; `delete` removes them."""
        return ()

    def unchecked(self) -> Iterable[tuple[str, str]]:
        """Yield each subject that `fleet doctor` cannot check, with the manual check for it."""
        return ()


class _Unreadable:
    """A provider whose machines cannot be listed, with the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = Unknown(unknown=reason)

    def list(self, fleet: str) -> Listing | Unknown:  # noqa: ARG002 - the port's own argument
        """Return Unknown with the reason."""
        return self._reason


def raise_first(failed: Sequence[SourceUnreachable]) -> None:
    """Raise the first error, with the number of further errors. Do nothing without errors."""
    if failed:
        others = f" (and {len(failed) - 1} more failed)" if failed[1:] else ""
        raise SourceUnreachable(f"{failed[0]}{others}") from failed[0]


def label_time(moment: datetime) -> str:
    """Return a time as a label value in UTC, without colons, which some providers refuse."""
    return moment.astimezone(UTC).strftime(_LABEL_TIME)


def read_label_time(text: str | None) -> datetime | None:
    """Parse the time in a label; None if fleet did not write the label."""
    try:
        return moment_or_none(datetime.strptime(text or "", _LABEL_TIME).replace(tzinfo=UTC))
    except ValueError:
        return None  # missing, or set by a user: the next run overwrites it


def trimmed(amount: Decimal) -> Decimal:
    """Return a price without trailing zeros in its decimals."""
    return Decimal(format(amount.normalize(), "f"))


def withheld_variables(fleet: Fleet, environment: Mapping[str, str]) -> dict[str, str]:
    """Map variables that may be secret and that no engine needs to an empty value.

    They contain secrets of fleet.yaml, or are passed to a provider's commands. A child process of
    fleet inherits all other variables. A provider's token is added separately.
    """
    names = {secret.env for _, secret in secrets_in(fleet) if isinstance(secret, EnvSecret)}
    for provider in fleet.providers.values():
        names |= {
            name for name in provider.given_variables if not _COMMON_VARIABLES.fullmatch(name)
        }
    return {
        name: ""
        for name in sorted(names & environment.keys())
        if not _ENGINE_VARIABLES.fullmatch(name)
    }


AnyCloud = Cloud[Any]
