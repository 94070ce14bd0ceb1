"""`fleet doctor`: check that all resources in fleet.yaml work, without changing them."""

import argparse
import os
import platform
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from fleet.apply.config import Config, load_config
from fleet.apply.doctor import CheckupInputs, advises_build, examine
from fleet.apply.plan import look, plan_for, priced
from fleet.apply.wire import wire
from fleet.cli.arguments import Parser, add_file, add_json
from fleet.cli.output import show
from fleet.clock import SystemClock
from fleet.clouds.kinds import clouds_of
from fleet.engines.projects import evaluate, load_project
from fleet.engines.pulumi_backends import GET_CLI, find_cli
from fleet.errors import EngineAbsent, SecretMissing, add_extra
from fleet.explain.case import Case
from fleet.explain.doctor import ABOUT_EXTRAS
from fleet.explain.gitlab import TOKEN, judge_gitlab, unchecked_gitlab
from fleet.model.doctor import CheckResult, wrong
from fleet.ports import Console
from fleet.queues.debusine.checkup import DebusineServer, check_database
from fleet.queues.gitlab import Gitlab
from fleet.report.answers import diagnosis_blocks
from fleet.schema.model import DebusineQueue, Fleet
from fleet.schema.sources import PROVIDERS, AdminDsn
from fleet.schema.units import SecretRef
from fleet.state.secrets import HostSecrets
from fleet.state.store import store_of


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet doctor`."""
    add_file(parser)
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the findings; return 1 if a check failed."""
    config = load_config(args, console)
    asked = _build_checkup_inputs(config, args.file)
    world = look(config, asked.sources, console)
    config = priced(config, world)
    console.progress(f"asking servers, databases and tools of fleet {config.fleet.fleet}")
    case = Case(config.fleet, world, plan_for(config, world))
    installed = partial(_check_installation, config.fleet, builds=advises_build(case))
    asked = replace(asked, further={**asked.further, "fleet": installed})
    diagnosis = examine(case, asked)
    show(args, console, diagnosis, diagnosis_blocks(diagnosis))
    return diagnosis.exit_code


def _build_checkup_inputs(config: Config, file: str) -> CheckupInputs:
    fleet = config.fleet
    secrets = HostSecrets.beside(file)
    store = store_of(fleet, file)
    return CheckupInputs(
        sources=wire(fleet, file),
        secrets=secrets,
        servers={
            name: DebusineServer(queue, _read_or_none(secrets, queue.token))
            for name, queue in fleet.queues.items()
            if isinstance(queue, DebusineQueue)
        },
        further={"fleet": tuple}  # in its place; `run` knows whether a build is advised
        | dict(_databases(fleet, secrets))
        | dict(_tools(fleet))
        | {"GitLab, variables": partial(_gitlab, fleet, Path(file).resolve().parent)},
        lock=store.lock_holder,
        lacking=dict(_lacking(fleet)),
        unchecked=dict(_list_unchecked(fleet, file)),
    )


def _read_or_none(secrets: HostSecrets, reference: SecretRef | None) -> str | None:
    """Return a secret; None if it is missing, because another finding reports that."""
    try:
        return secrets.read(reference) if reference else None
    except SecretMissing:
        return None


EXTRAS: Mapping[str, Sequence[str]] = {
    kind.extra: (f"pulumi_{kind.extra}",) for kind in PROVIDERS.values()
} | {
    "hcloud": ("pulumi_hcloud", "hcloud"),
    "images": ("ansible", "ansible_runner", "aiohttp"),
    "policies": ("pytest",),
    "postgres": ("psycopg",),
    "pulumi": ("pulumi",),
    "s3": ("boto3",),
    "solver": ("highspy",),
}
"""Optional dependency group (extra) of fleet to its Python modules."""


def _is_installed(extra: str) -> bool:
    return all(find_spec(module) for module in EXTRAS[extra])


def _lacking(fleet: Fleet) -> Iterator[tuple[str, str]]:
    for name, provider in fleet.providers.items():
        if not _is_installed(provider.extra):
            yield name, add_extra(provider.extra)


def find_missing(fleet: Fleet) -> Iterator[str]:
    """Yield a step to install each missing extra and a missing Pulumi CLI."""
    yield from dict.fromkeys(command for _, command in _lacking(fleet))
    if any(each.engine == "pulumi" for each in fleet.providers.values()):
        yield from (f"Pulumi CLI: {GET_CLI}" for each in _pulumi() if each.result == "wrong")


def _check_installation(fleet: Fleet, *, builds: bool) -> Sequence[CheckResult]:
    said = f"fleet {version('fleet-reconciler')} on Python {platform.python_version()}"
    found = CheckResult(about="fleet, version", result="ok", said=said)
    installed = {extra for extra in EXTRAS if _is_installed(extra)}
    return (found, judge_extras(fleet, installed, builds=builds))


def judge_extras(fleet: Fleet, installed: Collection[str], *, builds: bool) -> CheckResult:
    """Return a finding about fleet's extras; `wrong` if a provider's or a build's is missing.

    `builds`: another finding advises to build an image.
    """
    about = ABOUT_EXTRAS
    wanted = {each.extra for each in fleet.providers.values()}
    if missing := sorted(wanted.difference(installed)):
        return wrong(
            about,
            f"not installed, and needed to change machines: {', '.join(missing)}",
            add_extra(",".join(missing)),
        )
    if builds and "images" not in installed:
        said = "not installed, and needed for `fleet image build`: images"
        return CheckResult(about=about, result="wrong", said=said, fix=add_extra("images"))
    if "solver" not in installed:
        said = "the solver is not installed: plans are made first come, first served"
        return CheckResult(about=about, result="notice", said=said, fix=add_extra("solver"))
    absent = sorted(EXTRAS.keys() - installed)
    said = f"installed: {', '.join(sorted(installed))}"
    said += f"; not installed, and not needed: {', '.join(absent)}" if absent else ""
    return CheckResult(about=about, result="ok", said=said)


_Look = tuple[str, Callable[[], Sequence[CheckResult]]]


def _databases(fleet: Fleet, secrets: HostSecrets) -> Iterator[_Look]:
    for name, queue in fleet.queues.items():
        if not isinstance(queue, DebusineQueue):
            continue
        if queue.read is not None:
            about = f"queue {name}, database"
            yield about, partial(_database, secrets, queue.read, about=about, admin=False)
        if isinstance(queue.admin, AdminDsn):
            about = f"queue {name}, database to change workers"
            yield about, partial(_database, secrets, queue.admin.dsn, about=about, admin=True)


def _database(
    secrets: HostSecrets, reference: SecretRef, *, about: str, admin: bool
) -> Sequence[CheckResult]:
    return check_database(about, secrets.read(reference), admin=admin)


def _tools(fleet: Fleet) -> Iterator[_Look]:
    kinds = sorted({each.kind for each in fleet.providers.values() if each.engine == "pulumi"})
    if kinds:
        yield "Pulumi", _pulumi
    for kind in kinds:
        yield f"stacks/{kind}", partial(_program, kind)


def _pulumi() -> Sequence[CheckResult]:
    about = "Pulumi, version"
    try:
        return (CheckResult(about=about, result="ok", said=f"{find_cli()} fits"),)
    except EngineAbsent as error:
        return (CheckResult(about=about, result="wrong", said=str(error), fix=GET_CLI),)


def _gitlab(fleet: Fleet, folder: Path) -> Sequence[CheckResult]:
    """Check the GitLab project of the environment, or report why it was not checked.

    Return no finding if neither the environment nor a .gitlab-ci.yml refers to GitLab. The file is
    searched in `folder` (of fleet.yaml) and its parents.
    """
    names = (TOKEN, "CI_API_V4_URL", "CI_PROJECT_ID")
    token, api, project = (os.environ.get(name, "").strip() for name in names)
    if token and api and project:
        return tuple(judge_gitlab(fleet, Gitlab(api, project, token).settings()))
    places = (folder, *folder.parents)
    if not (token or api or any((place / ".gitlab-ci.yml").is_file() for place in places)):
        return ()
    missing = ", ".join(name for name in names if not os.environ.get(name, "").strip())
    said = f"not looked at; set {missing} (docs/how-to/run-in-gitlab.md)"
    return (unchecked_gitlab(said),)


def _program(project: str) -> Sequence[CheckResult]:
    program = load_project(project).program
    evaluate(lambda: program({"workers": []}), project=project, stack="of-nothing")
    return (CheckResult(about=f"stacks/{project}, program", result="ok", said="it runs"),)


def _list_unchecked(fleet: Fleet, file: str) -> Iterator[tuple[str, str]]:
    """Yield each fact that fleet cannot check, with a way to check the fact manually."""
    for name, queue in sorted(fleet.queues.items()):
        if isinstance(queue, DebusineQueue):
            if queue.read is None:
                yield (
                    f"queue {name}, version",
                    "not available over REST; run `dpkg-query -W debusine-server` on the server",
                )
            if queue.admin is not None and not isinstance(queue.admin, AdminDsn):
                command = shlex.join([*queue.admin, "worker", "list"])
                yield f"queue {name}, admin", f"not checked; run `{command}`"
    for name, cloud in sorted(clouds_of(fleet, file, SystemClock()).items()):
        yield from ((f"provider {name}, {what}", how) for what, how in cloud.unchecked())
