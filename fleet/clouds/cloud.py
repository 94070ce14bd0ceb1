"""The interface of a provider in fleet.yaml, independent of its kind."""

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
"""Credentials that providers, backends and engines look for by themselves."""
_COMMON_VARIABLES = re.compile(
    r"HOME|LANG|LANGUAGE|LC_.*|LOGNAME|PATH|SHELL|SSL_CERT_.*|TMPDIR|TZ|USER|XDG_.*"
    r"|(?i:(all|ftp|http|https|no)_proxy)"
)
"""Variables that any program may need to run."""
_LABEL_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class Site:
    """The context of one provider: its fleet, the folder of fleet.yaml, its secrets."""

    name: str
    fleet: Fleet
    folder: Path
    """The folder of fleet.yaml; relative paths start there."""
    storage: Storage
    secrets: HostSecrets
    clock: Clock
    slots: Slots | None = None
    """Limit on concurrent work; None: machines are only read, without livechecks."""

    @property
    def bare_environment(self) -> dict[str, str]:
        """Return the variables of our environment that a process gets; others may be secret."""
        return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


class Cloud(ABC, Generic[P]):
    """One provider: each kind implements `open`; the other methods are optional.

    `open` returns a Provider, which lists machines. Its other abilities show in its protocols: a
    `LocalCloud` creates machines for the embedded engine, a `MachineApi` deletes them without
    their stack, a `Registry` registers their workers, a `MachineCleaner` cleans those that tickets
    released.
    """

    lists_all = True
    """False: a listing may omit an existing machine."""
    has_shared_stack = False
    """Whether machines share resources, such as a network, in a separate stack."""

    def __init__(self, site: Site, declared: P) -> None:
        self.site = site
        self.declared = declared

    @abstractmethod
    def open(self) -> Provider:
        """Return the provider's machines; raises SecretMissing if a required secret is missing."""

    @cached_property
    def machines(self) -> Provider:
        """The provider's machines; Unknown without its secret."""
        try:
            return self.open()
        except SecretMissing as error:
            return _Unreadable(str(error))

    def prepare(self) -> None:
        """Prepare for the first change of an apply."""

    def account(self, labels: Mapping[str, str]) -> ProviderAccount:
        """Return the account for the Pulumi engine; `labels` are for new machines only."""
        return ProviderAccount(
            self.machines, environment=self.environment, inputs={"notes": labels}
        )

    def environment(self) -> Mapping[str, str]:
        """Return additional environment variables of the Pulumi engine."""
        return withheld_variables(self.site.fleet, os.environ)

    def adoptable(self, fleet: str) -> Mapping[str, str] | Unknown:  # noqa: ARG002 - for kinds that adopt
        """Return the ids of existing shared parts that the shared stack can adopt."""
        return {}

    def prices(self) -> PriceReader | None:
        """Return the reader of the provider's prices; None if it has no price API."""
        return None

    def todays_prices(self, types: Collection[str], spot: Collection[str]) -> PriceReader | None:  # noqa: ARG002 - for kinds that can be asked
        """Return the reader of these types' prices, some on spot; plans do not use them.

        None without a price API, or if `prices` reads it.
        """
        return None

    def publisher(self) -> Publisher | None:
        """Return the uploader of images; None if the provider stores no images."""
        return None

    @property
    def image_folder(self) -> Path | None:
        """The folder of published images, if the provider keeps them as files."""
        return None

    def temporary(self, before: datetime, *, delete: bool) -> Iterable[str]:  # noqa: ARG002 - for kinds that make some
        """Yield machines and keys left by dead builds and uploads, and delete them if asked."""
        return ()

    def unchecked(self) -> Iterable[tuple[str, str]]:
        """Yield the facts that `fleet doctor` cannot check, and how to check them by hand."""
        return ()


class _Unreadable:
    """A provider that cannot be listed, with the reason."""

    def __init__(self, reason: str) -> None:
        self._reason = Unknown(unknown=reason)

    def list(self, fleet: str) -> Listing | Unknown:  # noqa: ARG002 - the port's own argument
        """Return Unknown."""
        return self._reason


def raise_first(failed: Sequence[SourceUnreachable]) -> None:
    """Raise the first error with the number of other errors; return if there is no error."""
    if failed:
        others = f" (and {len(failed) - 1} more failed)" if failed[1:] else ""
        raise SourceUnreachable(f"{failed[0]}{others}") from failed[0]


def label_time(moment: datetime) -> str:
    """Return a time as a label's value; some providers permit no colon."""
    return moment.astimezone(UTC).strftime(_LABEL_TIME)


def read_label_time(text: str | None) -> datetime | None:
    """Return the time in a label; None if fleet did not write it."""
    try:
        return moment_or_none(datetime.strptime(text or "", _LABEL_TIME).replace(tzinfo=UTC))
    except ValueError:
        return None  # missing, or set by a user: the next run overwrites it


def trimmed(amount: Decimal) -> Decimal:
    """Return a price without trailing zeros."""
    return Decimal(format(amount.normalize(), "f"))


def withheld_variables(fleet: Fleet, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secret variables that no engine needs, with empty values.

    They hold secrets of fleet.yaml, or are passed to a provider's commands and may be secret. A
    child of fleet inherits all others; a provider's own token is added under its own name.
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
