"""This module has a root tell which packages it holds and where each came from, and reads it."""

from collections.abc import Iterable

from fleet.facts.manifest import Package

LIST_PACKAGES = """set -e
python3 - <<'END'
import apt_pkg
apt_pkg.init()
cache = apt_pkg.Cache(None)
sources, records = apt_pkg.SourceList(), apt_pkg.PackageRecords(cache)
sources.read_main_list()
for package in cache.packages:
    version = package.current_ver
    if version is None:
        continue
    origin = checksum = ""
    for file, place in version.file_list:
        records.lookup((file, place))
        index = sources.find_index(file)
        if index is not None:
            uri, release = index.describe.split()[:2]
            found = records.hashes.find("sha256")
            origin, checksum = f"{release} at {uri}", found.hashvalue if found else ""
            break
    source = records.source_pkg or package.name, records.source_ver or version.ver_str
    print(package.name, version.ver_str, version.arch, *source, origin, checksum, sep="\\t")
END
"""
"""Each package with its source, and which archive has it with which checksum."""


def read_packages(lines: Iterable[str]) -> tuple[Package, ...]:
    """Return the packages that a machine told of, with where they came from."""
    rows = (line.rstrip("\n").split("\t") for line in lines)
    names = ("name", "version", "architecture", "source", "source_version", "origin", "sha256")
    found = (Package.model_validate(dict(zip(names, row, strict=True))) for row in rows)
    return tuple(sorted(found, key=lambda each: (each.name, each.architecture)))
