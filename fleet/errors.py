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
    """Path of the documentation page about this error; empty if there is no page."""

    def __init__(self, message: str = "", *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix
        """The command that fixes the cause; empty if unknown. No text of a server decides it."""


class ConfigInvalid(FleetError):
    """fleet.yaml has errors. The errors were already shown."""


class WrongUsage(FleetError):
    """The arguments of a command are invalid or contradict each other."""

    exit_code = 2


class FileUnreadable(FleetError):
    """A file could not be read or written."""


class AlreadyThere(FleetError):
    """An object to create already exists and is not replaced."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#something-is-there-already"


class Confined(FleetError):
    """A command confined to its files tried to run a program, connect or open another file."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#a-merge-request-may-not-do-that"


class SourceUnreachable(FleetError):
    """A queue or provider did not respond, or its response is unusable."""


class CreationRefused(FleetError):
    """A provider refused to create a machine."""


class DeletionPending(FleetError):
    """A provider accepted the deletion of a machine but still lists the machine."""


class SecretMissing(FleetError):
    """A secret that fleet.yaml refers to is missing or unreadable."""


class StoreMissing(FleetError):
    """The store or a stack is missing although it must exist."""

    exit_code = 4
    page = "docs/how-to/restore-lost-state.md"


class StoreFailed(FleetError):
    """The state store could not be read or written."""


class Locked(FleetError):
    """Another run holds the fleet's lock."""


class EngineMismatch(FleetError):
    """Another engine created this stack and still owns it."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#something-is-missing-or-unknown"


class EngineAbsent(FleetError):
    """The engine to which a stack belongs is not installed."""


class PlanRefused(FleetError):
    """An engine would make a change that is not in the plan, so nothing is changed."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md"


def refusal(because: str) -> PlanRefused:
    """Return the error of a command that was refused before any change."""
    return PlanRefused(f"refused, nothing was changed: {because}")


class PlanOutdated(FleetError):
    """A saved plan differs from the current plan."""

    exit_code = 4
    page = "docs/how-to/read-a-refusal.md#a-saved-plan-is-outdated"


class StackFailed(FleetError):
    """Some operations on a stack failed; the successful operations are recorded."""

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
    """A worker cannot be disabled because it runs work."""


class PublicationRefused(FleetError):
    """This provider or store can never publish this version; a retry does not help."""


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
    """Turn an ImportError into `failed`, with the feature `what` and the install command."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise failed(
            f"{what} needs {error.name}, which is not installed: {add_extra(extra)}"
        ) from error


@contextmanager
def touching(place: object, failed: type[FleetError]) -> Iterator[None]:
    """Turn an OSError in a block into `failed`, with `place` and the reason."""
    try:
        yield
    except OSError as error:
        raise failed(f"{place}: {error.strerror or error}") from error
