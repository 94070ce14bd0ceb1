"""Draw a document as Markdown in which hostile text has no effect.

Names become code, because neither Markdown nor GitLab parses mentions, references, links, HTML or
formulas in code. In a sentence, every word that is not plain becomes code too. Text within
backticks or braces stays one piece: `a command`, {env: NAME}.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from fleet.report.document import (
    MAX_ROWS,
    Block,
    Cell,
    Column,
    ColumnKind,
    Fold,
    Form,
    Items,
    Line,
    Lines,
    Plots,
    Row,
    Section,
    Style,
    Table,
    Title,
    as_spans,
    is_empty,
    text_of,
)
from fleet.report.terminal import clean, shown

_MAX_OPEN_ROWS = 15
"""Maximum rows of a table or list that is not folded."""
_STRONG = (Style.BOLD, Style.RED)

_PLAIN_WORD = re.compile(
    r"""[("']*                          # may open a bracket or a quotation
        (?:[+-](?=\d+[.,]\d|\d+,?\Z))?   # the sign of an amount
        [^\W_]+(?:[-/.,'][^\W_]+)*      # letters and digits, joined by simple marks
        %?[)"']*[.,;:?)]*\Z             # may be a share, close a bracket, end a sentence
        |%\)?[.,;:]*\Z                 # a share sign that stands alone
        |\d\d:\d\d\)?[.,;]*\Z            # a time of day
    """,
    re.VERBOSE,
)
_PLAIN_MARKS = frozenset({"-", "…", "+", "=", "/", "→"})
_LINKED_WORD = re.compile(  # GitLab links these nevertheless: hosts, commits, foreign issues
    r"(?i:www\.)|(?i:[0-9a-f]{7,40})\b|[A-Z][A-Z0-9]+-[0-9]"
)
_MENTIONLESS_TAIL = re.compile(r"[.,;:]+\Z")
_OPENED_BEFORE = re.compile(r"([^()]+)(\)[.,;:]*)\Z")
_IN_BRACKETS = re.compile(r"\((.+)\)([.,;:]*)\Z")
_FOLDED = re.compile("^<details>", re.MULTILINE)
_UNFOLDED = re.compile("^</details>", re.MULTILINE)
_MOST_NESTED = 3
_CODE = re.compile(r"(`+) ?(.+?) ?(?<!`)\1(?!`)")
_PIECE = re.compile(
    r"""(?P<before>\(?)
        (?: `(?P<marked>[^`\s](?:[^`]*[^`\s])?)`          # `fleet explain pool x`
          | (?P<braced>\{(?:[^{}]|\{[^{}]*\})*\}) )       # {env: NAME}
        (?P<after>\)?[.,;:?]*) (?!\S)
        | (?P<word>\S+)
    """,
    re.VERBOSE,
)


def code(text: str) -> str:
    """Return a name as inline code that is safe in a table cell; empty for an empty name."""
    text = shown(text)
    if not text.strip():
        return ""
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    edge = " " if text[0] in "` " or text[-1] in "` " else ""
    # Tables are split at pipes before code is parsed, and an escaped pipe breaks after a
    # backslash. A similar character does not.
    text = text.replace("|", "\N{DIVIDES}")
    return f"{fence}{edge}{text}{edge}{fence}"


def sentence(text: str) -> str:
    """Return a sentence in which every word that Markdown would interpret is code."""
    line = " ".join(shown(text).split())
    return " ".join(_piece(match) for match in _PIECE.finditer(line))


def document_to_markdown(blocks: Iterable[Block], *, level: int = 3) -> str:
    """Return a document as Markdown; `level` is the heading level of its title."""
    return "\n\n".join(filter(None, _blocks(blocks, level, ""))) + "\n"


def _blocks(blocks: Iterable[Block], level: int, title: str) -> Iterator[str]:
    for block in blocks:
        if is_empty(block):
            continue
        match block:
            case Section(title=heading, blocks=parts):
                body = [*_blocks(parts, level, heading)]
                lengths = [
                    len(part.texts) if isinstance(part, Items) else len(part.select(Form.FULL)[1])
                    for part in parts
                    if isinstance(part, Items | Table)
                ]
                if max(lengths, default=0) > _MAX_OPEN_ROWS:
                    yield details(heading, "\n\n".join(body))
                else:
                    yield from ([f"{'#' * (level + 1)} {sentence(heading)}"] if heading else ())
                    yield from body
            case Fold(summary=summary, blocks=parts):
                yield details(summary, "\n\n".join(_blocks(parts, level, "")))
            case Title():
                yield from _title(block, level)
            case Items(texts=texts):
                items = [f"- {_spans(as_spans(text))}" for text in texts[:MAX_ROWS]]
                yield "\n".join([*items, *_rest(texts, "- ")])
            case Table():
                yield _table(block, title)
            case Plots():
                pass  # only a page has them
            case _:
                yield _spans(block)


def _title(title: Title, level: int) -> Iterator[str]:
    """Yield the heading `SUBJECT: RESULT` and the title; the title is the heading if alone."""
    first, result = (sentence(text_of(each)) for each in (title.line, title.result))
    if result:
        yield f"{'#' * level} {code(title.subject)}: {result}"
        yield first
    else:
        yield f"{'#' * level} {first}"
    yield from _blocks(title.notes, level, "")


def _rest(parts: Sequence[object], lead: str) -> list[str]:
    """Return a text that counts the omitted parts, in a list; empty if all parts are shown."""
    rest = len(parts) - MAX_ROWS
    return [f"{lead}… and {rest:,} more, all in the JSON"] if rest > 0 else []


def _table(table: Table, title: str) -> str:
    used, rows = table.select(Form.FULL)
    columns = [(nth, table.columns[nth]) for nth in used]
    shown_columns = [column for _, column in columns if column.kind is not ColumnKind.ID]
    names = [sentence(column.name or title) for column in shown_columns]
    cells = [_cells(row, columns) for row in _keep_rows(rows)]
    lines = [
        [f"{name[:1].upper()}{name[1:]}" for name in names],
        ["--:" if column.kind is ColumnKind.FIGURE else "---" for column in shown_columns],
        *cells,
        *([text, *[""] * (len(names) - 1)] for text in _rest(rows, "")),
    ]
    return "\n".join(f"| {clean(' | '.join(each))} |" for each in lines)


def _keep_rows(rows: Sequence[Row]) -> list[Row]:
    """Return at most `MAX_ROWS` rows, in order. Rows that a terminal also draws have priority."""
    ranks = sorted(range(len(rows)), key=lambda nth: rows[nth].form is Form.FULL)
    return [rows[nth] for nth in sorted(ranks[:MAX_ROWS])]


def _cells(row: Row, columns: Sequence[tuple[int, Column]]) -> list[str]:
    """Return the Markdown cells of a row. An id is appended to the previous cell."""
    found: list[str] = []
    for nth, column in columns:
        cell = row.cell(nth)
        if column.kind is ColumnKind.ID:
            id_ = f"({code(str(cell))})" if cell else ""
            found.append(" ".join(filter(None, (found.pop(), id_))))
        else:
            found.append(_cell(cell, column))
    return found


def _cell(cell: Cell, column: Column) -> str:
    if column.kind in (ColumnKind.NAME, ColumnKind.COMMAND, ColumnKind.GROUP):
        if isinstance(cell, str):
            return code(cell)
        if isinstance(cell, Lines):
            return ", ".join(code(text_of(as_spans(each))) for each in cell.lines)
        return _spans(as_spans(cell), code)
    return _spans(as_spans(cell))


def _strong(text: str) -> str:
    said = sentence(text)
    return f"**{said}**" if said else ""


def _spans(spans: Line, strong: Callable[[str], str] = _strong) -> str:
    """Return a line as Markdown; `strong` formats the bold and red texts."""
    found = ""
    for is_strong, run in groupby(spans, lambda span: span.style in _STRONG):
        text = "".join(span.text for span in run)
        if found and text.startswith((":", ";", ",")):
            found, text = found + text[0], text[1:]
        said = strong(text) if is_strong else sentence(text)
        meets = found.endswith("`") and said.startswith("`")  # else one long fence
        found += " " * (bool(found) and (text[:1].isspace() or meets)) + said
        found += " " * (bool(said) and text[-1:].isspace())
    return found.strip()


def details(summary: str, body: str) -> str:
    """Return a folded block. Its summary is HTML, because Markdown's code has no effect there."""
    text = _CODE.sub(r"<code>\2</code>", escape(sentence(summary), quote=False))
    return f"<details><summary>{text}</summary>\n\n{body}\n\n</details>"


def cut(text: str, most: int, note: str) -> str:
    """Return Markdown of at most `most` characters, cut between blocks, with `note` at the end.

    Folded blocks that the cut leaves open are closed.
    """
    if len(text) <= most:
        return text
    closing = "\n\n</details>"
    room = most - len(note) - 4 - _MOST_NESTED * len(closing)
    # Cut a single block that is too long between its lines: table rows or list items.
    end = max(text.rfind("\n\n", room // 2, room), -1)
    end = text.rfind("\n", 0, room) if end < 0 else end
    kept = text[: max(0, end)]
    is_open = len(_FOLDED.findall(kept)) - len(_UNFOLDED.findall(kept))
    return f"{kept}{closing * is_open}\n\n{note}\n"


def _piece(piece: re.Match[str]) -> str:
    if piece["word"]:
        return _word(piece["word"])
    return f"{piece['before']}{code(piece['marked'] or piece['braced'])}{piece['after']}"


def _word(word: str) -> str:
    if word == "->":
        return "→"
    if word in _PLAIN_MARKS or (_PLAIN_WORD.match(word) and not _LINKED_WORD.search(word)):
        return word
    if inner := _IN_BRACKETS.match(word):
        return f"({code(inner[1])}){inner[2]}"
    if closing := _OPENED_BEFORE.match(word):
        return code(closing[1]) + closing[2]
    tail = _MENTIONLESS_TAIL.search(word)
    if tail and tail.start():
        return code(word[: tail.start()]) + tail.group()
    return code(word)
