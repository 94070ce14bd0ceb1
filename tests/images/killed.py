"""This program publishes a version to the simulated Hetzner and is killed while it uploads."""

import os
import signal
import sys
from pathlib import Path

from fleet.images.folder import read_manifest
from fleet.images.hcloud import HcloudPublisher, HcloudSite
from fleet.images.remote_disk import Writing
from fleet.images.temporary import Entry
from fleet.versions import Transfer
from tests.rescue import Shell


def _die(transfer: Transfer) -> None:
    if transfer.phase == "upload":
        os.kill(os.getpid(), signal.SIGKILL)


def main(endpoint: str, token: str, folder: str, device: str) -> None:
    """Publish until the first bytes are uploaded."""
    writing = Writing(device=device, piece_mib=1)
    site = HcloudSite("debian-ci", "fsn1", entry=Entry(connect=Shell), writing=writing)
    publisher = HcloudPublisher(site, token, base_url=endpoint)
    publisher.publish(read_manifest(Path(folder)), folder, _die)


if __name__ == "__main__":
    main(*sys.argv[1:])
