"""The results of `fleet doctor`: a finding per checked object.

An object that cannot be checked is `unchecked`, which is not `ok`.
"""

from datetime import datetime
from typing import Literal

from pydantic import Field

from fleet.errors import FleetError
from fleet.model.facts import Unknown
from fleet.model.values import Moment, Value
from fleet.schema.units import write_duration

_REPORTED_SKEW = 60
"""Clock difference in seconds that is reported. Runs are refused at ten minutes or more."""

Result = Literal["ok", "wrong", "notice", "unchecked"]


class CheckResult(Value):
    """The finding of a check on one object."""

    about: str = Field(description="The checked object, as `queue debian, token`.")
    result: Result = Field(description="`notice`: it works, and there is something to know.")
    said: str
    fix: str = Field(
        "", description="The command or the edit that fixes it; empty if no fix is needed."
    )


class Machinery(Value):
    """Counts of workers and work requests of one architecture. A count is None if unreported."""

    registered: int | None = None
    connected: int | None = None
    busy: int | None = None
    running: int | None = None
    pending: int | None = None


class Summary(Value):
    """The public status page of a Debusine server, as data."""

    server_time: Moment | None = Field(description="Time of its clock; None: not reported.")
    asked_at: Moment = Field(description="Time of fleet's clock.")
    architectures: dict[str, Machinery] = Field(
        description="Architecture to its external workers; `any`: work without an architecture."
    )


class CiVariable(Value):
    """A variable of a GitLab project, without its value, and the jobs that receive it."""

    name: str
    protected: bool = Field(description="Only jobs of protected branches and tags have it.")
    masked: bool = Field(description="Logs do not show its value.")
    scope: str = Field(description="The environments whose jobs have it; `*`: every job.")


class CiProject(Value):
    """The settings of a GitLab project that decide which jobs receive its variables."""

    default_branch: str
    configuration: str = Field(description="`FILE`, or `FILE@PROJECT`.")
    protected_branches: tuple[str, ...] = Field(description="Names; `*` matches any text.")
    opens_to_merge_requests: bool | None = Field(
        description="Whether pipelines of merge requests between protected branches get Protected "
        "variables; None: not reported by this GitLab."
    )
    variables: tuple[CiVariable, ...]


class QueueWait(Value):
    """The number and waiting times of requests of one queue and architecture."""

    queue: str
    architecture: str
    waiting: int
    oldest_seconds: int | None
    median_seconds: int | None
    machinery: Machinery | None = Field(description="None: not reported by the server.")


class NextStep(Value):
    """A next step for the operator: a command or an edit, and the objects concerned."""

    do: str
    about: tuple[str, ...] = Field(
        description="Objects of the findings that it fixes; empty: no finding."
    )


class Diagnosis(Value):
    """The output of `fleet doctor`."""

    format: Literal["fleet-doctor-1"] = "fleet-doctor-1"
    fleet: str
    time: Moment
    findings: tuple[CheckResult, ...]
    waits: tuple[QueueWait, ...]
    next_steps: tuple[NextStep, ...] = Field((), description="The most important step first.")

    @property
    def exit_code(self) -> int:
        """Return 1 if a finding is `wrong`, else 0. Notices and unchecked objects do not count."""
        return int(any(finding.result == "wrong" for finding in self.findings))


def judge(result: Result, about: str, said: str, fix: str = "") -> CheckResult:
    """Return the finding of a check."""
    return CheckResult(about=about, result=result, said=said, fix=fix)


def wrong(about: str, found: FleetError | Unknown | str, fix: str) -> CheckResult:
    """Return a finding for an error. Its fix is the command that `found` names, or else `fix`."""
    said = found.unknown if isinstance(found, Unknown) else str(found)
    own = "" if isinstance(found, str) else found.fix
    return judge("wrong", about, said, own or fix)


def judge_clock(about: str, *, theirs: datetime | None, ours: datetime) -> CheckResult:
    """Return a finding on the difference between the clocks of a server and this computer."""
    if theirs is None:
        return judge("unchecked", about, "it reports no time")
    skew = int((theirs - ours).total_seconds())
    if abs(skew) <= _REPORTED_SKEW:
        return judge("ok", about, f"within {_REPORTED_SKEW} s of this clock")
    ahead = "ahead of" if skew > 0 else "behind"
    said = f"its clock is {write_duration(abs(skew))} {ahead} this computer's"
    return wrong(about, said, "timedatectl set-ntp true, on the computer with the wrong clock")
