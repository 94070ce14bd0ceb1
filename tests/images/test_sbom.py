"""The bill of materials of an image: SPDX 2.3, each package with what it was built from."""

import json
from datetime import UTC, datetime
from typing import Any

from fleet.images.packages import sbom_of
from fleet.model.images import Package
from tests.builders.sentences import tells
from tests.builders.versioning import a_manifest

DASH = Package(
    name="libstdc++6",
    version="14.2.0-19",
    architecture="amd64",
    source="gcc-14",
    source_version="14.2.0-19",
    sha256="ab" * 32,
)


def bill() -> dict[str, Any]:
    manifest = a_manifest(
        image="trixie-amd64",
        version="20261121T203000Z",
        built_at=datetime(2026, 11, 21, 20, 30, tzinfo=UTC),
        packages=(DASH,),
    )
    found: dict[str, Any] = json.loads(sbom_of(manifest))
    return found


def test_sbom_has_version_of_image_and_source_of_each_package() -> None:
    found = bill()

    assert found == bill()
    assert (found["spdxVersion"], found["name"]) == ("SPDX-2.3", "trixie-amd64-20261121T203000Z")
    assert found["creationInfo"]["created"] == "2026-11-21T20:30:00Z"
    keys = ("spdxElementId", "relationshipType", "relatedSpdxElement")
    assert [tuple(each[key] for key in keys) for each in found["relationships"]] == [
        ("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image"),
        ("SPDXRef-image", "CONTAINS", "SPDXRef-libstdc--6-amd64"),
    ]
    package = found["packages"][1]
    assert package["versionInfo"] == "14.2.0-19"
    assert tells(package["sourceInfo"], "gcc-14", "14.2.0-19")
    assert package["checksums"] == [{"algorithm": "SHA256", "checksumValue": "ab" * 32}]
    assert package["externalRefs"][0]["referenceLocator"] == (
        "pkg:deb/debian/libstdc%2B%2B6@14.2.0-19?arch=amd64&distro=trixie"
    )
