"""The exceptions of fleet. A caller handles each class differently."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from types import MappingProxyType


class FleetError(Exception):
    """An error with a message for the user. The message is printed without a traceback."""

    exit_code = 1
    page = ""
    """Page of the documentation about this error; empty if no page explains it."""


class ConfigInvalid(FleetError):
    """fleet.yaml has errors. The errors were already shown."""


class WrongUsage(FleetError):
    """The arguments of a command are invalid or contradict each other."""

    exit_code = 2


class FileUnreadable(FleetError):
    """A file could not be read or written."""


class AlreadyThere(FleetError):
    """An object that a command should create already exists; fleet does not replace it."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#something-is-there-already"


class Confined(FleetError):
    """A confined command tried to start a program, open a connection or open a forbidden file."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#a-merge-request-may-not-do-that"


class SourceUnreachable(FleetError):
    """A queue or provider did not respond, or sent an unusable response."""


class CreationRefused(FleetError):
    """A provider refused to create a machine."""


class DeletionPending(FleetError):
    """A provider accepted the deletion of a machine, but still lists the machine."""


class SecretMissing(FleetError):
    """A secret that fleet.yaml refers to is missing or unreadable."""


class StoreMissing(FleetError):
    """The state store, or a stack in the store, is missing although it must exist."""

    exit_code = 4
    page = "docs/how-to/restore-lost-state.md"


class StoreFailed(FleetError):
    """The state store could not be read or written."""


class Locked(FleetError):
    """Another run holds the fleet's lock."""


class EngineMismatch(FleetError):
    """A stack belongs to another engine, which created the stack."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#something-is-missing-or-unknown"


class EngineAbsent(FleetError):
    """The engine to which a stack belongs is not installed."""


class PlanRefused(FleetError):
    """An engine would make a change that is not in the plan, so nothing is changed."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md"


def refusal(because: str) -> PlanRefused:
    """Return the error for a command that is refused before it changed anything."""
    return PlanRefused(f"refused, nothing was changed: {because}")


class PlanOutdated(FleetError):
    """A saved plan differs from the current plan."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#a-saved-plan-is-outdated"


class StackFailed(FleetError):
    """Some operations of a stack failed. The successful operations are recorded."""

    def __init__(
        self,
        message: str,
        *,
        done: tuple[str, ...] = (),
        failed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.done = done
        self.failed = dict(failed)
        """Name of each failed worker to the error of its provider."""


class PromotionRefused(FleetError):
    """An image version cannot be promoted or rolled back."""

    exit_code = 4
    page = "docs/how-to/promote-an-image.md"


class VersionMoved(FleetError):
    """Another process changed the record of an image version at the same time."""


class BuildFailed(FleetError):
    """The build of an image failed. Only the log of the build is kept."""


class WorkerBusy(FleetError):
    """A worker cannot be disabled, because it has work."""


class PublicationRefused(FleetError):
    """A version cannot be published at this provider or store, even if the upload is retried."""


class TicketRefused(FleetError):
    """A ticket cannot be opened, does not exist, or belongs to another client."""


def add_extra(extra: str) -> str:
    """Return the command that installs an optional extra of fleet."""
    wanted = f"'fleet-reconciler[{extra}]'"
    if "pipx" in sys.prefix.split("/"):
        return f"run `pipx runpip fleet-reconciler install {wanted}`"
    python = shlex.quote(sys.executable)
    if find_spec("pip") is None:  # for example in environments that uv creates
        return f"run `uv pip install --python {python} {wanted}`"
    return f"run `{python} -m pip install {wanted}`"


@contextmanager
def needing(extra: str, what: str, failed: type[FleetError]) -> Iterator[None]:
    """Turn a ModuleNotFoundError into `failed`, with the command that installs the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise failed(
            f"{what} needs {error.name}, which is not installed: {add_extra(extra)}"
        ) from error


@contextmanager
def touching(place: object, failed: type[FleetError]) -> Iterator[None]:
    """Turn an OSError in the block into `failed`, with `place` and the reason."""
    try:
        yield
    except OSError as error:
        raise failed(f"{place}: {error.strerror or error}") from error
