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


def _exposure(mode: int, folder: Path) -> tuple[str, str] | None:
    path = folder / "token of a queue"
    path.write_text("made-up")
    path.chmod(mode)
    return HostSecrets({}, folder).exposure(FileSecret(file=path.name))


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_file_readable_only_by_owner_is_not_exposed(mode: int, tmp_path: Path) -> None:
    assert _exposure(mode, tmp_path) is None


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o602])
def test_exposed_secret_file_has_chmod_advice(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "token of a queue"

    found = _exposure(mode, tmp_path)

    assert found is not None
    why, fix = found
    assert tells(why, path, f"{mode:04o}")
    assert fix == f"chmod go= '{path}'"


def test_only_file_secrets_can_be_exposed(tmp_path: Path) -> None:
    secrets = HostSecrets({}, tmp_path)

    assert secrets.exposure(EnvSecret(env="TOKEN")) is None
    assert secrets.exposure(FileSecret(file="missing")) is None


def test_secret_is_read_from_environment(tmp_path: Path) -> None:
    assert _read(EnvSecret(env="TOKEN"), tmp_path, TOKEN="made-up\n") == "made-up"


def test_unset_variable_is_named(tmp_path: Path) -> None:
    why = _why_missing(EnvSecret(env="TOKEN"), tmp_path)

    assert tells(why, "{env: TOKEN}", "TOKEN", "not set", "export")


def test_empty_variable_is_missing(tmp_path: Path) -> None:
    assert tells(_why_missing(EnvSecret(env="TOKEN"), tmp_path, TOKEN=" "), "TOKEN", "empty")


def test_file_secret_is_read_next_to_fleet_yaml(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("made-up\n")

    assert _read(FileSecret(file="token"), tmp_path) == "made-up"


def test_secret_is_read_from_absolute_path(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("made-up")

    assert _read(FileSecret(file=str(tmp_path / "token")), Path("/nowhere")) == "made-up"


def test_missing_secret_file_is_named(tmp_path: Path) -> None:
    why = _why_missing(FileSecret(file="token"), tmp_path)

    missing = os.strerror(errno.ENOENT)
    assert tells(why, "{file: token}", f"{tmp_path}/token", missing, "fleet.yaml")


def test_folder_is_not_a_secret(tmp_path: Path) -> None:
    why = _why_missing(FileSecret(file="."), tmp_path)

    assert tells(why, "{file: .}", os.strerror(errno.EISDIR))


def test_empty_secret_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")

    assert tells(_why_missing(FileSecret(file="token"), tmp_path), "/token", "empty")


def test_binary_secret_file_is_missing_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"canary\xff")

    why = _why_missing(FileSecret(file="token"), tmp_path)

    assert tells(why, "/token", "UTF-8")
    assert "canary" not in why


def test_too_long_secret_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"x" * 70_000)

    assert tells(_why_missing(FileSecret(file="token"), tmp_path), "64 KiB")


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every file")
def test_unreadable_secret_file_names_owner_and_mode(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("canary")
    (tmp_path / "token").chmod(0o000)

    why = _why_missing(FileSecret(file="token"), tmp_path)

    assert tells(why, os.getuid(), "mode", "0000")
    assert "mode 0600" in why


def test_secret_is_read_from_command(tmp_path: Path) -> None:
    assert _read(_python("print('made-up')"), tmp_path) == "made-up"


def test_secret_command_runs_in_fleet_folder_with_named_variables(tmp_path: Path) -> None:
    code = "import os; print(os.getcwd(), os.environ['WHO'], os.environ.get('CLOUD_TOKEN'))"
    reference = CommandSecret(command=_python(code).command, environment=["WHO"])

    assert _read(reference, tmp_path, WHO="me", CLOUD_TOKEN="other") == f"{tmp_path} me None"
    assert tells(_why_missing(reference, tmp_path), "WHO", "not set")


def test_missing_secret_command_is_named(tmp_path: Path) -> None:
    reference = CommandSecret(command=["no-such-program", "show", "a b"])

    why = _why_missing(reference, tmp_path)

    assert tells(why, "{command: no-such-program show 'a b'}", "no-such-program", "PATH")


def test_secret_command_with_endless_output_is_killed(tmp_path: Path) -> None:
    assert tells(_why_missing(CommandSecret(command=["yes"]), tmp_path), "65536")


def test_failing_secret_command_hides_its_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = "import os, sys; print('can' + 'ary'); sys.stderr.write('can' + 'ary'); sys.exit(3)"

    why = _why_missing(_python(code), tmp_path)

    assert tells(why, "ended", "3")
    assert "canary" not in why + "".join(capfd.readouterr())


def test_secret_is_missing_when_command_prints_nothing(tmp_path: Path) -> None:
    assert tells(_why_missing(_python("pass"), tmp_path), "empty")


def test_hanging_secret_command_is_killed_with_its_children(tmp_path: Path) -> None:
    reference = CommandSecret(command=["sh", "-c", "cat /dev/zero >/dev/null & wait"])
    secrets = HostSecrets(dict(os.environ), tmp_path, timeout_seconds=0.1)

    with pytest.raises(SecretMissing, match=r"0\.1s"):
        secrets.read(reference)


def test_secret_command_has_empty_input(tmp_path: Path) -> None:
    assert tells(_why_missing(_python("import sys; print(sys.stdin.read())"), tmp_path), "empty")


def test_invalid_secret_reference_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r": str$"):
        _read("canary", tmp_path)
