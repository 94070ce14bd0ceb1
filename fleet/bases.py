"""This module says what of a base stack was observed: what the machines of a provider share."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Value(BaseModel):
    """As a value of facts, which are made of these too."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Part(_Value):
    """Something that all machines of a provider share, as fleet.yaml asks for it."""

    kind: Literal["network", "firewall", "ssh_key", "placement_group", "template"]
    name: str
    inputs: dict[str, Any]

    @property
    def key(self) -> str:
        """Return what tells it from the other parts of its base."""
        return f"{self.kind}/{self.name}"


class Base(_Value):
    """A provider's base stack as its engine recorded it."""

    serial: int = Field(description="Grows with each change of the stack's state.")
    parts: tuple[Part, ...] = Field((), description="What it was last asked to hold.")
    ids: dict[str, str] = Field(
        default_factory=dict, description="Part, as KIND/NAME, to its id at the provider."
    )
    laid: bool = Field(False, description="Each of them was made as asked, and all that is in it.")
    interrupted: bool = Field(False, description="An earlier operation did not finish.")


class BaseChange(_Value):
    """What an apply would do to what the machines of a provider share; parts as KIND/NAME."""

    provider: str
    create: tuple[str, ...] = ()
    change: tuple[str, ...] = Field((), description="In place, or by making it anew.")
    delete: tuple[str, ...] = ()

    @property
    def said(self) -> tuple[str, ...]:
        """Return each step in words; where no part differs, an earlier update did not finish."""
        steps = (("create", self.create), ("change", self.change), ("delete", self.delete))
        said = tuple(f"{verb} {key}" for verb, keys in steps for key in keys)
        return said or ("finish an earlier update",)
