"""The site of docs/: its menus are those of index.md, and no link leads out of it unseen."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tools.site_hooks import DOCS, on_config, on_page_markdown, on_post_build

HERE = SimpleNamespace(
    file=SimpleNamespace(
        abs_src_path=str(DOCS / "how-to" / "begin.md"), src_path="how-to/begin.md"
    )
)


def _pages(entry: object) -> list[str]:
    if isinstance(entry, dict):
        entry = [*entry.values()]
    return [entry] if isinstance(entry, str) else [page for each in entry for page in _pages(each)]  # type: ignore[attr-defined] # a menu is a list


def test_every_page_of_the_documentation_is_in_a_menu() -> None:
    menus = on_config({})["nav"]

    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert set(_pages(menus)) == written


def test_groups_of_the_index_are_menus() -> None:
    menus = {title: entries for menu in on_config({})["nav"] for title, entries in menu.items()}

    groups = [next(iter(entry)) for entry in menus["Get it done"]]
    assert groups[:2] == ["Try more", "Set up"]
    assert menus["Get it done"][1]["Set up"][:2] == ["how-to/install.md", "how-to/begin.md"]


def test_link_to_outside_file_leads_to_project_or_is_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "see [why](../../CONTRIBUTING.md#what) and [more](install.md)"

    monkeypatch.delenv("CI_PROJECT_URL", raising=False)
    assert on_page_markdown(text, page=HERE) == "see why and [more](install.md)"
    monkeypatch.setenv("CI_PROJECT_URL", "https://gitlab.example.org/debian/fleet")
    monkeypatch.setenv("CI_COMMIT_SHA", "abc")
    place = "https://gitlab.example.org/debian/fleet/-/blob/abc/CONTRIBUTING.md#what"
    assert on_page_markdown(text, page=HERE) == f"see [why]({place}) and [more](install.md)"


def test_link_to_missing_outside_file_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    on_page_markdown("[x](../../nowhere.md)", page=HERE)

    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(
    ("html", "warnings"),
    [
        ('<script src="https://cdn.example.org/x.js">', 1),
        ('<link rel="stylesheet" href="https://fonts.example.org/x.css">', 1),
        ('<a href="https://debusine.example.org">', 0),
        ('<script src="assets/x.js">', 0),
    ],
)
def test_page_that_requests_another_host_is_a_warning(
    html: str, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "page.html").write_text(html, encoding="utf-8")

    on_post_build({"site_dir": str(tmp_path)})

    assert len(caplog.records) == warnings
