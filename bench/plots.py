"""Draw a plot of measured points as an SVG file of its own, without a script."""

from collections.abc import Callable, Mapping, Sequence
from html import escape

from fleet.report.plots import nice_top

Points = Sequence[tuple[float, float]]
_WIDTH, _HEIGHT = 640, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 20, 34, 58
_LETTER, _LINE, _AWAY = 6.2, 14, 12
"""Units that a letter takes, across and up, and those between a point and its name."""
_STROKES = (("#1f5fa8", ""), ("#b3431e", "6 3"), ("#3c7a2f", "2 3"), ("#6b4a9c", "8 3 2 3"))
_STYLE = "text{font:12px sans-serif;fill:#222}.g{stroke:#ddd}.l{fill:none;stroke-width:2}"


def lines(title: str, axes: tuple[str, str], rows: Mapping[str, Points]) -> str:
    """Return lines over what grows; both axes begin at 0; `axes` say what, with its unit."""
    place, parts = _frame(title, axes, [point for points in rows.values() for point in points])
    for (colour, dashes), (name, points), at in zip(
        _STROKES, rows.items(), range(4), strict=False
    ):
        path = "M" + "L".join("{} {}".format(*place(*point)) for point in sorted(points))
        stroke = f'stroke="{colour}" stroke-dasharray="{dashes}"'
        parts.append(f'<path class="l" d="{path}" {stroke}/>')
        for x, y in (place(*point) for point in points):
            parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
        x, y = _LEFT + 190 * at, _HEIGHT - 10
        parts.append(f'<path class="l" d="M{x} {y - 4}h24" {stroke}/>')
        parts.append(f'<text x="{x + 30}" y="{y}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def marks(title: str, axes: tuple[str, str], points: Mapping[str, tuple[float, float]]) -> str:
    """Return points with their names, each above what it would stand on."""
    place, parts = _frame(title, axes, [*points.values()])
    taken = [(x - 5, x + 5, y) for x, y in (place(*point) for point in points.values())]
    for name, point in sorted(points.items(), key=lambda each: (each[1][1], each[0])):
        x, y = place(*point)
        width = _LETTER * len(name)
        left = x + _AWAY if x + _AWAY + width < _WIDTH else x - _AWAY - width
        at = y
        while any(
            left < right and other < left + width and abs(at - below) < _LINE
            for other, right, below in taken
        ):
            at -= 1
        taken.append((left, left + width, at))
        near = left if left > x else left + width
        parts.append(f'<path stroke="#888" d="M{x} {y}L{near:.1f} {at:.1f}"/>')
        parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{_STROKES[0][0]}"/>')
        parts.append(f'<text x="{left:.1f}" y="{at + 4:.1f}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


Place = Callable[[float, float], tuple[float, float]]


def _frame(title: str, axes: tuple[str, str], every: Points) -> tuple[Place, list[str]]:
    """Return where a point lies in a plot with both axes from 0, and the first of its lines."""
    right = nice_top(max(x for x, _ in every))
    top = nice_top(max(y for _, y in every))

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = (_WIDTH - _LEFT - _RIGHT) * x / right, (_HEIGHT - _TOP - _BOTTOM) * y / top
        return round(_LEFT + across, 1), round(_HEIGHT - _BOTTOM - up, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{_LEFT}" y="18" font-weight="bold">{escape(title)} ({escape(axes[1])})</text>',
    ]
    for nth in range(5):
        (x, _), (_, y) = place(right * nth / 4, 0), place(0, top * nth / 4)
        parts.append(f'<path class="g" d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{top * nth / 4:g}</text>'
        )
        base = _HEIGHT - _BOTTOM + 16
        parts.append(f'<text x="{x}" y="{base}" text-anchor="middle">{right * nth / 4:,g}</text>')
    middle = (_WIDTH + _LEFT - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 27}" text-anchor="middle">{axes[0]}</text>')
    return place, parts
