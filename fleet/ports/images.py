"""This module names what images need from the world, as protocols.

As in fleet.ports: each edge implements one, has a written fake and a contract suite in
tests/ports/, and raises the errors of fleet.errors.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from fleet.facts.manifest import BuildOrder, BuildStep, Manifest
from fleet.facts.versions import Publication, Transfer, Upload


class ImageBuilder(Protocol):
    """A way to bake images."""

    def build(self, order: BuildOrder, tell: Callable[[BuildStep], None]) -> Manifest:
        """Bake a version, whole in its folder at the end; `tell` hears what is being done.

        Raises BuildFailed, or Locked where that image is being built already; then, and where it
        is interrupted, nothing is left but a log: no folder, no mount, no process, no machine.
        """


class Publisher(Protocol):
    """A provider or a store that keeps versions of images.

    It touches only what carries this fleet's mark, compared whole.
    """

    def uploads(self) -> tuple[Upload, ...]:
        """Return what it holds, whole or not, sorted by image and version.

        Raises SourceUnreachable where not all of it can be told.
        """

    def publish(
        self, manifest: Manifest, folder: str, tell: Callable[[Transfer], None]
    ) -> Publication:
        """Upload a version from the folder of its build, and read it back whole.

        What an earlier run left of it is gone on with; what is there already stays as it is.
        Raises PublicationRefused for another content under the same version.
        """

    def delete(self, upload_id: str) -> None:
        """Delete an upload, whole or not; one that is already gone is fine."""

    def clean(self, before: datetime, but_for: tuple[str, str] | None = None) -> tuple[str, ...]:
        """Remove what runs that died left, begun before that moment; return what it was.

        An upload of `but_for`, an image and its version, stays: it is to be gone on with.
        """
