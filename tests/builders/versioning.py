"""Build image versions and manifests for tests: name only what matters."""

from pathlib import Path

from fleet.model.images import Manifest, Version
from tests.builders import ago


def a_version(**overrides: object) -> Version:
    """Return a tested version of `trixie` that was built two hours ago."""
    defaults = {
        "image": "trixie",
        "version": "20261121T060000Z",
        "state": "tested",
        "digest": "d1",
        "recipe_digest": "r1",
        "role_digest": "a1",
        "since": ago(hours=1),
        "built_at": ago(hours=2),
        "built_by": "ci",
    }
    return Version.model_validate(defaults | overrides)


def a_manifest(**overrides: object) -> Manifest:
    """Return what lies beside the disk of such a version, without packages and files."""
    defaults = {
        "image": "trixie",
        "version": "20261121T060000Z",
        "way": "disk",
        "suite": "trixie",
        "architecture": "amd64",
        "recipe_digest": "r1",
        "role_digest": "a1",
        "digest": "d1",
        "built_at": ago(hours=2),
        "built_by": "ci",
        "seconds": {},
    }
    return Manifest.model_validate(defaults | overrides)


def open_build(images: Path, image: str, version: str) -> Path:
    """Return a new folder for a build, which `finish_build` renames."""
    folder = images / image / f".{version}.partial"
    folder.mkdir(parents=True)
    return folder
