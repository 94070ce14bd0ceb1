"""The records that only images use: what to build, how far it is, test and upload results."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Generic, Protocol, TypeVar

from pydantic import Field

from fleet.model.images import WHOLE_WORKER, Manifest, State, Test, Version
from fleet.model.values import Value
from fleet.schema.pools import ImageRecipe, PlaybookRecipe
from fleet.schema.units import Written

Told_co = TypeVar("Told_co", covariant=True)


class BuildOrder(Value):
    """An image to build, and the user who requested the build."""

    image: str
    version: str = Field(description="Start of its build, for example 20261121T203000Z.")
    recipe: Annotated[ImageRecipe | PlaybookRecipe, Written]
    role_digest: str = Field("", description="Digest of the role or playbook.")
    built_at: datetime
    built_by: str
    commit: str = ""

    @property
    def debian(self) -> ImageRecipe:
        """Return the recipe of a Debian image; raises TypeError if a playbook builds the image."""
        if isinstance(self.recipe, PlaybookRecipe):
            raise TypeError(self.image)
        return self.recipe


class BuildStep(Value):
    """The current phase of an image build."""

    phase: str
    task: str = Field("", description="Task of the Ansible role, while the role runs.")
    seconds: float = Field(description="Time since the start of the build.")


class ImageBuilder(Protocol, Generic[Told_co]):
    """Builds versions of operating system images."""

    def check_ready(self, order: BuildOrder) -> None:
        """Raise BuildFailed if the build cannot begin, for example without its programs."""

    def build(
        self, order: BuildOrder, tell: Callable[[BuildStep], None]
    ) -> tuple[Manifest, Told_co]:
        """Build a version of an image in its folder; return its manifest and further results.

        `tell` receives each step. Raises BuildFailed, or Locked if another run builds the image.
        An error or an interrupt leaves only a log: no folder, mount, process or machine.
        """


_TEST_STATES: tuple[State, ...] = ("built", "tested", "failed")
"""States that a test may change. Only promotion and rollback change other states."""


class VersionTests(Value):
    """A version of an image, its new test results, and its new state."""

    image: str
    version: str
    state: State
    tests: tuple[Test, ...]
    notes: tuple[str, ...] = Field((), description="Remarks that are no problems.")

    @property
    def passed(self) -> bool:
        """Return whether the tests found no problem."""
        return not any(test.problems for test in self.tests)


def after_tests(version: Version, tests: tuple[Test, ...], now: datetime) -> Version:
    """Return the version with its state after these tests: `failed` if one found a problem."""
    problems = [problem for test in tests for problem in test.problems]
    passed = [test for test in tests if not test.problems]
    known = version
    for test in passed:
        if test.kind == "jobs":
            known = known.altered(provides=test.provides, unproven=test.unproven)
        elif test.kind == "boot" and (known.unproven in (None, (WHOLE_WORKER,))):
            # The tags of a worker's report are used only if no job proved tags.
            known = known.altered(provides=test.provides)
    if version.state not in _TEST_STATES:
        return known
    state: State = "failed" if problems else "tested"
    since = version.since if version.state == state else now
    why = problems[0] if problems else ""
    return known.altered(state=state, since=since, why=why, by_rule=not problems)


class Published(Value):
    """The result of publishing an image version to one provider or store."""

    place: str = Field(description="Provider, or URL of a store.")
    id: str = Field("", description="Its id there; empty: not published there.")
    removed: tuple[str, ...] = Field(
        (), description="Remains of dead runs that were removed there."
    )
    error: str = ""


class Publishing(Value):
    """The results of publishing an image version to all requested providers and stores."""

    image: str
    version: str = Field("", description="Empty: only cleaned.")
    places: tuple[Published, ...]

    @property
    def exit_code(self) -> int:
        """Return 0 if no upload failed, 1 if all failed, and 5 if some failed."""
        failed = [each for each in self.places if each.error]
        if not failed:
            return 0
        return 1 if len(failed) == len(self.places) else 5
