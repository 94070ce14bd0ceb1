"""The build, test and publish steps that images need now, and the reasons."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from fleet.model.images import WaitingVersion
from fleet.model.values import Moment, Value

Step = Literal["build", "test", "publish"]


class DueReason(StrEnum):
    """The reason why a step is due."""

    NEVER_BUILT = "never-built"
    RECIPE_CHANGED = "recipe-changed"
    ROLE_CHANGED = "role-changed"
    TOO_OLD = "too-old"
    NEWER_WORKER = "newer-worker"
    SECURITY_UPDATE = "security-update"
    NOT_TESTED = "not-tested"
    NOT_PUBLISHED = "not-published"


class DueCause(Value):
    """The reason why a step is due, and a sentence with the figures of the reason."""

    reason: DueReason
    because: str


class DueImage(Value):
    """The due steps of an image, in the order of execution."""

    image: str
    steps: tuple[Step, ...] = Field((), description="The due steps, in this order.")
    version: str = Field(
        "", description="The version to test or publish; empty if one is to be built."
    )
    causes: tuple[DueCause, ...] = ()
    waits_until: Moment | None = Field(None, description="It is due from this time on.")
    waits: str = Field("", description="Reason why a due step waits.")
    serving: str = Field("", description="The version that machines boot meanwhile.")
    rebuild: str = Field(
        "", description="Duration and cost of the last build, if it is to be built again."
    )
    unknown: str = Field("", description="Facts that could not be read; no step is due for them.")
    waiting: WaitingVersion | None = Field(
        None, description="The newer version that not every machine boots yet, and why."
    )

    @property
    def is_due(self) -> bool:
        """Return whether a step can run now and need not wait for a later time."""
        return bool(self.steps) and not self.waits

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the commands that run the due steps, in order."""
        named = " ".join(filter(None, [self.image, self.version]))
        return tuple(f"fleet image {step} {named}" for step in self.steps)


class DueReport(Value):
    """The due steps of all images that fleet builds, sorted by image."""

    fleet: str
    time: Moment
    images: tuple[DueImage, ...]
