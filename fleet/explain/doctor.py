"""Evaluate the observations of `fleet doctor`: demand, waits, workers and the GitLab project."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from statistics import median

from fleet.explain.asked import Asked
from fleet.explain.case import Case
from fleet.model.doctor import (
    CheckResult,
    CiProject,
    CiVariable,
    Machinery,
    NextStep,
    QueueWait,
    Result,
    Summary,
    judge,
    wrong,
)
from fleet.model.facts import Demand, Request, Unknown
from fleet.schema.model import CommandSecret, EnvSecret, Fleet, secrets_in
from fleet.schema.units import write_duration
from fleet.tagrules.sources import BUILD_ARCH
from fleet.words.answers import describe_unservable

ABOUT_EXTRAS = "fleet, extras"
"""The subject of the finding on fleet's Python extras."""
ANY = "any"
"""The architecture of requests that require no architecture."""

Summaries = Mapping[str, Summary]


def judge_demand(case: Case, summaries: Summaries) -> Iterator[CheckResult]:
    """Yield a finding on the demand of each queue, and on requests that no worker can ever run."""
    estimates = {estimate.queue: estimate for estimate in case.plan.estimates}
    for queue, reading in sorted(case.world.queues.items()):
        about = f"queue {queue}, demand"
        if isinstance(reading.demand, Unknown):
            yield wrong(about, reading.demand, f"see queues.{queue} in fleet.yaml")
            continue
        if queue in estimates:
            yield judge("notice", about, estimates[queue].because, "fleet debusine grants")
        else:
            count = sum(request.count for request in reading.demand.requests)
            waits = "1 request waits" if count == 1 else f"{count:,} requests wait"
            yield judge("ok", about, f"{waits} without a worker")
        yield from _unservable_requests(case, queue)
        if queue in summaries:
            yield from _requests_without_workers(case, queue, reading.demand, summaries[queue])


def find_waits(case: Case, summaries: Summaries) -> Iterator[QueueWait]:
    """Yield the waiting times and running work per queue and architecture, sorted by name."""
    for queue, reading in sorted(case.world.queues.items()):
        if isinstance(reading.demand, Unknown):
            continue
        waiting = _group_by_architecture(reading.demand.requests)
        known = summaries[queue].architectures if queue in summaries else None
        for architecture in sorted(waiting.keys() | (known or {}).keys()):
            requests = waiting.get(architecture, [])
            seconds = _seconds(requests, case.world.time)
            yield QueueWait(
                queue=queue,
                architecture=architecture,
                waiting=sum(request.count for request in requests),
                oldest_seconds=max(seconds, default=None),
                median_seconds=int(median(seconds)) if seconds else None,
                machinery=None if known is None else known.get(architecture, Machinery()),
            )


def find_steps(findings: Sequence[CheckResult], *, has_run: bool) -> Iterator[NextStep]:
    """Yield the next steps: for failures first, then for notices, then for unchecked findings.

    Findings share a step if their remedy is equal, or if a finding repeats another finding.
    """
    steps: dict[str, list[str]] = {}
    causes: dict[str, str] = {}
    for result in ("wrong", "notice", "unchecked"):
        for each in findings:
            if each.result == result and (each.fix or result == "wrong"):
                do = causes.setdefault(
                    each.said, each.fix or f"look into {each.about}: {each.said}"
                )
                steps.setdefault(do, []).append(each.about)
    # Other steps may need the extras.
    in_turn = sorted(steps.items(), key=lambda step: ABOUT_EXTRAS not in step[1])
    yield from (NextStep(do=do, about=tuple(about)) for do, about in in_turn)
    if any(each.result == "wrong" for each in findings):
        yield NextStep(do="fleet doctor", about=())
    elif not has_run:
        yield NextStep(do="fleet plan", about=())
        yield NextStep(do="fleet apply", about=())


def _unservable_requests(case: Case, queue: str) -> Iterator[CheckResult]:
    """Yield a finding per reason for requests that no worker of this fleet can ever run."""
    hopeless: defaultdict[str, list[str]] = defaultdict(list)
    for unserved in case.plan.unserved if case.fleet.pools else ():
        about = Asked(case, unserved.requests[0])
        if about.signature.queue == queue and about.never:
            hopeless[unserved.because] += unserved.requests
    for because, keys in sorted(hopeless.items()):
        said = describe_unservable(_names(keys), because)
        fix = f"fleet explain request {keys[0]}"
        yield judge("notice", f"queue {queue}, requests", said, fix)


def _requests_without_workers(
    case: Case, queue: str, demand: Demand, summary: Summary
) -> Iterator[CheckResult]:
    """Yield a finding per required architecture that has neither a connected worker nor a pool."""
    offered = {tag for offer in case.decider.offers.values() for tag in offer.provides}
    for architecture, requests in sorted(_group_by_architecture(demand.requests).items()):
        tag = f"{BUILD_ARCH}{architecture}"
        known = summary.architectures.get(architecture, Machinery())
        if architecture == ANY or known.connected or tag in offered:
            continue
        workers = (
            f"the server has {known.registered} such workers, all disconnected"
            if known.registered
            else "the server has no such worker"
        )
        oldest = max(_seconds(requests, case.world.time), default=0)
        keys = [f"{queue}/{request.id}" for request in requests for _ in range(request.count)]
        yield CheckResult(
            about=f"queue {queue}, {architecture}",
            result="notice",
            said=f"{_names(keys)} wait{'s' if len(keys) == 1 else ''} for a worker that provides "
            f"{tag}, the longest for {write_duration(oldest)}: {workers}, and no pool here "
            "provides it",
            fix=f"add a pool whose image is of architecture {architecture}",
        )


def _group_by_architecture(requests: Sequence[Request]) -> dict[str, list[Request]]:
    found: defaultdict[str, list[Request]] = defaultdict(list)
    for request in requests:
        tags = [tag for tag in request.required if tag.startswith(BUILD_ARCH)]
        for tag in tags or [ANY]:
            found[tag.removeprefix(BUILD_ARCH)].append(request)
    return dict(found)


def _seconds(requests: Sequence[Request], now: datetime) -> list[int]:
    return [
        max(0, int((now - request.pending_since).total_seconds()))
        for request in requests
        if request.pending_since
        for _ in range(request.count)
    ]


def _names(keys: Sequence[str]) -> str:
    if len(keys) == 1:
        return f"request {keys[0]}"
    return f"{len(keys):,} requests (as {keys[0]})"


TOKEN = "FLEET_GITLAB_MAINTAINER_TOKEN"  # noqa: S105 - the name of a variable
_SETTINGS = "Settings, CI/CD, Variables"
_EVERY = "*"
_IMPLICIT = {
    TOKEN: "`fleet doctor`",
    "FLEET_GITLAB_TOKEN": "`fleet report`",
    "PGPASSWORD": "PostgreSQL",
    "AWS_ACCESS_KEY_ID": "AWS",
    "AWS_SECRET_ACCESS_KEY": "AWS",
    "AWS_SESSION_TOKEN": "AWS",
}
"""Variables that fleet or a library reads although fleet.yaml does not name them, to the program
that reads the variable."""


def judge_gitlab(fleet: Fleet, project: CiProject) -> Iterator[CheckResult]:
    """Yield a finding per variable of fleet, then a finding per relevant project setting."""
    declared = _declared_variables(fleet)
    for name, user in sorted((_IMPLICIT | declared).items()):
        found = [each for each in project.variables if each.name == name]
        yield from (_variable(each, user) for each in found)
        if name in declared and not found:
            said = f"the project has no such variable ({user}); look for it in the group's"
            yield _finding(f"variable {name}", "unchecked", said)
    name, place = project.default_branch, project.configuration
    patterns = (".*".join(map(re.escape, p.split("*"))) for p in project.protected_branches)
    if any(re.fullmatch(pattern, name) for pattern in patterns):
        yield _finding("default branch", "ok", f"{name} is protected")
    else:
        why = "it gets no Protected variable, and developers may push to it"
        fix = "Settings, Repository, Protected branches"
        yield _finding("default branch", "wrong", f"{name} is not protected: {why}", fix)
    yield _finding("merge requests", *_MERGE_REQUESTS[project.opens_to_merge_requests])
    if "@" in place:
        yield _finding("configuration", "ok", f"{place}, elsewhere")
    else:
        said = f"{place} is in this project: a merge request may change its jobs"
        fix = "Settings, CI/CD, General pipelines, CI/CD configuration file: FILE@PROJECT"
        yield _finding("configuration", "notice", said, fix)


_CLOSE = f"{_SETTINGS}: merge request pipelines, no access to protected variables"
_MERGE_REQUESTS: Mapping[bool | None, tuple[Result, str, str]] = {
    None: (
        "unchecked",
        "this GitLab does not say whether their pipelines get Protected variables",
        _CLOSE,
    ),
    True: ("notice", "between protected branches their pipelines get Protected variables", _CLOSE),
    False: ("ok", "their pipelines get no Protected variable", ""),
}
"""Whether merge requests get Protected variables (None: unknown), to the finding."""


def unchecked_gitlab(said: str) -> CheckResult:
    """Return a finding that GitLab was not queried. `said` is the reason."""
    return _finding("variables", "unchecked", said)


def _finding(about: str, result: Result, said: str, fix: str = "") -> CheckResult:
    return judge(result, f"GitLab, {about}", said, f"GitLab: {fix}" if fix else "")


def _declared_variables(fleet: Fleet) -> dict[str, str]:
    """Map each environment variable in fleet.yaml to the path of the key that names it."""
    found: dict[str, str] = {}
    for path, secret in secrets_in(fleet):
        match secret:
            case EnvSecret(env=name):
                found.setdefault(name, path)
            case CommandSecret(environment=names):
                found = dict.fromkeys(names, path) | found
    return found


def _variable(variable: CiVariable, user: str) -> CheckResult:
    about, fix = f"variable {variable.name}", f"{_SETTINGS}, {variable.name}"
    has = f"{user}, environment {variable.scope}"
    missing = [
        *(["is not Protected: jobs of every branch have it"] if not variable.protected else []),
        *(["is not scoped: every job may have it"] if variable.scope == _EVERY else []),
    ]
    if missing:
        said = f"{has}: {'; '.join(missing)}"
        return _finding(about, "wrong", said, f"{fix}: Protected, one environment")
    if not variable.masked:
        said = f"{has}: is not masked, so a log may show it"
        return _finding(about, "notice", said, f"{fix}: Masked")
    return _finding(about, "ok", f"{has}: Protected, scoped and masked")
