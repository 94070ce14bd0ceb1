"""The contract of MemberReader, over a file of YAML or JSON."""

import pytest

from fleet.model.facts import Unknown
from fleet.ports import MemberReader
from fleet.queues.recorded import FileMembers
from tests.fakes.files import FakeFiles

MERGES = "a: &a {x: [y]}\n" + "".join(
    f"{chr(n + 1)}: &{chr(n + 1)} {{<<: [{', '.join([f'*{chr(n)}'] * 9)}]}}\n"
    for n in range(ord("a"), ord("m"))
)


def a_file(text: str | bytes) -> FileMembers:
    return FileMembers("members.yaml", FakeFiles({"members.yaml": text}))


@pytest.mark.parametrize(
    "members",
    [
        a_file("toolchain: [alice, bob]\nkernel: [bob]\n"),
        a_file('{"toolchain": ["alice", "bob"], "kernel": ["bob"]}'),
    ],
)
def test_each_group_has_its_users(members: MemberReader) -> None:
    assert members.read() == {"toolchain": ("alice", "bob"), "kernel": ("bob",)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("toolchain: [alice", "members.yaml:1:"),
        ("[alice]", "members.yaml: "),
        ("", "members.yaml: "),
        ("toolchain: alice", "members.yaml: group 'toolchain' "),
        ("toolchain: [1]", "members.yaml: group 'toolchain' "),
        ("1: [alice]", "members.yaml:1:1: "),
        ("!!python/object/apply:os.getcwd []", "members.yaml:1:"),
        ("!!bool x", "members.yaml:1:"),
        ("a: " + "[" * 100_000, "members.yaml:1:"),
        (MERGES, "members.yaml:6:12: more than 200000 "),
        ("\xe9: [a]".encode("latin-1"), "members.yaml: not UTF-8"),
    ],
)
def test_invalid_members_file_is_unknown_with_reason(text: str | bytes, said: str) -> None:
    read = a_file(text).read()

    assert isinstance(read, Unknown)
    assert read.unknown.startswith(said)


def test_missing_members_file_is_unknown() -> None:
    assert isinstance(FileMembers("members.yaml", FakeFiles({})).read(), Unknown)
