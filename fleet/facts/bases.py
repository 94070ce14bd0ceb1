"""This module says what of a base stack was observed: what the machines of a provider share."""

from typing import Any, Literal

from pydantic import Field

from fleet.facts.values import Value


class Part(Value):
    """Something that all machines of a provider share, as fleet.yaml asks for it."""

    kind: Literal["network", "firewall", "ssh_key", "placement_group", "template"]
    name: str
    inputs: dict[str, Any]

    @property
    def key(self) -> str:
        """Return what tells it from the other parts of its base."""
        return f"{self.kind}/{self.name}"


class Base(Value):
    """A provider's base stack as its engine recorded it."""

    serial: int = Field(description="Grows with each change of the stack's state.")
    parts: tuple[Part, ...] = Field((), description="What it was last asked to hold.")
    ids: dict[str, str] = Field(
        default_factory=dict, description="Part, as KIND/NAME, to its id at the provider."
    )
    laid: bool = Field(False, description="Each of them was made as asked, and all that is in it.")
    interrupted: bool = Field(False, description="An earlier operation did not finish.")


class BaseChange(Value):
    """What an apply would do to what the machines of a provider share; parts as KIND/NAME."""

    provider: str
    create: tuple[str, ...] = ()
    change: tuple[str, ...] = Field((), description="In place, or by making it anew.")
    delete: tuple[str, ...] = ()
    outdates: int = Field(0, description="Machines that were made without what is new.")

    @property
    def outdating(self) -> str:
        """Return what becomes of machines that were made without what is new; empty: of none."""
        if not self.outdates:
            return ""
        which = "1 machine" if self.outdates == 1 else f"{self.outdates:,} machines"
        return f"outdates {which}: replaced after it, as `replace`, guards and budgets allow"

    @property
    def said(self) -> tuple[str, ...]:
        """Return each step in words; where no part differs, an earlier update did not finish."""
        steps = (("create", self.create), ("change", self.change), ("delete", self.delete))
        said = tuple(f"{verb} {key}" for verb, keys in steps for key in keys)
        return said or ("finish an earlier update",)
