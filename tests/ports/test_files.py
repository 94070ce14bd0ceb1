"""The port `Files`: the written fake, the files of this computer and those of git behave alike."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleet.errors import FileUnreadable
from fleet.schema.source import Files
from fleet.state.files import LocalFiles, replace_file
from fleet.state.revision import Revision
from tests.fakes.files import FakeFiles

Make = Callable[[dict[str, str]], Files]


@pytest.fixture(params=["fake", "local", "revision"])
def make(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    def fake(files: dict[str, str]) -> Files:
        return FakeFiles(files)

    def local(files: dict[str, str]) -> Files:
        monkeypatch.chdir(tmp_path)
        for name, text in files.items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text, encoding="utf-8")
        return LocalFiles(within="")

    def revision(files: dict[str, str]) -> Files:
        local(files)
        who = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
        for words in (("init",), ("add", "."), ("commit", "--allow-empty", "-m", "all")):
            command = ("git", *who, *words)
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        for name in files:
            Path(name).unlink()
        return Revision("HEAD", "")

    makes: dict[str, Make] = {"fake": fake, "local": local, "revision": revision}
    return makes[request.param]


def test_file_is_read_completely(make: Make) -> None:
    files = make({"a": "text"})

    assert files.read("a", 4) == b"text"


def test_longer_file_than_the_limit_is_refused_with_its_name(make: Make) -> None:
    files = make({"a": "text"})

    with pytest.raises(FileUnreadable, match=r"^a: larger than 3 bytes$"):
        files.read("a", 3)


def test_missing_file_is_refused_with_its_name(make: Make) -> None:
    files = make({})

    with pytest.raises(FileUnreadable, match=r"^a: "):
        files.read("a", 3)


def test_matching_names_are_sorted(make: Make) -> None:
    files = make({"d/b.yaml": "", "d/a.yaml": "", "d/c.txt": "", "a.yaml": ""})

    assert files.glob("d/*.yaml") == ("d/a.yaml", "d/b.yaml")


def test_pattern_without_match_returns_no_names(make: Make) -> None:
    files = make({"a": ""})

    assert files.glob("d/*") == ()


def test_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match=re.escape(str(tmp_path))) as failed:
        LocalFiles().read(str(tmp_path), 10)

    assert isinstance(failed.value.__cause__, IsADirectoryError)


def test_invalid_file_name_is_refused() -> None:
    with pytest.raises(FileUnreadable, match=r"^a\0b: "):
        LocalFiles().read("a\0b", 10)


def test_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    (inside / "link").symlink_to("../secret")

    with pytest.raises(FileUnreadable, match=f"{re.escape(str(inside))}$"):
        LocalFiles(within=str(inside)).glob(f"{inside}/*")


def test_write_text_leaves_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"

    LocalFiles().write_text(str(target), "new\n")

    assert target.read_text(encoding="utf-8") == "new\n"
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_write_text_keeps_mode_of_existing_file(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_text("old", encoding="utf-8")
    target.chmod(0o600)

    LocalFiles().write_text(str(target), "new")

    assert target.read_text(encoding="utf-8") == "new"
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("target", ["../secret", "/dev/null", "../not-there"])
def test_write_through_link_out_of_directory_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").write_text("old")
    (tmp_path / "inside").mkdir()
    link = tmp_path / "inside" / "link"
    link.symlink_to(target)

    with pytest.raises(FileUnreadable, match=re.escape(f" {link.parent};")):
        LocalFiles().write_text(str(link), "new")

    assert (tmp_path / "secret").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "secret"]


def test_link_is_kept_when_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")

    LocalFiles().write_text(str(tmp_path / "link"), "new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text(encoding="utf-8") == "new"


def test_write_text_to_full_disk_is_an_error() -> None:
    with pytest.raises(FileUnreadable, match="/dev/full"):
        LocalFiles().write_text("/dev/full", "new")


def test_write_lines_keeps_file_when_lines_fail(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_text("old", encoding="utf-8")

    def lines() -> Iterator[str]:
        yield "new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LocalFiles().write_lines(str(target), lines())

    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_write_text_ignores_temporary_file_of_killed_run(tmp_path: Path) -> None:
    left = tmp_path / f".plan.json.{os.getpid()}.tmp"
    left.write_text("half", encoding="utf-8")

    LocalFiles().write_text(str(tmp_path / "plan.json"), "new")

    assert (tmp_path / "plan.json").read_text(encoding="utf-8") == "new"
    assert left.read_text(encoding="utf-8") == "half"


def test_concurrent_writes_leave_one_complete_file(tmp_path: Path) -> None:
    target = tmp_path / "looks.json"
    texts = [str(number) * 10_000 for number in range(4)]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: replace_file(target, texts[n % 4].encode()), range(200)))

    assert target.read_text(encoding="utf-8") in texts
    assert [path.name for path in tmp_path.iterdir()] == ["looks.json"]


def test_replace_file_sets_requested_mode(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.write_bytes(b"same")
    target.chmod(0o644)

    replace_file(target, b"same", mode=0o600)

    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["é" * 120, "a" * 255, os.fsdecode(b"\xff" * 250)])
def test_file_name_may_have_maximum_length(tmp_path: Path, name: str) -> None:
    replace_file(tmp_path / name, b"new")

    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_replace_file_names_file_on_full_disk(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pathlib import Path;"
        "from fleet.state.files import replace_file;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100));"
        "sys.excepthook = lambda _, error, __: print(error.filename);"
        "replace_file(Path(sys.argv[1]), bytes(200))"
    )
    target = tmp_path / "plan.json"

    done = subprocess.run(
        [sys.executable, "-c", code, target], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (1, f"{target}\n")
    assert list(tmp_path.iterdir()) == []


def test_write_text_names_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match=r"none/plan\.json") as failed:
        LocalFiles().write_text(str(tmp_path / "none" / "plan.json"), "new")

    assert isinstance(failed.value.__cause__, FileNotFoundError)


def test_temporary_file_is_removed_when_rename_fails(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    target.mkdir()

    with pytest.raises(FileUnreadable, match=re.escape(str(target))):
        LocalFiles().write_text(str(target), "new")

    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_device_is_written_without_replacement() -> None:
    LocalFiles().write_text("/dev/null", "new")

    assert Path("/dev/null").is_char_device()


def test_any_name_may_match_without_directory(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("", encoding="utf-8")

    assert LocalFiles().glob(f"{tmp_path}/*.yaml") == (f"{tmp_path}/a.yaml",)
