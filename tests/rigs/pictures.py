"""Draw a terminal's coloured text as SVG, columns aligned in whatever font a reader has."""

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape

_COLUMN, _LINE, _MARGIN = 8, 19, 16
"""Pixels."""
_STYLED = re.compile(r"\x1b\[([0-9;]*)m")
_STYLES = {
    "1": 'font-weight="bold"',
    "2": 'fill="#8b949e"',
    "31": 'fill="#ff7b72"',
    "32": 'fill="#56d364"',
    "33": 'fill="#e3b341"',
    "36": 'fill="#76e3ea"',
}


def terminal_to_svg(text: str, title: str) -> str:
    """Return a picture of what a terminal shows; `title` is for those who cannot see it."""
    lines = text.splitlines()
    columns = max(len(_STYLED.sub("", line)) for line in lines)
    width, height = 2 * _MARGIN + columns * _COLUMN, 2 * _MARGIN + len(lines) * _LINE
    drawn = [each for nth, line in enumerate(lines) for each in _drawn(line, nth)]
    size = f'width="{width}" height="{height}"'
    font = "ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
        f'viewBox="0 0 {width} {height}" {size}>\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect {size} rx="8" fill="#0d1117"/>\n'
        f'<g font-family="{font}" font-size="13" fill="#e6edf3" xml:space="preserve">\n'
        + "".join(f"{each}\n" for each in drawn)
        + "</g>\n</svg>\n"
    )


def _drawn(line: str, nth: int) -> Iterator[str]:
    """Yield the words of a line, each where its column is."""
    y = _MARGIN + nth * _LINE + 14
    column, style = 0, ""
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if found := _STYLED.fullmatch(part):
            style = "".join(f" {_STYLES[each]}" for each in found[1].split(";") if each in _STYLES)
            continue
        for words in re.finditer(r"\S+(?: \S+)*", part):
            x = _MARGIN + (column + words.start()) * _COLUMN
            room = len(words[0]) * _COLUMN
            yield f'<text x="{x}" y="{y}" textLength="{room}"{style}>{escape(words[0])}</text>'
        column += len(part)
