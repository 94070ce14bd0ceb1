"""This module writes what an image holds as a software bill of materials: SPDX 2.3 in JSON."""

import json
from datetime import UTC
from typing import Any
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from fleet.facts.manifest import Manifest, Package


def sbom_of(manifest: Manifest) -> str:
    """Return the bill of materials of a version."""
    name = f"{manifest.image}-{manifest.version}"
    packages = [_package(each, manifest.suite) for each in manifest.packages]
    image = {
        "SPDXID": "SPDXRef-image",
        "name": manifest.image,
        "versionInfo": manifest.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "primaryPackagePurpose": "OPERATING-SYSTEM",
    }
    whole = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"urn:uuid:{uuid5(NAMESPACE_URL, f'{name}:{manifest.digest}')}",
        "creationInfo": {
            "created": manifest.built_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: fleet"],
        },
        "packages": [image, *packages],
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image"),
            *(_relation("SPDXRef-image", "CONTAINS", each["SPDXID"]) for each in packages),
        ],
    }
    return json.dumps(whole, indent=1) + "\n"


def _package(package: Package, suite: str) -> dict[str, Any]:
    kind = "SPDXRef-" + "".join(
        letter if letter.isalnum() or letter in ".-" else "-"
        for letter in f"{package.name}-{package.architecture}"
    )
    version = quote(package.version, safe="")
    address = (
        f"pkg:deb/debian/{quote(package.name, safe='')}@{version}"
        f"?arch={package.architecture}&distro={suite}"
    )
    found: dict[str, Any] = {
        "SPDXID": kind,
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
    if package.sha256:
        found["checksums"] = [{"algorithm": "SHA256", "checksumValue": package.sha256}]
    return found


def _relation(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
