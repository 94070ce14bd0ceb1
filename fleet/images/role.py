"""Run the Ansible role debusine_worker on a host: a root folder, or a machine over ssh.

The run ignores the caller's Ansible configuration. No variable may contain a secret, because
Ansible may write any variable to the log.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.errors import FleetError, add_extra
from fleet.images.programs import PROXIES
from fleet.ports import Tell
from fleet.schema.model import Fleet
from fleet.schema.pools import ImageRecipe, Recipe
from fleet.state.processes import kill_by_environment
from fleet.state.storage import shipped_folder

_MAX_OUTPUT_LINES = 40
"""Maximum number of output lines of a failed task in the error message. The log has all lines."""


class RoleFailed(FleetError):
    """A task of the role failed, or the host was unreachable."""


@dataclass(frozen=True)
class Host:
    """A host of Ansible's inventory, with its variables."""

    name: str
    variables: Mapping[str, object]


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
) -> None:
    """Run the role, and append Ansible's output to the log.

    `told` gets the name of each task when it starts. Raises RoleFailed with the failed task and
    its output. After an interruption, stop Ansible before the exception is raised.
    """
    if lacking := why_not():
        raise FleetError(lacking)
    inventory = {"all": {"hosts": {host.name: {**_PYTHON, **host.variables}}}}
    output = ""
    with TemporaryDirectory(prefix="fleet-role-") as name, log.open("a", encoding="utf-8") as text:
        folder = Path(name)
        for file, content in (("hosts.json", inventory), ("variables.json", dict(variables))):
            (folder / file).write_text(json.dumps(content), encoding="utf-8")
        command = (
            *("ansible-playbook", "--inventory", folder / "hosts.json"),
            *("--extra-vars", f"@{folder}/variables.json"),
            play or shipped_folder("ansible") / "worker.yml",
        )
        with subprocess.Popen(  # noqa: S603 - Ansible, with files of this module
            command,
            env=_ansible_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # only this process handles Ctrl-C
        ) as child:
            try:
                for line in child.stdout or ():
                    output += line
                    text.write(line)
                    text.flush()
                    if task := _TASK.match(line):
                        told(task["name"])
            except BaseException:
                # Ansible's workers have separate sessions, and survive their parent.
                kill_by_environment(name)
                raise
    if child.returncode:
        failure = failure_of(output)
        raise RoleFailed(
            f"the role failed at {failure}\nall output is in {log}"
            if failure
            else f"Ansible ended before any task failed on {host.name}; all output is in {log}"
        )


_PYTHON = {"ansible_python_interpreter": "/usr/bin/python3"}


def why_not() -> str:
    """Return why this computer cannot run the role, with a remedy; empty if it can."""
    if shutil.which("ansible-playbook", path=_search_path()):
        return ""
    return f"baking an image needs ansible-core, which is not installed: {add_extra('images')}"


_INHERITED_VARIABLES = (
    *("HOME", "USER", "LOGNAME", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME"),
    *PROXIES,
)
"""Variables that Ansible inherits, to find its own files and to reach the archive."""


def _ansible_environment(folder: Path) -> dict[str, str]:
    """Return Ansible's environment: all files in one folder, without the user's settings."""
    settings = folder / "ansible.cfg"
    settings.touch()
    return {
        **{name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ},
        "PATH": f"{_search_path()}{os.pathsep}/usr/sbin{os.pathsep}/sbin",
        "ANSIBLE_CONFIG": str(settings),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_REMOTE_TMP": "/tmp/.ansible",  # noqa: S108 - in the image; cleaned with it
        "ANSIBLE_CONNECTION_PLUGINS": str(shipped_folder("ansible") / "plugins" / "connection"),
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOWS": "1",
        "ANSIBLE_SHOW_TASK_PATH_ON_FAILURE": "1",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "PYTHONWARNINGS": "ignore",
        "LC_ALL": "C.UTF-8",
    }


def _search_path() -> str:
    """Return PATH, with the folder of the running Python first."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


_TASK = re.compile(r"(?:TASK|RUNNING HANDLER) \[(?:[\w.-]+ : )?(?P<name>.*)\] \**$", re.MULTILINE)
_RESULT = re.compile(r"^(?:fatal|failed): \[.*?\].* => (?P<result>.*)", re.MULTILINE)
_TASK_PATH = re.compile(r"^(?:task path|Origin): (?:.*/ansible/|.*/)?(.*?:\d+)", re.MULTILINE)
"""Position of a failed task. Only `Origin` (Ansible 2.19) gives the position of a loop."""


def failure_of(output: str) -> str:
    """Return the failed task, its position and its output from Ansible's output; empty if none.

    The position is relative to the folder `ansible`. For a loop, the output is that of its failed
    items.
    """
    starts = [each.start() for each in _TASK.finditer(output)]
    for start, end in reversed([*pairwise((*starts, len(output)))]):
        block = output[start:end]
        found = [*_RESULT.finditer(block)]
        task = _TASK.match(block)
        if not found or not task or "\n...ignoring" in block:
            continue
        results = "\n".join(_read_result(block, each) for each in found)
        lines = [*dict.fromkeys(results.splitlines())]
        if len(lines) > _MAX_OUTPUT_LINES:
            lines = [*lines[:8], "…", *lines[8 - _MAX_OUTPUT_LINES :]]
        path = _TASK_PATH.search(block)
        where = f"task “{task['name']}”" + (f" ({path[1]})" if path else "")
        return "\n".join((f"{where}:", *(f"  {line}" for line in lines or ["no output"])))
    return ""


def _read_result(block: str, found: re.Match[str]) -> str:
    """Return the output lines of a failed task or item, or the line itself if it is not JSON."""
    try:
        result, _ = json.JSONDecoder().raw_decode(block, found.start("result"))
    except ValueError:
        return found["result"]
    keys = ("msg", "module_stderr", "module_stdout", "stderr", "stdout")
    return "\n".join(str(result.get(key) or "").strip() for key in keys if result.get(key))
