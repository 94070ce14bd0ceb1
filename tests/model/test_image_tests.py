"""What the tests of an image's version make of it."""

import pytest

from fleet.images.records import VersionTests, after_tests
from fleet.model import images
from tests.builders import NOW, ago
from tests.builders.versioning import a_version

PASSED = images.Test(kind="offline", at=NOW, seconds=3)
FAILED = images.Test(kind="offline", at=NOW, seconds=3, problems=("/etc/a is wrong", "b"))
BOOTED = images.Test(kind="boot", at=NOW, seconds=100, provides=("worker:type:external",))
DIED = images.Test(kind="boot", at=NOW, seconds=100, problems=("it died",), provides=("worker:x",))


@pytest.mark.parametrize("state", ["built", "failed"])
def test_version_is_tested_when_its_test_passes(state: str) -> None:
    after = after_tests(a_version(state=state, why="it was bad"), (PASSED,), NOW)

    assert (after.state, after.since, after.why) == ("tested", NOW, "")


def test_tested_version_keeps_its_first_time() -> None:
    assert after_tests(a_version(since=ago(hours=1)), (PASSED,), NOW).since == ago(hours=1)


@pytest.mark.parametrize("state", ["built", "tested"])
def test_version_is_failed_with_reason_when_its_test_fails(state: str) -> None:
    after = after_tests(a_version(state=state), (FAILED,), NOW)

    assert (after.state, after.since, after.why) == ("failed", NOW, "/etc/a is wrong")


@pytest.mark.parametrize("state", ["building", "candidate", "current", "previous", "retired"])
def test_version_in_use_keeps_its_state_when_test_fails(state: str) -> None:
    before = a_version(state=state)

    assert after_tests(before, (FAILED,), NOW) == before


def test_version_keeps_tags_of_last_successful_boot() -> None:
    before = a_version(state="current", provides=("worker:old",))

    assert after_tests(before, (PASSED, BOOTED), NOW).provides == BOOTED.provides
    assert after_tests(before, (PASSED,), NOW).provides == ("worker:old",)
    assert after_tests(before, (PASSED, DIED), NOW).provides == ("worker:old",)


def test_version_passes_test_without_problems() -> None:
    tested = VersionTests(image="trixie", version="1", state="tested", tests=(PASSED, BOOTED))

    assert tested.passed
    assert not tested.altered(tests=(PASSED, FAILED)).passed
