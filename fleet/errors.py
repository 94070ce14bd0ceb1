"""This module holds the exceptions: one per decision that a caller can take."""

from collections.abc import Mapping
from types import MappingProxyType


class FleetError(Exception):
    """Something a person must know; its text is for them, it never shows a traceback."""

    exit_code = 1


class ConfigInvalid(FleetError):
    """fleet.yaml has errors; they were told where they were found."""


class WrongUsage(FleetError):
    """Arguments that do not go together."""

    exit_code = 2


class FileUnreadable(FleetError):
    """A file could not be read or written."""


class SourceUnreachable(FleetError):
    """A queue or a provider gave no usable answer."""


class CreationRefused(FleetError):
    """A provider made no machine and says so: the creation need not be looked for."""


class SecretMissing(FleetError):
    """A secret's reference leads nowhere."""


class StoreMissing(FleetError):
    """The store or a stack is missing where one is expected."""

    exit_code = 4


class StoreFailed(FleetError):
    """The store could not be read or written."""


class Locked(FleetError):
    """Another apply holds the lock."""


class EngineMismatch(FleetError):
    """Another engine owns this stack."""

    exit_code = 4


class EngineAbsent(FleetError):
    """The engine that owns this stack is not installed."""


class PlanRefused(FleetError):
    """The engine's preview holds something that the plan does not."""

    exit_code = 4


class PlanOutdated(FleetError):
    """A saved plan that is not, or no longer, what would be done."""

    exit_code = 4


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
        """Worker to what its provider said, where it was asked for it and refused."""


class PromotionRefused(FleetError):
    """A version that is not promoted, or not taken back."""

    exit_code = 4


class VersionMoved(FleetError):
    """Somebody else changed what is remembered of a version in the meantime."""


class BuildFailed(FleetError):
    """An image could not be baked; nothing of the try is left but its log."""


class WorkerBusy(FleetError):
    """A worker that was to be disabled runs something."""


class PublicationRefused(FleetError):
    """A version cannot be published there as it is; asking again changes nothing."""


class TicketRefused(FleetError):
    """A ticket that is not opened, not known, or not the client's to close."""
