"""Build an image version on this computer, on a provider's machine or at a Debusine queue."""

import argparse
import os
import re
import subprocess
from functools import partial
from pathlib import Path

from fleet.apply.config import load_config
from fleet.apply.timer import Signals
from fleet.apply.wire import lock_owner
from fleet.clock import SystemClock
from fleet.errors import FleetError, WrongUsage
from fleet.images.bake import Baked
from fleet.images.debusine_build import RequestBuilder
from fleet.images.disk import DiskBuilder
from fleet.images.folder import version_at
from fleet.images.promote import recipe_of
from fleet.images.publish import builder_at, give_up_dead, remember_build, remember_publication
from fleet.images.report import BuildResult, built_to_text, step_to_text
from fleet.images.role import play_digest
from fleet.model.images import BuildOrder, BuildStep, Publication
from fleet.ports import Console, ImageBuilder
from fleet.report.json import value_to_json
from fleet.schema.model import DebusineQueue, Fleet
from fleet.schema.pools import SERVER_PATTERN, PlaybookRecipe
from fleet.state.database import is_alive
from fleet.state.secrets import HostSecrets
from fleet.state.storage import Storage, cache_folder, find_storage
from fleet.state.store import Store


def request_builder(
    fleet: Fleet, args: argparse.Namespace, images: Path, mirror: str | None
) -> RequestBuilder:
    """Return the builder that uses the server and the token of the queue in `--on`."""
    for option in ("snapshot", "raw", "check_reproducible"):
        if getattr(args, option):
            name = option.replace("_", "-")
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
    scope, _, name = (args.workspace or "").rpartition("/")
    return RequestBuilder(
        images=images,
        url=queue.url,
        scope=scope or queue.scopes[0],
        token=HostSecrets.beside(args.file).read(queue.token),
        workspace=name or None,
        mirror=mirror,
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Build an image, show progress, and print the result; return 1 if two builds differ."""
    fleet = load_config(args, console).fleet
    recipe = recipe_of(fleet, args.image)
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
    bake = partial(builder.build, order, partial(_show_step, order, console))
    with Signals().heard():
        manifest, made = remember_build(order, store, clock, bake)
        if isinstance(made, Publication):
            remember_publication(store, manifest, args.at, made)
    differences = made.differences if isinstance(made, Baked) else None
    result = BuildResult(
        folder=str(storage.images / order.image / order.version),
        manifest=manifest,
        same_base=differences.same_base if differences else None,
        differences=differences.files if differences else (),
    )
    console.out(value_to_json(result) if args.json else built_to_text(result))
    return 0 if result.same_base is not False else 1


def _open_builder(
    fleet: Fleet, args: argparse.Namespace, storage: Storage
) -> ImageBuilder[Publication | Baked | None]:
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
        return request_builder(fleet, args, images, mirror)
    return DiskBuilder(
        images=images,
        cache=cache_folder() / "images",
        mirror=mirror,
        snapshot=args.snapshot,
        raw=args.raw,
        check=args.check_reproducible,
    )


def _show_step(order: BuildOrder, console: Console, step: BuildStep) -> None:
    """Show a step of a build: as a status line at a terminal, or else as a message."""
    text = f"{order.image} {order.version}: {step_to_text(step)}"
    if console.watched:
        console.progress(text)
    else:
        console.note(text)


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
