"""`fleet image due`: which images need building and why, and a pipeline that does it."""

import json
import lzma
from pathlib import Path

from fleet.images.folder import QCOW2, finish_build
from fleet.images.role import role_digest
from fleet.model.images import Package, recipe_digest
from fleet.schema.model import ImageRecipe
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.builders.versioning import a_manifest, a_version, open_build
from tests.rigs.loopback import Answer, Loopback, Received
from tests.rigs.trial import Trial

RECIPE = ImageRecipe(suite="trixie", architecture="amd64")
VERSION = "20261121T060000Z"
LIST = b"Package: debusine-worker\nVersion: 0.16.3-1\n"


def build(folder: Path, uri: str) -> None:
    """Put the folder of a build there, whose worker came from a mirror."""
    partial = open_build(folder, "trixie", VERSION)
    (partial / QCOW2).write_bytes(b"disk")
    finish_build(
        partial,
        a_manifest(
            recipe_digest=recipe_digest(RECIPE),
            role_digest=role_digest(),
            packages=(worker_of(uri),),
        ),
    )


def worker_of(uri: str) -> Package:
    """Return the worker as it was installed from a mirror."""
    return Package(
        name="debusine-worker",
        version="0.16.2-1",
        architecture="all",
        source="debusine",
        source_version="0.16.2-1",
        origin=f"trixie/main at {uri}",
    )


def remember(trial: Trial, **overrides: object) -> None:
    digests = {"recipe_digest": recipe_digest(RECIPE), "role_digest": role_digest()}
    trial.remember(a_version(**(digests | {"version": VERSION, "state": "current"} | overrides)))


def answer(request: Received) -> Answer:
    """Serve the list of the suite; of its security fixes there is none."""
    is_list = request.path == "/debian/dists/trixie/main/binary-amd64/Packages.xz"
    return Answer(200, lzma.compress(LIST)) if is_list else Answer(404, b"")


def test_image_is_due_when_suite_has_newer_worker(trial: Trial) -> None:
    with Loopback(answer) as mirror:
        build(trial.folder / ".fleet/images", f"{mirror.url}/debian")
        remember(trial)

        code, said = trial.do("image", "due", "--json")

    (image,) = json.loads(said)["images"]
    assert code == 0
    (cause,) = image["causes"]
    assert cause["reason"] == "newer-worker"
    assert tells(cause["because"], "trixie", "debusine-worker 0.16.3-1", "0.16.2-1")


def test_image_built_elsewhere_is_reported_and_not_due(trial: Trial) -> None:
    remember(trial)

    code, said = trial.do("image", "due", "--json")

    (image,) = json.loads(said)["images"]
    assert (code, image["causes"]) == (0, [])
    assert tells(image["unknown"], trial.folder / ".fleet/images/trixie")


def test_newer_packages_are_found_with_published_manifest(
    trial: Trial,
) -> None:
    with Loopback(answer) as mirror:
        remember(trial)
        manifest = a_manifest(packages=(worker_of(f"{mirror.url}/debian"),))
        url = sqlite_url(trial.folder / ".fleet/store.db")
        Store(url, "trial").save_manifest(manifest)

        _, said = trial.do("image", "due", "--json")

    (image,) = json.loads(said)["images"]
    assert [cause["reason"] for cause in image["causes"]] == ["newer-worker"]


def test_version_that_waits_for_promotion_has_command(trial: Trial) -> None:
    path = trial.folder / "fleet.yaml"
    text = path.read_text(encoding="utf-8")
    recipe = "{suite: trixie, architecture: amd64"
    assert recipe in text
    path.write_text(text.replace(recipe, f"{recipe}, publish: [desk], promote: manual"))
    uploads = {"desk": {"id": "d1", "at": NOW, "verified": True}}
    remember(trial, state="tested", publications=uploads)

    said = trial.told("image", "due")

    assert tells(
        said,
        f"version {VERSION}",
        "2026-11-21 07:00 UTC",
        "images.trixie.promote",
        "trixie",
        VERSION,
    )
