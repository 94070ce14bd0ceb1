"""Lists of packages are read from an archive, whichever form it has; garbage is told."""

import gzip
import lzma
from collections.abc import Callable, Iterator

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


def test_index_has_newest_version_of_each_package(serve: Serve) -> None:
    newest = {"debusine-worker": "0.16.10-1", "zlib1g": "1:1.3-1"}

    assert read_index(serve()) == {}  # of a suite that is not there
    assert read_index(serve(gz=gzip.compress(LIST))) == newest
    assert read_index(serve(xz=lzma.compress(LIST))) == newest
    with pytest.raises(SourceUnreachable, match=r"127\.0\.0\.1:9/.*Connection refused"):
        read_index(Source("http://127.0.0.1:9", "trixie", "main", "amd64"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html>sign in</html>", r"Packages\.xz.*list"),
        (lzma.compress(LIST)[:60], r"Packages\.xz.*list"),
        (html(503), "503"),
    ],
)
def test_index_is_unreachable_when_garbled_or_refused(
    serve: Serve, content: bytes | Answer, said: str
) -> None:
    with pytest.raises(SourceUnreachable, match=said):
        read_index(serve(xz=content))
