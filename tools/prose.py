"""Find odd English in docstrings, comments, messages and pages; `nox -s lint` runs it.

Usage: python tools/prose.py [PATH...]

tools/prose.toml has the rules, `tool.fleet.prose` in pyproject.toml the paths that are read by
default and the limit of warnings. An error always fails. With paths, it also prints all warnings.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
_MIN_WORDS = 3
"""Shorter strings are names and keys."""
_NO_PROSE = re.compile(r"`[^`]*`|https?://\S+|<!--.*?-->", re.DOTALL)
"""Code, addresses and comments of Markdown."""


class Rule(NamedTuple):
    """A pattern of one rule, with its plain alternative."""

    name: str
    is_error: bool
    reason: str
    pattern: re.Pattern[str]
    alternative: str


class Text(NamedTuple):
    """A piece of prose and its lines in a file."""

    first: int
    last: int
    text: str


class Hit(NamedTuple):
    """A match of a rule."""

    file: str
    line: int
    rule: Rule
    match: str

    def __str__(self) -> str:
        """Return the hit with its place and the alternative."""
        level = "error" if self.rule.is_error else "warning"
        return (
            f"{self.file}:{self.line}: {level}: {self.match!r}: {self.rule.reason}; "
            f"use: {self.rule.alternative} [{self.rule.name}]"
        )


def load_rules(text: str) -> list[Rule]:
    """Return the rules of a TOML document."""
    return [
        Rule(
            name,
            table["level"] == "error",
            table["reason"],
            re.compile(pattern, re.MULTILINE)
            if table.get("exact")
            else re.compile(rf"\b(?:{pattern})(?!\w)", re.IGNORECASE),
            alternative,
        )
        for name, table in tomllib.loads(text).items()
        for pattern, alternative in table["patterns"].items()
    ]


def read_python(source: str) -> Iterator[Text]:
    """Yield docstrings, comments and strings of a module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(noqa|type:)", token.string):
            yield Text(token.start[0], token.start[0], token.string.lstrip("# "))
    parts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts.update(map(id, node.values))
            text = "".join(_constant(each) or "…" for each in node.values)
        else:
            text = "" if id(node) in parts else _constant(node)
        if isinstance(node, ast.expr) and len(text.split()) >= _MIN_WORDS:
            yield Text(node.lineno, node.end_lineno or node.lineno, text)


def _constant(node: ast.AST) -> str:
    """Return the value of a constant string; empty for other nodes."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else ""


def read_page(source: str) -> Iterator[Text]:
    """Yield the lines of a Markdown page without its code."""
    is_code = False
    # Comments keep their line breaks, so that the numbers of lines stay correct.
    shown = re.sub(r"<!--.*?-->", lambda m: "\n" * m[0].count("\n"), source, flags=re.DOTALL)
    for number, line in enumerate(shown.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith("    "):
            yield Text(number, number, line)


def find_hits(file: str, source: str, rules: Iterable[Rule]) -> Iterator[Hit]:
    """Yield the hits in a file."""
    lines = source.splitlines()
    rules = tuple(rules)
    read = read_python if file.endswith(".py") else read_page
    for first, last, text in read(source):
        prose = _NO_PROSE.sub("`", text)
        for rule in rules:
            for match in rule.pattern.finditer(prose):
                start = match[0].split()[0]
                span = range(first, last + 1)
                exact = first + prose.count("\n", 0, match.start())
                places = [n for n in span if match[0] in lines[n - 1]]
                places += [n for n in span if n >= exact and start in lines[n - 1]]
                yield Hit(file, (places or [first])[0], rule, match[0])


def check(files: Mapping[str, str], rules: Iterable[Rule]) -> list[Hit]:
    """Return the hits in files, given by their names and texts."""
    rules = tuple(rules)
    return [hit for file, source in files.items() for hit in find_hits(file, source, rules)]


def read_files(paths: Iterable[str]) -> dict[str, str]:
    """Return the modules and pages below some paths; raises SystemExit for a missing path."""
    found: dict[str, str] = {}
    for name in paths:
        path = ROOT / name
        if not path.exists():
            raise SystemExit(f"{name}: not found (tool.fleet.prose.paths in pyproject.toml)")
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in (".py", ".md") and "_shipped" not in file.parts:
                found[str(file.relative_to(ROOT))] = file.read_text(encoding="utf-8")
    return found


def failures(hits: Iterable[Hit], limit: int | None) -> list[str]:
    """Return all errors, and the warnings if more than the limit; None: no limit."""
    errors = [str(hit) for hit in hits if hit.rule.is_error]
    warnings = [str(hit) for hit in hits if not hit.rule.is_error]
    print(f"prose: {len(errors)} errors, {len(warnings)} warnings (at most {limit})")
    if limit is None or len(warnings) <= limit:
        return errors
    return [*errors, *warnings, f"more than {limit} warnings (tool.fleet.prose in pyproject.toml)"]


def main() -> None:
    """Check the given paths, or those of pyproject.toml; exit with the failures."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    settings = project["tool"]["fleet"]["prose"]
    rules = load_rules((ROOT / "tools/prose.toml").read_text(encoding="utf-8"))
    given = sys.argv[1:]
    hits = check(read_files(given or settings["paths"]), rules)
    if given:
        print(*hits, sep="\n")
    if found := failures(hits, None if given else settings["warnings"]):
        sys.exit("\n".join(found) if not given else 1)


if __name__ == "__main__":
    main()
