"""Let the servers of the simulated Hetzner boot a real rescue system: an sshd.

Their disk is a file. It is let in who the simulated API was told of, while a server runs the
rescue system and no longer; a snapshot holds what the file held when it was taken.
"""

from functools import partial
from pathlib import Path

from fleet.clouds.hcloud.images import HcloudPublisher, HcloudSite, Hetzner
from fleet.clouds.hcloud.ssh import Ssh, write_disk
from fleet.images.publish import Pipeline
from simulators.hetzner.server import SimulatedHetzner
from simulators.hetzner.wire import Request
from tests.rigs.sshd import Sshd

STOCK = b"what Hetzner's own image holds\n" * 100_000


class Shell(Ssh):
    """A machine that is this computer: its commands run here, without ssh."""

    def command(self, script: str) -> list[str]:
        return ["sh", "-c", script]


class RescueRig:
    """A simulated project whose servers are this computer, entered by ssh or, quicker, by sh."""

    def __init__(self, folder: Path, api: SimulatedHetzner, sshd: Sshd | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.api = api
        self.disk = folder / "sda"
        self.snapshots: dict[int, bytes] = {}
        self.paused: list[float] = []
        self._sshd = sshd
        api.state.address = "127.0.0.1"
        api.watch = self._watch

    def site(self, fleet: str = "debian-ci") -> HcloudSite:
        """Return the location of a fleet, and how its machines are entered."""
        pause = self.paused.append
        client = Hetzner(self.api.token, base_url=self.api.endpoint, pause=pause)
        write = partial(write_disk, device=str(self.disk), piece_mib=1, pause=pause)
        connect = self._sshd.connect if self._sshd else Shell
        return HcloudSite(client, fleet, "fsn1", "hetzner", connect, write)

    def publisher(self, fleet: str = "debian-ci") -> Pipeline:
        """Return what publishes there for a fleet."""
        return Pipeline(HcloudPublisher(self.site(fleet)))

    def left(self) -> list[str]:
        """Return the names of the servers and keys that there are."""
        kinds = ("servers", "ssh_keys")
        return [each["name"] for kind in kinds for each in self.api.state.resources[kind].values()]

    def _watch(self, when: str, request: Request) -> None:
        if when != "done":
            return
        state = self.api.state
        keys = {key for allowed in state.in_rescue.values() for key in allowed}
        known = state.resources["ssh_keys"]
        if self._sshd:
            self._sshd.let_in(known[key]["public_key"] for key in keys if key in known)
        if (request.method, request.path) == ("POST", "/servers") and not self.disk.is_symlink():
            self.disk.write_bytes(STOCK)
        if request.path.endswith("/create_image") and self.disk.is_file():
            taken = [
                key for key, each in state.resources["images"].items() if each["created_from"]
            ]
            self.snapshots |= {each: self.disk.read_bytes() for each in taken[-1:]}
