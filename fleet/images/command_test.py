"""Test an image version that was built on this computer."""

import argparse
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.apply.config import load_config, read_seconds
from fleet.apply.timer import Signals
from fleet.apply.wire import registries_of
from fleet.cli.output import show
from fleet.clock import utc_now
from fleet.errors import FileUnreadable, FleetError, WorkerBusy, WrongUsage, needing
from fleet.images.checks import check_image, open_disk
from fleet.images.folder import (
    CONSOLE,
    QCOW2,
    find_build,
    list_versions,
    measure,
    verify,
    write_manifest,
)
from fleet.images.jobs import LOG, judge, prove
from fleet.images.promote import change_version, find_version, recipe_of
from fleet.images.report import tested_to_lines
from fleet.model.images import (
    Manifest,
    Test,
    Version,
    VersionTests,
    after_tests,
    describe_old_worker,
    recipe_digest,
)
from fleet.ports import Console, Enrolment, Registry
from fleet.schema.model import DebusineQueue, Fleet
from fleet.schema.pools import ImageRecipe, Recipe
from fleet.state.secrets import HostSecrets
from fleet.state.storage import find_storage
from fleet.state.store import Store

if TYPE_CHECKING:
    from fleet.images.fake_debusine import Stage, WorkerServer


def run(args: argparse.Namespace, console: Console) -> int:
    """Check an image, run its jobs, boot it if requested, and record the results."""
    fleet = load_config(args, console).fleet
    recipe = recipe_of(fleet, args.image)
    if args.queue and not args.boot:
        raise WrongUsage("--queue needs --boot")
    storage = find_storage(fleet, args.file)
    store = Store(storage.store, fleet.fleet)
    versions = [args.version] if args.version else list_versions(storage.images, args.image)
    if not versions:
        raise FileUnreadable(
            f"{storage.images / args.image} has no version; build one: "
            f"`fleet image build {args.image}`"
        )
    version = versions[-1]
    folder, manifest = find_build(storage.images, args.image, version)
    find_version(store.image_versions(), args.image, version)
    tests, notes = [_offline(folder, manifest, recipe, console)], list[str]()
    if recipe_digest(recipe) != manifest.recipe_digest:
        notes.append(
            "fleet.yaml changed since the build; tested against the current recipe; to build it: "
            f"`fleet image build {manifest.image}`"
        )
    if said := describe_old_worker(manifest.image, manifest.worker):
        notes.append(f"{said} (docs/how-to/bake-an-image.md)")
    if isinstance(recipe, ImageRecipe) and not (tests[0].problems or args.offline):

        def prove_jobs() -> Test:
            console.progress(f"running jobs in {folder / QCOW2}")
            # The handler removes the copy of the root if a service manager stops this process.
            with Signals().heard():
                return prove(recipe, folder / QCOW2, folder / LOG, console.note)

        test = judge(args.image, recipe, manifest.worker, prove_jobs)
        tests.append(test)
        notes += _unproven(args.image, test)
    fails = any(test.problems for test in tests)
    if args.boot and fails:
        notes.append("not booted: fix the problems first")
    elif args.boot:
        test = boot(fleet, args, folder, manifest, console)
        tests.append(test)
        notes += [_NO_TAGS] if not (test.problems or test.provides) else []
    done = tuple(tests)
    logs = {each: measure(folder / each) for each in (LOG, CONSOLE) if (folder / each).exists()}
    files = {**manifest.files, **logs}
    write_manifest(folder, manifest.altered(files=files, tests=(*manifest.tests, *done)))
    now = utc_now()

    def change(was: Version) -> Version:
        return after_tests(was, done, now).altered(worker=manifest.worker or was.worker)

    after = change_version(store, args.image, version, change)
    tested = VersionTests(
        image=args.image, version=version, state=after.state, tests=done, notes=tuple(notes)
    )
    show(args, console, tested, tested_to_lines(tested), piped=None)
    return 0 if tested.passed else 1


def _unproven(image: str, test: Test) -> Iterator[str]:
    """Yield notes about jobs that this computer could not run."""
    if test.nothing_run:
        yield (
            f"no job was run: {test.nothing_run}; test it where one can be, or write the tags of "
            f"its worker into images.{image}.provides"
        )
        return
    for job in test.jobs:
        if job.unproven:
            yield f"{job.name} is unproven: {job.unproven}"


def _offline(folder: Path, manifest: Manifest, recipe: Recipe, console: Console) -> Test:
    """Check the disk of an image version without booting it; return the test with its problems."""
    if QCOW2 not in manifest.files:
        build = f"fleet image build {manifest.image} --at PROVIDER"
        instead = f"`{build}` builds one and tests it there"
        if manifest.tests:
            instead = "it was tested at the end of its build"
        raise FleetError(
            f"{folder}: this version has no disk here (built by {manifest.way}); {instead}"
        )
    at, began = utc_now(), time.monotonic()
    console.progress(f"reading {folder / QCOW2}")
    verify(folder, manifest, [QCOW2])
    console.progress(f"checking {folder / QCOW2}")
    with open_disk(folder / QCOW2) as disk:
        problems = [*disk.problems(), *check_image(disk.root, recipe)]
    seconds = round(time.monotonic() - began, 1)
    return Test(kind="offline", at=at, seconds=seconds, problems=tuple(problems))


_BOOTED = "amd64"
_NO_TAGS = (
    "its worker reported no tags (older than 0.16): pools use `provides` of the image in "
    "fleet.yaml"
)
_MARGIN = timedelta(minutes=5)
_NOTICED = 60
"""Maximum seconds until a server notices that a worker has disconnected."""


def boot(
    fleet: Fleet, args: argparse.Namespace, folder: Path, manifest: Manifest, console: Console
) -> Test:
    """Boot an image version, with the output of its console in its folder."""
    limit = read_seconds("--limit", args.limit)
    if manifest.architecture != _BOOTED:
        raise FleetError(
            f"{folder}: cannot boot an image for {manifest.architecture} here, only {_BOOTED}; "
            "test it without --boot"
        )
    with needing("images", "booting an image", FleetError):
        from fleet.images.boot import Trial, boot_image, choose_accelerator

    at, began = utc_now(), time.monotonic()
    console.progress("checking for kvm")
    accelerator = choose_accelerator() if args.accelerator == "auto" else args.accelerator
    with _server(fleet, args, limit) as (server, goal):
        trial = Trial(
            disk=folder / QCOW2,
            console=folder / CONSOLE,
            server=server,
            goal=goal,
            accelerator=accelerator,
            limit=limit,
        )
        booted = boot_image(trial, console.note, console.progress)
    return Test(
        kind="boot",
        at=at,
        seconds=round(time.monotonic() - began, 1),
        problems=booted.problems,
        provides=booted.provides,
    )


@contextmanager
def _server(
    fleet: Fleet, args: argparse.Namespace, limit: int
) -> Iterator[tuple["WorkerServer", "Stage"]]:
    """Yield a local test server or a proxy to a queue's server, and the stage to reach."""
    from fleet.images.fake_debusine import Proxy, Stage, WorkerServer

    if not args.queue:
        yield WorkerServer(secrets.token_hex(32)), Stage.ASKED
        return
    queue = fleet.queues.get(args.queue)
    if not isinstance(queue, DebusineQueue) or not queue.admin:
        able = [
            name
            for name, each in fleet.queues.items()
            if isinstance(each, DebusineQueue) and each.admin
        ]
        raise WrongUsage(
            f"--queue {args.queue}: not a Debusine queue with `admin`, which creates the "
            f"worker's token; known: {', '.join(able) or 'none'}"
        )
    # Use another fleet name: else `fleet apply` would take this worker for one that lost its
    # machine.
    name = f"{fleet.fleet}-image-test"
    secret = HostSecrets.beside(args.file)
    registry = registries_of(fleet.model_copy(update={"fleet": name}), secret)[args.queue]
    enrolment = Enrolment(
        worker=name,
        fleet=name,
        pool="image-test",
        expires=utc_now() + timedelta(seconds=limit) + _MARGIN,
    )
    token = registry.enrol(enrolment)
    try:
        yield Proxy(token, queue.url), Stage.ENDED
    finally:
        _release(registry, name)


def _release(registry: Registry, name: str) -> None:
    """Disable a worker whose machine has stopped. Retry until the server has noticed the stop."""
    until = time.monotonic() + _NOTICED
    while True:
        try:
            registry.release(name)
        except WorkerBusy:
            if time.monotonic() > until:
                raise
            time.sleep(1)
        else:
            return
