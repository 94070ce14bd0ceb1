"""`fleet doctor`: check that all resources in fleet.yaml work, without changing them."""

import argparse
import os
import platform
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from fleet.apply.config import Config, load_config
from fleet.apply.observe import Sources
from fleet.apply.plan import observe_with_progress, plan_for, priced
from fleet.apply.rebuild import find_listed
from fleet.apply.timer import find_clock_faults
from fleet.apply.wire import wire
from fleet.cli.arguments import FILE, JSON
from fleet.cli.output import show
from fleet.clock import SystemClock
from fleet.clouds.kinds import clouds_of
from fleet.engines.projects import evaluate, load_project
from fleet.engines.pulumi_cli import GET_CLI, find_cli
from fleet.errors import (
    EngineAbsent,
    FleetError,
    SecretMissing,
    StoreFailed,
    StoreMissing,
    add_extra,
)
from fleet.explain.case import Case
from fleet.explain.doctor import (
    ABOUT_EXTRAS,
    TOKEN,
    find_steps,
    find_waits,
    judge_demand,
    judge_gitlab,
    unchecked_gitlab,
)
from fleet.explain.troubles import find_troubles
from fleet.model.decisions import SizeReason
from fleet.model.doctor import CheckResult, Diagnosis, Result, Summary, judge, judge_clock, wrong
from fleet.model.facts import Listing, Stack, Unknown
from fleet.planner.assembly import IMAGE_PAGE
from fleet.planner.budgets import spending_limits
from fleet.planner.images import find_image_troubles
from fleet.ports import Console, Server
from fleet.queues.debusine.checkup import DebusineServer, check_database
from fleet.queues.gitlab import Gitlab
from fleet.report.answers import diagnosis_blocks
from fleet.schema.model import (
    CoprQueue,
    DebusineQueue,
    Fleet,
    HooksProvider,
    Secret,
    TicketQueue,
    secrets_in,
)
from fleet.schema.sources import PROVIDERS, AdminDsn
from fleet.schema.units import CommandSecret, EnvSecret, FileSecret, SecretRef, write_time
from fleet.state.secrets import HostSecrets
from fleet.state.store import store_of
from fleet.tagrules.export import describe_rules, has_own_rules, places_of
from fleet.words.answers import describe_persons_order
from fleet.words.images import describe_waiting
from fleet.words.runs import describe_killed, explain_lost_store
from fleet.words.waiting import NO_CONTACT

_STORE = "state, store"
_NO_RUN = "no run yet"
_SET_CLOCK = "timedatectl set-ntp true; fleet apply --trust-clock, if this clock is right"


@dataclass(frozen=True)
class CheckupInputs:
    """The adapters that a check-up needs in addition to the adapters of a plan."""

    sources: Sources
    secrets: HostSecrets
    servers: Mapping[str, Server] = field(default_factory=dict)
    """Queue to server, for queues whose server reports its status."""
    further: Mapping[str, Callable[[], Sequence[CheckResult]]] = field(default_factory=dict)
    """Name of an additional check to its function, which returns findings or raises FleetError."""
    lock: Callable[[], tuple[str, str] | None] = lambda: None
    """Returns the owner of the fleet's lock and the start of the lock; None if it is free."""
    lacking: Mapping[str, str] = field(default_factory=dict)
    """Provider to the command that installs the missing Python extra of its engine."""
    unchecked: Mapping[str, str] = field(default_factory=dict)
    """Subject that fleet cannot check to instructions for a manual check."""


def examine(case: Case, asked: CheckupInputs) -> Diagnosis:
    """Return the results of all checks, each subject before the subjects that depend on it."""
    summaries: dict[str, Summary] = {}
    findings = (
        *_secrets(case, asked),
        *_servers(case, asked, summaries),
        *judge_demand(case, summaries),
        *_rules(case),
        *_registries(case),
        *_providers(case),
        *_engines(case, asked),
        *_state(case, asked),
        *_images(case),
        *_troubles(case),
        *_further(case.fleet, asked),
        *(judge("unchecked", *each) for each in asked.unchecked.items()),
    )
    # Other subjects repeat an error of the store.
    errors = {each.said for each in findings if (each.about, each.result) == (_STORE, "wrong")}
    found = tuple(
        each
        for each in findings
        if each.about == _STORE or not any(error in each.said for error in errors)
    )
    # A fleet that only observes queues needs no apply.
    has_run = not case.fleet.pools or not any(each.said == _NO_RUN for each in found)
    return Diagnosis(
        fleet=case.fleet.fleet,
        time=case.world.time,
        findings=found,
        waits=tuple(find_waits(case, summaries)),
        next_steps=tuple(find_steps(found, has_run=has_run)),
    )


def _secrets(case: Case, asked: CheckupInputs) -> Iterator[CheckResult]:
    for path, reference in secrets_in(case.fleet):
        about = f"secret {path}"
        try:
            asked.secrets.read(reference)
        except SecretMissing as error:
            yield wrong(about, error, _fix_for(reference))
            continue
        exposed = asked.secrets.exposure(reference)
        yield judge("notice", about, *exposed) if exposed else judge("ok", about, "found")


def _fix_for(reference: Secret) -> str:
    match reference:
        case EnvSecret():
            return f"export {reference.env}=…"
        case FileSecret():
            return f"install -m 600 /dev/stdin {reference.file}"
        case CommandSecret():
            return " ".join(reference.command)


def _servers(
    case: Case, asked: CheckupInputs, summaries: dict[str, Summary]
) -> Iterator[CheckResult]:
    for queue, server in sorted(asked.servers.items()):
        try:
            summary = summaries[queue] = server.summary()
        except FleetError as error:
            yield wrong(f"queue {queue}, server", error, f"see queues.{queue}.url in fleet.yaml")
            continue
        yield judge("ok", f"queue {queue}, server", "it answers")
        yield judge_clock(
            f"queue {queue}, clock", theirs=summary.server_time, ours=summary.asked_at
        )
        yield _check_token(case, queue, server)
        yield _check_counts(queue, server)


def _check_token(case: Case, queue: str, server: Server) -> CheckResult:
    about = f"queue {queue}, token"
    declared = case.fleet.queues[queue]
    if isinstance(declared, DebusineQueue) and declared.token is None:
        return judge("unchecked", about, f"no token; set queues.{queue}.token to use REST")
    try:
        user = server.user()
    except FleetError as error:
        return wrong(about, error, f"see queues.{queue} in fleet.yaml")
    if not user:
        return wrong(
            about, "the server does not recognise this token", "debusine-admin create_token USER"
        )
    return judge("ok", about, f"token of user {user}")


def _check_counts(queue: str, server: Server) -> CheckResult:
    about = f"queue {queue}, second witness"
    try:
        counted = server.counts()
    except FleetError as error:
        return wrong(
            about, error, f"allow this computer to read open-metrics of queues.{queue}.url"
        )
    told = ", ".join(f"{scope} {count:,}" for scope, count in sorted(counted.items()))
    return judge("ok", about, f"pending by scope: {told}")


def _rules(case: Case) -> Iterator[CheckResult]:
    """Yield, per queue, a result that says if its server has the tag rules of fleet.yaml."""
    for verdict in case.plan.rules:
        about = f"queue {verdict.queue}, rules of {verdict.place}"
        see = f"see queues.{verdict.queue}.rules in fleet.yaml"
        fix = {"in-force": "", "unseen": see}.get(verdict.state, verdict.fix)
        kind: Result = "ok" if verdict.state == "in-force" else "wrong"
        yield judge(kind, about, describe_rules(verdict), fix)
    for queue in sorted(case.fleet.queues):
        if has_own_rules(case.fleet, queue) and not places_of(case.fleet, queue):
            yield judge(
                "unchecked",
                f"queue {queue}, rules",
                "cannot check whether the queue has the rules of fleet.yaml: set "
                f"queues.{queue}.rules",
            )


def _registries(case: Case) -> Iterator[CheckResult]:
    for queue, reading in sorted(case.world.queues.items()):
        declared = case.fleet.queues.get(queue)
        if isinstance(declared, CoprQueue | TicketQueue):
            continue  # ticket machines have no registry; Copr's are given out by tickets
        is_server = isinstance(declared, DebusineQueue)
        key = f"queues.{queue}.{'read' if is_server else 'path'}"
        about = f"queue {queue}, workers"
        match reading.workers:
            case None if not is_server:
                yield judge(
                    "unchecked", about, "the recording has no workers; using the provider's list"
                )
            case None:
                said = f"unknown which workers are idle or busy: REST does not say; set {key}"
                yield judge("unchecked", about, said, "fleet debusine grants")
            case Unknown() as unread:
                yield wrong(about, unread, f"see {key} in fleet.yaml")
            case workers:
                yield judge("ok", about, f"{len(workers):,} registered")


def _providers(case: Case) -> Iterator[CheckResult]:
    for name, listing in sorted(case.world.providers.items()):
        about = f"provider {name}, machines"
        if isinstance(listing, Listing):
            yield judge("ok", about, f"{len(listing.machines):,} of this fleet")
        else:
            provider = case.fleet.providers.get(name)
            own = isinstance(provider, HooksProvider)  # from `providers`, or of a pool
            where = f"the commands of {name}" if own else f"providers.{name}"
            yield wrong(about, listing, f"see {where} in fleet.yaml")


def _engines(case: Case, asked: CheckupInputs) -> Iterator[CheckResult]:
    for name in sorted(case.fleet.providers):
        about = f"provider {name}, engine"
        engine = asked.sources.engine_of(name)
        if name in asked.lacking:  # the embedded engine also runs programs of Pulumi's SDK
            yield wrong(about, "what it needs is not installed", asked.lacking[name])
        elif engine.name == "pulumi" and case.fleet.state.passphrase is None:
            said = "no passphrase to encrypt the secrets in stack state"
            yield wrong(about, said, "state: {passphrase: {env: NAME}} in fleet.yaml")
        else:
            yield judge("ok", about, engine.name)


def _state(case: Case, asked: CheckupInputs) -> Iterator[CheckResult]:
    try:
        runs = asked.sources.store.last_runs(1)
        holder, killed = asked.lock(), asked.sources.store.killed_holder()
        faults = find_clock_faults(case.fleet, asked.sources.store, case.world)
    except (StoreMissing, StoreFailed) as error:
        fix = "see state.store in fleet.yaml"
        if isinstance(error, StoreMissing):
            listed = find_listed(case.world.providers)
            fix = explain_lost_store(listed) if listed else "fleet state init"
        found = wrong(_STORE, error, fix)
        # A fleet that only observes queues needs no store.
        yield found if case.fleet.pools else found.altered(result="notice")
        return
    ran = _NO_RUN
    if runs:
        began = datetime.fromisoformat(runs[0]["started"])
        ran = f"last run started at {write_time(began)}"
    yield judge("ok", _STORE, ran)
    for fault in faults if case.fleet.pools else ():  # without pools there is nothing to apply
        yield wrong("state, clock", f"`fleet apply` refuses this clock: {fault}", _SET_CLOCK)
    if isinstance(case.world.ledger, Unknown) and spending_limits(case.fleet):
        yield wrong("state, spending", case.world.ledger, "see money in fleet.yaml")
    yield _lock(holder, killed)
    stacks = case.world.stacks
    for pool, stack in sorted(stacks.items()) if not isinstance(stacks, Unknown) else ():
        if not isinstance(stack, Stack):
            yield wrong(f"pool {pool}, stack", stack, "fleet state show")
        elif stack.interrupted:
            known = ("the apply that holds the lock is changing it",)
            dead = ("an apply was interrupted while changing it", "fleet apply")
            yield judge("notice", f"pool {pool}, stack", *(dead if holder == killed else known))


def _lock(holder: tuple[str, str] | None, killed: tuple[str, str] | None) -> CheckResult:
    if holder is None:
        return judge("ok", "state, lock", "free")
    if killed:
        return judge("notice", "state, lock", describe_killed(*killed), "fleet apply")
    said = f"held by {holder[0]} since {holder[1]}; if that run is dead, unlock it"
    return judge("notice", "state, lock", said, "fleet state unlock")


def _images(case: Case) -> Iterator[CheckResult]:
    for each in case.plan.waiting_versions:
        yield judge(
            "notice", f"image {each.image}, promotion", describe_waiting(each), each.command
        )
    for name, found in find_image_troubles(case.fleet, case.world, case.inventory).items():
        fix = found.fix or f"fleet help {IMAGE_PAGE.removeprefix('docs/')}"
        yield wrong(f"pool {name}, image", found.problem, fix)
    for pool in case.plan.pools:
        if any(each.code is SizeReason.UNPUBLISHED for each in pool.decisions):
            fix = "build, test and publish the image (docs/how-to/bake-an-image.md)"
            yield judge("notice", f"pool {pool.pool}, image", pool.because, fix)


def _troubles(case: Case) -> Iterator[CheckResult]:
    """Yield a notice per stop, failure, freeze or hold that no other result reports."""
    for each in find_troubles(case.plan):
        if each.by and not each.reported:
            # A person's decision is no fault, so its end is no remedy.
            yield judge("notice", each.about, describe_persons_order(each.said, each.by))
        elif not each.reported:
            yield judge("notice", each.about, each.said, each.fix)


def _further(fleet: Fleet, asked: CheckupInputs) -> Iterator[CheckResult]:
    if fleet.pools and not fleet.contact:
        fix = "add `contact: admins@example.org` to fleet.yaml"
        yield judge("notice", "contact", NO_CONTACT, fix)
    for about, check in asked.further.items():
        try:
            yield from check()
        except FleetError as error:
            yield wrong(about, error, "fleet validate")


ARGUMENTS = (FILE, JSON)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the findings; return 1 if a check failed."""
    config = load_config(args, console)
    asked = _build_checkup_inputs(config, args.file)
    world = observe_with_progress(config, asked.sources, console)
    config = priced(config, world)
    console.progress(f"asking servers, databases and tools of fleet {config.fleet.fleet}")
    case = Case(config.fleet, world, plan_for(config, world))
    found = find_image_troubles(case.fleet, case.world, case.inventory).values()
    commands = [choice.fix for choice in found]
    commands += [each.command for each in case.plan.waiting_versions]
    installed = partial(
        _check_installation,
        config.fleet,
        builds=any(each.startswith("fleet image build ") for each in commands),
    )
    asked = replace(asked, further={**asked.further, "fleet": installed})
    diagnosis = examine(case, asked)
    show(args, console, diagnosis, diagnosis_blocks(diagnosis))
    return diagnosis.exit_code


def _build_checkup_inputs(config: Config, file: str) -> CheckupInputs:
    fleet = config.fleet
    secrets = HostSecrets.beside(file)
    tokens: dict[str, str] = {}
    for name, queue in _servers_in(fleet):
        with suppress(SecretMissing):  # another finding reports that
            if queue.token:
                tokens[name] = secrets.read(queue.token)
    return CheckupInputs(
        sources=wire(fleet, file),
        secrets=secrets,
        servers={
            name: DebusineServer(queue, tokens.get(name)) for name, queue in _servers_in(fleet)
        },
        further={"fleet": tuple}  # in its place; `run` knows whether a build is advised
        | dict(_databases(fleet, secrets))
        | dict(_tools(fleet))
        | {"GitLab, variables": partial(_gitlab, fleet, Path(file).resolve().parent)},
        lock=store_of(fleet, file).lock_holder,
        lacking=dict(_lacking(fleet)),
        unchecked=dict(_list_unchecked(fleet, file)),
    )


EXTRAS: Mapping[str, Sequence[str]] = {
    kind.extra: (f"pulumi_{kind.extra}",) for kind in PROVIDERS.values()
} | {
    "hcloud": ("pulumi_hcloud", "hcloud"),
    "images": ("ansible", "aiohttp"),
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
    extras = judge_extras(fleet, {*filter(_is_installed, EXTRAS)}, builds=builds)
    return (judge("ok", "fleet, version", said), extras)


def judge_extras(fleet: Fleet, installed: Collection[str], *, builds: bool) -> CheckResult:
    """Return a finding about fleet's extras; `wrong` if a provider's or a build's is missing.

    `builds`: another finding advises to build an image.
    """
    wanted = {each.extra for each in fleet.providers.values()}
    if missing := sorted(wanted.difference(installed)):
        said = f"not installed, and needed to change machines: {', '.join(missing)}"
        return wrong(ABOUT_EXTRAS, said, add_extra(",".join(missing)))
    if builds and "images" not in installed:
        said = "not installed, and needed for `fleet image build`: images"
        return wrong(ABOUT_EXTRAS, said, add_extra("images"))
    if "solver" not in installed:
        said = "the solver is not installed: plans are made first come, first served"
        return judge("notice", ABOUT_EXTRAS, said, add_extra("solver"))
    absent = sorted(EXTRAS.keys() - installed)
    more = f"; not installed, and not needed: {', '.join(absent)}" if absent else ""
    return judge("ok", ABOUT_EXTRAS, f"installed: {', '.join(sorted(installed))}{more}")


_Look = tuple[str, Callable[[], Sequence[CheckResult]]]


def _servers_in(fleet: Fleet) -> list[tuple[str, DebusineQueue]]:
    """Return the queues of Debusine servers, each after its name."""
    return [(n, each) for n, each in fleet.queues.items() if isinstance(each, DebusineQueue)]


def _databases(fleet: Fleet, secrets: HostSecrets) -> Iterator[_Look]:
    def check(about: str, dsn: SecretRef, *, admin: bool) -> _Look:
        return about, lambda: check_database(about, secrets.read(dsn), admin=admin)

    for name, queue in _servers_in(fleet):
        if queue.read is not None:
            yield check(f"queue {name}, database", queue.read, admin=False)
        if isinstance(queue.admin, AdminDsn):
            about = f"queue {name}, database to change workers"
            yield check(about, queue.admin.dsn, admin=True)


def _tools(fleet: Fleet) -> Iterator[_Look]:
    kinds = sorted({each.kind for each in fleet.providers.values() if each.engine == "pulumi"})
    if kinds:
        yield "Pulumi", _pulumi
    for kind in kinds:
        yield f"stacks/{kind}", partial(_program, kind)


def _pulumi() -> Sequence[CheckResult]:
    try:
        return (judge("ok", "Pulumi, version", f"{find_cli()} fits"),)
    except EngineAbsent as error:
        return (wrong("Pulumi, version", str(error), GET_CLI),)


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
    return (judge("ok", f"stacks/{project}, program", "it runs"),)


def _list_unchecked(fleet: Fleet, file: str) -> Iterator[tuple[str, str]]:
    """Yield each fact that fleet cannot check, with a way to check the fact manually."""
    for name, queue in sorted(_servers_in(fleet)):
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
