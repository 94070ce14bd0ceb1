"""The role run for real, twice, in roots of Debian: what it leaves there and what it refuses.

trixie always; with `nox -s images -- --every-suite` bookworm and sid too, and every executor
and task. Without root or a mirror they are skipped.
"""

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.images.role import RoleFailed, chroot_host, role_variables, run_role
from fleet.schema.model import ImageRecipe
from tests.ansible import roots
from tests.ansible.roots import chrooted
from tests.live.chroot import Impossible, archive

pytestmark = pytest.mark.images

MIB = 1024 * 1024
BACKPORTS = (
    "Types: deb\nURIs: {archive}\nSuites: bookworm-backports\nComponents: main\n"
    "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
)
ALL = {
    "enable_backends": ["unshare", "qemu", "incus"],
    "enable_tasks": ["autopkgtest", "sbuild", "mmdebstrap", "simplesystemimagebuild"],
}
COMMANDS = ("unshare", "ip", "autopkgtest", "sbuild", "mmdebstrap", "newuidmap", "arch-test")
ALL_COMMANDS = ("qemu-system-x86_64", "qemu-img", "incus", "autopkgtest-virt-incus", "mcopy")
SERVER = "https://debusine.example.org"
EPOCH_DAY = 20000
EPOCH = EPOCH_DAY * 86400
"""The time that files of the root have instead of the clock's."""


@dataclass(frozen=True)
class Made:
    """A root in which the role ran twice."""

    suite: str
    root: Path
    version: str
    """The debusine-worker that Debian has."""
    stranger: str
    """A key that signs nothing."""
    log: Path
    recipe: ImageRecipe
    first: tuple[str, ...]
    """The tasks that changed something in the first run."""
    second: tuple[str, ...]
    policy: str
    """What apt would install of the worker then; later tests change that."""

    def again(self, **keys: object) -> tuple[str, ...]:
        """Run the role once more, for another recipe."""
        recipe = self.recipe.model_copy(update=keys)
        return run_role(chroot_host(self.root, EPOCH), role_variables(recipe), log=self.log)

    def text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    every = metafunc.config.getoption("--every-suite")
    suites = ["trixie", "bookworm", "sid"] if every else ["trixie"]
    metafunc.parametrize("made", suites, indirect=True, scope="module")


@pytest.fixture(scope="module")
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Made]:
    suite, folder = request.param, tmp_path_factory.mktemp("role")
    try:
        root = roots.unpack(suite, folder)
    except Impossible as reason:
        pytest.skip(str(reason))
    key, stranger = roots.write_archive(root, tmp_path_factory.mktemp("keys"))
    backports = BACKPORTS.format(archive=archive()) if suite == "bookworm" else ""
    version = _version(root, backports)
    recipe = ImageRecipe.model_validate(
        {
            **(ALL if request.config.getoption("--every-suite") else {}),
            "suite": suite,
            "architecture": "amd64",
            "source": f"{roots.source(key)}\n{backports}",
            "packages": ["fleet-hello"],
            "worker_version": version,
            "swap": "8MiB",
            "api_url": SERVER,
        }
    )
    log, host = folder / "log", chroot_host(root, EPOCH)
    first, second = (run_role(host, role_variables(recipe), log=log) for _ in range(2))
    policy = chrooted(root, "apt-cache", "policy", "debusine-worker")
    yield Made(suite, root, version, stranger, log, recipe, first, second, policy)
    assert roots.processes_in(root) == []


def _version(root: Path, backports: str) -> str:
    """Return the version of the worker that Debian has, asked the way a person does."""
    listed = root / "etc/apt/sources.list.d/asked.sources"
    if backports:
        listed.write_text(backports, encoding="utf-8")
    chrooted(root, "apt-get", "-qq", "update")
    newest = chrooted(root, "apt-cache", "madison", "debusine-worker").splitlines()[0]
    listed.unlink(missing_ok=True)
    return newest.split("|")[1].strip()


def test_second_run_of_role_changes_nothing(made: Made) -> None:
    assert made.second == ()
    assert "Install the worker and what its executors and tasks need" in str(made.first)


def test_package_of_source_with_inline_key_is_installed(made: Made) -> None:
    assert chrooted(made.root, "dpkg-query", "-W", "fleet-hello") == "fleet-hello\t1\n"


def test_pinned_version_is_kept_when_a_source_has_a_newer_one(made: Made) -> None:
    assert f"Installed: {made.version}\n" in made.policy
    assert f"Candidate: {made.version}\n" in made.policy
    assert f" {roots.NEWER} " in made.policy


def test_worker_starts_at_boot_and_not_during_build(made: Made) -> None:
    assert chrooted(made.root, "systemctl", "is-enabled", "debusine-worker").strip() == "enabled"
    assert roots.processes_in(made.root) == []
    assert not (made.root / "usr/sbin/policy-rc.d").exists()


def test_user_of_the_worker_has_the_day_of_the_epoch(made: Made) -> None:
    days = {
        line.split(":")[0]: line.split(":")[2] for line in made.text("etc/shadow").splitlines()
    }

    assert days["debusine-worker"] == str(EPOCH_DAY)


def test_worker_needs_only_a_token(made: Made) -> None:
    folder = made.root / "etc/debusine/worker"
    owner = chrooted(made.root, "id", "--user", "debusine-worker").strip()

    assert "[General]\napi-url = https://debusine.example.org/api\n" in made.text(
        "etc/debusine/worker/config.ini"
    )
    assert sorted(path.name for path in folder.iterdir()) == ["config.ini"]
    assert str(folder.stat().st_uid) == owner
    assert stat.S_IMODE((made.root / "var/lib/debusine/worker").stat().st_mode) == 0o755


def test_commands_of_executors_and_tasks_are_installed(made: Made) -> None:
    every = "incus" in made.recipe.enable_backends
    wanted = COMMANDS + (ALL_COMMANDS if every else ())

    missing = [
        name
        for name in wanted
        if not any((made.root / place / name).exists() for place in ("usr/bin", "usr/sbin"))
    ]

    assert missing == []


def test_mapped_users_have_ids_to_map(made: Made) -> None:
    assert "debusine-worker:" in made.text("etc/subuid")


def test_swap_is_created_once_at_boot_and_not_in_the_image(made: Made) -> None:
    unit = made.text("etc/systemd/system/debusine-worker-swap.service")
    (command,) = roots.commands_of(unit, "ExecStartPre")
    swap = made.root / "swapfile"
    assert not swap.exists()

    kept = []
    for _ in range(2):
        chrooted(made.root, "/bin/sh", "-euc", f"umask 0077; {command}")
        chrooted(made.root, "/sbin/swaplabel", "/swapfile")
        kept.append((swap.stat().st_ino, swap.stat().st_size, oct(swap.stat().st_mode)))
    swap.unlink()

    assert kept[0] == kept[1]
    assert kept[0][1:] == (8 * MIB, "0o100600")


def test_systemd_accepts_the_units_of_the_role(made: Made) -> None:
    units = sorted((made.root / "etc/systemd/system").glob("debusine-worker-*.service"))

    assert [unit.name for unit in units][-1] == "debusine-worker-swap.service"
    for unit in units:
        said = chrooted(made.root, "systemd-analyze", "verify", "--man=no", unit.name)
        assert said == ""
        assert chrooted(made.root, "systemctl", "is-enabled", unit.name).strip() == "enabled"


def test_source_signed_by_another_key_is_refused_with_the_reason(made: Made) -> None:
    # apt goes on with what it once read and could verify.
    for read in (made.root / "var/lib/apt/lists").glob("*_srv_archive_*"):
        read.unlink()

    with pytest.raises(RoleFailed, match=r"is not signed") as failed:
        made.again(source=roots.source(made.stranger), packages=[])

    assert "Install the worker and what its executors and tasks need" in str(failed.value)


def test_role_removes_source_and_pin_when_options_are_removed(made: Made) -> None:
    if made.suite == "bookworm":
        pytest.skip("bookworm has no worker without a source")
    undone = made.again(source=None, worker_version=None, packages=[])

    assert len(undone) == 2
    assert not (made.root / "etc/apt/sources.list.d/debusine-worker.sources").exists()
    assert not (made.root / "etc/apt/preferences.d/debusine-worker").exists()
