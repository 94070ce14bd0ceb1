"""How a secret is read by its reference, and what is said without one."""

import errno
import os
import sys
from pathlib import Path

import pytest

from fleet.errors import SecretMissing
from fleet.schema.model import CommandSecret, EnvSecret, FileSecret
from fleet.state.secrets import HostSecrets
from tests.builders.sentences import tells


def _read(reference: object, folder: Path, **environment: str) -> str:
    return HostSecrets(environment, folder, timeout_seconds=20).read(reference)


def _why_missing(reference: object, folder: Path, **environment: str) -> str:
    with pytest.raises(SecretMissing) as missing:
        _read(reference, folder, **environment)
    return str(missing.value)


def _python(code: str) -> CommandSecret:
    return CommandSecret(command=[sys.executable, "-c", code])


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every file")
def test_unreadable_secret_file_names_owner_and_mode(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("canary")
    (tmp_path / "token").chmod(0o000)

    why = _why_missing(FileSecret(file="token"), tmp_path)

    assert tells(why, os.getuid(), "mode", "0000")
    assert "mode 0600" in why


def test_secret_command_runs_in_fleet_folder_with_named_variables(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['WHO'], os.environ.get('CLOUD_TOKEN'))"
    reference = CommandSecret(command=_python(code).command, environment=["WHO"])

    assert _read(reference, tmp_path, WHO="me", CLOUD_TOKEN="other") == f"{tmp_path} me None"
    assert tells(_why_missing(reference, tmp_path), "WHO", "not set")


def test_hanging_secret_command_is_killed_with_its_children(tmp_path: Path) -> None:
    reference = CommandSecret(command=["sh", "-c", "cat /dev/zero >/dev/null & wait"])
    secrets = HostSecrets(dict(os.environ), tmp_path, timeout_seconds=0.1)

    with pytest.raises(SecretMissing, match=r"0\.1s"):
        secrets.read(reference)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o604, 0o644, 0o602])
def test_exposed_secret_file_has_chmod_advice(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "token of a queue"
    path.write_text("made-up")
    path.chmod(mode)

    found = HostSecrets({}, tmp_path).exposure(FileSecret(file=path.name))

    if mode & 0o077 == 0:
        assert found is None
    else:
        assert found is not None
        assert tells(found[0], path, f"{mode:04o}")
        assert found[1] == f"chmod go= '{path}'"


def test_secret_is_read_from_its_reference(tmp_path: Path) -> None:
    exposure = HostSecrets({}, tmp_path).exposure  # only that of a file
    assert exposure(EnvSecret(env="TOKEN")) is exposure(FileSecret(file="missing")) is None
    with pytest.raises(TypeError, match=r": str$"):
        _read("canary", tmp_path)
    path = tmp_path / "token"
    path.write_text("made-up\n")

    assert _read(EnvSecret(env="TOKEN"), tmp_path, TOKEN="made-up\n") == "made-up"
    assert _read(FileSecret(file="token"), tmp_path) == "made-up"
    assert _read(FileSecret(file=str(path)), Path("/nowhere")) == "made-up"
    assert _read(_python("print('made-up')"), tmp_path) == "made-up"


SAYS_CANARY = "import os, sys; print('can' + 'ary'); sys.stderr.write('can' + 'ary'); sys.exit(3)"


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (EnvSecret(env="UNSET"), ("{env: UNSET}", "UNSET", "not set", "export")),
        (EnvSecret(env="BLANK"), ("BLANK", "empty")),
        (
            FileSecret(file="none"),
            ("{file: none}", "/none", os.strerror(errno.ENOENT), "fleet.yaml"),
        ),
        (FileSecret(file="."), ("{file: .}", os.strerror(errno.EISDIR))),
        (FileSecret(file="empty"), ("/empty", "empty")),
        (FileSecret(file="binary"), ("/binary", "UTF-8")),
        (FileSecret(file="long"), ("64 KiB",)),
        (
            CommandSecret(command=["no-such-program", "show", "a b"]),
            ("{command: no-such-program show 'a b'}", "no-such-program", "PATH"),
        ),
        (CommandSecret(command=["yes"]), ("65536",)),
        (_python(SAYS_CANARY), ("ended", "3")),
        (_python("pass"), ("empty",)),
        (_python("import sys; print(sys.stdin.read())"), ("empty",)),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_missing_secret_is_named_and_never_shown(
    reference: object,
    words: tuple[str, ...],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    contents = {"empty": b"\n", "binary": b"canary\xff", "long": b"x" * 70_000}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)

    why = _why_missing(reference, tmp_path, BLANK=" ")

    assert tells(why, *words)
    assert "canary" not in why + "".join(capfd.readouterr())
