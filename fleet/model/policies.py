"""Results of a fleet's own policies: one for each test function of each file."""

from typing import Literal

from pydantic import Field

from fleet.model.values import Value

Outcome = Literal["passed", "failed", "broken", "skipped"]
"""`failed`: the policy does not hold. `broken`: the policy itself is wrong or did not finish."""


class Failure(Value):
    """One objection of a policy, or one error of the policy itself."""

    message: str
    line: int = Field(1, description="Line of the policy, counted from 1.")
    path: tuple[str | int, ...] = Field((), description="Key of fleet.yaml, if stated.")


class PolicyTest(Value):
    """One test function of a policy, or `import` for a file that could not be read."""

    file: str
    name: str
    line: int = 1
    outcome: Outcome
    seconds: float = 0
    failures: tuple[Failure, ...] = ()
    text: str = Field("", description="The failure as pytest shows it.")
