"""Exceptions, one for each kind of reaction of a caller."""

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from types import MappingProxyType


class FleetError(Exception):
    """An error for the user; its text is shown without a traceback."""

    exit_code = 1
    page = ""
    """Page of the documentation; every refusal has one."""


class ConfigInvalid(FleetError):
    """fleet.yaml has errors, which were already shown."""


class WrongUsage(FleetError):
    """Incompatible arguments of a command."""

    exit_code = 2


class FileUnreadable(FleetError):
    """A file could not be read or written."""


class AlreadyThere(FleetError):
    """The object to create exists already and is not replaced."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#something-is-there-already"


class Confined(FleetError):
    """A confined command tried another operation than reading its folder."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#a-merge-request-may-not-do-that"


class SourceUnreachable(FleetError):
    """A queue or a provider gave no usable response."""


class CreationRefused(FleetError):
    """A provider refused to create a machine."""


class DeletionPending(FleetError):
    """A provider accepted the deletion of a machine but still lists it."""


class SecretMissing(FleetError):
    """A reference to a secret has no value."""


class StoreMissing(FleetError):
    """The store or a stack is missing although one is expected."""

    exit_code = 4
    page = "docs/how-to/restore-lost-state.md"


class StoreFailed(FleetError):
    """The store could not be read or written."""


class Locked(FleetError):
    """Another apply holds the lock."""


class EngineMismatch(FleetError):
    """Another engine owns this stack."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#something-is-missing-or-unknown"


class EngineAbsent(FleetError):
    """The engine that owns this stack is not installed."""


class PlanRefused(FleetError):
    """The engine's preview has a change that the plan does not have."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md"


def refusal(because: str) -> PlanRefused:
    """Return the refusal of a command before any change."""
    return PlanRefused(f"refused, nothing was changed: {because}")


class PlanOutdated(FleetError):
    """A saved plan differs from the current plan."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#a-saved-plan-is-outdated"


class StackFailed(FleetError):
    """Some of a stack's operations failed; what succeeded is recorded."""

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
        """Worker to the error of its provider."""


class PromotionRefused(FleetError):
    """A version cannot be promoted or rolled back."""

    exit_code = 4
    page = "docs/how-to/promote-an-image.md"


class VersionMoved(FleetError):
    """Another process changed a version in the meantime."""


class BuildFailed(FleetError):
    """An image build failed; only its log is kept."""


class WorkerBusy(FleetError):
    """A worker that was to be disabled is busy."""


class PublicationRefused(FleetError):
    """A version cannot be published there; a retry does not help."""


class TicketRefused(FleetError):
    """A ticket is not opened, unknown, or belongs to another client."""


def add_extra(extra: str) -> str:
    """Return the command that installs an extra of fleet."""
    wanted = f"'fleet-reconciler[{extra}]'"
    if "pipx" in sys.prefix.split("/"):
        return f"run `pipx runpip fleet-reconciler install {wanted}`"
    python = shlex.quote(sys.executable)
    if find_spec("pip") is None:  # as in the environments that uv makes
        return f"run `uv pip install --python {python} {wanted}`"
    return f"run `{python} -m pip install {wanted}`"


@contextmanager
def needing(extra: str, what: str, failed: type[FleetError]) -> Iterator[None]:
    """Turn an ImportError into an error with the feature that needs the library, and advice."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise failed(
            f"{what} needs {error.name}, which is not installed: {add_extra(extra)}"
        ) from error


@contextmanager
def touching(place: object, failed: type[FleetError]) -> Iterator[None]:
    """Turn an OSError into an error with the place and the reason."""
    try:
        yield
    except OSError as error:
        raise failed(f"{place}: {error.strerror or error}") from error
