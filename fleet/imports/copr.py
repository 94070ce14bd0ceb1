"""This module turns the allow-list of Copr's frontend into `powerful`.

It reads EXTRA_BUILDCHROOT_TAGS (a list of {pattern, tags}) and EXTRA_BUILDER_TAGS (tag to list of
patterns) as literals; nothing of the file is ever executed.
"""

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from fleet.errors import FileUnreadable
from fleet.imports.changes import Change, Imported, Notes, decoded, read_plain
from fleet.imports.copr_limits import import_limits, is_backend
from fleet.imports.jinja import is_filled_in, without_jinja
from fleet.imports.prefixes import (
    NeverMatches,
    NotTakenOver,
    is_ascii_only,
    whole,
    widened,
)
from fleet.imports.writing import Block, comments, document, flow, item_to_lines, scalar
from fleet.schema.base import TAG_PATTERN
from fleet.schema.findings import Span
from fleet.schema.units import follows
from fleet.tagrules.allow import compile_pattern
from fleet.tagrules.names import Recorded

LIST, TABLE = "EXTRA_BUILDCHROOT_TAGS", "EXTRA_BUILDER_TAGS"
_TOO_DEEP = (RecursionError, MemoryError)
_LONGEST_REASON = 1000
_LONGEST_ABOVE = 300
"""Characters of a comment above a rule; what is longer is about more than the rule."""
_CODE = re.compile(r"""[][{}(),]|["'](?:pattern|tags)["']""")
_Comments = Mapping[int, tuple[int, str]]


@dataclass(frozen=True)
class Rule:
    """One rule as it is written."""

    pattern: str
    tags: tuple[str, ...]
    place: Span
    reason: str


def import_copr(
    name: str, content: bytes, fleet: str, recorded: Recorded | None = None
) -> Imported:
    """Return the fleet.yaml that a configuration of Copr becomes."""
    text, wrong = decoded(name, content)
    written = read_plain(name, text or "")
    if text is None:
        return Imported(written, findings=(wrong,) if wrong else ())
    notes = Notes()
    text = without_jinja(name, text, notes)
    if is_backend(text):
        return import_limits(written, text, fleet, notes)
    rules = [rule for rule in _rules(name, text, notes) if not _is_filled_in(rule, notes)]
    if notes.findings:
        return Imported(written, findings=tuple(notes.findings))
    blocks = [block for rule in rules for block in _block(rule, notes)]
    changes = notes.sorted_changes()
    if recorded is not None:
        changes = tuple(_with_names(change, rules, recorded) for change in changes)
    return Imported(written, document(_lines(name, fleet, rules, blocks)), changes)


def read_list(name: str, content: bytes) -> tuple[Rule, ...]:
    """Return the rules of a configuration; raises FileUnreadable where they are no literals."""
    text, wrong = decoded(name, content)
    notes = Notes()
    rules = tuple(_rules(name, text or "", notes)) if wrong is None else ()
    for finding in (wrong, *notes.findings):
        if finding is not None:
            raise FileUnreadable(f"{finding.span}: {finding.message}")
    return rules


def find_list(text: str) -> tuple[int, int] | None:
    """Return the first and the last line of the list, counted from 1; None where it is not set."""
    for statement in ast.parse(text).body:
        if LIST in _assigned(statement):
            return statement.lineno, statement.end_lineno or statement.lineno
    return None


def _rules(name: str, text: str, notes: Notes) -> Iterator[Rule]:
    tree = _tree(name, text, notes)
    if tree is None:
        return
    found = False
    written = _comments(text)
    for statement in tree.body:
        for option in _assigned(statement):
            found = True
            reader = _Reader(name, text, notes, written)
            value = getattr(statement, "value", None)
            yield from reader.rules(value) if option == LIST else reader.table(value)
    for node in ast.walk(tree):
        if node not in tree.body and isinstance(node, ast.stmt) and [*_assigned(node)]:
            reader = _Reader(name, text, notes, written)
            reader.refuse(node, "it is set inside a block, so what it becomes is not written here")
            found = True
    if not found:
        message = f"neither {LIST} nor {TABLE} is set in this file"
        notes.wrong(Span(name), "missing-key", message, "name the configuration of the frontend")


def _tree(name: str, text: str, notes: Notes) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        place = Span(name, line, column, line, column + 1)
        notes.wrong(place, "invalid-python", error.msg, "is this the right file?")
    except (ValueError, *_TOO_DEEP):
        notes.wrong(Span(name), "too-complex", "this is nested too deep to be a configuration")
    return None


def _assigned(statement: ast.stmt) -> Iterator[str]:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        targets = [statement.target]
    for target in targets:
        if isinstance(target, ast.Name) and target.id in (LIST, TABLE):
            yield target.id


class _Reader:
    """Reads literals, and says of anything else where it stands."""

    def __init__(self, name: str, text: str, notes: Notes, written: _Comments) -> None:
        self._name = name
        self._lines = text.splitlines()
        self._notes = notes
        self._comments = written

    def rules(self, value: ast.expr | None) -> Iterator[Rule]:
        """Yield the rules of a list of {pattern, tags}."""
        for item in self._items(value, "a list of {pattern, tags}"):
            entries = self._entries(item)
            if entries is None:
                continue
            for key in sorted(entries.keys() - {"pattern", "tags"}):
                self.refuse(entries[key], f"'{key}' is not known: expected pattern and tags")
            if not {"pattern", "tags"} <= entries.keys():
                self.refuse(item, "expected {pattern, tags}")
                continue
            pattern = self._text(entries["pattern"])
            tags = [self._tag(tag) for tag in self._items(entries["tags"], "a list of tags")]
            if pattern is not None and tags and None not in tags:
                known = tuple(tag for tag in tags if tag)
                yield Rule(pattern, known, self.span(entries["pattern"]), self._reason(item))
            elif not tags:
                self.refuse(entries["tags"], "expected at least one tag")

    def table(self, value: ast.expr | None) -> Iterator[Rule]:
        """Yield the rules of a mapping from a tag to its patterns."""
        entries = self._entries(value)
        for key, patterns in (entries or {}).items():
            tag = self._tag(ast.copy_location(ast.Constant(key), patterns))
            for item in self._items(patterns, "a list of patterns"):
                pattern = self._text(item)
                if pattern is not None and tag is not None:
                    yield Rule(pattern, (tag,), self.span(item), self._reason(item))

    def refuse(self, node: ast.AST | None, message: str) -> None:
        """Say what is wrong at a place."""
        hint = "write literals: lists, mappings and text in quotes"
        self._notes.wrong(self.span(node), "not-a-literal", message, hint)

    def span(self, node: ast.AST | None) -> Span:
        """Return the characters of a node; Python counts columns in bytes."""
        line, end = getattr(node, "lineno", 1), getattr(node, "end_lineno", 1)
        start = self._column(line, getattr(node, "col_offset", 0))
        stop = self._column(end, getattr(node, "end_col_offset", 0))
        return Span(self._name, line, start, end, stop)

    def _column(self, line: int, offset: int) -> int:
        written = self._lines[line - 1] if line <= len(self._lines) else ""
        return len(written.encode()[:offset].decode("utf-8", "ignore")) + 1

    def _items(self, node: ast.expr | None, what: str) -> list[ast.expr]:
        if isinstance(node, ast.List | ast.Tuple):
            return node.elts
        self.refuse(node, f"expected {what}")
        return []

    def _entries(self, node: ast.expr | None) -> dict[str, ast.expr] | None:
        if not isinstance(node, ast.Dict):
            self.refuse(node, "expected a mapping")
            return None
        found = {}
        for key, value in zip(node.keys, node.values, strict=True):
            word = self._text(key or value)
            if word is not None:
                found[word] = value
        return found

    def _text(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        self.refuse(node, "expected a text in quotes")
        return None

    def _tag(self, node: ast.expr) -> str | None:
        text = self._text(node)
        if text is None or "{{" in text or follows(TAG_PATTERN, text):
            return text
        self.refuse(node, f"expected a tag without spaces, got {text!r}")
        return None

    def _reason(self, node: ast.expr) -> str:
        """Return the comments in a rule, behind it, or else right above: why it is there."""
        place = self.span(node)
        said = [
            text
            for number in range(place.line, place.end_line + 1)
            for column, text in filter(None, [self._comments.get(number)])
            if self._is_of(place, number, column)
        ]
        return " ".join(filter(None, said))[:_LONGEST_REASON] or self._above(node.lineno)

    def _is_of(self, place: Span, number: int, column: int) -> bool:
        if number < place.end_line or column < place.end_column:
            return (number, column) > (place.line, place.column)
        between = self._lines[number - 1][place.end_column - 1 : column - 1]
        return not between.strip(" \t,]})")

    def _above(self, first: int) -> str:
        """Return the last paragraph of the comment above a line, unless it is a long one."""
        said: list[str] = []
        for line in reversed(self._lines[: first - 1]):
            text = line.strip().lstrip("# ")
            if not line.strip().startswith("#") or not text or _CODE.match(text):
                break
            said.insert(0, text)
        reason = " ".join(said)
        if len(reason) <= _LONGEST_ABOVE:
            return reason
        now = f"longer than {_LONGEST_ABOVE} characters, so it is not taken for the rule's reason"
        place = Span(self._name, first - len(said), 1, first - 1, len(self._lines[first - 2]) + 1)
        self._notes.change("no-equivalent", place, f"a comment of {len(reason)} characters", now)
        return ""


def _comments(text: str) -> _Comments:
    """Return column and text of the comment of each line that has one, counted from 1."""
    found = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                said = token.string.lstrip("# ").rstrip()
                found[token.start[0]] = token.start[1] + 1, "" if _CODE.match(said) else said
    except (tokenize.TokenError, SyntaxError):
        return found
    return found


def _is_filled_in(rule: Rule, notes: Notes) -> bool:
    return is_filled_in(
        f"{rule.pattern} for {', '.join(rule.tags)}", rule.place, "pattern ", notes
    )


def _block(rule: Rule, notes: Notes) -> Iterator[Block]:
    try:
        wide = widened(rule.pattern)
    except NeverMatches as reason:
        now = f"Python does not take it ({reason}), so Copr skips this rule"
        notes.change("never-acts", rule.place, f"pattern {rule.pattern}", now)
        yield Block(above=[f"never acted: {rule.pattern} for {', '.join(rule.tags)}"])
        return
    except NotTakenOver as reason:
        notes.change("no-equivalent", rule.place, f"pattern {rule.pattern}", str(reason))
        yield Block(above=[f"no equivalent: {rule.pattern} for {', '.join(rule.tags)}"])
        return
    if wide != rule.pattern:
        now = f"a full match on {wide} takes the same names as the prefix match there"
        notes.change("changed", rule.place, f"pattern {rule.pattern}", now)
    if is_ascii_only(rule.pattern):
        now = r"\d, \w, \s, \b and (?i) are about ASCII letters only"
        notes.change("changed", rule.place, f"classes of pattern {rule.pattern}", now)
    entries: list[tuple[str, object]] = [("match", wide), ("ask", list(dict.fromkeys(rule.tags)))]
    if rule.reason:
        entries.append(("reason", rule.reason))
    yield Block(entries)


def _with_names(change: Change, rules: list[Rule], recorded: Recorded) -> Change:
    """Return a change with the recorded names that only the prefix match took."""
    rule = next((each for each in rules if each.place == change.place), None)
    if rule is None or change.what != f"pattern {rule.pattern}" or change.kind != "changed":
        return change
    wide, exact = compile_pattern(widened(rule.pattern)), compile_pattern(whole(rule.pattern))
    only = [n for n in recorded.names if wide.takes(n) and not exact.takes(n)]
    if not only:
        return change
    now = f"{change.now}; only the prefix took"
    return replace(change, now=now, names=tuple(only))


def _lines(name: str, fleet: str, rules: list[Rule], blocks: list[Block]) -> Iterator[str]:
    yield from comments([f"Written by `fleet import copr` from {name}: read it before use."])
    yield f"fleet: {scalar(fleet)}"
    tags = sorted({tag for rule in rules for tag in rule.tags})
    if tags:
        yield ""
        why = "users of Copr cannot ask for these: its allow-list, tickets and admins do"
        yield from comments([why])
        yield "tags:"
        asked_by = flow({"asked_by": ["rules", "system", "tickets"]})
        yield from (f"  {scalar(tag)}: {asked_by}" for tag in tags)
    yield ""
    written = [block for block in blocks if block.entries]
    yield "powerful:" if written else "powerful: []"
    for block in blocks:
        yield from item_to_lines(block) if block.entries else comments(block.above, 2)
