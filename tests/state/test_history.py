"""That a history outlives whoever is killed while adding to it."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard
from backports import zstd

from fleet.errors import FileUnreadable
from fleet.state.history import (
    Appended,
    RecordedFiles,
    StoredMoment,
    append,
    read_earlier,
    read_moment,
)

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
MARK_BYTES = 32


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "history.jsonl.zst")


def add(path: str, number: int) -> Appended:
    """Add a moment, so many minutes after noon, that holds its own number."""
    return append(path, json.dumps({"number": number}) + "\n", NOON + timedelta(minutes=number))


def read_number(found: StoredMoment) -> int:
    number = json.loads(found.content)["number"]
    assert isinstance(number, int)
    return number


def lines(path: str) -> list[str]:
    """Return what `zstdcat` prints, by the library it is made of."""
    with (
        Path(path).open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as stream,
    ):
        return stream.read().decode().splitlines()


def earlier(path: str, until: datetime) -> list[int]:
    return [json.loads(each)["number"] for each in read_earlier(path, until)]


def test_moments_are_found_by_their_time(path: str) -> None:
    for number in (10, 20, 30):
        add(path, number)

    found = read_moment(path, NOON + timedelta(minutes=29))
    assert (read_number(found), found.at) == (20, NOON + timedelta(minutes=20))
    assert read_number(read_moment(path)) == 30
    with pytest.raises(FileUnreadable, match=r"nothing.*2026-11-21 12:00"):
        read_moment(path, NOON)
    assert earlier(path, NOON + timedelta(minutes=30)) == [10, 20]
    assert RecordedFiles(print).earlier("world.json", NOON) == []
    assert lines(path) == [f'{{"number": {number}}}' for number in (10, 20, 30)]
    add(path, 60 * 24 * 31)
    assert earlier(path, NOON + timedelta(days=32)) == [60 * 24 * 31]  # of one month


def test_selected_moments_are_spread_over_the_month(path: str) -> None:
    for number in range(200):
        add(path, number)

    read = earlier(path, NOON + timedelta(minutes=200))

    assert len(read) == 50
    assert (read[0], read[-1]) == (0, 196)


@pytest.mark.parametrize("cut", [1, MARK_BYTES, MARK_BYTES + 1, MARK_BYTES + 20])
def test_partly_written_moment_is_skipped(path: str, cut: int) -> None:
    add(path, 1)
    whole = add(path, 2)
    with Path(path).open("r+b") as file:
        file.truncate(whole.size - cut)

    found = read_moment(path)

    assert read_number(found) == 1
    assert found.torn == whole.added - cut


@pytest.mark.parametrize("kept", [[], [1]])
def test_history_survives_append_killed_at_any_byte(path: str, kept: list[int]) -> None:
    before = max((add(path, number).size for number in kept), default=0)
    killed = add(path, 2)
    content = Path(path).read_bytes()

    for size in range(before, killed.size):
        Path(path).write_bytes(content[:size])
        done = add(path, 3)

        assert not kept or done.torn == size - before
        assert lines(path) == [f'{{"number": {number}}}' for number in (*kept, 3)]


def test_partly_written_end_above_a_megabyte_is_skipped(path: str) -> None:
    add(path, 1)
    with Path(path).open("ab") as file:
        file.write(b"fleet-1\n" + b"torn" * 600_000 + b"fleet-1\n" + b"torn" * 10)

    assert read_number(read_moment(path)) == 1


def test_file_of_another_tool_is_neither_read_nor_changed(path: str) -> None:
    Path(path).write_bytes(zstandard.compress(b"something else, of some length and weight"))
    before = Path(path).read_bytes()

    for use in (lambda: add(path, 1), lambda: read_moment(path)):
        with pytest.raises(FileUnreadable, match="`fleet observe --append`"):
            use()
    assert Path(path).read_bytes() == before


def test_damaged_moment_is_an_error(path: str) -> None:
    whole = add(path, 1)
    with Path(path).open("r+b") as file:
        file.seek(whole.size - MARK_BYTES - 6)
        file.write(b"\xff\xff")

    with pytest.raises(FileUnreadable, match=re.escape(path)) as failed:
        read_moment(path)

    assert isinstance(failed.value.__cause__, zstd.ZstdError)


def test_concurrent_appends_wait_for_each_other(path: str) -> None:
    code = (
        "import sys; from datetime import UTC, datetime; from fleet.state.history import append; "
        "[append(sys.argv[1], '{}\\n' * 1000, datetime.now(UTC)) for _ in range(20)]"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, path]) for _ in range(2)]

    assert [each.wait() for each in both] == [0, 0]
    assert lines(path) == ["{}"] * 40_000


def test_time_follows_the_name_of_the_history(path: str, tmp_path: Path) -> None:
    (tmp_path / "world.json").write_text("{}")
    assert RecordedFiles(pytest.fail).read(str(tmp_path / "world.json"), 100) == b"{}"
    add(path, 10)
    add(path, 20)
    files = RecordedFiles(pytest.fail)

    assert json.loads(files.read(f"{path}@2026-11-21T12:15", 100)) == {"number": 10}
    assert json.loads(files.read(f"{path}@2026-11-21T13:25:00+01:00", 100)) == {"number": 20}
    with pytest.raises(FileUnreadable, match=r"yesterday .*2026-11-21T08:00"):
        files.read(f"{path}@yesterday", 100)
