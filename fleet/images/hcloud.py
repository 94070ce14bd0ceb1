"""This module publishes images to Hetzner Cloud, whose API takes none.

A temporary server boots the rescue system, its disk is written over ssh and read back, and a
snapshot is taken of it while it is off. A snapshot is made of a disk that was read back only, so
one that is still labelled as partial needs nothing but its label.
"""

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from fleet.errors import PublicationRefused
from fleet.facts.manifest import Manifest
from fleet.facts.versions import Publication, Rental, Upload
from fleet.images.disks import disk_of, raw_disk
from fleet.images.hetzner import Found, Hetzner
from fleet.images.holding import held
from fleet.images.progress import Tell
from fleet.images.remote_disk import Writing, write_disk
from fleet.images.temporary import Entry, Order, clean_temporary, temporary_machine

SHORT = 32
"""Digits of a checksum that a label has room for; the description holds all."""


@dataclass(frozen=True)
class HcloudSite:
    """Where in Hetzner's cloud, and how its machines are entered."""

    fleet: str
    location: str
    provider: str = ""
    """What fleet.yaml calls it."""
    entry: Entry = field(default_factory=Entry)
    writing: Writing = field(default_factory=Writing)


class HcloudPublisher:
    """One project: Publisher."""

    def __init__(self, site: HcloudSite, token: str, *, base_url: str | None = None) -> None:
        self._site = site
        self._api = Hetzner(token, base_url=base_url, pause=site.entry.pause)

    def uploads(self) -> tuple[Upload, ...]:
        """Return the snapshots with this fleet's mark."""
        found = self._api.images(f"fleet=={self._site.fleet},image,version")
        ours = [each for each in found if each.labels.get("fleet") == self._site.fleet]
        uploads = (_upload(each) for each in ours)
        return tuple(sorted(uploads, key=lambda each: (each.image, each.version)))

    def publish(self, manifest: Manifest, folder: str, tell: Tell) -> Publication:
        """Have a snapshot hold the disk of a version."""
        # What was baked on a machine there is a snapshot already, and has no disk here.
        is_there = manifest.way == "instance"
        identity = manifest.digest if is_there else disk_of(manifest)[1].sha256
        lock = Path(folder).parent / ".publish-hcloud.lock"
        with held(lock) as holder, self._api.session():
            known = self._found(manifest, identity)
            found, rental = (
                (known, None) if known else self._take(manifest, Path(folder), holder, tell)
            )
            if found.labels.get("state") != "whole":
                found = self._api.await_image(found)
                self._api.relabel(found, {**found.labels, "state": "whole"})
        at = datetime.fromisoformat(found.created)
        return Publication(id=str(found.id), at=at, verified=True, rental=rental)

    def delete(self, upload_id: str) -> None:
        """Delete a snapshot."""
        found = self._api.image(upload_id)
        if found is None:
            return
        if found.labels.get("fleet") != self._site.fleet:
            raise PublicationRefused(
                f"image {upload_id} at Hetzner does not carry the label fleet={self._site.fleet}"
            )
        self._api.delete("images", upload_id)

    def clean(self, before: datetime, but_for: tuple[str, str] | None = None) -> tuple[str, ...]:
        """Delete snapshots that are not whole, temporary servers and their keys."""
        with self._api.session():
            old = [each for each in self.uploads() if each.was_left(before, but_for)]
            for each in old:
                self.delete(each.id)
            removed = (f"snapshot {each.id} of {each.image} {each.version}" for each in old)
            return (*removed, *clean_temporary(self._api, self._site.fleet, before))

    def _found(self, manifest: Manifest, sha256: str) -> Found | None:
        marks = {"fleet": self._site.fleet, "image": manifest.image, "version": manifest.version}
        found = self._api.images(",".join(f"{key}=={text}" for key, text in marks.items()))
        for each in found:
            if each.labels.get("sha256") != sha256[:SHORT]:
                raise PublicationRefused(
                    f"snapshot {each.id} at Hetzner holds another disk of {manifest.image} "
                    f"{manifest.version}, {each.description}; delete it if nothing uses it"
                )
        return found[0] if found else None

    def _take(
        self, manifest: Manifest, folder: Path, holder: str, tell: Tell
    ) -> tuple[Found, Rental]:
        """Return the snapshot, and the machine that it was made on."""
        _, disk = disk_of(manifest)
        site = self._site
        with raw_disk(manifest, folder) as raw:
            order = Order(
                purpose="publish",
                fleet=site.fleet,
                image=manifest.image,
                version=manifest.version,
                architecture=manifest.architecture,
                location=site.location,
                holder=holder,
                disk_bytes=raw.stat().st_size,
            )
            with temporary_machine(self._api, order, site.entry) as rented:
                write_disk(rented.ssh, raw, tell, site.writing)
                snapshot = take_snapshot(
                    *(self._api, rented.server, site.fleet, manifest, disk.sha256)
                )
                return snapshot, rented.rental(site.provider)


def take_snapshot(
    api: Hetzner, server: Found, fleet: str, manifest: Manifest, sha256: str
) -> Found:
    """Turn a server off and return the snapshot of its disk, labelled as not yet whole."""
    api.act(server, "poweroff")
    api.await_status(server, "off")
    labels = {
        "fleet": fleet,
        "image": manifest.image,
        "version": manifest.version,
        "sha256": sha256[:SHORT],
        "state": "partial",
    }
    said = f"{fleet}: {manifest.image} {manifest.version} sha256:{sha256}"
    return api.snapshot(server, {"type": "snapshot", "description": said, "labels": labels})


def _upload(image: Found) -> Upload:
    labels = image.labels
    return Upload(
        id=str(image.id),
        image=labels["image"],
        version=labels["version"],
        sha256=labels.get("sha256", ""),
        whole=labels.get("state") == "whole",
        since=datetime.fromisoformat(image.created),
    )
