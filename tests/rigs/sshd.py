"""Run a real sshd on the loopback, as the user that runs the tests."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from fleet.clouds.hcloud.ssh import Ssh

_SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def skip_without_sshd() -> None:
    """Skip a test loudly where there is no sshd, or no client."""
    if _SSHD is None or shutil.which("ssh") is None:
        pytest.skip("what is done over ssh is NOT TESTED: install openssh-server")


class Sshd:
    """A server that lets in who has one of the keys it is told."""

    def __init__(self, folder: Path) -> None:
        skip_without_sshd()
        folder.mkdir(parents=True)
        self._folder = folder
        self.keys = folder / "authorized_keys"
        self.let_in([])

    def __enter__(self) -> Self:
        host_key = self._folder / "host_key"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host_key)]
        subprocess.run(command, check=True)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.connect = partial(Ssh, user=getpass.getuser(), port=port)
        config = self._folder / "sshd_config"
        config.write_text(
            f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {host_key}\nPidFile none\n"
            f"AuthorizedKeysFile {self.keys}\nStrictModes no\nUsePAM no\n"
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\n"
        )
        self._process = subprocess.Popen(
            [str(_SSHD), "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE
        )
        assert self._process.stderr is not None
        line = b" "
        while line and b"listening" not in line:
            line = self._process.stderr.readline()
        assert line, "sshd ended"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def let_in(self, public_keys: Iterable[str]) -> None:
        """Let in the holders of these keys and nobody else."""
        self.keys.write_text("".join(f"{key}\n" for key in public_keys))
