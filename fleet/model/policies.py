"""Results of a fleet's policies: a result per test function of each policy file."""

from typing import Literal

from pydantic import Field

from fleet.model.values import Value

Outcome = Literal["passed", "failed", "broken", "skipped"]
"""`failed`: the fleet violates the policy. `broken`: the policy has an error or did not finish."""


class Failure(Value):
    """A violation of a policy, or an error in the policy itself."""

    message: str
    line: int = Field(1, description="Line of the policy, counted from 1.")
    path: tuple[str | int, ...] = Field((), description="Key of fleet.yaml, if stated.")


class PolicyTest(Value):
    """The result of a test function. A file that could not be imported has the name `import`."""

    file: str
    name: str
    line: int = 1
    outcome: Outcome
    seconds: float = 0
    failures: tuple[Failure, ...] = ()
    text: str = Field("", description="The failure as pytest shows it.")
