"""What came of a fleet's own policies: one result for each test function of each file."""

from typing import Literal

from pydantic import Field

from fleet.model.values import Value

Outcome = Literal["passed", "failed", "broken", "skipped"]
"""`failed`: the policy does not hold. `broken`: the policy itself did not come to an end."""


class Failure(Value):
    """One thing that a policy objects to, or that is wrong with the policy itself."""

    message: str
    line: int = Field(1, description="Line of the policy, counted from 1.")
    path: tuple[str | int, ...] = Field((), description="The key of fleet.yaml, if it names one.")


class PolicyTest(Value):
    """One test function of a policy, or the file where it could not be read at all."""

    name: str
    line: int = 1
    outcome: Outcome
    seconds: float = 0
    failures: tuple[Failure, ...] = ()
    more: int = Field(0, description="Further failures, which are only counted.")
    text: str = Field("", description="What pytest shows of the failure.")


class PolicyFile(Value):
    """What came of one file of policies."""

    file: str
    tests: tuple[PolicyTest, ...] = ()
    output: str = Field("", description="The beginning of what it printed.")
    dropped: int = Field(0, description="Bytes that it printed beyond that.")
