"""What a release says of its files: provenance, and the SBOM of an image made up here."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.rigs.process import ROOT, clean_environment, run_process
from tools.image_sbom import manifest_digest, sbom

PYTHON = ROOT / ".venv" / "bin" / "python"
JOB = {
    "CI_PROJECT_URL": "https://gitlab.example.org/debian/fleet",
    "CI_COMMIT_TAG": "0.2.0",
    "CI_COMMIT_SHA": "c" * 40,
    "CI_JOB_NAME": "release image",
    "CI_JOB_URL": "https://gitlab.example.org/debian/fleet/-/jobs/7",
    "CI_JOB_STARTED_AT": "2026-11-26T08:00:00Z",
    "CI_RUNNER_ID": "3",
}
SITE = "opt/fleet/lib/site-packages"
STATUS = """\
Package: git
Status: install ok installed
Architecture: amd64
Version: 1:2.47.3-0+deb13u1

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""
MODULES = (
    b"path\tx/main\nmod\tx.example/main\tv1.2.3\th1:a=\n"
    b"dep\tx.example/old\tv1.0.0\n=>\tx.example/fork\tv1.0.1\th1:b=\n"
)
NOTED = b"s" * 16 + MODULES + b"e" * 16
GO = (
    b"\x7fELF\xff Go buildinf:\x08\x02"
    + bytes(16)
    + b"\x08go1.25.9"
    + bytes([128 + len(NOTED) % 128, len(NOTED) // 128])
    + NOTED
)
LAYERS: tuple[Mapping[str, bytes], ...] = (
    {
        "var/lib/dpkg/status": b"",
        "usr/lib/os-release": b"ID=debian\nVERSION_CODENAME=trixie\n",
        f"{SITE}/old-1.dist-info/METADATA": b"Name: old\nVersion: 1\n",
        "usr/local/bin/tool": GO,
    },
    {
        "./var/lib/dpkg/status": STATUS.encode(),
        f"{SITE}/.wh.old-1.dist-info": b"",
        f"{SITE}/f-0.2.0.dist-info/METADATA": b"Name: fleet_reconciler\nVersion: 0.2.0\n\nText",
    },
)


def packed(files: Mapping[str, bytes]) -> bytes:
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return into.getvalue()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    blobs: dict[str, bytes] = {}

    def keep(content: bytes) -> dict[str, str]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}"}

    manifest = {"layers": [keep(packed(layer)) for layer in LAYERS]}
    index = {"manifests": [keep(json.dumps(manifest).encode())]}
    path = tmp_path / "fleet.oci.tar"
    path.write_bytes(packed({"index.json": json.dumps(index).encode(), **blobs}))
    return path


def test_sbom_lists_contents_of_last_layer(archive: Path) -> None:
    made = sbom(archive)

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(made)) is None
    assert [each["purl"] for each in made["components"]] == [
        "pkg:deb/debian/git@1%3A2.47.3-0%2Bdeb13u1?arch=amd64&distro=trixie",
        "pkg:golang/stdlib@1.25.9",
        "pkg:golang/x.example/fork@v1.0.1",
        "pkg:golang/x.example/main@v1.2.3",
        "pkg:pypi/fleet-reconciler@0.2.0",
    ]
    assert made["metadata"]["component"]["version"] == "0.2.0"


def test_provenance_has_digests_of_files_of_a_job(archive: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "fleet_reconciler-0.2.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    base = f"debian:trixie-slim@sha256:{'b' * 64}"
    command = (PYTHON, ROOT / "tools/provenance.py", "--base", base, wheel, archive)

    told, outside = (
        run_process(*command, cwd=tmp_path, env=clean_environment(tmp_path, variables))
        for variables in (JOB, {})
    )

    assert (outside.returncode, outside.stdout) == (1, "")
    assert "CI_PROJECT_URL" in outside.stderr
    assert told.returncode == 0, told.stderr
    statement = json.loads(told.stdout)
    assert {each["name"]: each["digest"]["sha256"] for each in statement["subject"]} == {
        wheel.name: hashlib.sha256(b"wheel").hexdigest(),
        archive.name: hashlib.sha256(archive.read_bytes()).hexdigest(),
        f"{archive.name}/manifest": manifest_digest(archive),
    }
    definition = statement["predicate"]["buildDefinition"]
    assert [each["digest"] for each in definition["resolvedDependencies"]] == [
        {"gitCommit": "c" * 40},
        {"sha256": "b" * 64},
    ]
