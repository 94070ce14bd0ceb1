"""Print lines and statements of the core and of the satellites; fail above their limits.

`tool.fleet.halves` in pyproject.toml has the limits, and the paths of each satellite below
`fleet/`. All other modules of `fleet/` are the core.
"""

import ast
import signal
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Size(NamedTuple):
    """Lines and statements (`ast.stmt`) of some modules."""

    lines: int = 0
    statements: int = 0

    def plus(self, other: "Size") -> "Size":
        """Return the sum of two sizes."""
        return Size(self.lines + other.lines, self.statements + other.statements)

    def exceeds(self, limit: "Size") -> bool:
        """Return whether one of both numbers is above its limit."""
        return self.lines > limit.lines or self.statements > limit.statements


def measure(text: str) -> Size:
    """Return the size of a module."""
    nodes = ast.walk(ast.parse(text))
    return Size(len(text.splitlines()), sum(isinstance(node, ast.stmt) for node in nodes))


def measure_halves(folder: Path, satellites: Mapping[str, list[str]]) -> dict[str, Size]:
    """Return the size of the core and of each satellite; raises SystemExit for a missing path."""
    paths = {path: name for name, paths in satellites.items() for path in paths}
    if absent := [path for path in paths if not (folder / path).exists()]:
        raise SystemExit(f"tool.fleet.halves.paths: missing paths: {', '.join(absent)}")
    sizes = dict.fromkeys(("core", *satellites), Size())
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).parts
        prefixes = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
        name = next((paths[each] for each in prefixes if each in paths), "core")
        sizes[name] = sizes[name].plus(measure(file.read_text(encoding="utf-8")))
    return sizes


def find_excess(sizes: Mapping[str, Size], limits: Mapping[str, Size]) -> Iterator[str]:
    """Yield a line for each half, and an error for each half above its limits."""
    of_satellites = [size for name, size in sizes.items() if name != "core"]
    halves = {
        "core": sizes["core"],
        "satellites": Size(*map(sum, zip(*of_satellites, strict=True))),
    }
    for name, size in halves.items():
        limit = limits[name]
        print(
            f"{name}: {size.lines:,} lines, {size.statements:,} statements"
            f" (at most {limit.lines:,} and {limit.statements:,})"
        )
        if name == "satellites":
            for each, part in sizes.items():
                if each != "core":
                    print(f"  {each}: {part.lines:,} lines, {part.statements:,} statements")
        if size.exceeds(limit):
            yield f"{name} exceeds its limits in pyproject.toml (tool.fleet.halves.{name})"


def main() -> None:
    """Print all sizes, and exit with the error of a half above its limits."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    halves = project["tool"]["fleet"]["halves"]
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end quietly if the reader has closed the pipe
    sizes = measure_halves(ROOT / "fleet", halves["paths"])
    limits = {name: Size(**halves[name]) for name in ("core", "satellites")}
    if errors := [*find_excess(sizes, limits)]:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
