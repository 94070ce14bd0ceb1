"""This module says whether a queue has the rules of fleet.yaml: only then do they act there."""

from typing import Literal

from pydantic import Field

from fleet.facts.values import Moment, Value


class MissingRule(Value):
    """An entry that a rule of fleet.yaml becomes and that a queue does not have."""

    path: tuple[str | int, ...] = Field(description="The rule in fleet.yaml.")
    entry: str


class RulesVerdict(Value):
    """Whether the rules of fleet.yaml are in force at one place of a queue."""

    queue: str
    place: str = Field(description="A workspace of Debusine; Copr's file or address.")
    state: Literal["in-force", "differs", "unseen"]
    since: Moment | None = Field(
        None, description="When fleet first saw them there; None: in this reading."
    )
    expected: int = Field(0, description="How many entries the rules of fleet.yaml become.")
    missing: tuple[MissingRule, ...] = ()
    extra: tuple[str, ...] = Field(
        (), description="Entries that fleet once wrote, or that no rule of fleet.yaml gives."
    )
    because: str = Field("", description="Why they cannot be seen.")
    fix: str = Field("", description="The command, or the key of fleet.yaml, that mends it.")
