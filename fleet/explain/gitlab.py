"""Check if a GitLab project protects the variables of fleet from merge requests."""

import re
from collections.abc import Iterator

from fleet.model.doctor import CheckResult, CiProject, CiVariable, Result
from fleet.schema.model import CommandSecret, EnvSecret, Fleet, secrets_in

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
    yield _default_branch(project)
    yield _merge_requests(project)
    if "@" in project.configuration:
        yield _finding("configuration", "ok", f"{project.configuration}, elsewhere")
    else:
        said = f"{project.configuration} is in this project: a merge request may change its jobs"
        fix = "Settings, CI/CD, General pipelines, CI/CD configuration file: FILE@PROJECT"
        yield _finding("configuration", "notice", said, fix)


def unchecked_gitlab(said: str) -> CheckResult:
    """Return a finding that GitLab was not queried. `said` is the reason."""
    return _finding("variables", "unchecked", said)


def _finding(about: str, result: Result, said: str, fix: str = "") -> CheckResult:
    fix = f"GitLab: {fix}" if fix else ""
    return CheckResult(about=f"GitLab, {about}", result=result, said=said, fix=fix)


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


def _default_branch(project: CiProject) -> CheckResult:
    name = project.default_branch
    patterns = (".*".join(map(re.escape, p.split("*"))) for p in project.protected_branches)
    if any(re.fullmatch(pattern, name) for pattern in patterns):
        return _finding("default branch", "ok", f"{name} is protected")
    said = f"{name} is not protected: it gets no Protected variable, and developers may push to it"
    return _finding("default branch", "wrong", said, "Settings, Repository, Protected branches")


def _merge_requests(project: CiProject) -> CheckResult:
    about = "merge requests"
    fix = f"{_SETTINGS}: merge request pipelines, no access to protected variables"
    if project.opens_to_merge_requests is None:
        said = "this GitLab does not say whether their pipelines get Protected variables"
        return _finding(about, "unchecked", said, fix)
    if project.opens_to_merge_requests:
        said = "between protected branches their pipelines get Protected variables"
        return _finding(about, "notice", said, fix)
    return _finding(about, "ok", "their pipelines get no Protected variable")
