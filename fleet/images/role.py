"""Run the Ansible role debusine_worker on a host: a root folder, or a machine over ssh.

The run ignores the caller's Ansible configuration. No variable may contain a secret, because
Ansible may write any variable to the log.
"""

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.errors import FleetError, add_extra
from fleet.images.programs import ProgramFailed, run, search_path
from fleet.model.images import root_api_url
from fleet.ports import Tell
from fleet.schema.model import Fleet, ImageRecipe, Recipe
from fleet.state.processes import kill_by_environment
from fleet.state.storage import shipped_folder

PREFIX = "debusine_worker_"
"""Prefix of the names of all variables of the Ansible role."""
_MAX_OUTPUT_LINES = 40
"""Maximum number of output lines of a failed task in the error message. The log has all lines."""
_MAX_LINE = 2000
"""Maximum length of an output line in the error message."""


class RoleFailed(FleetError):
    """A task of the role failed, or the host was unreachable."""


def role_variables(recipe: ImageRecipe) -> dict[str, object]:
    """Return the variables of the Ansible role debusine_worker for an image.

    They include every variable that fleet.yaml can set, even if its value is the role's default.
    """
    variables: dict[str, object] = {
        "source": (recipe.source or "").strip(),
        "enable_backends": sorted(set(recipe.enable_backends)),
        "enable_tasks": sorted(set(recipe.enable_tasks)),
        "extra_packages": sorted(set(recipe.packages)),
        "version": recipe.worker_version or "",
        "swap_mebibytes": recipe.swap or 0,
        "api_url": root_api_url(recipe.api_url),
        "start": False,
    }
    return {PREFIX + name: value for name, value in variables.items()}


@dataclass(frozen=True)
class Host:
    """A host of Ansible's inventory, with its variables."""

    name: str
    variables: Mapping[str, object]
    within: Sequence[str | Path] = ()
    """Program that gets Ansible's command as its last arguments, and runs the command."""
    work: Path | None = None
    """Folder for Ansible's temporary files."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for that program."""


def chroot_host(root: Path, epoch: int) -> Host:
    """Return the host for a root folder on this computer. It needs root or a user namespace.

    `epoch` is the SOURCE_DATE_EPOCH of programs in the root. Without it, update-initramfs, useradd
    and Python write the current time into files.
    """
    connection = {"ansible_connection": "fleet_chroot", "ansible_host": str(root)}
    return Host("image", {**connection, "fleet_epoch": epoch})


def ssh_host(address: str, *, port: int, key: Path, known_hosts: Path) -> Host:
    """Return the host for ssh as root. ssh accepts only the host key in `known_hosts`."""
    options = (
        "-o BatchMode=yes -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes "
        f"-o UserKnownHostsFile='{known_hosts}' -o ConnectTimeout=20 -F none"
    )
    return Host(
        "machine",
        {
            "ansible_connection": "ssh",
            "ansible_host": address,
            "ansible_port": port,
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(key),
            "ansible_ssh_common_args": options,
        },
    )


def role_digest() -> str:
    """Return the digest of the names and contents of the role's files, except its README."""
    return _digest_files(shipped_folder("ansible") / "roles" / "debusine_worker", "README.md")


def play_digest(recipe: Recipe, beside: Path) -> str:
    """Return the digest of the role, or of the playbook's folder; empty without a playbook."""
    if isinstance(recipe, ImageRecipe):
        return role_digest()
    playbook = beside / recipe.playbook
    return _digest_files(playbook.parent) if playbook.is_file() else ""


def play_digests(fleet: Fleet, beside: Path) -> dict[str, str]:
    """Map each image that fleet builds to the digest of its role or playbook."""
    return {name: play_digest(recipe, beside) for name, recipe in fleet.baked.items()}


def _digest_files(folder: Path, apart: str = "") -> str:
    whole = hashlib.sha256()
    files = (path for path in folder.rglob("*") if path.is_file() and path != folder / apart)
    for path in sorted(files):
        name = path.relative_to(folder).as_posix()
        whole.update(f"{name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return whole.hexdigest()


def run_role(
    host: Host,
    variables: Mapping[str, object],
    *,
    log: Path,
    told: Tell = lambda _: None,
    play: Path | None = None,
) -> tuple[str, ...]:
    """Run the role, append Ansible's output to the log, and return the changed tasks.

    `told` gets the name of each task when it starts. Raises RoleFailed with the failed task and
    its output. An interruption stops Ansible.
    """
    if lacking := why_not():
        raise FleetError(lacking)
    tasks, changed = [""], dict[str, None]()

    def hear(line: str) -> None:
        if named := _TASK_PATTERN.match(line):
            tasks.append(named["name"])
            told(named["name"])
        elif line.startswith("changed: "):
            changed[tasks[-1]] = None

    with TemporaryDirectory(prefix="fleet-role-", dir=host.work) as folder:
        inventory = Path(folder, "inventory.json")
        hosts = {host.name: {**_PYTHON, **host.variables}}
        inventory.write_text(json.dumps({"all": {"hosts": hosts}}), encoding="utf-8")
        command = (
            *(_find_ansible(), "--inventory", inventory, "--extra-vars", json.dumps(variables)),
            play or shipped_folder("ansible") / "worker.yml",
        )
        try:
            run(
                *host.within,
                *command,
                log=log,
                env={**host.environment, **_ansible_environment(Path(folder))},
                hear=hear,
            )
        except ProgramFailed as error:
            failure = find_failure(error.output) or str(error)
            raise RoleFailed(f"{failure}\nall output is in {log}") from error
        finally:
            # Ansible's workers have separate sessions, and survive their parent.
            kill_by_environment(folder)
    return tuple(changed)


_PYTHON = {"ansible_python_interpreter": "/usr/bin/python3"}
_TASK_PATTERN = re.compile(r"(?:TASK|RUNNING HANDLER) \[(?:[^\]]* : )?(?P<name>.*)\] \**$")
_PLACE_PATTERN = re.compile(r"(?:task path|Origin): (?:.*/ansible/|.*/)?(?P<place>[^:]+:\d+)")


def why_not() -> str:
    """Return why this computer cannot run the role, with a remedy; empty if it can."""
    if _find_ansible():
        return ""
    return f"baking an image needs ansible-core, which is not installed: {add_extra('images')}"


def _find_ansible() -> str:
    """Return the path of ansible-playbook, if possible of the running Python; else empty."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{search_path()}"
    return shutil.which("ansible-playbook", path=beside) or ""


def _ansible_environment(folder: Path) -> dict[str, str]:
    """Return Ansible's environment: all files in one folder, without the user's settings."""
    settings = folder / "ansible.cfg"
    settings.touch()
    return {
        "ANSIBLE_CONFIG": str(settings),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_REMOTE_TMP": "/tmp/.ansible",  # noqa: S108 - in the image; cleaned with it
        "ANSIBLE_CONNECTION_PLUGINS": str(shipped_folder("ansible") / "plugins" / "connection"),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",  # each task is reported at its start
        "PYTHONWARNINGS": "ignore",
        **READABLE,
    }


READABLE = {
    "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_NOCOWS": "1",
    "ANSIBLE_SHOW_TASK_PATH_ON_FAILURE": "1",
}
"""Environment in which Ansible prints a failure as `find_failure` reads it."""


def find_failure(log: str) -> str:
    """Return the failed task and its error from Ansible's log; empty if no task failed."""
    task, place, shown, is_open = "", "", list[str](), False
    for line in log.splitlines():
        if named := _TASK_PATTERN.match(line):
            task, place, shown = named["name"], "", []
        elif found := _PLACE_PATTERN.match(line):
            place = f" ({found['place']})"
        elif line == "...ignoring":
            shown = []
        # The output of a task may have empty lines, which are not shown.
        is_open = line.startswith(("fatal: ", "failed: ")) or (is_open and line[:1] in ("", " "))
        if is_open and line.strip():
            shown.append(f"  {line.rstrip()}"[:_MAX_LINE])
        elif shown and line.startswith("PLAY RECAP"):
            break
    if not shown:
        return ""
    if len(shown) > _MAX_OUTPUT_LINES:
        shown = [*shown[:8], "  …", *shown[8 - _MAX_OUTPUT_LINES :]]
    return "\n".join((f"the role failed at task “{task}”{place}:", *shown))
