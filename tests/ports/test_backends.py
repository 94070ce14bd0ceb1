"""What a Pulumi backend holds is reached by key, whatever kind of backend it is."""

import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleet.engines.pulumi_state import (
    Objects,
    break_dead_locks,
    drop_locks,
    file_root,
    find_locks,
    open_objects,
    read_checkpoint,
    remove_empty_attribute_files,
    shown_address,
)
from fleet.errors import Locked, StoreFailed
from tests.builders.sentences import tells
from tests.fakes.aws import CREDENTIALS
from tests.rigs.backends import backend, backend_url, postgres_url
from tests.rigs.loopback import Answer, Loopback
from tests.rigs.process import a_dead_process

__all__ = ["backend", "postgres_url"]

KEY = ".pulumi/stacks/fleet-sim/s.json"
LOCK = ".pulumi/locks/organization/fleet-sim/s/1.json"


@pytest.fixture
def objects(backend: str) -> Objects:
    return opened(backend)


def opened(backend: str) -> Objects:
    objects = open_objects(backend)
    assert objects is not None
    return objects


def lock(objects: Objects, *, key: str = LOCK, **overrides: object) -> None:
    """Have somebody hold a stack: this process, or another."""
    held = {
        "pid": os.getpid(),
        "username": "ana",
        "hostname": socket.gethostname(),
        "timestamp": datetime.now(UTC).isoformat(),
    }
    objects.create(key, json.dumps(held | overrides).encode())


def test_bucket_prefixes_are_separate(
    request: pytest.FixtureRequest,
) -> None:
    bucket, _, options = backend_url(request, "moto").partition("?")
    one, two = opened(f"{bucket}/one?{options}"), opened(f"{bucket}/two/?{options}")
    one.create(KEY, b"one's")

    assert two.keys("") == ()
    assert two.read(KEY) is None
    assert opened(f"{bucket}?{options}").keys("") == (f"one/{KEY}",)


def test_tables_and_schemas_are_separate(
    request: pytest.FixtureRequest,
) -> None:
    url = backend_url(request, "postgres")
    here, table = opened(url), opened(f"{url}&table=other")
    here.create(KEY, b"here")
    table.create(KEY, b"there")

    assert (here.read(KEY), table.read(KEY)) == (b"here", b"there")
    assert opened(f"{url}&search_path=nowhere").read(KEY) is None


# what does not answer


def test_missing_bucket_is_an_error(
    request: pytest.FixtureRequest,
) -> None:
    objects = opened(backend_url(request, "moto").replace("s3://", "s3://no-"))

    with pytest.raises(StoreFailed, match=r"s3://no-.*GetObject.*NoSuchBucket"):
        objects.read(KEY)
    with pytest.raises(StoreFailed, match="NoSuchBucket"):
        objects.keys(".pulumi/")


def test_unreachable_s3_error_hides_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (CREDENTIALS | {"AWS_MAX_ATTEMPTS": "1"}).items():
        monkeypatch.setenv(name, value)
    with Loopback(lambda _: Answer(200, b"")) as gone:
        address = gone.url
    objects = opened(f"s3://states?endpoint={address}&s3ForcePathStyle=true&region=x")

    with pytest.raises(StoreFailed) as caught:
        objects.read(KEY)

    assert tells(str(caught.value), "s3://states", "answer")


def test_s3_error_names_missing_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_EC2_METADATA_DISABLED"):
        monkeypatch.setenv(name, CREDENTIALS[name])

    with pytest.raises(StoreFailed, match=r"s3://states.*cred"):
        opened("s3://states?region=us-east-1").read(KEY)


def test_unreachable_database_error_hides_password() -> None:
    objects = opened("postgres://me:hunter2@127.0.0.1:1/states?sslmode=disable")

    with pytest.raises(StoreFailed) as caught:
        objects.read(KEY)

    assert tells(str(caught.value), "postgres://127.0.0.1:1/states", "answer")
    assert "hunter2" not in str(caught.value)


def test_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".pulumi").write_text("a file")

    with pytest.raises(StoreFailed, match=r"\.pulumi/stacks/fleet-sim/s\.json: "):
        opened(f"file://{tmp_path}").create(KEY, b"{}")


def test_lock_is_unknown_when_pulumi_seems_younger_than_it(
    tmp_path: Path,
) -> None:
    objects = opened(f"file://{tmp_path}")
    program = tmp_path / "pulumi"
    program.symlink_to(sys.executable)
    waits = [str(program), "-I", "-S", "-c", "input()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as other:
        lock(objects, timestamp="2020-01-01T00:00:00Z", pid=other.pid)

        found = find_locks(objects, "fleet-sim", "s")
        with pytest.raises(Locked, match=r"ana.*`fleet state unlock`"):
            break_dead_locks(objects, "fleet-sim", "s")
        other.kill()

    assert [each.alive for each in found] == [None]


def test_attribute_files_are_dropped_if_cut_or_with_their_lock(tmp_path: Path) -> None:
    names = ("meta.yaml.attrs", "stacks/fleet-sim/s.json.attrs", "stacks/fleet-sim/t.json.attrs")
    notes = [tmp_path / name for name in names]
    for note, text in zip(notes, ("", "", "{}"), strict=True):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(text)
    folder = opened(f"file://{tmp_path}")
    lock(folder)
    beside = tmp_path / f"{LOCK}.attrs"
    beside.write_text("{}")

    remove_empty_attribute_files(tmp_path, "fleet-sim")
    (found,) = find_locks(folder, "fleet-sim", "s")
    drop_locks(folder, [found])

    assert [note.exists() for note in notes] == [False, False, True]
    assert not beside.exists()


# every backend


def test_objects_are_created_once_read_and_removed(objects: Objects) -> None:
    assert (objects.read(KEY), objects.keys("")) == (None, ())
    objects.create(KEY, b"\x00\xff bytes")

    with pytest.raises(StoreFailed):
        objects.create(KEY, b"second")
    assert objects.read(KEY) == b"\x00\xff bytes"

    objects.remove(KEY)
    objects.remove(KEY)
    assert objects.read(KEY) is None


def test_keys_with_prefix_are_returned_sorted(objects: Objects) -> None:
    for name in ("b", "a", "a_b", "axb"):
        objects.create(f".pulumi/stacks/p/{name}/1.json", b"{}")

    assert objects.keys(".pulumi/stacks/p/a_b/") == (".pulumi/stacks/p/a_b/1.json",)
    assert len(objects.keys(".pulumi/stacks/")) == 4
    assert objects.keys(".pulumi/locks/") == ()


def test_checkpoint_and_locks_are_read_from_every_backend(objects: Objects) -> None:
    objects.create(KEY, b'{"checkpoint": {"latest": {"manifest": {}}}}')
    lock(objects)
    lock(objects, key=LOCK.replace("/1.", "/2."), pid=a_dead_process())
    lock(objects, key=LOCK.replace("/s/", "/s-2/"))

    running, dead = sorted(find_locks(objects, "fleet-sim", "s"), key=lambda each: not each.alive)
    drop_locks(objects, [dead])

    assert read_checkpoint(objects, "fleet-sim", "s") == {"manifest": {}}
    assert read_checkpoint(objects, "fleet-sim", "another") is None
    assert (running.alive, dead.alive) == (True, False)
    assert running.owner == f"ana on {socket.gethostname()} (process {os.getpid()})"
    assert find_locks(objects, "fleet-sim", "s") == (running,)


# locks in files


@pytest.mark.parametrize(
    ("name", "said", "alive"),
    [
        ("1.json.18ea4e.tmp", "", False),
        ("1.json", "", False),
        ("1.json", {"timestamp": "2020-01-01T00:00:00Z"}, False),
        ("1.json", "half a l", None),
        ("1.json", {"hostname": "elsewhere", "pid": 1}, None),
        ("1.json", {"pid": None}, None),
        ("1.json.18ea4e.tmp", {}, True),
    ],
    ids=[
        *("not taken", "empty", "its process id was used again"),
        *("unreadable", "on another computer", "of no process", "temporary"),
    ],
)
def test_lock_counts_as_held_unless_it_is_surely_dead(
    tmp_path: Path, name: str, said: dict[str, object] | str, *, alive: bool | None
) -> None:
    objects = opened(f"file://{tmp_path}")
    key = LOCK.replace("1.json", name)
    if isinstance(said, str):
        objects.create(key, said.encode())
    else:
        lock(objects, key=key, **said)

    if alive is False:
        break_dead_locks(objects, "fleet-sim", "s")

    assert [each.alive for each in find_locks(objects, "fleet-sim", "s")] == [alive][
        alive is False :
    ]


@pytest.mark.parametrize(
    ("backend", "root", "address"),
    [
        ("file:///a/b", "/a/b/.pulumi", "file:///a/b"),
        ("file:///a?x=1", "/a/.pulumi", None),
        ("s3://states/desk?endpoint=https://a:b@s3.example.org", None, "s3://states/desk"),
        (
            "postgres://me:hunter2@db.example.org:5432/states?x=1",
            None,
            "postgres://db.example.org:5432/states",
        ),
        ("gs://bucket", None, None),
        ("azblob://container", None, None),
    ],
)
def test_only_file_backend_has_a_folder_and_no_address_a_secret(
    backend: str, root: str | None, address: str | None
) -> None:
    assert file_root(backend) == (Path(root) if root else None)
    assert address is None or shown_address(backend) == address
    assert (open_objects(backend) is None) == backend.startswith(("gs:", "azblob:"))
