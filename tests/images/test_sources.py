"""Where packages come from: which suites a mirror has, and what a mirror that fails reads like."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.errors import FleetError, SourceUnreachable
from fleet.images import sources
from fleet.images.sources import Archive, archive_of, mirror_suites, state_of
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
    return archive_of(suite, f"{mirror.url}/debian")


def test_sources_of_suite_include_updates_and_security(mirror: Loopback) -> None:
    archive, sid = ask(mirror), ask(mirror, "sid")

    assert archive.lines == (
        f"deb {mirror.url}/debian trixie main",
        f"deb {mirror.url}/debian trixie-updates main",
        f"deb {mirror.url}/debian-security trixie-security main",
    )
    assert (sid.lines, sid.absent) == ((f"deb {mirror.url}/debian sid main",), ())
    assert archive.epoch == 1795252270  # of its newest suite
    uri, suite = mirror_suites("trixie", None)[-1]
    assert (uri, suite) == ("http://security.debian.org/debian-security", "trixie-security")


def test_security_archive_missing_at_mirror_is_named(mirror: Loopback) -> None:
    mirror.faults.instead["/debian-security/dists/trixie-security/InRelease"] = Answer(404, b"")

    assert ask(mirror).absent == (f"deb {mirror.url}/debian-security trixie-security main",)


@pytest.mark.parametrize("file", [None, "ubuntu-keyring-2018-archive.gpg"])
def test_debian_archive_is_signed_when_apt_trusts_other_keys(
    file: str | None, mirror: Loopback, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keyring, trusted = tmp_path / "keyring.gpg", tmp_path / "trusted.gpg.d"
    monkeypatch.setattr(sources, "_DEBIAN", f"{mirror.url}/debian")
    monkeypatch.setattr(sources, "_DEBIAN_SECURITY", f"{mirror.url}/debian-security")
    monkeypatch.setattr(sources, "_KEYRING", keyring)
    monkeypatch.setattr(sources, "_TRUSTED_KEYS", trusted)
    plain = ask(mirror).lines
    if file:
        trusted.mkdir()
        (trusted / file).touch()

    assert archive_of("trixie", None).lines == plain  # this computer has no keyring

    keyring.touch()
    signed = tuple(line.replace("deb ", f'deb [signed-by="{keyring}"] ') for line in plain)
    assert archive_of("trixie", None).lines == signed
    assert ask(mirror).lines == plain

    trusted.mkdir(exist_ok=True)
    (trusted / "debian-archive-trixie-stable.asc").touch()
    assert archive_of("trixie", None).lines == plain


def test_state_of_archive_changes_with_its_contents(mirror: Loopback) -> None:
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


@pytest.mark.parametrize(
    ("suite", "answers", "said"),
    [
        ("trixie", {"trixie": html()}, r"Debian archive.*dists/trixie/InRelease"),
        (
            "trixie",
            {"trixie-updates": html(503)},
            r"trixie-updates/InRelease.* 503.*--mirror",
        ),
        ("undated", {}, r"date.* yesterday"),
    ],
)
def test_archive_with_invalid_release_is_unreachable(
    mirror: Loopback, suite: str, answers: dict[str, Answer], said: str
) -> None:
    for name, wrong in answers.items():
        mirror.faults.instead[f"/debian/dists/{name}/InRelease"] = wrong

    with pytest.raises(SourceUnreachable, match=said):
        ask(mirror, suite)


def test_mirror_without_complete_response_is_unreachable(mirror: Loopback) -> None:
    mirror.faults.drop = since(1)
    with pytest.raises(SourceUnreachable, match=r"/debian.*answer"):
        ask(mirror)
    with Loopback(answer) as server:
        gone = server
    with pytest.raises(SourceUnreachable, match=r"answer.*refused"):
        ask(gone)


def test_state_of_source_changes_with_its_archive(mirror: Loopback) -> None:
    source = f"Types: deb\nURIs: {mirror.url}/debian\nSuites: trixie sid\nComponents: main\n"
    before, again = state_of(source), state_of(source)
    mirror.faults.instead["/debian/dists/sid/InRelease"] = Answer(200, b"more")

    assert before == again
    assert state_of(source) not in (before, None)
    # Only an image can reach this one.
    assert state_of("Types: deb\nURIs: file:/srv/debs\nSuites: trixie\nComponents: main") is None


def test_state_of_source_without_suites_is_its_release_file(mirror: Loopback) -> None:
    source = f"Types: deb\nURIs: {mirror.url}/flat/\nSuites: ./\n"
    assert state_of(source) is None

    mirror.faults.instead["/flat/Release"] = Answer(200, b"Date: today")

    assert state_of(source) is not None
