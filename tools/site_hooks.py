"""Hooks of mkdocs.yml for docs/: menus as in index.md, and links to files outside of docs/.

If the environment names the project, a link to a file of the repository becomes a link to GitLab.
Otherwise only its text remains. The file must exist.
"""

import logging
import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")
_GROUP = re.compile(r"^- \*\*(.+?)\*\*", re.MULTILINE)
_LISTED = re.compile(r"\]\(([^)#\s]+\.md)\)")
_ASKS = re.compile(
    r'<(?:script|img|iframe)[^>]+src="https?:|<link(?![^>]+canonical)[^>]+href="https?:'
)
_LOG = logging.getLogger("mkdocs.hooks.site")


def on_config(config: Any) -> Any:  # noqa: ANN401 - mkdocs is not installed where types are checked
    """Create a menu for each heading of index.md, and for each group of pages below it."""
    _, *parts = (DOCS / "index.md").read_text(encoding="utf-8").split("\n## ")
    menus: list[Any] = [{"Documentation": "index.md"}]
    for part in parts:
        title, _, text = part.partition("\n")
        ungrouped, *groups = _GROUP.split(text)
        entries = _listed(ungrouped)
        entries += [{name: _listed(each)} for name, each in zip(*[iter(groups)] * 2, strict=True)]
        menus.append({title: entries})
    config["nav"] = menus
    return config


def _listed(text: str) -> list[Any]:
    """Return the menu entries of the pages that a text links."""
    pages = [page for page in dict.fromkeys(_LISTED.findall(text)) if page[0] != "."]
    return [entry for page in pages for entry in _entries(page)]


def _entries(page: str) -> list[Any]:
    """Return the entry of a page; for an index, one menu with all pages of its folder."""
    path = DOCS / page
    if path.name != "index.md":
        return [page]
    title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
    others = sorted(each for each in path.parent.glob("*.md") if each != path)
    return [{title: [page, *(each.relative_to(DOCS).as_posix() for each in others)]}]


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:  # noqa: ANN401 - same
    """Return the text of a page with its links out of docs/ replaced."""
    here = Path(page.file.abs_src_path).parent

    def outward(found: re.Match[str]) -> str:
        text, path, anchor = found.groups(default="")
        target = (here / path).resolve()
        if target.is_relative_to(DOCS):
            return found[0]
        if not target.exists():
            _LOG.warning("%s: there is no %s", page.file.src_path, path)
        project, commit = os.environ.get("CI_PROJECT_URL"), os.environ.get("CI_COMMIT_SHA", "HEAD")
        if not project or not target.is_relative_to(ROOT):
            return text
        kind = "tree" if target.is_dir() else "blob"
        return f"[{text}]({project}/-/{kind}/{commit}/{target.relative_to(ROOT)}{anchor})"

    return _LINK.sub(outward, markdown)


def on_post_build(config: Any, **_: object) -> None:  # noqa: ANN401 - same
    """Log a warning, which fails the build, for a page that requests data from another host."""
    for page in Path(config["site_dir"]).rglob("*.html"):
        if found := _ASKS.search(page.read_text(encoding="utf-8")):
            _LOG.warning("%s asks another host: %s", page.name, found[0])
