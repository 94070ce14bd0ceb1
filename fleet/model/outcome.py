"""The result of `fleet apply` per pool, as one value for all reports."""

from typing import Literal

from pydantic import Field

from fleet.model.values import Moment, Value, later


class StackOutcome(Value):
    """The results of the actions in one pool."""

    pool: str
    result: Literal["applied", "unchanged", "failed", "refused"]
    created: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    deleting: tuple[str, ...] = later(
        (), "Machines whose deletion was accepted; their provider lists them still."
    )
    forgotten: tuple[str, ...] = Field(
        (), description="Machines removed from its stack because they are gone."
    )
    cleaned: tuple[str, ...] = later(
        (), "Machines that never existed: what their creation left was removed."
    )
    adopted: tuple[str, ...] = Field(
        (), description="Existing machines that were added to its stack."
    )
    error: str = ""
    retry_at: Moment | None = later(
        None, "When creations that failed are tried again, after a back-off."
    )

    @property
    def is_touched(self) -> bool:
        """Return whether a machine of this pool was changed or adopted."""
        return bool(self.done or self.adopted)

    @property
    def done(self) -> frozenset[str]:
        """Return the names of the workers whose actions succeeded."""
        removed = (*self.deleted, *self.deleting, *self.forgotten, *self.cleaned)
        return frozenset((*self.created, *self.drained, *removed))


class Outcome(Value):
    """The result of a run of `fleet apply`."""

    plan: str = Field(description="Digest of the plan.")
    stacks: tuple[StackOutcome, ...] = ()
    released: tuple[str, ...] = Field((), description="Workers without a machine switched off.")
    resumed: tuple[str, ...] = later((), "Workers that get work again after a hold.")
    promoted: tuple[str, ...] = Field(
        (), description="Promoted versions of images, as IMAGE VERSION."
    )
    refused: tuple[str, ...] = Field((), description="Reason why not all changes were applied.")
    left: tuple[str, ...] = Field(
        (), description="Pools that were not started because the run was stopped."
    )
    under_way: tuple[str, ...] = Field(
        (), description="Pools still in progress; a later outcome has the result."
    )
    rules: tuple[str, ...] = Field((), description="Rules that were delivered to queues.")
    outdated: tuple[str, ...] = Field(
        (),
        description="Differences from the saved plan to apply; in that case "
        "no part of it was applied.",
    )

    @property
    def exit_code(self) -> int:
        """Return 0 if all actions succeeded, 1 if failed, 4 if refused, 5 if partly applied."""
        results = {stack.result for stack in self.stacks}
        if "failed" in results:
            return 5 if any(stack.is_touched for stack in self.stacks) else 1
        return 4 if self.refused or self.outdated or "refused" in results else 0
