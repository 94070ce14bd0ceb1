"""Lists of packages are read from an archive, whichever form it has; garbage is told."""

import gzip
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.errors import SourceUnreachable
from fleet.images.sources import read_index
from fleet.model.apt_sources import Source
from tests.rigs.loopback import Answer, Loopback, Received, html

LIST = b"""Package: debusine-worker
Version: 0.16.1-1
Description: a worker
 Version: not this

Package: zlib1g
Version: 1:1.3-1

Package: debusine-worker
Version: 0.16.10-1
"""
FOLDER = "/debian/dists/trixie/main/binary-amd64/Packages"
MISSING = Answer(404, b"")
Serve = Callable[..., Source]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return what serves files by their ending, and says where."""
    files: dict[str, Answer] = {}

    def answer(request: Received) -> Answer:
        return files.get(request.path.removeprefix(FOLDER), MISSING)

    with Loopback(answer) as server:

        def put(**contents: bytes | Answer) -> Source:
            for ending, content in contents.items():
                known = Answer(200, content) if isinstance(content, bytes) else content
                files[f".{ending}"] = known
            return Source(f"{server.url}/debian", "trixie", "main", "amd64")

        yield put


def test_the_newest_version_of_each_package_is_read(serve: Serve, cache: Path) -> None:
    found = read_index(serve(xz=lzma.compress(LIST)), cache)

    assert found == {"debusine-worker": "0.16.10-1", "zlib1g": "1:1.3-1"}


def test_an_archive_may_have_another_form_only(serve: Serve, cache: Path) -> None:
    assert read_index(serve(gz=gzip.compress(LIST)), cache)["zlib1g"] == "1:1.3-1"


def test_a_suite_that_the_archive_does_not_have_holds_nothing(serve: Serve, cache: Path) -> None:
    assert read_index(serve(), cache) == {}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html>sign in</html>", r"Packages\.xz.*list"),
        (lzma.compress(LIST)[:60], r"Packages\.xz.*list"),
        (html(503), "503"),
    ],
)
def test_garbage_and_refusals_are_no_answer(
    serve: Serve, cache: Path, content: bytes | Answer, said: str
) -> None:
    with pytest.raises(SourceUnreachable, match=said):
        read_index(serve(xz=content), cache)


def test_an_archive_that_is_not_there_is_no_answer(cache: Path) -> None:
    with pytest.raises(SourceUnreachable, match=r"127\.0\.0\.1:9/.*Connection refused"):
        read_index(Source("http://127.0.0.1:9", "trixie", "main", "amd64"), cache)


@pytest.mark.parametrize(
    ("told", "asked"), [("ETag", "if-none-match"), ("Last-Modified", "if-modified-since")]
)
def test_a_list_is_read_again_only_when_the_archive_has_another(
    cache: Path, told: str, asked: str
) -> None:
    now = LIST

    def answer(request: Received) -> Answer:
        state = str(len(now))
        if request.headers.get(asked) == state:
            return Answer(304, b"")
        return Answer(200, lzma.compress(now), {told: state})

    with Loopback(answer) as server:
        source = Source(f"{server.url}/debian", "trixie", "main", "amd64")
        first, second = read_index(source, cache), read_index(source, cache)
        now = b"Package: bash\nVersion: 5.2-1\n"
        third = read_index(source, cache)

    assert first == second
    assert len(second) == 2
    assert third == {"bash": "5.2-1"}


@pytest.mark.parametrize("left", ["", "[]", '{"asked": {}}'])
def test_what_was_kept_by_half_is_read_again(cache: Path, left: str) -> None:
    headers = {"ETag": "one"}
    with Loopback(lambda _: Answer(200, lzma.compress(LIST), headers)) as server:
        source = Source(f"{server.url}/debian", "trixie", "main", "amd64")
        first = read_index(source, cache)
        (kept,) = cache.iterdir()
        kept.write_text(left, encoding="utf-8")

        assert read_index(source, cache) == first
