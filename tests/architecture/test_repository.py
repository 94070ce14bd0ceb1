"""What may not stand in a tracked file, and what every lock must hold."""

import ast
import re
import tomllib

import pytest

from tests.architecture.source import tracked_files
from tests.rigs.process import ROOT

# Written with a gap, so that this file itself stays clean.
SPACED = """
py pi.org, python hosted.org, npm js.org, npm js.com, crates .io,
proxy.go lang.org, sum.go lang.org, repo.ma ven, repo1.ma ven,
/wor k/main, /wor k/shared, /roo t/
"""
FORBIDDEN = ["".join(word.split()) for word in SPACED.split(",")]


@pytest.mark.parametrize("forbidden", FORBIDDEN)
def test_tracked_files_name_no_registry_or_local_path(forbidden: str) -> None:
    naming = [
        name for name, path in tracked_files().items() if forbidden.encode() in path.read_bytes()
    ]

    assert naming == []


@pytest.mark.parametrize("lock", ["run", "dev"])
def test_locked_packages_have_version_and_hash_without_url(lock: str) -> None:
    text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")

    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]

    assert "://" not in text
    assert len(entries) > 20
    assert [e for e in entries if "==" not in e.splitlines()[0] or "--hash=sha256:" not in e] == []


def test_development_lock_has_versions_of_runtime_lock() -> None:
    pinned = {
        name: set(
            re.findall(
                r"^([a-z0-9][^ ]*==[^ ]+)",
                (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8"),
                flags=re.MULTILINE,
            )
        )
        for name in ("run", "images", "dev")
    }

    assert pinned["images"] - pinned["dev"] == set()
    assert pinned["run"] - pinned["images"] == set()
    assert [name for name in pinned["run"] if re.match(r"ansible|lockfile", name)] == []


def test_pipeline_lock_contains_requirements_of_images_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = (ROOT / "requirements" / "images.lock").read_text(encoding="utf-8")

    needed = [name.partition(">")[0] for name in project["optional-dependencies"]["images"]]

    assert [name for name in needed if f"\n{name}==" not in locked] == []


def test_lock_of_gitlab_ci_local_has_hashes_without_urls() -> None:
    text = (ROOT / "tests" / "gitlab" / "package-lock.json").read_text(encoding="utf-8")

    assert '"resolved"' not in text
    assert text.count('"integrity"') > 100


def test_sessions_collect_all_folders_with_their_marks() -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    (where,) = (
        ast.literal_eval(each.value)
        for each in tree.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "WHERE"
    )
    text_of = {
        name: path.read_text(encoding="utf-8")
        for name, path in tracked_files().items()
        if re.fullmatch(r"tests/.*\.py", name)
    }

    elsewhere = [
        (session, name)
        for session, folders in where.items()
        for name, text in text_of.items()
        if re.search(rf"\bmark\.{session.replace('-', '_')}\b", text)
        and not name.startswith(tuple(f"{folder}/" for folder in folders))
    ]

    assert where.keys() >= {"gitlab", "live", "pages"}
    assert elsewhere == []
    # A mark that is written in another file would not be found above.
    assert [
        name for name, text in text_of.items() if re.search(r"import .*\bpytestmark", text)
    ] == []
