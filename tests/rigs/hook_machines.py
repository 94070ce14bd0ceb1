"""A provider of kind hooks for tests: the commands of the how-to page."""

import os
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from fleet.clouds.hooks.machines import CommandContext, HookMachines
from fleet.model.facts import Listing, Machine
from fleet.schema.model import HooksProvider
from tests.builders import NOW
from tests.fakes.engine import FixedClock
from tests.rigs.process import ROOT

PAGE = ROOT / "docs/how-to/use-your-own-commands.md"
HOOKS = ("new", "delete", "list", "livecheck")
_FILE = re.compile(r"<!-- file: (\w+)\.sh -->\n```sh\n(.*?)```\n", re.DOTALL)


def write_hooks(folder: Path, **scripts: str) -> None:
    """Write the page's commands into a folder, some of them replaced by these."""
    page = dict(_FILE.findall(PAGE.read_text(encoding="utf-8")))
    folder.mkdir(parents=True, exist_ok=True)
    for name, script in (page | scripts).items():
        (folder / f"{name}.sh").write_text(script, encoding="utf-8")


def hooks_over(folder: Path, now: datetime = NOW, **provider: object) -> HookMachines:
    """Return the machines that a folder's commands make, with these keys in fleet.yaml."""
    return hooks_among({}, folder, now, provider)


def hooks_among(
    ours: Mapping[str, str],
    folder: Path,
    now: datetime,
    provider: Mapping[str, object],
    name: str = "desk",
) -> HookMachines:
    """Return such machines of a fleet that has this environment."""
    commands = {name: ["sh", f"{name}.sh"] for name in HOOKS}
    declared = HooksProvider.model_validate({"kind": "hooks", **commands, **provider})
    around = CommandContext(
        provider=name,
        fleet="debian",
        folder=folder,
        state=folder / "state",
        environment={"PATH": os.environ["PATH"]},
        ours=ours,
        pools=("builders",),
    )
    return HookMachines(declared, around, FixedClock(now))


def a_hook_cloud(folder: Path, **scripts: str) -> HookMachines:
    """Return machines that the page's commands make, some of them replaced by these."""
    write_hooks(folder, **scripts)
    return hooks_over(folder)


def listed(cloud: HookMachines) -> tuple[Machine, ...]:
    """Return the machines of the fleet `debian`, which are known."""
    listing = cloud.list("debian")
    assert isinstance(listing, Listing), listing
    return listing.machines
