"""This module deletes versions of images that nothing refers to any more."""

import argparse
import os
import shutil
from functools import partial
from pathlib import Path

from fleet.commands.clock import SystemClock
from fleet.commands.publishers import publisher_of
from fleet.commands.wiring import Config, load_config, lock_owner, look, wire
from fleet.errors import FileUnreadable
from fleet.operate.observe import Sources
from fleet.operate.prune import Shears, prune_versions
from fleet.ports import Console
from fleet.pruning import PrunedVersion, Pruning, find_unreferenced
from fleet.render.pruning_text import pruning_to_text
from fleet.render.to_json import value_to_json
from fleet.saved import LIMIT_BYTES, read_plan
from fleet.store.files import LocalFiles
from fleet.store.places import Places, find_places
from fleet.store.secrets import HostSecrets


def run(args: argparse.Namespace, console: Console) -> int:
    """Show what nothing refers to, or delete it while no run makes a machine of it."""
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    if args.dry_run:
        pruning = _pruning(config, _judged(args, config, sources, console), done=False)
    else:
        with sources.store.lock(lock_owner(), SystemClock().now()):
            judged = _judged(args, config, sources, console)
            pruned = prune_versions(judged, _shears(args, config, sources))
            pruning = _pruning(config, pruned, done=True).model_copy(
                update={"failed": judged != pruned}
            )
    console.out(
        value_to_json(pruning) if args.json else pruning_to_text(pruning, colour=console.colour)
    )
    return pruning.exit_code


def _pruning(config: Config, versions: tuple[PrunedVersion, ...], *, done: bool) -> Pruning:
    return Pruning(fleet=config.fleet.fleet, versions=versions, done=done)


def _judged(
    args: argparse.Namespace, config: Config, sources: Sources, console: Console
) -> tuple[PrunedVersion, ...]:
    plans = {name: read_plan(name, LocalFiles().read(name, LIMIT_BYTES)) for name in args.plan}
    world = look(config, sources, console)
    found = find_unreferenced(config.fleet, world, sources.store.image_versions(), plans)
    return tuple(each for each in found if args.image in (None, each.image))


def _shears(args: argparse.Namespace, config: Config, sources: Sources) -> Shears:
    places = find_places(config.fleet, args.file)
    secrets = HostSecrets(os.environ, Path(args.file).resolve().parent)
    return Shears(
        sources.store,
        lambda place: publisher_of(config.fleet, place, places, secrets),
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
