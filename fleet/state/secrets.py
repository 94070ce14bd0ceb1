"""Read a secret from the environment variable, file or command that fleet.yaml names.

Messages show this reference, never the secret.
"""

import os
import shlex
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from fleet.errors import SecretMissing
from fleet.schema.model import CommandSecret, EnvSecret, FileSecret
from fleet.state.processes import CommandFailed, Invocation, run

_MAX_BYTES = 64 * 1024
PASSED_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR")
"""Environment variables that every command gets. Other variables may contain secrets."""


class HostSecrets:
    """The secrets on the computer that runs fleet. `base` is the folder of fleet.yaml."""

    def __init__(
        self, environment: Mapping[str, str], base: Path, *, timeout_seconds: float = 30
    ) -> None:
        self._environment = environment
        self._base = base
        self._timeout = timeout_seconds

    @classmethod
    def beside(cls, file: str) -> Self:
        """Return a reader of the secrets that this fleet.yaml may refer to."""
        return cls(os.environ, Path(file).resolve().parent)

    def read(self, reference: object) -> str:
        """Return a secret without surrounding white space; raises SecretMissing without one."""
        match reference:
            case EnvSecret(env=name):
                return self._read_environment(name)
            case FileSecret(file=name):
                return self._read_file(name)
            case CommandSecret():
                return self._run_command(reference)
            case _:
                raise TypeError(f"not a reference to a secret: {type(reference).__name__}")

    def exposure(self, reference: object) -> tuple[str, str] | None:
        """Return excess permissions of a secret's file and the fix; None if it is private."""
        if not isinstance(reference, FileSecret):
            return None
        path = self._locate(reference.file)
        try:
            status = path.stat()
        except (OSError, ValueError):
            return None
        # If another user owns the file, its group may be fleet's only access.
        whom = "go" if status.st_uid == os.getuid() else "o"
        if not status.st_mode & (stat.S_IRWXO | (stat.S_IRWXG if whom == "go" else 0)):
            return None
        said = f"others may read or change {path}: its mode is {stat.S_IMODE(status.st_mode):04o}"
        return said, f"chmod {whom}= {shlex.quote(str(path))}"

    def _locate(self, file: str) -> Path:
        with suppress(RuntimeError):  # no user of this name, or HOME is unset
            return self._base / Path(file).expanduser()
        return self._base / file

    def _read_environment(self, name: str) -> str:
        secret = self._environment.get(name, "").strip()
        if not secret:
            state = "is empty" if name in self._environment else "is not set"
            raise SecretMissing(
                f"secret {{env: {name}}}: the environment variable {name} {state}; export it, or "
                "set it as a masked variable of the CI job"
            )
        return secret

    def _read_file(self, name: str) -> str:
        path = self._locate(name)
        what = f"secret {{file: {name}}}: "
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_BYTES + 1)
        except PermissionError as error:
            raise SecretMissing(f"{what}{path} may not be read{_describe_owner(path)}") from error
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a path"
            raise SecretMissing(
                f"{what}{path} cannot be read ({reason}); relative paths begin at the folder "
                "of fleet.yaml"
            ) from error
        if len(content) > _MAX_BYTES:
            raise SecretMissing(f"{what}{path} is longer than 64 KiB; is it the right file?")
        return _decode(content, f"{what}{path}")

    def _run_command(self, reference: CommandSecret) -> str:
        what = f"secret {{command: {shlex.join(reference.command)}}}"
        names = (*PASSED_VARIABLES, *reference.environment)
        missing = [name for name in reference.environment if name not in self._environment]
        if missing:
            raise SecretMissing(
                f"{what}: the environment variable {missing[0]} is not set, which its "
                "`environment` names"
            )
        try:
            printed = run(
                Invocation(
                    what=what,
                    command=reference.command,
                    folder=self._base,
                    environment={k: self._environment[k] for k in names if k in self._environment},
                    timeout=self._timeout,
                    shows=False,
                )
            )
        except CommandFailed as error:
            raise SecretMissing(f"{error}; run it by hand to see why") from error
        if not (secret := printed.strip()):
            raise SecretMissing(f"{what}: its output is empty")
        return secret


def _decode(content: bytes, what: str) -> str:
    try:
        secret = content.decode().strip()
    except UnicodeDecodeError:
        # A chained exception would contain the bytes of the secret.
        raise SecretMissing(f"{what} is not UTF-8 text") from None
    if not secret:
        raise SecretMissing(f"{what} is empty")
    return secret


def _describe_owner(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        return "; a folder above it is closed to this user"
    mode = stat.S_IMODE(status.st_mode)
    return (
        f": it belongs to user {status.st_uid} with mode {mode:04o}, fleet runs as user "
        f"{os.getuid()}; give it to this user with mode 0600"
    )
