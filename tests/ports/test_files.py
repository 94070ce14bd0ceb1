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


@pytest.mark.parametrize("target", ["../secret", "/dev/null", "../not-there"])
def test_link_out_of_directory_is_neither_read_nor_written(tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").write_text("old")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(target)

    with pytest.raises(FileUnreadable, match=re.escape(f" {inside};")):
        LocalFiles().write_text(str(inside / "link"), "new")
    if target != "../not-there":
        with pytest.raises(FileUnreadable, match=f"{re.escape(str(inside))}$"):
            LocalFiles(within=str(inside)).glob(f"{inside}/*")

    assert (tmp_path / "secret").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "secret"]


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


def test_concurrent_writes_leave_one_complete_file_of_requested_mode(tmp_path: Path) -> None:
    target = tmp_path / "looks.json"
    target.write_bytes(b"same")
    target.chmod(0o644)
    texts = [str(number) * 10_000 for number in range(4)]

    replace_file(target, b"same", mode=0o600)
    mode = target.stat().st_mode & 0o777
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: replace_file(target, texts[n % 4].encode()), range(200)))

    assert mode == 0o600
    assert target.read_text(encoding="utf-8") in texts
    assert [path.name for path in tmp_path.iterdir()] == ["looks.json"]


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
    target.write_text("before")

    done = subprocess.run(
        [sys.executable, "-c", code, target], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (1, f"{target}\n")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [
        ("plan.json", "before")
    ]


def test_file_is_read_completely_or_refused_with_its_name(make: Make) -> None:
    files = make({"a": "text"})

    assert files.read("a", 4) == b"text"
    with pytest.raises(FileUnreadable, match=r"^a: larger than 3 bytes$"):
        files.read("a", 3)
    with pytest.raises(FileUnreadable, match=r"^b: "):
        files.read("b", 3)


def test_matching_names_are_sorted(make: Make) -> None:
    files = make({"d/b.yaml": "", "d/a.yaml": "", "d/c.txt": "", "a.yaml": ""})

    assert files.glob("d/*.yaml") == ("d/a.yaml", "d/b.yaml")
    assert files.glob("e/*") == ()


def test_unreadable_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileUnreadable, match=re.escape(str(tmp_path))) as failed:
        LocalFiles().read(str(tmp_path), 10)
    with pytest.raises(FileUnreadable, match=r"^a\0b: "):
        LocalFiles().read("a\0b", 10)

    assert isinstance(failed.value.__cause__, IsADirectoryError)
    (tmp_path / "a.yaml").write_text("", encoding="utf-8")
    assert LocalFiles().glob(f"{tmp_path}/*.yaml") == (f"{tmp_path}/a.yaml",)


def test_write_text_keeps_mode_links_and_other_files(tmp_path: Path) -> None:
    target, link = tmp_path / "plan.json", tmp_path / "link"
    target.write_text("old", encoding="utf-8")
    target.chmod(0o600)
    link.symlink_to("plan.json")
    left = tmp_path / f".plan.json.{os.getpid()}.tmp"  # of a killed run
    left.write_text("half", encoding="utf-8")

    LocalFiles().write_text(str(target), "new\n")
    LocalFiles().write_text(str(link), "newer\n")
    LocalFiles().write_text("/dev/null", "new")

    assert target.read_text(encoding="utf-8") == "newer\n"
    assert (target.stat().st_mode & 0o777, link.is_symlink()) == (0o600, True)
    assert left.read_text(encoding="utf-8") == "half"
    assert {path.name for path in tmp_path.iterdir()} == {left.name, "link", "plan.json"}
    assert Path("/dev/null").is_char_device()


def test_failed_write_names_the_file_and_leaves_none(tmp_path: Path) -> None:
    (tmp_path / "plan.json").mkdir()

    for name in ("/dev/full", f"{tmp_path}/none/plan.json", f"{tmp_path}/plan.json"):
        with pytest.raises(FileUnreadable, match=re.escape(name)):
            LocalFiles().write_text(name, "new")

    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]
