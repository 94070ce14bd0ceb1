"""Judge whether a GitLab project keeps the variables of fleet from merge requests."""

import re
from collections.abc import Iterator

from fleet.model.doctor import CiProject, CiVariable, Finding, wrong
from fleet.schema.model import CommandSecret, EnvSecret, Fleet, secrets_in

TOKEN = "FLEET_GITLAB_MAINTAINER_TOKEN"  # noqa: S105 - the name of a variable
_ABOUT = "GitLab, "
_SETTINGS = "GitLab: Settings, CI/CD, Variables"
_EVERY = "*"
_UNNAMED = {
    TOKEN: "`fleet doctor`",
    "FLEET_GITLAB_TOKEN": "`fleet report`",
    "PGPASSWORD": "PostgreSQL",
    "AWS_ACCESS_KEY_ID": "AWS",
    "AWS_SECRET_ACCESS_KEY": "AWS",
    "AWS_SESSION_TOKEN": "AWS",
}
"""Variables that fleet or a library reads without fleet.yaml naming them, and for whom."""


def judge_gitlab(fleet: Fleet, project: CiProject) -> Iterator[Finding]:
    """Yield how each variable of fleet is kept, then what the project's settings do to them."""
    yield from _variables(fleet, project)
    yield _default_branch(project)
    yield _merge_requests(project)
    yield _configuration(project)


def unchecked_gitlab(because: str) -> Finding:
    """Return that nobody asked GitLab, and why."""
    return Finding(about=f"{_ABOUT}variables", result="unchecked", said=because)


def _variables(fleet: Fleet, project: CiProject) -> Iterator[Finding]:
    named = _named(fleet)
    known = {each.name for each in project.variables}
    for name, whose in sorted((_UNNAMED | named).items()):
        for each in project.variables:
            if each.name == name:
                yield _variable(each, whose)
        if name in named and name not in known:
            said = f"the project has no such variable ({whose}); look for it in the group's"
            yield Finding(about=f"{_ABOUT}variable {name}", result="unchecked", said=said)


def _named(fleet: Fleet) -> dict[str, str]:
    """Return the environment variables that fleet.yaml names, with the key that does."""
    found: dict[str, str] = {}
    for path, secret in secrets_in(fleet):
        match secret:
            case EnvSecret(env=name):
                found.setdefault(name, path)
            case CommandSecret(environment=names):
                found.update((name, path) for name in names if name not in found)
    return found


def _variable(variable: CiVariable, whose: str) -> Finding:
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
        return Finding(about=about, result="notice", said=said, fix=f"{fix}: Masked")
    return Finding(about=about, result="ok", said=f"{has}: Protected, scoped and masked")


def _default_branch(project: CiProject) -> Finding:
    about = f"{_ABOUT}default branch"
    name = project.default_branch
    if any(_matches(pattern, name) for pattern in project.protected_branches):
        return Finding(about=about, result="ok", said=f"{name} is protected")
    said = f"{name} is not protected: it gets no Protected variable, and developers may push to it"
    return wrong(about, said, "GitLab: Settings, Repository, Protected branches")


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def _merge_requests(project: CiProject) -> Finding:
    about = f"{_ABOUT}merge requests"
    fix = f"{_SETTINGS}: merge request pipelines, no access to protected variables"
    match project.opens_to_merge_requests:
        case True:
            said = "between protected branches their pipelines get Protected variables"
            return Finding(about=about, result="notice", said=said, fix=fix)
        case False:
            said = "their pipelines get no Protected variable"
            return Finding(about=about, result="ok", said=said)
        case None:
            said = "this GitLab does not say whether their pipelines get Protected variables"
            return Finding(about=about, result="unchecked", said=said, fix=fix)


def _configuration(project: CiProject) -> Finding:
    about = f"{_ABOUT}configuration"
    if "@" in project.configuration:
        return Finding(about=about, result="ok", said=f"{project.configuration}, elsewhere")
    said = f"{project.configuration} is in this project: a merge request may change its jobs"
    fix = "GitLab: Settings, CI/CD, General pipelines, CI/CD configuration file: FILE@PROJECT"
    return Finding(about=about, result="notice", said=said, fix=fix)
