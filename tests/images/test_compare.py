"""What a second build of the same recipe shows: which files differ, in what, and why."""

import os
import tarfile
from pathlib import Path

import pytest

from fleet.images.disk import DiskBuilder, Listing, compare, contents, explain_no_disk
from fleet.images.programs import explain_no_namespaces
from fleet.images.records import BuildOrder
from fleet.schema.pools import ImageRecipe
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.rigs.loopback import Answer, Loopback

LACKING = explain_no_namespaces() or explain_no_disk("amd64")
BAKES = """
step=$1
echo "$step: $(cd "$work" && echo *.base *.root *.tar *.raw)" >>STEPS
pack() { tar -cf "$1" -C "$work" --files-from /dev/null; }
case $step in
base) for each; do case $each in *.partial | *.base) pack "$each" ;; esac; done ;;
role) echo 'TASK [Install it] ***'; pack "$3" ;;
disk) : >"$3" ;;
clean) pack "$3" ;;
esac
"""
RELEASE = b"-----BEGIN PGP SIGNED MESSAGE-----\n\nDate: Sat, 21 Nov 2026 08:11:10 UTC\n"


def a_root(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def listing(root: Path) -> Listing:
    """Return what counts of a root."""
    archive = root.with_suffix(".tar")
    with tarfile.open(archive, "w") as tar:
        tar.add(root, ".")
    return contents(archive, times=False)


def test_differences_of_roots_are_named_and_explained(tmp_path: Path) -> None:
    files = {"etc/hosts": "::1", "var/lib/dpkg/status": "x", "etc/strange": "1"}
    one = a_root(tmp_path / "one", files | {"first": "", "var/log/new.log": "1"})
    two = a_root(tmp_path / "two", files | {"second": "", "var/log/new.log": "2"})
    (one / "etc/awk").symlink_to("/usr/bin/mawk")
    (two / "etc/awk").symlink_to("/usr/bin/gawk")
    (two / "link").symlink_to("etc/hosts")
    (two / "etc/strange").chmod(0o755)

    found = {each.path: each for each in compare(listing(one), listing(two))}

    what = {path: each.what for path, each in found.items()}
    only = {"/first": "first", "/link": "second", "/second": "second"}
    changed = {"/etc/awk": "content", "/etc/strange": "mode", "/var/log/new.log": "content"}
    assert {path: each for path, each in what.items() if path not in only} == changed
    assert all(tells(what[path], "only", side) for path, side in only.items())
    assert tells(found["/var/log/new.log"].why, "log")
    assert found["/etc/strange"].why.startswith("unknown: ")


def test_archives_differ_when_file_times_differ(tmp_path: Path) -> None:
    listings = []
    for time in (1, 2):
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        (root / "same").touch()
        os.utime(root / "same", (1, 1))
        (root / "log").write_text("alike", encoding="utf-8")
        os.utime(root / "log", (time, time))
        with tarfile.open(tmp_path / f"{time}.tar", "w") as tar:
            tar.add(root / "same", "./same")
            tar.add(root / "log", "./log")
        listings.append(contents(tmp_path / f"{time}.tar", times=True))

    assert [(each.path, each.what) for each in compare(*listings)] == [("/log", "time")]


@pytest.mark.skipif(bool(LACKING), reason=LACKING)
def test_second_build_keeps_only_archives_that_it_still_reads(tmp_path: Path) -> None:
    script, steps = tmp_path / "bake.sh", tmp_path / "steps"
    script.write_text(BAKES.replace("STEPS", str(steps)), encoding="utf-8")
    recipe = ImageRecipe(suite="trixie", architecture="amd64")
    order = BuildOrder(
        image="trixie", version="20261121T2030", recipe=recipe, built_at=NOW, built_by="ana"
    )

    with Loopback(lambda _: Answer(200, RELEASE)) as mirror:
        archive, cache = f"{mirror.url}/debian", tmp_path / "cache"
        builder = DiskBuilder(tmp_path, cache, mirror=archive, check=True, script=script)
        _, differences = builder.build(order, lambda _: None)

    assert differences is not None
    assert (differences.same_base, differences.files) == (True, ())
    found = [line.replace(" *.", " -") for line in steps.read_text().splitlines()]
    nothing = "-base -root -tar -raw"
    assert found == [
        *(f"{step}: {nothing}" for step in ("base", "role", "disk", "base")),
        "role: second.base -root -tar -raw",
        "clean: -base second.root -tar -raw",
        "clean: -base -root cleaned.tar -raw",
    ]
