"""Bake on machines of the simulated Hetzner: files in memory, and a made-up role."""

import json
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleet.clouds.hcloud.images import HcloudSite, Hetzner
from fleet.clouds.hcloud.ssh import KeyPair, Ssh
from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.images.instance import InstanceBuilder
from fleet.images.programs import root_script
from fleet.images.records import BuildOrder, BuildStep
from fleet.images.role import Host
from fleet.schema.pools import ImageRecipe
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW
from tests.builders.image_trees import ImageTree
from tests.rigs.rescue import RescueRig

VERSION = "20261121T203000Z"
HOME = "/root"
READY, CLEAN, SYSTEM, PACKAGES, COPY_ROOT = map(
    root_script,
    ("prepare_machine", "clean_machine", "print_system", "list_packages", "copy_root"),
)
"""What a machine is asked for."""
LOGIN = f"{HOME}/.ssh/authorized_keys"
TOLD = (
    "debusine-worker\t0.11.3\tall\tdebusine\t0.11.3\t\t\n",
    "bash\t5.2.37-2\tamd64\tbash\t5.2.37-2\ttrixie/main at http://deb.example.org/debian\tabc\n",
)


class Machine(Ssh):
    """A machine that does nothing, and tells what it was asked to."""

    asked: list[str]
    files: ImageTree
    fails_at: str = ""
    failure: str = ""
    answers: Mapping[str, str]
    told: Sequence[Mapping[str, object]] = ()
    """What the jobs in the copy of its root tell, a line each."""

    def start(self, script: str, log: Path) -> "subprocess.Popen[bytes]":
        self.asked.append(script)
        log.write_text(log.read_text(encoding="utf-8") + "jobs\n", encoding="utf-8")
        lines = "".join(f"{json.dumps(each)}\n" for each in self.told)
        program = ("sh", "-c", 'cat >/dev/null; printf %s "$1"', "sh", lines)
        return subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, script: str, sent: bytes = b"", log: Path | None = None) -> str:
        assert not sent or script.startswith(("cat >", "python3 - "))
        if script.startswith("python3 - "):
            return json.dumps(self.files.check(shlex.split(script)[3]))
        self.asked.append(script)
        if script == self.fails_at:
            if self.failure:
                raise PublicationRefused(self.failure)
            raise SourceUnreachable("the connection is lost")
        if script == CLEAN:
            self.files.remove(LOGIN)
        if log:
            with log.open("a", encoding="utf-8") as file:
                file.write("done\n")
        return self.answers.get(script, "")


class MachineRig:
    """A project whose machines do nothing, and a role that does what a test says."""

    def __init__(
        self, images: Path, api: SimulatedHetzner, fleet: str = "debian-ci", beside: Path = Path()
    ) -> None:
        self.api = api
        self.images = images
        self.asked: list[str] = []
        self.fails_at = self.failure = ""
        self.packages: Sequence[str] = TOLD
        self.system = "debian-13"
        self.play: Path | None = None
        self.told: Sequence[Mapping[str, object]] = ()
        self.able = ""
        self.files = ImageTree(images.parent / "machine")
        self.version = VERSION
        self.host: Host | None = None
        self.variables: Mapping[str, object] = {}
        self.steps: list[BuildStep] = []
        self.role: Callable[[], None] = lambda: None
        self.hetzner = RescueRig(images.parent / "hetzner", api)
        hetzner = Hetzner(api.token, base_url=api.endpoint, pause=lambda _: None)
        site = HcloudSite(hetzner, fleet, "fsn1", "hetzner", self._connect)
        self.builder = InstanceBuilder(images, site, self._run_role, beside)

    def build(self, *, suite: str = "trixie", **keys: Any) -> None:  # noqa: ANN401 - YAML
        """Build a version."""
        recipe = ImageRecipe.model_validate({"suite": suite, "architecture": "amd64", **keys})
        order = BuildOrder(
            image="trixie", version=self.version, recipe=recipe, built_at=NOW, built_by="ana"
        )
        self.manifest, self.publication = self.builder.build(order, self.steps.append)

    def left(self) -> list[str]:
        """Return the servers, keys and folders that there are."""
        return [
            *self.hetzner.left(),
            *(path.name for path in (self.images / "trixie").glob("*") if path.is_dir()),
        ]

    def _connect(self, host: str, pair: KeyPair) -> Ssh:
        self.files.put(LOGIN, pair.public)
        machine = Machine(host, pair)
        machine.asked, machine.files = self.asked, self.files
        machine.fails_at, machine.failure = self.fails_at, self.failure
        machine.answers = {
            PACKAGES: "".join(self.packages),
            SYSTEM: self.system,
            root_script("list_devices"): self.able,
            COPY_ROOT: "/srv/fleet-jobs-1",
        }
        machine.told = self.told
        return machine

    def _run_role(
        self,
        host: Host,
        variables: Mapping[str, object],
        log: Path,
        told: Callable[[str], None],
        play: Path | None = None,
    ) -> None:
        self.host, self.variables, self.play = host, variables, play
        told("Install packages")
        log.write_text(log.read_text() + "the role was here\n")
        self.role()
