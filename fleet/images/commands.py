"""Build, test, publish, promote and prune images: the commands of `fleet image`."""

import argparse
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from fleet.apply.config import Config, load_config
from fleet.apply.observe import REMEMBERED
from fleet.apply.plan import observe_with_progress, priced
from fleet.apply.record import order_entry
from fleet.apply.saved_plan import LIMIT_BYTES, read_plan
from fleet.apply.timer import Signals
from fleet.apply.wire import lock_owner, wire
from fleet.cli.arguments import JSON, Argument, action, actions, argument, flag, option, repeated
from fleet.cli.output import show
from fleet.clock import SystemClock, utc_now
from fleet.errors import (
    FileUnreadable,
    FleetError,
    PromotionRefused,
    SourceUnreachable,
    WrongUsage,
    needing,
)
from fleet.images import promote, prune
from fleet.images import report as text
from fleet.images.checks import check_root, open_disk, workplace
from fleet.images.disk import Differences, DiskBuilder
from fleet.images.due import News, find_due, find_updates, latest_built, sources_of
from fleet.images.folder import (
    CONSOLE,
    QCOW2,
    delete_build,
    find_build,
    list_versions,
    measure,
    verify,
    version_at,
    write_manifest,
)
from fleet.images.publish import (
    builder_at,
    choose_version,
    give_up_dead,
    publish_version,
    publisher_of,
    remember_build,
    remember_publication,
)
from fleet.images.records import (
    BuildOrder,
    BuildStep,
    ImageBuilder,
    Publishing,
    VersionTests,
    after_tests,
)
from fleet.images.role import play_digest, play_digests
from fleet.images.sources import read_index
from fleet.model.apt_sources import Source
from fleet.model.facts import Unknown, World
from fleet.model.images import (
    Manifest,
    Move,
    Publication,
    Test,
    Transfer,
    Version,
    describe_old_worker,
    recipe_digest,
)
from fleet.planner.images import describe_change, find_image_troubles, find_waiting
from fleet.ports import Console
from fleet.schema.model import (
    PLACE_PATTERN,
    SERVER_PATTERN,
    DebusineQueue,
    ExistingImage,
    Fleet,
    ImageRecipe,
    PlaybookRecipe,
    Recipe,
)
from fleet.schema.secrets import holds_secret
from fleet.state.database import is_alive, name_process
from fleet.state.files import LocalFiles
from fleet.state.secrets import HostSecrets
from fleet.state.storage import Storage, cache_folder, find_storage
from fleet.state.store import Store, store_of
from fleet.words.figures import many

if TYPE_CHECKING:
    from fleet.images.debusine_build import RequestBuilder

_ALL = 100
_JOB_BYTES = 64 * 1024
_NO_TAGS = (
    "its worker reported no tags (older than 0.16): pools use `provides` of the image in "
    "fleet.yaml"
)


_OPTIONS = (
    ("show build test publish promote rollback", "image", "", "name of the image in fleet.yaml"),
    ("prune", "image", "NAME", "the image (default: all)"),
    ("show test publish", "version", "VERSION", "the version, as in 20261121T203000Z"),
    ("promote", "version", "VERSION", "the version (default: the newest that passed its test)"),
    (
        *("build", "--at", "PLACE"),
        (
            "where to build: a provider (a snapshot, on a temporary machine) or a Debusine queue "
            "(a disk, by its image task); default: this computer"
        ),
    ),
    (
        *("build", "--mirror", "URL"),
        (
            "Debian archive to build from, instead of the recipe's (default: FLEET_MIRROR); also "
            "the APT source of the image"
        ),
    ),
    (
        *("build", "--snapshot", ""),
        "accept expired package lists, for an archive that is a snapshot",
    ),
    ("build", "--raw", "", "keep the uncompressed disk too, as disk.raw"),
    (
        *("build", "--check-reproducible", ""),
        "build a second time from scratch, and show which files differ and why",
    ),
    ("build", "--on", "QUEUE", "like --at QUEUE, even if a provider has the same name"),
    (
        *("build", "--workspace", "[SCOPE/]NAME"),
        (
            "at a queue: the workspace of the work request (default: the server's default, in the "
            "queue's first scope)"
        ),
    ),
    ("test", "--offline", "", "only inspect the disk; run no jobs, so that no tag is proven"),
    (
        *("test", "--boot", ""),
        "also boot it under QEMU until its worker registers and requests work at a test server",
    ),
    (
        *("test", "--queue", "NAME"),
        "with --boot: register at this queue instead, and run one of its work requests",
    ),
    ("test", "--limit", "DURATION", "with --boot: time limit of the worker (default: 10m)"),
    (
        *("publish", "--to", "PLACE..."),
        (
            "a provider of fleet.yaml, or a URL as in file:///srv/images or s3://BUCKET/PREFIX "
            "(default: images.NAME.publish); may be repeated"
        ),
    ),
    (
        *("publish", "--clean", ""),
        "publish nothing; remove unfinished uploads that are over six hours old",
    ),
    (
        *("promote", "--candidate", "SHARE"),
        (
            "boot it on this share of each pool's workers, for example 20%% (at least one); the "
            "others keep the current version"
        ),
    ),
    (
        *("promote rollback", "--dry-run", ""),
        "show promoted versions and replaced machines without changing them",
    ),
    (
        *("prune", "--plan", "FILE..."),
        "keep the versions that a plan saved in FILE uses; may be repeated",
    ),
    (
        *("prune", "--forgotten", "ID..."),
        "also delete this upload, which belongs to no known version; may be repeated",
    ),
    ("prune", "--dry-run", "", "list the versions without deleting them"),
    (
        *("due", "--gitlab-child-pipeline", "FILE"),
        "also write a GitLab child pipeline to FILE, with one job per image",
    ),
    (
        *("due", "--gitlab-job", "FILE"),
        "YAML with further keys of those jobs: image, tags, before_script",
    ),
)
"""Verbs, name, metavar and help of each option. Dots in the metavar: it may be repeated."""


def _arguments_of(verb: str) -> Iterator[Argument]:
    """Yield the arguments of an action on images."""
    for verbs, name, metavar, help_text in _OPTIONS:
        if verb not in verbs.split():
            continue
        if name in ("image", "version"):
            number = "?" if metavar else None
            yield argument(name, nargs=number, metavar=metavar or "NAME", help=help_text)
        elif metavar.endswith("..."):
            yield repeated(name, metavar.removesuffix("..."), help_text)
        elif metavar:
            kind = _share if name == "--candidate" else str
            default = "10m" if name == "--limit" else None
            yield option(name, metavar, help_text, kind=kind, default=default)
        else:
            yield flag(name, help_text)
    if verb == "test":
        yield argument(
            "--accelerator",
            choices=["auto", "kvm", "tcg"],
            default="auto",
            help="with --boot: kvm, tcg (works without KVM), or auto (kvm if available)",
        )
    yield JSON


def _share(text: str) -> int:
    number = text.removesuffix("%")
    if not (number.isdecimal() and 1 <= int(number) <= _ALL):
        raise argparse.ArgumentTypeError(f"expected a share from 1% to 100%, not {text}")
    return int(number)


def _list(args: argparse.Namespace, console: Console) -> int:
    listed = _list_images(args, console)
    show(args, console, listed, text.list_blocks(listed, utc_now()), piped=None)
    return 0


def _show(args: argparse.Namespace, console: Console) -> int:
    listed = _list_images(args, console)
    shown = next((each for each in listed.images if each.image == args.image), None)
    if shown is None:
        names = ", ".join(each.image for each in listed.images) or "none"
        raise FleetError(f"no image {args.image}; known: {names}")
    if args.version:
        version = promote.find_version(shown.versions, args.image, args.version)
        shown = shown.altered(versions=(version,))
    show(args, console, shown, text.image_blocks(shown), piped=None)
    return 0


def _list_images(args: argparse.Namespace, console: Console) -> promote.ImageList:
    fleet = load_config(args, console).fleet
    store, now = store_of(fleet, args.file), utc_now()
    versions = store.image_versions()
    world = World(
        fleet=fleet.fleet,
        time=now,
        images=tuple(each.fact for each in versions),
        attempts=store.attempts(REMEMBERED),
        orders=store.orders(now),
        approved={digest: len(machines) for digest, machines in store.spent().items()},
    )
    found, waiting = find_image_troubles(fleet, world, {}), find_waiting(fleet, world)
    troubles = {pool: choice.problem for pool, choice in found.items()}
    return promote.list_images(fleet, versions, troubles, waiting)


def _promote(args: argparse.Namespace, console: Console) -> int:
    """Promote the requested version, by default the newest version that can be promoted."""

    def decide(fleet: Fleet, known: Sequence[Version], now: datetime) -> tuple[Move, ...]:
        image = fleet.images[args.image]
        if args.version in (None, image.version) and isinstance(image, ExistingImage):
            by = name_process()
            wanted = promote.declared_version(args.image, image, known, now, by=by)
        elif args.version is None:
            wanted = promote.newest_promotable(known, args.image)
        else:
            wanted = promote.find_version(known, args.image, args.version)
        first, *others = promote.promote(known, wanted, now, share=args.candidate)
        # A user requested this promotion, so do not mark the version as promoted by a rule.
        return (first._replace(now=first.now.altered(by_rule=False)), *others)

    return _move_versions(args, console, decide)


def _rollback(args: argparse.Namespace, console: Console) -> int:
    """Retire the candidate version, or else the current version."""

    def decide(fleet: Fleet, known: Sequence[Version], now: datetime) -> tuple[Move, ...]:
        image = fleet.images[args.image]
        places = image.existing if isinstance(image, ExistingImage) else [""]
        changes = [describe_change(fleet, args.image, place) for place in places]
        return promote.take_back(known, args.image, now, " and ".join(changes))

    return _move_versions(args, console, decide)


Decide = Callable[[Fleet, Sequence[Version], datetime], tuple[Move, ...]]
"""Function that returns the state changes of an image's versions; raises PromotionRefused."""


def _move_versions(args: argparse.Namespace, console: Console, decide: Decide) -> int:
    """Change the states of versions unless --dry-run. Print the machines to be replaced."""
    config = load_config(args, console)
    _refuse_pinned(config, args)
    sources = wire(config.fleet, args.file)
    known = [each for each in sources.store.image_versions() if each.image == args.image]
    moves = decide(config.fleet, known, utc_now())
    world = observe_with_progress(config, sources, console)
    if not args.dry_run:
        details = (
            {
                "image": move.now.image,
                "version": move.now.version,
                "was": move.was.state if move.was else "",
                "now": move.now.state,
            }
            for move in moves
        )
        entry = partial(order_entry, args.action, utc_now(), outcome="done")
        entries = [entry(details=each) for each in details]
        sources.store.move_image_versions(moves, entries)
    promotion = promote.foresee(priced(config, world).fleet, world, moves, done=not args.dry_run)
    show(args, console, promotion, text.promotion_to_lines(promotion), piped=None)
    return 0


def _refuse_pinned(config: Config, args: argparse.Namespace) -> None:
    """Raise if fleet.yaml does not have the image, or pins another version of the image."""
    name = args.image
    image = config.fleet.images.get(name)
    if image is None:
        names = ", ".join(config.fleet.images) or "none"
        raise FleetError(f"no image {name} in fleet.yaml; known: {names}")
    # Ids in fleet.yaml are recorded as the pinned version, which moves no other version.
    names_it = isinstance(image, ExistingImage) and args.action == "promote"
    if image.version is not None and not (names_it and args.version in (None, image.version)):
        place = config.document.place(("images", name, "version"), "key")
        raise PromotionRefused(
            f"refused, nothing was changed: {place}: image {name} is pinned to version "
            f"{image.version}; edit or remove that line"
        )


def _build(args: argparse.Namespace, console: Console) -> int:
    """Build an image, show progress, and print the result; return 1 if two builds differ."""
    fleet = load_config(args, console).fleet
    recipe = promote.recipe_of(fleet, args.image)
    storage = find_storage(fleet, args.file)
    store = Store(storage.store, fleet.fleet)
    clock = SystemClock()
    give_up_dead(store, args.image, clock, is_alive)
    beside, now = Path(args.file).resolve().parent, clock.now()
    taken = {each.version for each in store.image_versions() if each.image == args.image}
    order = BuildOrder(
        image=args.image,
        version=version_at(now, taken),
        recipe=recipe,
        role_digest=play_digest(recipe, beside),
        built_at=now,
        built_by=os.environ.get("CI_JOB_URL") or lock_owner(),
        commit=_commit(beside),
    )
    if isinstance(recipe, PlaybookRecipe):
        if args.on or args.at not in (None, recipe.provider):
            raise WrongUsage(
                f"image {args.image} is built at {recipe.provider} only "
                f"(images.{args.image}.provider); remove --{'on' if args.on else 'at'}"
            )
        args.at = recipe.provider
    if args.at in fleet.queues and args.at not in fleet.providers and not args.on:
        args.at, args.on = None, args.at
    builder = _open_builder(fleet, args, storage)
    builder.check_ready(order)  # a version that never began must not stay in the list as failed

    def show_step(step: BuildStep) -> None:
        # At a terminal the steps are a status line.
        say = console.progress if console.watched else console.note
        say(f"{order.image} {order.version}: {text.step_to_text(step)}")

    bake = partial(builder.build, order, show_step)
    with Signals().heard():
        manifest, made = remember_build(order, store, clock, bake)
        if isinstance(made, Publication):
            remember_publication(store, manifest, args.at, made)
    differences = made if isinstance(made, Differences) else None
    result = text.BuildResult(
        folder=str(storage.images / order.image / order.version),
        manifest=manifest,
        same_base=differences.same_base if differences else None,
        differences=differences.files if differences else (),
    )
    show(args, console, result, text.built_to_lines(result), piped=None)
    return 0 if result.same_base is not False else 1


def _open_builder(
    fleet: Fleet, args: argparse.Namespace, storage: Storage
) -> ImageBuilder[Publication | Differences | None]:
    """Return the builder at a provider, at a queue, or on this computer."""
    if args.at:
        if args.raw or args.check_reproducible or args.mirror or args.snapshot or args.on:
            raise WrongUsage(
                "--at excludes --on, --mirror, --snapshot, --raw and --check-reproducible"
            )
        return builder_at(fleet, args.at, args.file, SystemClock())
    images = storage.images.resolve()
    mirror = args.mirror or os.environ.get("FLEET_MIRROR") or None
    if mirror and not re.fullmatch(SERVER_PATTERN, mirror):
        raise WrongUsage(
            "the mirror must be a URL without a password, as in http://deb.example.org/debian: "
            "the image keeps it as its source"
        )
    if args.on is not None:
        return _open_queue(fleet, args, images, mirror)
    return DiskBuilder(
        images=images,
        cache=cache_folder() / "images",
        mirror=mirror,
        snapshot=args.snapshot,
        raw=args.raw,
        check=args.check_reproducible,
    )


def _commit(folder: Path) -> str:
    """Return the checked-out commit of a folder; empty if the folder is not under git."""
    if commit := os.environ.get("CI_COMMIT_SHA"):
        return commit
    command = ("git", "-C", str(folder), "rev-parse", "HEAD")
    try:
        told = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - git, in the folder of fleet.yaml
    except FileNotFoundError:
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""


def _open_queue(
    fleet: Fleet, args: argparse.Namespace, images: Path, mirror: str | None
) -> "RequestBuilder":
    """Return the builder that uses the server and the token of the queue in `--on`."""
    for each in ("snapshot", "raw", "check_reproducible"):
        if getattr(args, each):
            name = each.replace("_", "-")
            raise WrongUsage(f"--{name} is for builds on this computer; remove it or --on")
    queue = fleet.queues.get(args.on)
    if not isinstance(queue, DebusineQueue):
        known = [name for name, each in fleet.queues.items() if isinstance(each, DebusineQueue)]
        raise FleetError(f"no Debusine queue {args.on}; known: {', '.join(known) or 'none'}")
    if queue.token is None:
        raise FleetError(
            f"queue {args.on} has no token to create a work request; set `token` of a user who "
            "is a contributor of the workspace"
        )
    from fleet.images.debusine_build import RequestBuilder

    scope, _, name = (args.workspace or "").rpartition("/")
    return RequestBuilder(
        images=images,
        url=queue.url,
        scope=scope or queue.scopes[0],
        token=HostSecrets.beside(args.file).read(queue.token),
        workspace=name or None,
        mirror=mirror,
    )


def _test(args: argparse.Namespace, console: Console) -> int:
    """Check an image, run its jobs, boot it if requested, and record the results."""
    fleet = load_config(args, console).fleet
    recipe = promote.recipe_of(fleet, args.image)
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
    promote.find_version(store.image_versions(), args.image, version)
    with needing("images", "testing an image", FleetError):
        from fleet.images.boot import boot_version
        from fleet.images.jobs import LOG

    notes = list[str]()
    if recipe_digest(recipe) != manifest.recipe_digest:
        notes.append(
            "fleet.yaml changed since the build; tested against the current recipe; to build it: "
            f"`fleet image build {manifest.image}`"
        )
    if said := describe_old_worker(manifest.image, manifest.worker):
        notes.append(f"{said} (docs/how-to/bake-an-image.md)")
    tests, unproven = _test_disk(recipe, folder, manifest, console, offline=args.offline)
    notes += unproven
    if args.boot and any(test.problems for test in tests):
        notes.append("not booted: fix the problems first")
    elif args.boot:
        test = boot_version(fleet, args, folder, manifest, console)
        tests.append(test)
        notes += [_NO_TAGS] if not (test.problems or test.provides) else []
    done = tuple(tests)
    logs = {each: measure(folder / each) for each in (LOG, CONSOLE) if (folder / each).exists()}
    files = {**manifest.files, **logs}
    write_manifest(folder, manifest.altered(files=files, tests=(*manifest.tests, *done)))
    now = utc_now()

    def change(was: Version) -> Version:
        return after_tests(was, done, now).altered(worker=manifest.worker or was.worker)

    after = promote.change_version(store, args.image, version, change)
    tested = VersionTests(
        image=args.image, version=version, state=after.state, tests=done, notes=tuple(notes)
    )
    show(args, console, tested, text.tested_to_lines(tested), piped=None)
    return 0 if tested.passed else 1


def _test_disk(
    recipe: Recipe, folder: Path, manifest: Manifest, console: Console, *, offline: bool
) -> tuple[list[Test], list[str]]:
    """Check the disk of a version, and run its jobs; return the tests, and notes about them."""
    if QCOW2 not in manifest.files:
        build = f"`fleet image build {manifest.image} --at PROVIDER`"
        instead = f"{build} builds one and tests it there"
        if manifest.tests:
            instead = "it was tested at the end of its build"
        raise FleetError(
            f"{folder}: this version has no disk here (built by {manifest.way}); {instead}"
        )
    from fleet.images.jobs import LOG, judge, prove

    verify(folder, manifest, [QCOW2])
    path = folder / QCOW2
    console.progress(f"reading {path}")
    # The handler removes the copy of the root if a service manager stops this process.
    with Signals().heard(), workplace(folder.parent) as root, open_disk(path) as disk:
        disk.copy(root)
        at, began = utc_now(), time.monotonic()
        console.progress("checking the disk")
        problems = (*disk.problems(), *check_root(root, recipe))
        seconds = round(time.monotonic() - began, 1)
        checked = Test(kind="offline", at=at, seconds=seconds, problems=problems)
        if problems or offline or not isinstance(recipe, ImageRecipe):
            return [checked], []
        console.progress(f"running jobs in {path}")
        run = partial(prove, recipe, root, folder / LOG, console.note)
        test = judge(manifest.image, recipe, manifest.worker, run)
    if test.nothing_run:
        note = (
            f"no job was run: {test.nothing_run}; test it where one can be, or write the tags of "
            f"its worker into images.{manifest.image}.provides"
        )
        return [checked, test], [note]
    jobs = (job for job in test.jobs if job.unproven)
    return [checked, test], [f"{job.name} is unproven: {job.unproven}" for job in jobs]


def _publish(args: argparse.Namespace, console: Console) -> int:
    """Upload a version to providers and stores, or with --clean only remove partial uploads."""
    fleet = load_config(args, console).fleet
    storage = find_storage(fleet, args.file)
    clock = SystemClock()
    now = clock.now()
    publishers = {
        place: partial(publisher_of, fleet, args.file, clock, place)
        for place in _places_to_publish(fleet, args)
    }
    store, folder, version = Store(storage.store, fleet.fleet), None, ""
    if not args.clean:
        version = choose_version(store, args.image, args.version).version
        folder, manifest = find_build(storage.images, args.image, version)
        verify(folder, manifest)
    shown: list[tuple[str, str]] = []

    def hear(place: str, transfer: Transfer) -> None:
        if shown[-1:] != [(place, transfer.phase)]:
            shown.append((place, transfer.phase))
            console.note(f"{place}: {transfer.phase}: {many(transfer.total, 'byte')}")
        console.progress(text.transfer_to_text(place, transfer))

    # The handler deletes a temporary machine when a service manager stops this process.
    with Signals().heard():
        places = publish_version(store, folder, publishers, now, hear)
    publishing = Publishing(image=args.image, version=version, places=places)
    show(args, console, publishing, text.publishing_to_lines(publishing), piped=None)
    return publishing.exit_code


def _places_to_publish(fleet: Fleet, args: argparse.Namespace) -> list[str]:
    """Return the providers and stores to publish to, without duplicates."""
    image = promote.recipe_of(fleet, args.image)
    if any(not re.fullmatch(PLACE_PATTERN, each) or holds_secret(each) for each in args.to):
        # The error omits the invalid value, since it may contain credentials.
        raise WrongUsage(
            "--to: expected a provider, or a URL without credentials: file:///PATH or "
            "s3://BUCKET/PREFIX"
        )
    named = args.to or image.publish
    if not named:
        raise WrongUsage(f"no place to publish to; set images.{args.image}.publish, or use --to")
    return list(dict.fromkeys(named))


def _prune(args: argparse.Namespace, console: Console) -> int:
    """List or delete unreferenced versions. A lock keeps runs from starting to use them."""
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    pruner = prune.Pruner(
        sources.store,
        partial(publisher_of, config.fleet, args.file, SystemClock()),
        partial(delete_build, find_storage(config.fleet, args.file).images),
    )
    with nullcontext() if args.dry_run else sources.store.lock(lock_owner(), utc_now()):
        # Check ids first, so that an unknown id is refused before any deletion.
        places = prune.places_of(config.fleet, sources.store.image_versions())
        listed, unlisted = prune.list_uploads(places, pruner.publisher_of)
        # Read versions after the listing, so that uploads published in between have a version.
        versions = sources.store.image_versions()
        unknown = prune.find_forgotten(config.fleet, versions, listed)
        known = {*config.fleet.images, *(each.image for each in versions)}
        known |= {each.image for each in unknown}
        if args.image not in (None, *known):
            raise FleetError(f"no image {args.image}; known: {', '.join(sorted(known)) or 'none'}")
        ours = (each for each in unknown if args.image in (None, each.image))
        forgotten = prune.name_forgotten(ours, args.forgotten)
        plans = {name: read_plan(name, LocalFiles().read(name, LIMIT_BYTES)) for name in args.plan}
        world = observe_with_progress(config, sources, console)
        found = prune.find_unreferenced(config.fleet, world, sources.store.image_versions(), plans)
        judged = tuple(each for each in found if args.image in (None, each.image))
        pruned, gone = judged, forgotten
        if not args.dry_run:
            pruned, gone = tuple(map(pruner.delete, judged)), tuple(map(pruner.delete, forgotten))
    pruning = prune.Pruning(
        fleet=config.fleet.fleet,
        versions=pruned,
        forgotten=gone,
        unlisted=unlisted,
        failed=(judged, forgotten) != (pruned, gone),
        done=not args.dry_run,
    )
    show(args, console, pruning, text.pruning_to_lines(pruning), piped=None)
    return pruning.exit_code


def _due(args: argparse.Namespace, console: Console) -> int:
    """Print the due builds, and write a GitLab pipeline for them if requested."""
    fleet = load_config(args, console).fleet
    storage = find_storage(fleet, args.file)
    store = Store(storage.store, fleet.fleet)
    versions = store.image_versions()
    report = find_due(
        fleet,
        versions,
        digests=play_digests(fleet, Path(args.file).resolve().parent),
        news=_news(fleet, versions, store, storage, console),
        now=utc_now(),
    )
    if args.gitlab_child_pipeline:
        here, folder = Path.cwd(), storage.images
        builds = str(folder.relative_to(here) if folder.is_relative_to(here) else folder)
        job = _gitlab_job(args.gitlab_job) if args.gitlab_job else {}
        pipeline = text.to_child_pipeline(report, builds, file=args.file, job=job)
        LocalFiles().write_text(args.gitlab_child_pipeline, pipeline)
    show(args, console, report, text.due_to_lines(report), piped=None)
    return 0


def _gitlab_job(name: str) -> Mapping[str, object]:
    """Return the GitLab keys in a YAML file; raises FileUnreadable."""
    try:
        found = yaml.safe_load(LocalFiles().read(name, _JOB_BYTES))
    except (yaml.YAMLError, RecursionError) as error:
        raise FileUnreadable(f"{name}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise FileUnreadable(f"{name}: not a mapping of keys, such as `image: NAME`")
    return found


def _news(
    fleet: Fleet,
    versions: Sequence[Version],
    store: Store,
    storage: Storage,
    console: Console,
) -> dict[str, News]:
    """Map each image to the packages that are newer in its sources than in its latest version."""
    lists: dict[Source, dict[str, str]] = {}
    news: dict[str, News] = {}
    for name in fleet.baked:
        latest = latest_built(versions, name)
        if latest is None:
            continue
        try:
            manifest = (
                store.manifest(name, latest.version)
                or find_build(storage.images, name, latest.version)[1]
            )
            for source in sources_of(manifest):
                if source not in lists:
                    console.progress(f"reading packages of {source.suite} at {source.uri}")
                    lists[source] = read_index(source)
            offered = {source: lists[source] for source in sources_of(manifest)}
            news[name] = find_updates(manifest, offered)
        except (FileUnreadable, SourceUnreachable) as error:
            news[name] = Unknown(unknown=f"whether its packages are up to date: {error}")
    return news


ARGUMENTS = (
    actions(
        *(
            action(name, help_text, run, *_arguments_of(name))
            for name, run, help_text in (
                ("list", _list, "list images and their versions: state, age, where"),
                ("show", _show, "show the versions of an image in full"),
                ("build", _build, "build a new version of an image"),
                ("test", _test, "check a built image, run its jobs, and boot it with --boot"),
                ("publish", _publish, "upload a version to providers and stores"),
                ("promote", _promote, "make a tested version the current one, or the candidate"),
                (
                    *("rollback", _rollback),
                    "undo the latest promotion: the candidate's, else the current version's",
                ),
                ("prune", _prune, "delete versions that no machine, pool, plan or approval uses"),
                ("due", _due, "list the images that need a build, and why"),
            )
        )
    ),
)
