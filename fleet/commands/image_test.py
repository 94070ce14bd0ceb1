"""This module tests a version of an image that was built on this computer, before it is used."""

import argparse
import time
from pathlib import Path

from fleet.commands.clock import SystemClock
from fleet.commands.config import load_config
from fleet.errors import FileUnreadable, FleetError, WrongUsage
from fleet.facts.image_checks import check_image
from fleet.facts.image_tests import VersionTests, after_tests
from fleet.facts.manifest import Manifest, Test
from fleet.facts.recipes import recipe_digest
from fleet.images.contents import open_disk
from fleet.images.folder import QCOW2, find_build, list_builds, verify, write_manifest
from fleet.operate.versions import change_version, find_version
from fleet.ports import Console
from fleet.render.image_tests_text import tested_to_text
from fleet.render.to_json import value_to_json
from fleet.schema.model import Fleet, ImageRecipe
from fleet.store.database import DatabaseStore
from fleet.store.places import find_places


def run(args: argparse.Namespace, console: Console) -> int:
    """Look into an image, boot it where that is asked for, and write down what came of it."""
    fleet = load_config(args, console).fleet
    recipe = recipe_of(fleet, args.image)
    if args.queue and not args.boot:
        raise WrongUsage("--queue says where a booted worker registers: add --boot")
    places = find_places(fleet, args.file)
    store = DatabaseStore(places.store, fleet.fleet)
    version = args.version or _newest(places.images, args.image)
    folder, manifest = find_build(places.images, args.image, version)
    find_version(store, args.image, version)
    tests, notes = [_offline(folder, manifest, recipe, console)], [*_outdated(recipe, manifest)]
    if args.boot and tests[0].problems:
        notes.append("it was not booted: mend that first")
    elif args.boot:
        from fleet.commands.image_boot import boot

        manifest, test, told = boot(fleet, args, folder, manifest, console)
        tests.append(test)
        notes += told
    done = tuple(tests)
    write_manifest(folder, manifest.model_copy(update={"tests": (*manifest.tests, *done)}))
    now = SystemClock().now()
    after = change_version(store, args.image, version, lambda was: after_tests(was, done, now))
    tested = VersionTests(
        image=args.image, version=version, state=after.state, tests=done, notes=tuple(notes)
    )
    shown = value_to_json(tested) if args.json else tested_to_text(tested, colour=console.colour)
    console.out(shown)
    return 0 if tested.passed else 1


def recipe_of(fleet: Fleet, image: str) -> ImageRecipe:
    """Return the recipe of an image; FleetError where fleet.yaml has none of it."""
    match fleet.images.get(image):
        case ImageRecipe() as recipe:
            return recipe
        case None:
            raise FleetError(
                f"there is no image {image}; there are: {', '.join(fleet.images) or 'none'}"
            )
        case _:
            raise FleetError(f"image {image} was baked elsewhere: there is nothing here to test")


def _newest(images: Path, image: str) -> str:
    builds = list_builds(images, image)
    if not builds:
        raise FileUnreadable(
            f"{images / image} holds no version yet; `fleet image build {image}` makes one"
        )
    return builds[-1].version


def _outdated(recipe: ImageRecipe, manifest: Manifest) -> tuple[str, ...]:
    if recipe_digest(recipe) == manifest.recipe_digest:
        return ()
    told = (
        "fleet.yaml says something else than when it was built: it was held to what fleet.yaml "
        f"says now; `fleet image build {manifest.image}` makes a version of that"
    )
    return (told,)


def _offline(folder: Path, manifest: Manifest, recipe: ImageRecipe, console: Console) -> Test:
    """Look into the disk that would be published, and say what is wrong with it."""
    if QCOW2 not in manifest.files:
        raise FleetError(
            f"{folder}: this version has no disk here to look into (it was built by way of "
            f"{manifest.way}); {_instead(manifest)}"
        )
    at, began = SystemClock().now(), time.monotonic()
    console.progress(f"reading {folder / QCOW2}")
    verify(folder, manifest, [QCOW2])
    console.progress(f"looking into {folder / QCOW2}")
    with open_disk(folder / QCOW2) as disk:
        problems = [*disk.problems(), *check_image(disk.root, recipe)]
    seconds = round(time.monotonic() - began, 1)
    return Test(kind="offline", at=at, seconds=seconds, problems=tuple(problems))


def _instead(manifest: Manifest) -> str:
    if manifest.tests:
        return "its machine was looked into at the end of the build, and it is tested since"
    return f"`fleet image build {manifest.image} --at PROVIDER` makes one that is tested there"
