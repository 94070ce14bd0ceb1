"""Read the list of packages of an image, and write its bill of materials."""

import json
import re
from collections.abc import Iterable
from datetime import UTC
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from fleet.model.images import Manifest, Package

_DPKG_SYSTEMS = ("debian", "ubuntu")
"""Systems with Debian packages, named as ID in /etc/os-release."""


def read_packages(lines: Iterable[str]) -> tuple[Package, ...]:
    """Parse the output of `list_packages` in root.sh; return packages sorted by name."""
    rows = (line.rstrip("\n").split("\t") for line in lines)
    names = ("name", "version", "architecture", "source", "source_version", "origin", "sha256")
    found = (Package.model_validate(dict(zip(names, row, strict=True))) for row in rows)
    return tuple(sorted(found, key=lambda each: (each.name, each.architecture)))


def sbom_of(manifest: Manifest) -> str:
    """Return the software bill of materials of a version, in SPDX 2.3 as JSON."""
    name, root = f"{manifest.image}-{manifest.version}", "SPDXRef-DOCUMENT"
    system, _, release = manifest.suite.rpartition("-")  # a suite of Debian is a word
    kind = "deb" if not system or system in _DPKG_SYSTEMS else "rpm"
    image = {
        "SPDXID": "SPDXRef-image",
        "name": manifest.image,
        "versionInfo": manifest.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "primaryPackagePurpose": "OPERATING-SYSTEM",
    }

    def describe(package: Package) -> dict[str, Any]:
        id_ = re.sub(r"[^\w.-]|_", "-", f"{package.name}-{package.architecture}")
        version, quoted = (quote(each, safe="") for each in (package.version, package.name))
        address = (
            f"pkg:{kind}/{system or 'debian'}/{quoted}@{version}"
            f"?arch={package.architecture}&distro={manifest.suite if system else release}"
        )
        found = {
            "SPDXID": f"SPDXRef-{id_}",
            "name": package.name,
            "versionInfo": package.version,
            "downloadLocation": "NOASSERTION",
            "filesAnalyzed": False,
            "sourceInfo": f"built from {package.source} {package.source_version}",
            "externalRefs": [
                {
                    "referenceCategory": "PACKAGE-MANAGER",
                    "referenceType": "purl",
                    "referenceLocator": address,
                }
            ],
        }
        checksums = [{"algorithm": "SHA256", "checksumValue": package.sha256}]
        return found | ({"checksums": checksums} if package.sha256 else {})

    packages = [image, *map(describe, manifest.packages)]
    contained = [(image["SPDXID"], "CONTAINS", each["SPDXID"]) for each in packages[1:]]
    keys = ("spdxElementId", "relationshipType", "relatedSpdxElement")
    whole = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": root,
        "name": name,
        "documentNamespace": f"urn:uuid:{uuid5(NAMESPACE_URL, f'{name}:{manifest.digest}')}",
        "creationInfo": {
            "created": manifest.built_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: fleet"],
        },
        "packages": packages,
        "relationships": [
            dict(zip(keys, each, strict=True))
            for each in ((root, "DESCRIBES", image["SPDXID"]), *contained)
        ],
    }
    return json.dumps(whole, indent=1) + "\n"
