"""Where packages come from: which suites a mirror has, and what a mirror that fails reads like."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.errors import FleetError, SourceUnreachable
from fleet.images.sources import Archive, archive_of, state_of
from tests.builders.sentences import tells
from tests.rigs.loopback import Answer, Loopback, Received, html, since

DATE = "Date: Sat, 21 Nov 2026 08:11:10 UTC"
SUITES = {
    "/debian/dists/trixie/InRelease": DATE,
    "/debian/dists/trixie-updates/InRelease": "Date: Sat, 21 Nov 2026 09:11:10 UTC",
    "/debian-security/dists/trixie-security/InRelease": "Date: Fri, 20 Nov 2026 08:11:10 UTC",
    "/debian/dists/sid/InRelease": DATE,
    "/debian/dists/undated/InRelease": "Date: yesterday",
}


def answer(request: Received) -> Answer:
    if request.path not in SUITES:
        return Answer(404, b"not here")
    text = f"-----BEGIN PGP SIGNED MESSAGE-----\n\n{SUITES[request.path]}\n"
    return Answer(200, text.encode(), {"Content-Type": "text/plain"})


@pytest.fixture
def mirror() -> Iterator[Loopback]:
    with Loopback(answer) as server:
        yield server


def ask(mirror: Loopback, suite: str = "trixie") -> Archive:
    return archive_of(suite, f"{mirror.url}/debian", Path("/nowhere"))


def test_a_suite_comes_with_its_updates_and_with_security_fixes(mirror: Loopback) -> None:
    assert ask(mirror).lines == (
        f"deb {mirror.url}/debian trixie main",
        f"deb {mirror.url}/debian trixie-updates main",
        f"deb {mirror.url}/debian-security trixie-security main",
    )


def test_a_suite_without_updates_comes_alone(mirror: Loopback) -> None:
    assert ask(mirror, "sid").lines == (f"deb {mirror.url}/debian sid main",)


def test_security_fixes_that_a_mirror_does_not_have_are_named(mirror: Loopback) -> None:
    mirror.faults.instead["/debian-security/dists/trixie-security/InRelease"] = Answer(404, b"")

    assert ask(mirror).absent == (f"deb {mirror.url}/debian-security trixie-security main",)


def test_a_suite_that_never_has_updates_lacks_none(mirror: Loopback) -> None:
    assert ask(mirror, "sid").absent == ()


def test_archive_time_is_that_of_its_newest_suite(mirror: Loopback) -> None:
    assert ask(mirror).epoch == 1795252270


def test_an_archive_that_changes_is_in_another_state(mirror: Loopback) -> None:
    before = ask(mirror).state
    again = ask(mirror).state
    mirror.faults.instead["/debian/dists/trixie-updates/InRelease"] = Answer(
        200, f"-----BEGIN PGP SIGNED MESSAGE-----\n\nmore\n{DATE}\n".encode()
    )

    assert before == again
    assert ask(mirror).state != before


def test_unknown_suite_error_names_suite_and_mirror_options(mirror: Loopback) -> None:
    with pytest.raises(FleetError) as caught:
        ask(mirror, "trixy")

    assert tells(
        str(caught.value),
        f"{mirror.url}/debian",
        "dists/trixy/InRelease",
        "suite",
        "--mirror",
        "FLEET_MIRROR",
        "mirror",
    )


def test_web_page_is_not_an_archive(mirror: Loopback) -> None:
    mirror.faults.instead["/debian/dists/trixie/InRelease"] = html()

    with pytest.raises(SourceUnreachable, match=r"Debian archive.*dists/trixie/InRelease"):
        ask(mirror)


def test_a_mirror_that_fails_is_not_taken_for_one_without_updates(mirror: Loopback) -> None:
    mirror.faults.instead["/debian/dists/trixie-updates/InRelease"] = html(503)

    with pytest.raises(SourceUnreachable, match=r"trixie-updates/InRelease.* 503.*--mirror"):
        ask(mirror)


def test_a_mirror_that_breaks_off_does_not_answer(mirror: Loopback) -> None:
    mirror.faults.drop = since(1)

    with pytest.raises(SourceUnreachable, match=r"/debian.*answer"):
        ask(mirror)


def test_a_mirror_that_is_down_does_not_answer() -> None:
    with Loopback(answer) as server:
        gone = server

    with pytest.raises(SourceUnreachable, match=r"answer.*refused"):
        ask(gone)


def test_release_without_date_is_refused(mirror: Loopback) -> None:
    with pytest.raises(SourceUnreachable, match=r"date.* yesterday"):
        ask(mirror, "undated")


def test_a_source_is_in_another_state_when_its_archive_changes(mirror: Loopback) -> None:
    source = f"Types: deb\nURIs: {mirror.url}/debian\nSuites: trixie sid\nComponents: main\n"
    before, again = state_of(source), state_of(source)
    mirror.faults.instead["/debian/dists/sid/InRelease"] = Answer(200, b"more")

    assert before == again
    assert state_of(source) not in (before, None)


def test_a_source_without_suites_is_known_by_its_release_file(mirror: Loopback) -> None:
    source = f"Types: deb\nURIs: {mirror.url}/flat/\nSuites: ./\n"
    assert state_of(source) is None

    mirror.faults.instead["/flat/Release"] = Answer(200, b"Date: today")

    assert state_of(source) is not None


def test_a_source_that_only_the_image_reaches_has_an_unknown_state() -> None:
    assert state_of("Types: deb\nURIs: file:/srv/debs\nSuites: trixie\nComponents: main") is None
