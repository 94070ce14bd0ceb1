"""This module reads secrets by their reference: an environment variable, a file, a command.

A message names the reference and never what was read.
"""

import contextlib
import os
import shlex
import signal
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from fleet.errors import SecretMissing
from fleet.schema.model import CommandSecret, EnvSecret, FileSecret

_MAX_BYTES = 64 * 1024


class HostSecrets:
    """Secrets of the computer that fleet runs on; `base` is the folder of fleet.yaml."""

    def __init__(
        self, environment: Mapping[str, str], base: Path, *, timeout_seconds: float = 30
    ) -> None:
        self._environment = environment
        self._base = base
        self._timeout = timeout_seconds

    def read(self, reference: object) -> str:
        """Return the secret without white space around it; raises SecretMissing."""
        match reference:
            case EnvSecret(env=name):
                return self._from_environment(name)
            case FileSecret(file=name):
                return self._from_file(name)
            case CommandSecret(command=command):
                return self._from_command(command)
            case _:
                raise TypeError(f"not a reference to a secret: {type(reference).__name__}")

    def exposure(self, reference: object) -> tuple[str, str] | None:
        """Return how a file is open to others, and the command that closes it; None: it is not."""
        if not isinstance(reference, FileSecret):
            return None
        path = self._base / Path(reference.file).expanduser()
        try:
            status = path.stat()
        except (OSError, ValueError):
            return None
        # Of a file that somebody else owns, its group may be what lets fleet read it.
        whom = "go" if status.st_uid == os.getuid() else "o"
        if not status.st_mode & (stat.S_IRWXO | (stat.S_IRWXG if whom == "go" else 0)):
            return None
        said = f"others may read or change {path}: its mode is {stat.S_IMODE(status.st_mode):04o}"
        return said, f"chmod {whom}= {shlex.quote(str(path))}"

    def _from_environment(self, name: str) -> str:
        secret = self._environment.get(name, "").strip()
        if not secret:
            state = "is empty" if name in self._environment else "is not set"
            raise SecretMissing(
                f"secret {{env: {name}}}: the environment variable {name} {state}; export it, or "
                "set it as a masked variable of the CI job"
            )
        return secret

    def _from_file(self, name: str) -> str:
        path = self._base / Path(name).expanduser()
        what = f"secret {{file: {name}}}: "
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        except PermissionError as error:
            raise SecretMissing(f"{what}{path} may not be read{_owner(path)}") from error
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a path"
            raise SecretMissing(
                f"{what}{path} cannot be read ({reason}); relative paths begin at the folder "
                "of fleet.yaml"
            ) from error
        if len(content) > _MAX_BYTES:
            raise SecretMissing(f"{what}{path} is longer than 64 KiB; is it the right file?")
        return _decoded(content, f"{what}{path}")

    def _from_command(self, command: list[str]) -> str:
        what = f"secret {{command: {shlex.join(command)}}}: "
        try:
            process = subprocess.Popen(  # noqa: S603 - the command is the operator's own
                command,
                cwd=self._base,
                env=dict(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a command"
            raise SecretMissing(
                f"{what}{command[0]} cannot be started ({reason}); is it installed and on PATH?"
            ) from error
        with process:
            try:
                content, _ = process.communicate(timeout=self._timeout)
            except subprocess.TimeoutExpired:
                raise SecretMissing(
                    f"{what}printed no secret within {self._timeout:g} s; it gets no terminal, "
                    "does it wait for an answer?"
                ) from None
            finally:
                end_group(process)
        if process.returncode != 0:
            raise SecretMissing(
                f"{what}ended with status {process.returncode}; run it by hand to see why"
            )
        return _decoded(content, f"{what}its output")


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process that began a group, and all that it started."""
    # What the command started may hold its output open: end all of it, not only the first.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _decoded(content: bytes, what: str) -> str:
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError:
        # The cause would carry the bytes.
        raise SecretMissing(f"{what} is not UTF-8 text") from None
    if not secret:
        raise SecretMissing(f"{what} is empty")
    return secret


def _owner(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "; a folder above it is closed to this user"
    mode = stat.S_IMODE(status.st_mode)
    return (
        f": it belongs to user {status.st_uid} with mode {mode:04o}, fleet runs as user "
        f"{os.getuid()}; give it to this user with mode 0600"
    )
