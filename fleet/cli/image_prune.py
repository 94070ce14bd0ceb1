"""Delete versions of images that nothing uses any more."""

import argparse
import shutil
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from fleet.apply.config import Config, load_config
from fleet.apply.decide import look
from fleet.apply.observe import Sources
from fleet.apply.timer import SystemClock
from fleet.apply.wire import lock_owner, wire
from fleet.cli.image_publish import publisher_of
from fleet.errors import FileUnreadable
from fleet.images.prune import (
    Forgotten,
    PrunedVersion,
    Pruner,
    Pruning,
    delete_forgotten,
    find_forgotten,
    find_unreferenced,
    list_uploads,
    name_forgotten,
    places_of,
    prune_versions,
)
from fleet.model.saved_plan import LIMIT_BYTES, read_plan
from fleet.ports import Console
from fleet.report.images import pruning_to_text
from fleet.report.json import value_to_json
from fleet.state.files import LocalFiles
from fleet.state.places import Places, find_places


def run(args: argparse.Namespace, console: Console) -> int:
    """Show what nothing refers to, or delete it while no run makes a machine of it."""
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    lock: AbstractContextManager[object] = nullcontext()
    if not args.dry_run:
        lock = sources.store.lock(lock_owner(), SystemClock().now())
    with lock:
        pruning = _prune(args, config, sources, console)
    console.out(
        value_to_json(pruning) if args.json else pruning_to_text(pruning, colour=console.colour)
    )
    return pruning.exit_code


def _prune(
    args: argparse.Namespace, config: Config, sources: Sources, console: Console
) -> Pruning:
    shears = _shears(args, config, sources)
    # First, so that an id that nothing has is refused before anything is deleted.
    forgotten, unlisted = _forgotten(args, config, sources, shears)
    judged = _judged(args, config, sources, console)
    before = Pruning(
        fleet=config.fleet.fleet,
        versions=judged,
        forgotten=forgotten,
        unlisted=unlisted,
        done=False,
    )
    if args.dry_run:
        return before
    pruned = prune_versions(judged, shears)
    gone = delete_forgotten(forgotten, shears.publisher_of)
    failed = (judged, forgotten) != (pruned, gone)
    return before.model_copy(
        update={"versions": pruned, "forgotten": gone, "failed": failed, "done": True}
    )


def _forgotten(
    args: argparse.Namespace, config: Config, sources: Sources, shears: Pruner
) -> tuple[tuple[Forgotten, ...], dict[str, str]]:
    """Return what places hold and nobody remembers, as a killed build or publish leaves it.

    And why where a place could not be listed.
    """
    places = places_of(config.fleet, sources.store.image_versions())
    listed, unlisted = list_uploads(places, shears.publisher_of)
    # Read after the listing: what was published meanwhile is remembered by now.
    found = find_forgotten(config.fleet, sources.store.image_versions(), listed)
    ours = (each for each in found if args.image in (None, each.image))
    return name_forgotten(ours, args.forgotten), unlisted


def _judged(
    args: argparse.Namespace, config: Config, sources: Sources, console: Console
) -> tuple[PrunedVersion, ...]:
    plans = {name: read_plan(name, LocalFiles().read(name, LIMIT_BYTES)) for name in args.plan}
    world = look(config, sources, console)
    found = find_unreferenced(config.fleet, world, sources.store.image_versions(), plans)
    return tuple(each for each in found if args.image in (None, each.image))


def _shears(args: argparse.Namespace, config: Config, sources: Sources) -> Pruner:
    places = find_places(config.fleet, args.file)
    return Pruner(
        sources.store,
        lambda place: publisher_of(config.fleet, place, args.file),
        partial(_drop_build, places),
    )


def _drop_build(places: Places, image: str, version: str) -> None:
    """Delete the folder of a build on this computer, where it is there."""
    try:
        shutil.rmtree(places.images / image / version)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise FileUnreadable(f"{places.images / image / version}: {error.strerror}") from error
