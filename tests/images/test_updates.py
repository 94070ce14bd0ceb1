"""What an image's sources have newer, by the order that Debian gives to versions."""

import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from fleet.images.due import find_updates, sources_of
from fleet.model.apt_sources import Source, version_key
from fleet.model.images import Package
from tests.builders.versioning import a_manifest
from tests.rigs.process import clean_environment, run_process

MAIN = Source("http://deb.example.org/debian", "trixie", "main", "amd64")
SECURITY = Source("http://deb.example.org/debian-security", "trixie-security", "main", "amd64")
OWN = Source("http://worker.example.org/", "./trixie", "main", "amd64")


def a_package(name: str, version: str, source: Source = MAIN) -> Package:
    return Package(
        name=name,
        version=version,
        architecture="amd64",
        source=name,
        source_version=version,
        origin=f"{source.suite}/{source.component} at {source.uri}",
    )


ELSEWHERE = Source("http://fixes.example.org/s", "trixie-security", "main", "amd64")
BASH, ZLIB = a_package("bash", "5.2-1"), a_package("zlib1g", "1-1")
WORKER = a_package("debusine-worker", "0.16.1-1", OWN)


@pytest.mark.parametrize(
    ("packages", "sources"),
    [
        ((BASH, ZLIB), (MAIN, SECURITY)),
        ((BASH, a_package("zlib1g", "1-1", ELSEWHERE)), (MAIN, ELSEWHERE)),
        ((a_package("own", "1").altered(origin=""),), ()),
    ],
)
def test_updates_are_searched_in_origin_and_security_archive(
    packages: tuple[Package, ...], sources: tuple[Source, ...]
) -> None:
    assert sources_of(a_manifest(packages=packages)) == sources


@pytest.mark.parametrize(
    ("packages", "offered", "found"),
    [
        (
            (WORKER,),
            {MAIN: {"debusine-worker": "0.15"}, OWN: {"debusine-worker": "0.16.2-1"}},
            [("debusine-worker", "0.16.2-1", OWN.suite, False)],
        ),
        (
            (BASH, ZLIB),
            {MAIN: {"bash": "5.3-1"}, SECURITY: {"zlib1g": "1-1+deb13u1", "vim": "9"}},
            [("zlib1g", "1-1+deb13u1", SECURITY.suite, True)],
        ),
        (
            (ZLIB, WORKER),
            {SECURITY: {"zlib1g": "1-1"}, MAIN: {"debusine-worker": "0.16.1-1"}},
            [],
        ),
    ],
    ids=["a worker of any source", "other packages for security", "what is installed"],
)
def test_newer_worker_and_security_fixes_are_updates(
    packages: tuple[Package, ...],
    offered: dict[Source, dict[str, str]],
    found: list[tuple[str, str, str, bool]],
) -> None:
    updates = find_updates(a_manifest(packages=packages), offered)

    assert [(u.package, u.available, u.suite, u.security) for u in updates] == found


# From deb-version(7) and the tests of dpkg: each is older than the next.
ASCENDING = (
    "0~rc1",
    "0",
    "0.9",
    "0.10",
    "0.16.1-1~bpo12+1",
    "0.16.1-1",
    "0.16.1-1+b1",
    "0.16.1-1+deb13u1",
    "0.16.2~~",
    "0.16.2~",
    "0.16.2",
    "0.16.2-1",
    "0.16.2a",
    "0.16.2+dfsg",
    "0.16.2-1-1",
    "2026.9",
    "2026.10",
    "1:0.1",
    "10:0",
)


@pytest.mark.parametrize(("older", "newer"), tuple(pairwise(ASCENDING)))
def test_versions_are_ordered_like_debian(older: str, newer: str) -> None:
    assert version_key(older) < version_key(newer)


@pytest.mark.parametrize(("one", "other"), [("0:1.0", "1.0"), ("1.01", "1.1"), ("1.0-0", "1.0")])
def test_equivalent_versions_have_equal_keys(one: str, other: str) -> None:
    assert version_key(one) == version_key(other)


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="the order is NOT COMPARED with dpkg's")
def test_version_order_equals_dpkg(tmp_path: Path) -> None:
    order = "&&".join(f"dpkg --compare-versions {a} lt {b}" for a, b in pairwise(ASCENDING))

    done = run_process("sh", "-c", order, cwd=tmp_path, env=clean_environment(tmp_path))

    assert done.returncode == 0
