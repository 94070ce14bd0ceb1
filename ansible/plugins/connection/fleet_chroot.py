"""Let Ansible work in a root folder by chroot, with nothing of its caller in it.

It does what community.general.chroot does, for those who have ansible-core alone; what it starts
gets a clean environment, but for proxies, and no file is written but by programs of the root.
"""

import os
import subprocess
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure, AnsibleFileNotFound

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
    name: fleet_chroot
    short_description: work in a root folder by chroot
    description:
        - Runs tasks in a folder that holds the root of a system, as root or in a user namespace.
    author: The fleet developers
    extends_documentation_fragment:
        - connection_pipelining
    options:
        root:
            description: The folder.
            default: inventory_hostname
            vars:
                - name: inventory_hostname
                - name: ansible_host
        epoch:
            description: The Unix time that programs write in place of the clock's.
            type: int
            vars:
                - name: fleet_epoch
"""

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
}
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")


class Connection(ConnectionBase):
    """A root folder on this computer."""

    transport = "fleet_chroot"
    has_pipelining = True
    has_tty = False
    default_user = "root"

    def _connect(self) -> "Connection":
        root = self.get_option("root")
        if not Path(root, "bin/sh").exists():
            raise AnsibleConnectionFailure(f"{root} is no root folder: it holds no bin/sh")
        self._connected = True
        return self

    def exec_command(
        self,
        cmd: str,
        in_data: bytes | None = None,
        sudoable: bool = True,  # noqa: FBT001, FBT002 - as Ansible declares it
    ) -> tuple[int, bytes, bytes]:
        """Run a command of the shell in the root."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        return self._run("/bin/sh", "-c", cmd, stdin=in_data or b"")

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file into the root."""
        super().put_file(in_path, out_path)
        if not Path(in_path).is_file():
            raise AnsibleFileNotFound(f"there is no file {in_path}")
        written = ("/bin/sh", "-c", 'cat > "$1"', "sh", out_path)
        self._do(*written, stdin=Path(in_path).read_bytes())

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Copy a file out of the root."""
        super().fetch_file(in_path, out_path)
        Path(out_path).write_bytes(self._do("cat", in_path))

    def close(self) -> None:
        """Do nothing: there is no connection to end."""
        self._connected = False

    def _do(self, *command: str, stdin: bytes = b"") -> bytes:
        code, out, told = self._run(*command, stdin=stdin)
        if code:
            raise AnsibleConnectionFailure(told.decode(errors="replace").strip())
        return out

    def _times(self) -> dict[str, str]:
        epoch = self.get_option("epoch")
        return {} if epoch is None else {"SOURCE_DATE_EPOCH": str(epoch)}

    def _run(self, *command: str, stdin: bytes) -> tuple[int, bytes, bytes]:
        handed_on = {name: os.environ[name] for name in _PROXIES if name in os.environ}
        done = subprocess.run(  # noqa: S603 - Ansible's own command, no shell of ours
            ["chroot", self.get_option("root"), *command],  # noqa: S607 - as PATH has it
            input=stdin,
            capture_output=True,
            check=False,
            env={**handed_on, **_ENVIRONMENT, **self._times()},
        )
        return done.returncode, done.stdout, done.stderr
