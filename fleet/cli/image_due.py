"""List the images that need a build, a test or publishing, and why."""

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from fleet.apply.config import load_config
from fleet.apply.timer import SystemClock
from fleet.cli.image_build import image_cache
from fleet.errors import FileUnreadable, SourceUnreachable
from fleet.images.due import News, Source, find_due, find_updates, latest_built, sources_of
from fleet.images.folder import find_build
from fleet.images.role import role_digest
from fleet.images.sources import read_index
from fleet.model.facts import Unknown
from fleet.model.images import Manifest, Version
from fleet.ports import Console
from fleet.report.images import due_to_text, to_child_pipeline
from fleet.report.json import value_to_json
from fleet.schema.model import Fleet, ImageRecipe
from fleet.state.files import LocalFiles
from fleet.state.places import Places, find_places
from fleet.state.store import DatabaseStore


def run(args: argparse.Namespace, console: Console) -> int:
    """Say what is due, and write a pipeline that does it where that is asked for."""
    fleet = load_config(args, console).fleet
    places = find_places(fleet, args.file)
    store = DatabaseStore(places.store, fleet.fleet)
    versions = store.image_versions()
    report = find_due(
        fleet,
        versions,
        role_digest=role_digest(),
        news=_news(fleet, versions, partial(_manifest, store, places), console),
        now=SystemClock().now(),
    )
    if args.gitlab_child_pipeline:
        builds = _from_checkout(places.images)
        pipeline = to_child_pipeline(report, builds)
        LocalFiles().write_text(args.gitlab_child_pipeline, pipeline)
    console.out(value_to_json(report) if args.json else due_to_text(report, colour=console.colour))
    return 0


def _manifest(store: DatabaseStore, places: Places, image: str, version: str) -> Manifest:
    """Return what a version holds: as it was published, else as it was built here."""
    published = store.manifest(image, version)
    return published or find_build(places.images, image, version)[1]


def _news(
    fleet: Fleet,
    versions: Sequence[Version],
    manifest_of: Callable[[str, str], Manifest],
    console: Console,
) -> dict[str, News]:
    """Return by image what its sources have newer than its latest version."""
    lists: dict[Source, dict[str, str]] = {}
    news: dict[str, News] = {}
    for name, image in fleet.images.items():
        latest = latest_built(versions, name) if isinstance(image, ImageRecipe) else None
        if latest is None:
            continue
        try:
            manifest = manifest_of(name, latest.version)
            for source in sources_of(manifest):
                if source not in lists:
                    console.progress(f"reading packages of {source.suite} at {source.uri}")
                    lists[source] = read_index(source, image_cache() / "lists")
            offered = {source: lists[source] for source in sources_of(manifest)}
            news[name] = find_updates(manifest, offered)
        except (FileUnreadable, SourceUnreachable) as error:
            news[name] = Unknown(unknown=f"whether its packages are up to date: {error}")
    return news


def _from_checkout(folder: Path) -> str:
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)
