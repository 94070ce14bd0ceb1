"""Print an SBOM of a container image, in CycloneDX 1.6, from its OCI archive alone.

It lists the packages of Debian's dpkg, of Python's metadata, and the modules in the Go programs of
/usr/local/bin, each once.
"""

import json
import re
import sys
import tarfile
import uuid
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

STATUS = "var/lib/dpkg/status"
RELEASE = "usr/lib/os-release"
_READ = re.compile(rf"{STATUS}|{RELEASE}|.*\.dist-info/METADATA|usr/local/bin/[^/]+")
_GO_MAGIC = b"\xff Go buildinf:"
_GO_HEADER, _GO_SENTINEL = 32, 16


def main() -> int:
    """Print the SBOM of the archive that is named on the command line."""
    print(json.dumps(sbom(Path(sys.argv[1])), indent=1))
    return 0


def sbom(archive: Path) -> dict[str, Any]:
    """Return the SBOM of an image."""
    digest = manifest_digest(archive)
    found = sorted(set(_components(_files(archive))))
    (version,) = (version for _, name, version in found if name == "fleet-reconciler")
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": f"image@sha256:{digest}",
                "name": "fleet",
                "version": version,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }
        },
        "components": [
            {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
            for purl, name, version in found
        ],
    }


def manifest_digest(archive: Path) -> str:
    """Return the SHA-256 of the only manifest in an archive; registries use it as the image id."""
    with tarfile.open(archive) as image:
        (manifest,) = _json(image, "index.json")["manifests"]
    return str(manifest["digest"]).removeprefix("sha256:")


def _files(archive: Path) -> dict[str, bytes]:
    """Return the package lists and programs of an image, after all layers were applied."""
    files: dict[str, bytes] = {}
    with tarfile.open(archive) as image:
        manifest = _json(image, _blob(manifest_digest(archive)))
        for layer in manifest["layers"]:
            blob = image.extractfile(_blob(layer["digest"]))
            with tarfile.open(fileobj=blob, mode="r|*") as members:
                for member in members:
                    _take(members, member, files)
    return files


def _take(layer: tarfile.TarFile, member: tarfile.TarInfo, files: dict[str, bytes]) -> None:
    """Add a member of a layer to the files of lower layers, or remove the files that it hides."""
    path = PurePosixPath(member.name.removeprefix("./"))
    if path.name.startswith(".wh."):
        opaque = path.name == ".wh..wh..opq"
        hidden = path.parent if opaque else path.with_name(path.name.removeprefix(".wh."))
        for name in [name for name in files if PurePosixPath(name).is_relative_to(hidden)]:
            del files[name]
    elif _READ.fullmatch(str(path)) and (content := layer.extractfile(member)):
        files[str(path)] = content.read()


def _components(files: dict[str, bytes]) -> Iterator[tuple[str, str, str]]:
    """Yield package URL, name and version of each package in the files."""
    for name, content in files.items():
        if name == STATUS:
            yield from _debian(content.decode(), files[RELEASE].decode())
        elif name.endswith("/METADATA"):
            about = HeaderParser().parsestr(content.decode())
            called = re.sub(r"[-_.]+", "-", about["Name"]).lower()
            yield f"pkg:pypi/{called}@{quote(about['Version'])}", called, about["Version"]
        else:
            yield from _go(content)


def _debian(status: str, release: str) -> Iterator[tuple[str, str, str]]:
    suite = re.findall(r"^VERSION_CODENAME=(\w+)$", release, re.MULTILINE)[0]
    for paragraph in status.strip().split("\n\n"):
        about = HeaderParser().parsestr(paragraph)
        if about["Status"].endswith(" installed"):
            name, version = about["Package"], about["Version"]
            where = f"?arch={about['Architecture']}&distro={suite}"
            yield f"pkg:deb/debian/{quote(name)}@{quote(version)}{where}", name, version


def _go(program: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield the modules that Go's linker recorded in a program, and the standard library."""
    start = program.find(_GO_MAGIC)
    if start < 0:
        return
    release, after = _go_text(program, start + _GO_HEADER)
    noted, _ = _go_text(program, after)
    modules = [("stdlib", release.decode().removeprefix("go"))]
    for line in noted[_GO_SENTINEL:-_GO_SENTINEL].decode().splitlines():
        kind, *words = line.split("\t")
        if kind == "=>":  # in place of the one before
            modules.pop()
        if kind in {"mod", "dep", "=>"}:
            modules.append((words[0], words[1]))
    for name, version in modules:
        yield f"pkg:golang/{quote(name)}@{quote(version)}", name, version


def _go_text(program: bytes, at: int) -> tuple[bytes, int]:
    """Return a text that follows its length (a varint of 7 bits per byte), and its end."""
    length = shift = 0
    more = True
    while more:
        byte = program[at]
        length, shift, at = length | (byte & 0x7F) << shift, shift + 7, at + 1
        more = bool(byte & 0x80)
    return program[at : at + length], at + length


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _json(image: tarfile.TarFile, name: str) -> Any:  # noqa: ANN401 - it is JSON
    content = image.extractfile(name)
    return json.load(content) if content else None


if __name__ == "__main__":
    sys.exit(main())
