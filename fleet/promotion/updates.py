"""This module says which packages of an image its APT sources have newer."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pydantic import Field

from fleet.facts.manifest import Manifest, Package
from fleet.facts.values import Value
from fleet.promotion.debian_versions import version_key

WORKER = "debusine-worker"
_ORIGIN = re.compile(r"(?P<suite>\S+)/(?P<component>[^/\s]+) at (?P<uri>\S+)")
_SECURITY = "-security"


class Source(NamedTuple):
    """One list of packages of an archive."""

    uri: str
    suite: str
    component: str
    architecture: str


class Update(Value):
    """A package that is newer in a source than in the image."""

    package: str
    installed: str
    available: str
    suite: str
    security: bool = Field(description="It is in a suite of security fixes.")


def sources_of(manifest: Manifest) -> tuple[Source, ...]:
    """Return where the packages of an image came from, and where fixes of them would be.

    Of a suite that had none yet, they are beside it: that is where mirrors have them.
    """
    found = {source for package in manifest.packages for source in _source(manifest, package)}
    if not any(source.suite.endswith(_SECURITY) for source in found):
        found |= {
            source._replace(uri=source.uri.rstrip("/") + _SECURITY, suite=source.suite + _SECURITY)
            for source in found
            if source.suite == manifest.suite
        }
    return tuple(sorted(found))


def find_updates(
    manifest: Manifest, offered: Mapping[Source, Mapping[str, str]]
) -> tuple[Update, ...]:
    """Return the worker where it is newer, and every package that a security fix has newer."""
    newer: dict[str, Update] = {}
    for source, versions in sorted(offered.items()):
        security = source.suite.endswith(_SECURITY)
        for package in manifest.packages:
            available = versions.get(package.name, "")
            known = newer.get(package.name)
            than = known.available if known else package.version
            wanted = security or package.name == WORKER
            if available and wanted and version_key(available) > version_key(than):
                newer[package.name] = Update(
                    package=package.name,
                    installed=package.version,
                    available=available,
                    suite=source.suite,
                    security=security,
                )
    return tuple(newer[name] for name in sorted(newer))


def _source(manifest: Manifest, package: Package) -> Iterator[Source]:
    matched = _ORIGIN.fullmatch(package.origin)
    if matched:
        yield Source(matched["uri"], matched["suite"], matched["component"], manifest.architecture)
