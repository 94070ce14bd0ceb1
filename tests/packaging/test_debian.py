"""The Debian package: built, linted and tested in a root of trixie, as Debian itself does."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.ansible import roots
from tests.architecture.source import tracked_files
from tests.live.chroot import Impossible
from tests.rigs.process import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAME, VERSION = PROJECT["name"], PROJECT["version"]
APT = ("apt-get", "--quiet", "--yes", "--no-install-recommends")
# Its rule compiles 46 patterns for each line of Python: minutes for our tests.
NOT_LINTED = "languages/python/stdlib-deprecation"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with the package built in /build."""
    try:
        root = roots.unpack("trixie", tmp_path_factory.mktemp("debian"))
    except Impossible as reason:
        pytest.skip(str(reason))
    tree, upstream = (root / "build" / name for name in (f"{NAME}-{VERSION}", "upstream"))
    for name, path in tracked_files().items():
        for folder in (tree,) if name.startswith("debian/") else (tree, upstream):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, folder / name, follow_symlinks=False)
    orig = f"/build/{NAME}_{VERSION}.orig.tar.gz"
    roots.isolated(root, "tar", "-C", "/build/upstream", "-czf", orig, ".")
    roots.isolated(root, *APT, "update")
    roots.isolated(root, *APT, "install", "lintian", "autopkgtest")
    roots.isolated(root, *APT, "build-dep", f"/build/{tree.name}")
    within = ("env", "--chdir", f"/build/{tree.name}")
    roots.isolated(root, *within, "dpkg-buildpackage", "--no-sign")
    return root


def test_changelog_has_the_version_of_the_project() -> None:
    first = (ROOT / "debian/changelog").read_text(encoding="utf-8").splitlines()[0]

    assert first.startswith(f"{NAME} ({VERSION}-")


def test_every_patch_applies() -> None:
    patches = ROOT / "debian/patches"
    series = (patches / "series").read_text(encoding="utf-8").split()

    tried = subprocess.run(
        ["git", "apply", "--check", *(str(patches / name) for name in series)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (tried.returncode, tried.stderr) == (0, "")
    assert {path.name for path in patches.glob("*.patch")} == set(series)


@pytest.mark.debian
@pytest.mark.parametrize("kind", ["dsc", "deb", "changes"])
def test_lintian_finds_no_error_and_no_warning(root: Path, kind: str) -> None:
    (file,) = (root / "build").glob(f"*.{kind}")

    options = ("--allow-root", "--fail-on", "error,warning", "--dont-check-part", NOT_LINTED)
    roots.isolated(root, "lintian", *options, f"/build/{file.name}")


@pytest.mark.debian
def test_package_passes_its_autopkgtest(root: Path) -> None:
    built = (next((root / "build").glob(f"*.{kind}")).name for kind in ("deb", "dsc"))
    files = (f"/build/{name}" for name in built)

    said = roots.isolated(root, "autopkgtest", "--no-built-binaries", *files, "--", "null")

    assert "demo                 PASS" in said
