"""What the program asks of a provider of fleet.yaml, whatever its kind."""

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
from fleet.engines.projects import Account
from fleet.errors import SecretMissing, SourceUnreachable
from fleet.model.facts import Listing, Unknown
from fleet.model.images import Publication
from fleet.model.values import moment_or_none
from fleet.ports import Clock, ImageBuilder, PriceReader, Provider, Publisher
from fleet.schema.model import Fleet, secrets_in
from fleet.schema.units import EnvSecret
from fleet.state.secrets import HostSecrets
from fleet.state.storage import Storage

P = TypeVar("P")

_OF_ENGINES = re.compile(r"(AWS|AZURE|GOOGLE|PULUMI)_.*")
"""Credentials that providers, backends and engines look for by themselves."""
_OF_ALL = re.compile(
    r"HOME|LANG|LANGUAGE|LC_.*|LOGNAME|PATH|SHELL|SSL_CERT_.*|TMPDIR|TZ|USER|XDG_.*"
    r"|(?i:(all|ftp|http|https|no)_proxy)"
)
"""What any program may need to run at all."""
_LABEL_TIME = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True)
class Site:
    """Where one provider is used: by which fleet, beside which fleet.yaml, with which secrets."""

    name: str
    fleet: Fleet
    folder: Path
    """The folder of fleet.yaml; relative paths are relative to it."""
    storage: Storage
    secrets: HostSecrets
    clock: Clock
    slots: Slots | None = None
    """Bound what is done at once; None: machines are only read, and no livecheck is run."""

    @property
    def bare_environment(self) -> dict[str, str]:
        """Return all that a process gets of our own environment, which holds secrets."""
        return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


class Cloud(ABC, Generic[P]):
    """One provider: a kind has to say how it is opened; the rest is for kinds that have it.

    What `open` returns lists machines. What else it can do is seen from its methods: as a
    `LocalCloud` it creates them for the embedded engine, as a `MachineApi` it deletes them without
    their stack, as a `Registry` it registers their workers, as a `MachineCleaner` it cleans those
    that tickets gave back.
    """

    lists_all = True
    """False: a listing may leave out a machine that exists."""
    has_shared_stack = False
    """Whether machines share something, as a network, that a stack of its own holds."""

    def __init__(self, site: Site, declared: P) -> None:
        self.site = site
        self.declared = declared

    @abstractmethod
    def open(self) -> Provider:
        """Return what lists the machines; raises SecretMissing where that needs a secret."""

    @cached_property
    def machines(self) -> Provider:
        """What lists the machines; without its secret they are Unknown."""
        try:
            return self.open()
        except SecretMissing as error:
            return _Unreadable(str(error))

    def prepare(self) -> None:
        """Do what comes before the first change of an apply."""

    def account(self, labels: Mapping[str, str]) -> Account:
        """Return what the real engine needs; `labels` are those that only new machines get."""
        return Account(self.machines, environment=self.environment, inputs={"notes": labels})

    def environment(self) -> Mapping[str, str]:
        """Return the variables that the real engine runs with, beside our own."""
        return withheld(self.site.fleet, os.environ)

    def adoptable(self, fleet: str) -> Mapping[str, str] | Unknown:  # noqa: ARG002 - for kinds that adopt
        """Return the ids of shared parts that exist and that the shared stack can adopt."""
        return {}

    def prices(self) -> PriceReader | None:
        """Return what asks the provider for its prices; None where it cannot be asked."""
        return None

    def todays_prices(self, types: Collection[str], spot: Collection[str]) -> PriceReader | None:  # noqa: ARG002 - for kinds that can be asked
        """Return what asks for these types, some on spot, to compare; plans do not count with it.

        None where it cannot be asked, or where `prices` does.
        """
        return None

    def publisher(self) -> Publisher | None:
        """Return what uploads images; None where the provider takes none."""
        return None

    def builder(self) -> ImageBuilder[Publication] | None:
        """Return what bakes images on a machine of the provider, which has them then."""
        return None

    def temporary(self, before: datetime, *, delete: bool) -> Iterable[str]:  # noqa: ARG002 - for kinds that make some
        """Yield the machines and keys that dead builds and uploads left, and delete them."""
        return ()

    def unchecked(self) -> Iterable[tuple[str, str]]:
        """Yield what `fleet doctor` cannot check, with how a person does."""
        return ()


class _Unreadable:
    """A provider that cannot be listed, and why."""

    def __init__(self, reason: str) -> None:
        self._reason = Unknown(unknown=reason)

    def list(self, fleet: str) -> Listing | Unknown:  # noqa: ARG002 - the port's own argument
        """Return that nothing is known."""
        return self._reason


def raise_first(failed: Sequence[SourceUnreachable]) -> None:
    """Raise the first of these, and say how many more there were; nothing where there are none."""
    if failed:
        others = f" (and {len(failed) - 1} more failed)" if failed[1:] else ""
        raise SourceUnreachable(f"{failed[0]}{others}") from failed[0]


def label_time(moment: datetime) -> str:
    """Return a moment as the value of a label, which at some providers may hold no colon."""
    return moment.astimezone(UTC).strftime(_LABEL_TIME)


def read_label_time(text: str | None) -> datetime | None:
    """Return the moment that a label holds; None where fleet did not write it."""
    try:
        return moment_or_none(datetime.strptime(text or "", _LABEL_TIME).replace(tzinfo=UTC))
    except ValueError:
        return None  # none, or a person's: the next run writes its own


def trimmed(amount: Decimal) -> Decimal:
    """Return a price without the noughts at its end."""
    return Decimal(format(amount.normalize(), "f"))


def withheld(fleet: Fleet, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secret variables of this environment that no engine needs, emptied.

    They are those that hold a secret of fleet.yaml, and those that a provider's commands get:
    some of these may be secret. A child of fleet inherits the others; a provider's own token is
    added by its own name.
    """
    names = {secret.env for _, secret in secrets_in(fleet) if isinstance(secret, EnvSecret)}
    for provider in fleet.providers.values():
        names |= {name for name in provider.given_variables if not _OF_ALL.fullmatch(name)}
    return {
        name: "" for name in sorted(names & environment.keys()) if not _OF_ENGINES.fullmatch(name)
    }


AnyCloud = Cloud[Any]
