"""Run the Ansible role debusine_worker on a host: a root folder, or a machine over ssh.

The run ignores the caller's Ansible configuration. No variable may contain a secret, because
Ansible may write any variable to the log.
"""

import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from fleet.errors import FleetError, add_extra
from fleet.images.programs import PROXIES
from fleet.ports import Tell
from fleet.schema.model import Fleet, ImageRecipe, Recipe
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
) -> tuple[str, ...]:
    """Run the role, append Ansible's output to the log, and return the changed tasks.

    `told` gets the name of each task when it starts. Raises RoleFailed with the failed task and
    its output. After an interruption, stop Ansible before the exception is raised.
    """
    if lacking := why_not():
        raise FleetError(lacking)
    import ansible_runner

    # Run Ansible in a thread, so that an interruption is raised here and not inside the runner.
    with (
        TemporaryDirectory(prefix="fleet-role-") as folder,
        log.open("a", encoding="utf-8") as text,
        ThreadPoolExecutor(1) as pool,
    ):
        listener = _Listener(text, told)
        cancelled = threading.Event()
        future = pool.submit(
            _run_play,
            ansible_runner,
            private_data_dir=folder,
            playbook=str(play or shipped_folder("ansible") / "worker.yml"),
            inventory={"all": {"hosts": {host.name: {**_PYTHON, **host.variables}}}},
            extravars=dict(variables),
            envvars=_ansible_environment(Path(folder)),
            settings={"pexpect_timeout": 1},
            quiet=True,
            event_handler=listener.hear,
            cancel_callback=cancelled.is_set,
        )
        try:
            run = future.result()
        except BaseException:
            cancelled.set()
            # Ansible's workers have separate sessions, and survive their parent.
            kill_by_environment(folder)
            raise
    if run.rc != 0:
        raise RoleFailed(listener.failure(host, log))
    return tuple(listener.changed)


_PYTHON = {"ansible_python_interpreter": "/usr/bin/python3"}


def why_not() -> str:
    """Return why this computer cannot run the role, with a remedy; empty if it can."""
    if find_spec("ansible_runner") and shutil.which("ansible-playbook", path=_search_path()):
        return ""
    return (
        "baking an image needs ansible-runner and ansible-core, which are not installed: "
        f"{add_extra('images')}"
    )


def _run_play(runner: Any, **words: Any) -> Any:  # noqa: ANN401 - ansible-runner's own
    """Run a play with few environment variables, because ansible-runner writes them to a file."""
    made = runner.interface.init_runner(**words)
    made.config.env = {
        name: text
        for name, text in made.config.env.items()
        if name in (*_INHERITED_VARIABLES, *words["envvars"]) or os.environ.get(name) != text
    }
    made.run()
    return made


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
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "PYTHONWARNINGS": "ignore",
        "LC_ALL": "C.UTF-8",
    }


def _search_path() -> str:
    """Return PATH, with the folder of the running Python first."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"


class _Listener:
    """Handler of Ansible's events: it writes the log, reports tasks, and records a failure."""

    def __init__(self, log: TextIO, told: Tell) -> None:
        self._log = log
        self._told = told
        self.changed: list[str] = []
        self._failed: tuple[str, str] | None = None

    def hear(self, event: Mapping[str, Any]) -> bool:
        """Handle an event; return False, so that ansible-runner does not store the event."""
        if text := event.get("stdout"):
            self._log.write(f"{text}\n")
            self._log.flush()
        about = event.get("event_data", {})
        match event["event"]:
            case "playbook_on_task_start" if about.get("task"):
                self._told(about["task"])
            case "runner_on_ok" if about.get("res", {}).get("changed"):
                self.changed.append(about.get("task", ""))
            case "runner_on_failed" if not about.get("ignore_errors"):
                self._failed = (_describe_task(about), _format_output(about.get("res", {})))
            case "runner_on_unreachable":
                self._failed = (_describe_task(about), _format_output(about.get("res", {})))
        return False

    def failure(self, host: Host, log: Path) -> str:
        """Return the error message, with the failed task and its output."""
        if self._failed is None:
            return f"Ansible ended before any task failed on {host.name}; all output is in {log}"
        where, output = self._failed
        return f"the role failed at {where}:\n{output}\nall output is in {log}"


def _describe_task(about: Mapping[str, Any]) -> str:
    """Return the name of a task with its file and line, relative to the folder `ansible`."""
    path = str(about.get("task_path", ""))
    shown = path.partition("/ansible/")[2] or path.rpartition("/")[2]
    return f"task “{about.get('task', '')}” ({shown})" if shown else f"task “{about.get('task')}”"


def _format_output(result: Mapping[str, Any]) -> str:
    """Return the output lines of a task. For a loop, return only those of its failed items."""
    items = [item for item in result.get("results", ()) if item.get("failed")]
    lines: list[str] = []
    for each in items or [result]:
        for key in ("msg", "module_stderr", "module_stdout", "stderr", "stdout"):
            for line in str(each.get(key) or "").strip().splitlines():
                if line not in lines:
                    lines.append(line)
    kept = (
        lines
        if len(lines) <= _MAX_OUTPUT_LINES
        else [*lines[:8], "…", *lines[8 - _MAX_OUTPUT_LINES :]]
    )
    return "\n".join(f"  {line}" for line in kept) or "  no output"
