"""Check if a GitLab project protects the variables of fleet from merge requests."""

import re
from collections.abc import Iterator

from fleet.model.doctor import CheckResult, CiProject, CiVariable, wrong
from fleet.schema.model import CommandSecret, EnvSecret, Fleet, secrets_in

TOKEN = "FLEET_GITLAB_MAINTAINER_TOKEN"  # noqa: S105 - the name of a variable
_ABOUT = "GitLab, "
_SETTINGS = "GitLab: Settings, CI/CD, Variables"
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
    yield from _variables(fleet, project)
    yield _default_branch(project)
    yield _merge_requests(project)
    yield _configuration(project)


def unchecked_gitlab(said: str) -> CheckResult:
    """Return a finding that GitLab was not queried. `said` is the reason."""
    return CheckResult(about=f"{_ABOUT}variables", result="unchecked", said=said)


def _variables(fleet: Fleet, project: CiProject) -> Iterator[CheckResult]:
    named = _declared_variables(fleet)
    known = {each.name for each in project.variables}
    for name, whose in sorted((_IMPLICIT | named).items()):
        for each in project.variables:
            if each.name == name:
                yield _variable(each, whose)
        if name in named and name not in known:
            said = f"the project has no such variable ({whose}); look for it in the group's"
            yield CheckResult(about=f"{_ABOUT}variable {name}", result="unchecked", said=said)


def _declared_variables(fleet: Fleet) -> dict[str, str]:
    """Map each environment variable in fleet.yaml to the path of the key that names it."""
    found: dict[str, str] = {}
    for path, secret in secrets_in(fleet):
        match secret:
            case EnvSecret(env=name):
                found.setdefault(name, path)
            case CommandSecret(environment=names):
                found.update((name, path) for name in names if name not in found)
    return found


def _variable(variable: CiVariable, whose: str) -> CheckResult:
    about = f"{_ABOUT}variable {variable.name}"
    fix = f"{_SETTINGS}, {variable.name}"
    has = f"{whose}, environment {variable.scope}"
    lacks = [
        *(["is not Protected: jobs of every branch have it"] if not variable.protected else []),
        *(["is not scoped: every job may have it"] if variable.scope == _EVERY else []),
    ]
    if lacks:
        return wrong(about, f"{has}: {'; '.join(lacks)}", f"{fix}: Protected, one environment")
    if not variable.masked:
        said = f"{has}: is not masked, so a log may show it"
        return CheckResult(about=about, result="notice", said=said, fix=f"{fix}: Masked")
    return CheckResult(about=about, result="ok", said=f"{has}: Protected, scoped and masked")


def _default_branch(project: CiProject) -> CheckResult:
    about = f"{_ABOUT}default branch"
    name = project.default_branch
    if any(_matches(pattern, name) for pattern in project.protected_branches):
        return CheckResult(about=about, result="ok", said=f"{name} is protected")
    said = f"{name} is not protected: it gets no Protected variable, and developers may push to it"
    return wrong(about, said, "GitLab: Settings, Repository, Protected branches")


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def _merge_requests(project: CiProject) -> CheckResult:
    about = f"{_ABOUT}merge requests"
    fix = f"{_SETTINGS}: merge request pipelines, no access to protected variables"
    match project.opens_to_merge_requests:
        case True:
            said = "between protected branches their pipelines get Protected variables"
            return CheckResult(about=about, result="notice", said=said, fix=fix)
        case False:
            said = "their pipelines get no Protected variable"
            return CheckResult(about=about, result="ok", said=said)
        case None:
            said = "this GitLab does not say whether their pipelines get Protected variables"
            return CheckResult(about=about, result="unchecked", said=said, fix=fix)


def _configuration(project: CiProject) -> CheckResult:
    about = f"{_ABOUT}configuration"
    if "@" in project.configuration:
        return CheckResult(about=about, result="ok", said=f"{project.configuration}, elsewhere")
    said = f"{project.configuration} is in this project: a merge request may change its jobs"
    fix = "GitLab: Settings, CI/CD, General pipelines, CI/CD configuration file: FILE@PROJECT"
    return CheckResult(about=about, result="notice", said=said, fix=fix)
