"""This module says what a built image is: the manifest that lies beside it.

Its JSON form is manifest.json in the folder of a build, `IMAGES/IMAGE/VERSION/`; every other file
there is named in it with its checksum.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from fleet.facts.values import Value
from fleet.facts.versions import Rental
from fleet.schema.base import Written
from fleet.schema.pools import ImageRecipe


class BuildOrder(Value):
    """What is to be baked, and who says so."""

    image: str
    version: str = Field(description="When its build began, as in 20261121T203000Z.")
    recipe: Annotated[ImageRecipe, Written]
    built_at: datetime
    built_by: str
    commit: str = ""


class BuildStep(Value):
    """What a build is doing."""

    phase: str
    task: str = Field("", description="Of the Ansible role, while that runs.")
    seconds: float = Field(description="Since the build began.")


class Package(Value):
    """A Debian package that is installed in an image."""

    name: str
    version: str
    architecture: str
    source: str = Field(description="Name of its source package.")
    source_version: str
    origin: str = Field("", description="The APT source it came from, as suite/component at URI.")
    sha256: str = Field("", description="Of the .deb; empty where no package list named it.")


class File(Value):
    """A file beside the manifest."""

    sha256: str
    size: int = Field(description="In bytes.")


class Test(Value):
    """What a test of the image found."""

    kind: Literal["offline", "boot"]
    at: datetime
    seconds: float
    problems: tuple[str, ...] = Field((), description="Empty: it passed.")
    provides: tuple[str, ...] = Field((), description="Tags that its worker reported, sorted.")


class Manifest(Value):
    """Everything that is known of one version of an image, without secrets."""

    format: Literal["fleet-image-1"] = "fleet-image-1"
    image: str
    version: str = Field(description="When its build began, as in 20261121T203000Z.")
    way: Literal["disk", "instance", "debusine"]
    suite: str
    architecture: str
    recipe_digest: str = Field(description="Of all in fleet.yaml that goes into it.")
    role_digest: str = Field(description="Of the files of the Ansible role.")
    digest: str = Field(description="Of recipe, role and the packages it got.")
    built_at: datetime
    built_by: str = Field(description="Who built it, as the machine or CI names them.")
    commit: str = Field("", description="The commit of fleet.yaml; empty outside of git.")
    seconds: dict[str, float] = Field(description="Phase of the build to what it took.")
    rental: Rental | None = Field(None, description="The machine that it was built on.")
    packages: tuple[Package, ...] = Field((), description="Sorted by name and architecture.")
    files: dict[str, File] = Field(default_factory=dict, description="Name to what it holds.")
    tests: tuple[Test, ...] = Field((), description="The oldest first.")

    @property
    def provides(self) -> tuple[str, ...]:
        """Return the tags that the worker reported at the latest boot that succeeded."""
        booted = [each for each in self.tests if each.kind == "boot" and not each.problems]
        return booted[-1].provides if booted else ()
