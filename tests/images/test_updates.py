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


def test_updates_include_security_archive() -> None:
    manifest = a_manifest(packages=(a_package("bash", "5.2-1"), a_package("zlib1g", "1-1")))

    assert sources_of(manifest) == (MAIN, SECURITY)


def test_updates_are_searched_in_origin_of_installed_package() -> None:
    elsewhere = Source("http://fixes.example.org/s", "trixie-security", "main", "amd64")
    packages = a_package("bash", "5.2-1"), a_package("zlib1g", "1-1", elsewhere)

    assert sources_of(a_manifest(packages=packages)) == (MAIN, elsewhere)


def test_package_without_source_has_no_updates() -> None:
    local = a_package("own", "1").altered(origin="")

    assert sources_of(a_manifest(packages=(local,))) == ()


def test_newer_worker_of_any_source_is_an_update() -> None:
    manifest = a_manifest(packages=(a_package("debusine-worker", "0.16.1-1", OWN),))

    (update,) = find_updates(
        manifest, {MAIN: {"debusine-worker": "0.15"}, OWN: {"debusine-worker": "0.16.2-1"}}
    )

    assert (update.available, update.suite, update.security) == ("0.16.2-1", OWN.suite, False)


def test_other_packages_count_only_as_security_updates() -> None:
    manifest = a_manifest(packages=(a_package("bash", "5.2-1"), a_package("zlib1g", "1-1")))

    (update,) = find_updates(
        manifest, {MAIN: {"bash": "5.3-1"}, SECURITY: {"zlib1g": "1-1+deb13u1", "vim": "9"}}
    )

    assert (update.package, update.security) == ("zlib1g", True)


def test_installed_version_is_not_an_update() -> None:
    packages = a_package("zlib1g", "1-1+deb13u1"), a_package("debusine-worker", "2")

    offered = {SECURITY: {"zlib1g": "1-1+deb13u1"}, MAIN: {"debusine-worker": "2"}}

    assert find_updates(a_manifest(packages=packages), offered) == ()


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
