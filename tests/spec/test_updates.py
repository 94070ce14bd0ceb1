"""What an image's sources have newer: the worker, and whatever a security fix mends."""

from fleet.images.due import Source, find_updates, sources_of
from fleet.model.images import Package
from tests.builders.versioning import a_manifest

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


def test_security_fixes_are_looked_for_beside_the_suite() -> None:
    manifest = a_manifest(packages=(a_package("bash", "5.2-1"), a_package("zlib1g", "1-1")))

    assert sources_of(manifest) == (MAIN, SECURITY)


def test_where_fixes_came_from_is_where_more_come_from() -> None:
    elsewhere = Source("http://fixes.example.org/s", "trixie-security", "main", "amd64")
    packages = a_package("bash", "5.2-1"), a_package("zlib1g", "1-1", elsewhere)

    assert sources_of(a_manifest(packages=packages)) == (MAIN, elsewhere)


def test_a_package_of_no_source_is_looked_for_nowhere() -> None:
    local = a_package("own", "1").model_copy(update={"origin": ""})

    assert sources_of(a_manifest(packages=(local,))) == ()


def test_a_newer_worker_is_told_from_whichever_source() -> None:
    manifest = a_manifest(packages=(a_package("debusine-worker", "0.16.1-1", OWN),))

    (update,) = find_updates(
        manifest, {MAIN: {"debusine-worker": "0.15"}, OWN: {"debusine-worker": "0.16.2-1"}}
    )

    assert (update.available, update.suite, update.security) == ("0.16.2-1", OWN.suite, False)


def test_other_packages_count_only_where_they_mend_security() -> None:
    manifest = a_manifest(packages=(a_package("bash", "5.2-1"), a_package("zlib1g", "1-1")))

    (update,) = find_updates(
        manifest, {MAIN: {"bash": "5.3-1"}, SECURITY: {"zlib1g": "1-1+deb13u1", "vim": "9"}}
    )

    assert (update.package, update.security) == ("zlib1g", True)


def test_what_is_installed_already_is_no_news() -> None:
    packages = a_package("zlib1g", "1-1+deb13u1"), a_package("debusine-worker", "2")

    offered = {SECURITY: {"zlib1g": "1-1+deb13u1"}, MAIN: {"debusine-worker": "2"}}

    assert find_updates(a_manifest(packages=packages), offered) == ()
