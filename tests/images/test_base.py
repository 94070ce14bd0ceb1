"""Roots that are kept: made once, whole or not at all, the oldest removed."""

import os
from pathlib import Path

import pytest

from fleet.images.programs import held
from fleet.images.roots import BaseInputs, kept
from fleet.images.sources import Archive

ARCHIVE = Archive(("deb http://deb.example.org/debian trixie main",), "state", 1795252270)


def keep(cache: Path, name: str, made: list[str]) -> str:
    def make(tar: Path) -> None:
        made.append(name)
        tar.write_text(name, encoding="utf-8")

    with kept(cache, name, make) as tar:
        return tar.read_text(encoding="utf-8")


def test_failed_root_leaves_no_files(tmp_path: Path) -> None:
    def fail(tar: Path) -> None:
        tar.write_text("half", encoding="utf-8")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"), kept(tmp_path, "one", fail):
        pass

    assert [path.name for path in tmp_path.iterdir()] == ["one.lock"]


def test_least_recently_used_roots_are_deleted(tmp_path: Path) -> None:
    made: list[str] = []
    for number in range(9):
        keep(tmp_path, f"root-{number}", made)
        os.utime(tmp_path / f"root-{number}.tar", (number, number))

    assert keep(tmp_path, "root-9", made) == keep(tmp_path, "root-9", made) == "root-9"

    assert made.count("root-9") == 1
    left = sorted(path.name for path in tmp_path.glob("*.tar"))
    assert left == [f"root-{number}.tar" for number in range(2, 10)]


def test_root_in_use_is_kept_and_blocks_no_other_user(tmp_path: Path) -> None:
    made: list[str] = []

    with kept(tmp_path, "old", Path.touch) as tar:
        os.utime(tar, (0, 0))
        for number in range(9):
            keep(tmp_path, f"root-{number}", made)
        assert tar.exists()
        with held(tmp_path / "old.lock", busy="{}"):
            assert keep(tmp_path, "root-8", made) == "root-8"

    keep(tmp_path, "root-8", made)
    assert not tar.exists()


def test_base_changes_with_any_of_its_inputs() -> None:
    bases = (
        BaseInputs("trixie", "amd64", ARCHIVE, snapshot=False),
        BaseInputs("trixie", "amd64", ARCHIVE, snapshot=True),
        BaseInputs("sid", "amd64", ARCHIVE, snapshot=False),
        BaseInputs("trixie", "arm64", ARCHIVE, snapshot=False),
        BaseInputs("trixie", "amd64", Archive(ARCHIVE.lines, "later", 0), snapshot=False),
    )

    assert len({base.key for base in bases}) == len(bases)
    assert bases[0].key == BaseInputs("trixie", "amd64", ARCHIVE, snapshot=False).key
