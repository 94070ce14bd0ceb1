"""Print the help of a command, or a page of the documentation that is part of the package."""

import argparse
import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from textwrap import fill

from fleet.cli.arguments import argument, flag
from fleet.errors import FleetError, WrongUsage
from fleet.ports import Console
from fleet.report.terminal import MIN_WIDTH

_REASONS = "docs/reference/reasons.md"


ARGUMENTS = (
    argument(
        "topic",
        nargs="?",
        metavar="COMMAND|PAGE|RULE|REASON",
        help="a command, a page (docs/how-to/begin.md or begin), a rule of `fleet validate` or a "
        "reason of `fleet plan` (default: the list of commands)",
    ),
    flag("--list", "list the paths of all pages"),
)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the help on a topic, or with --list the paths of all pages."""
    if args.list:
        root = _find_root()
        pages = ((path, (root / path).read_text(encoding="utf-8")) for path in _page_paths(root))
        console.out("\n".join(f"{path}  {text.partition(chr(10))[0][2:]}" for path, text in pages))
        return 0
    parser: argparse.ArgumentParser = args.build_parser(args.topic or "")
    if not args.topic:
        console.out(parser.format_help())
    elif args.topic in args.commands:
        parser.parse_args([args.topic, "--help"])
    else:
        text, width = _find_text(_find_root(), args.topic), console.columns(None)
        console.out(text if width is None else "\n".join(_fit_width(text, width)))
    return 0


def _fit_width(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a page, with paragraphs and items filled to a width, without comments."""
    lines = [line for line in text.splitlines() if not line.startswith("<!--")]
    paragraph: list[str] = []
    fence = ""
    for line in [*lines, ""]:
        mark = line.strip()[:3]
        is_code = bool(fence) or mark == "```"
        if mark == "```":
            fence = "" if fence else mark
        starts = not line.strip() or is_code or line[0] in "#|>" or _ITEM.match(line)
        if starts and paragraph:
            indent = " " * len(found[0]) if (found := _ITEM.match(paragraph[0])) else ""
            yield fill(
                " ".join([paragraph[0], *map(str.strip, paragraph[1:])]),
                max(MIN_WIDTH, width),
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            paragraph = []
        if line.strip() and not is_code and line[0] not in "#|>":
            paragraph.append(line)
        else:
            yield line


_ITEM = re.compile(r" *(?:[-*]|[0-9]+\.) +")


def _find_text(root: Path, topic: str) -> str:
    """Return a page, a section of a page (`page#section`), or the section on a reason."""
    name, _, anchor = topic.partition("#")
    paths = _page_paths(root)
    text = next(
        (
            (root / path).read_text(encoding="utf-8")
            for path in paths
            if name.removesuffix(".md") in _names(path)
        ),
        "",
    )
    reasons = (root / _REASONS).read_text(encoding="utf-8")
    found = _section(text, anchor) if text else _section(reasons, topic)
    if not found:
        known = {name for path in paths for name in _names(path)} | {
            _anchor(line) for line in reasons.splitlines() if line.startswith("### ")
        }
        close = get_close_matches(topic, sorted(known), 3)
        shortest = sorted({min(_names(path), key=len) for path in paths if topic in path})
        close = list(dict.fromkeys([*close, *shortest]))[:5]
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise WrongUsage(f"help {topic!r} not found{hint} (`fleet help --list` names all pages)")
    return found


def _section(text: str, anchor: str) -> str:
    """Return the section with this anchor; empty if missing. Without an anchor: the page."""
    if not anchor:
        return text
    lines = text.splitlines()
    headings = list(_headings(lines))
    start = next((n for n in headings if _anchor(lines[n]) == anchor), None)
    if start is None:
        return ""
    level = len(lines[start]) - len(lines[start].lstrip("#"))
    # A heading of this level or a higher level has at most as many hashes.
    ends = (n for n in headings if n > start and not lines[n].startswith("#" * (level + 1)))
    return "\n".join(lines[start : next(ends, None)]).rstrip() + "\n"


def _headings(lines: list[str]) -> Iterator[int]:
    """Yield the line numbers of headings, ignoring comments in code blocks."""
    fence = ""
    for n, line in enumerate(lines):
        mark = line.strip()[: len(line.strip()) - len(line.strip().lstrip("`"))]
        if len(mark) >= max(3, len(fence)):
            fence = "" if fence else mark
        elif not fence and line.startswith("#"):
            yield n


def _anchor(line: str) -> str:
    """Return the anchor that MkDocs gives to a heading; empty for other lines."""
    if not line.startswith("#"):
        return ""
    words = "".join(each for each in line.lower() if each.isalnum() or each in " -_").split()
    return "-".join(words)


def _names(path: str) -> Iterator[str]:
    """Yield the topics that select a page: each suffix of its path, without `.md`."""
    parts = path.removesuffix(".md").split("/")
    for start in range(len(parts)):
        yield "/".join(parts[start:])


def _page_paths(root: Path) -> list[str]:
    """Return the paths of all pages: first `index`, then how-to pages, then the others."""
    paths = (path.relative_to(root).as_posix() for path in root.glob("docs/**/*.md"))
    return sorted(paths, key=lambda path: (path != "docs/index.md", "how-to" not in path, path))


def _find_root() -> Path:
    """Return the folder that contains `docs/`, in the repository or the installed package."""
    for folder in Path(__file__).resolve().parents:
        for root in (folder, folder / "share/doc/fleet-reconciler"):
            if (root / _REASONS).is_file():
                return root
    raise FleetError("the pages are not installed: this package of fleet has no docs/")
