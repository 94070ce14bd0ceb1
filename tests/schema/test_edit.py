"""Change one key of a pool in the text of fleet.yaml: what else stands there stays."""

from collections.abc import Mapping

import pytest

from fleet.errors import FileUnreadable
from fleet.explain.what_if import Edit, apply_edits, write_value
from fleet.model.digests import config_digest
from fleet.schema.edit import NotEditable, PatchedFiles, write_diff, write_keys
from fleet.schema.findings import Path
from fleet.schema.load import load
from tests.fakes.files import FakeFiles

HEAD = """\
fleet: trial
providers: {desk: {kind: sim}}
queues: {work: {kind: world, path: world.json}}
images: {trixie: {suite: trixie, architecture: amd64}}
"""
MAX: Path = ("pools", "a", "workers", "max")
SPARE: Path = ("pools", "a", "workers", "spare")
IDLE: Path = ("pools", "a", "retire", "idle_after")
TYPE: Path = ("pools", "a", "machine")
FLOW = "pools: {a: {provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}}\n"
BLOCK = """\
pools:
  # first
  a:
    provider: desk  # where
    machine: ccx33
    image: trixie   # what

    workers:
      # at most
      max: 4      # four
"""
TEMPLATE = """\
templates:
  t: {provider: desk, image: trixie, machine: ccx33, workers: {max: 4}}
pools:
  a: {extends: [t]}
"""


def files_of(pools: str, **more: str) -> FakeFiles:
    return FakeFiles({"fleet.yaml": HEAD + pools} | more)


def written(files: FakeFiles, values: Mapping[Path, object]) -> dict[str, str]:
    """Return what is written, and make sure that it says what was asked for."""
    fleet = load("fleet.yaml", files).fleet
    assert fleet is not None
    texts = write_keys(
        "fleet.yaml",
        files,
        [
            (path, value if isinstance(value, str) else write_value(fleet, path, value))
            for path, value in values.items()
        ],
    )
    now = load("fleet.yaml", PatchedFiles(files, texts)).fleet
    wanted = apply_edits(fleet, [Edit(path, value) for path, value in values.items()])
    assert now is not None
    assert config_digest(now) == config_digest(wanted)
    return texts


@pytest.mark.parametrize(
    ("pools", "path", "value", "old", "new"),
    [
        (FLOW, MAX, 6, "max: 4", "max: 6"),
        (FLOW, SPARE, 2, "max: 4", "max: 4, spare: 2"),
        (FLOW, IDLE, 300, "{max: 4}", "{max: 4}, retire: {idle_after: 5m}"),
        (FLOW, TYPE, "ccx13", "ccx33", "ccx13"),
        (BLOCK, MAX, 6, "max: 4      # four", "max: 6      # four"),
        (BLOCK, SPARE, 2, "# four\n", "# four\n      spare: 2\n"),
        (BLOCK, IDLE, 300, "# what\n", "# what\n    retire: {idle_after: 5m}\n"),
        (BLOCK.rstrip(), SPARE, 2, "# four", "# four\n      spare: 2"),
        (TEMPLATE, MAX, 6, "[t]", "[t], workers: {max: 6}"),
        (TEMPLATE, TYPE, "ccx13", "[t]", "[t], machine: ccx13"),
        (
            TEMPLATE.replace("{extends: [t]}", "{extends: [t], workers: {spare: 1}}"),
            *(MAX, 6, "spare: 1", "spare: 1, max: 6"),
        ),
        (TEMPLATE.replace("[t]}", "[t], workers: {}}"), MAX, 6, "s: {}", "s: {max: 6}"),
        (
            TEMPLATE.replace("a: {extends: [t]}", "a:\n    extends:\n    - t"),
            *(MAX, 6, "    extends:", "    workers: {max: 6}\n    extends:"),
        ),
    ],
)
def test_one_key_is_changed_and_nothing_else(
    pools: str, path: Path, value: object, old: str, new: str
) -> None:
    texts = written(files_of(pools), {path: value})

    assert pools.count(old) == 1
    assert texts == {"fleet.yaml": HEAD + pools.replace(old, new)}


def test_several_keys_that_are_not_written_come_one_after_the_other() -> None:
    texts = written(files_of(TEMPLATE), {MAX: 6, SPARE: 2, IDLE: 5400})

    new = "{extends: [t], workers: {max: 6, spare: 2}, retire: {idle_after: 90m}}"
    assert texts == {"fleet.yaml": HEAD + TEMPLATE.replace("{extends: [t]}", new)}


def test_line_breaks_stay_as_they_are() -> None:
    text = (HEAD + BLOCK).replace("\n", "\r\n")

    texts = written(FakeFiles({"fleet.yaml": text}), {SPARE: 2})

    assert texts == {"fleet.yaml": text + "      spare: 2\r\n"}


def test_a_pool_of_an_included_file_is_changed_there() -> None:
    files = FakeFiles({"fleet.yaml": f"include: [d/*.yaml]\n{HEAD}", "d/a.yaml": BLOCK})

    texts = written(files, {MAX: 6})

    assert texts == {"d/a.yaml": BLOCK.replace("max: 4", "max: 6")}
    diff = write_diff(files, texts)
    assert diff.splitlines()[:2] == ["--- a/d/a.yaml", "+++ b/d/a.yaml"]


def test_a_diff_says_where_the_last_line_does_not_end() -> None:
    files = files_of(FLOW.rstrip())

    diff = write_diff(files, written(files, {MAX: 6}))

    assert diff.count("\n\\ No newline at end of file\n") == 2


def test_a_diff_has_the_byte_order_mark_of_the_file() -> None:
    files = FakeFiles({"fleet.yaml": b"\xef\xbb\xbf" + FLOW.encode() + HEAD.encode()})

    diff = write_diff(files, written(files, {MAX: 6}))

    assert [line[:6] for line in diff.splitlines()[3:5]] == ["-\ufeffpool", "+\ufeffpool"]


@pytest.mark.parametrize(
    ("pools", "path"),
    [
        (FLOW.replace("max: 4", "max: &n 4"), MAX),
        (FLOW.replace("max: 4", "min: &n 4, max: *n"), MAX),
        (FLOW.replace("{max: 4}", "&w {}"), MAX),
        (
            "pools: {b: &b {provider: desk, machine: m, image: i, workers: {max: 4}}, a: *b}",
            MAX,
        ),
        (
            "pools: {a: {provider: desk, machine: [ccx33], image: trixie, workers: {max: 4}}}\n",
            TYPE,
        ),
    ],
)
def test_what_may_be_used_elsewhere_is_refused(pools: str, path: Path) -> None:
    with pytest.raises(NotEditable):
        write_keys("fleet.yaml", files_of(pools), [(path, "6")])


def test_another_text_may_be_no_longer_than_a_file() -> None:
    with pytest.raises(FileUnreadable, match=r"fleet\.yaml.*3"):
        PatchedFiles(FakeFiles({}), {"fleet.yaml": "long"}).read("fleet.yaml", 3)
