"""This module holds what a plan says of limits: how many machines somebody may have, and has."""

from pydantic import Field

from fleet.facts.values import Value


class LimitVerdict(Value):
    """How far one limit is used up by somebody, this plan counted."""

    path: tuple[str | int, ...] = Field(description="The key of fleet.yaml that sets the limit.")
    who: str | None = Field(
        None, description="Whose machines count; None: everybody's, or nobody knows whose."
    )
    limit: int = Field(description="How many machines these may be at one time.")
    in_use: int = Field(description="Machines that run work which counts, or may count.")
    given: int = Field(
        description="Requests that get a free machine or a new one, guards not yet asked."
    )
    waiting: int = Field(description="Requests that count as well and wait on.")
