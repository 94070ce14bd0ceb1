"""Make docs/benchmark.md and its plots of a result of `bench.public`, and of nothing else."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.plots import Points, lines

Result = dict[str, Any]
"""What `bench.public` saves."""
Row = Mapping[str, Any]
_FOR_ALL = "requests", "signatures", "pools", "workers", "seed"


def write(result: Result, folder: Path) -> None:
    """Write result, plots and page into a folder."""
    place = folder / "benchmark"
    place.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result, indent=1) + "\n"
    for name, content in {"benchmark/result.json": text, **files(result)}.items():
        (folder / name).write_text(content, encoding="utf-8")


def files(result: Result) -> dict[str, str]:
    """Return the page and its plots, by where they lie in the folder."""
    drawn = dict(plots(result))
    return {f"benchmark/{name}.svg": svg for name, svg in drawn.items()} | {
        "benchmark.md": page(result, list(drawn))
    }


def points(result: Result) -> list[tuple[str, Row]]:
    """Return what must hold, each with the measurement it is of."""
    return [(name, each) for name, told in result["reports"].items() for each in told["points"]]


def missed(result: Result) -> list[str]:
    """Return the points that are missed."""
    return [each["name"] for _, each in points(result) if not each["holds"]]


def _point(name: str, point: Row) -> tuple[str, ...]:
    value, holds = point["value"], "holds" if point["holds"] else "**missed**"
    return (
        f"`{name}`",
        point["name"],
        point["must"],
        f"{value:,.3f}".rstrip("0").rstrip("."),
        holds,
    )


def _rows(result: Result, name: str) -> list[Row]:
    rows: list[Row] = result["reports"].get(name, {}).get("rows", [])
    return rows


def _series(result: Result, of: str) -> list[Row]:
    """Return the decisions that differ from the greatest in one size only, ascending in it."""
    rows = [row for row in _rows(result, "reconcile") if not row["limited"]]
    if not rows:
        return []
    great = max(rows, key=lambda row: tuple(row[name] for name in _FOR_ALL[:3]))
    same = [name for name in _FOR_ALL if name != of]
    alike = [row for row in rows if all(row[name] == great[name] for name in same)]
    return sorted(alike, key=lambda row: int(row[of]))


def plots(result: Result) -> Iterator[tuple[str, str]]:
    """Yield names and pictures of what there are points for."""
    for of in _FOR_ALL[:3]:
        for what, key in (("seconds", "worked_s"), ("memory", "peak_mib")):
            unit = "s" if what == "seconds" else "MiB"
            title = (
                "Processor time of a decision" if what == "seconds" else "Memory of the process"
            )
            rows = [row for row in _series(result, of) if "seconds" in row and key in row]
            if len(rows) > 1:
                told = {"fleet": [(row[of], row[key]) for row in rows]}
                yield f"{what}-by-{of}", lines(title, (of, unit), told)
    gaps = {
        "limits" if limited else "no limits": [
            (nth, 100 * (row["over_bound"] - 1))
            for nth, row in enumerate(_rows(result, "reconcile"), 1)
            if row["limited"] is limited and "over_bound" in row
        ]
        for limited in (False, True)
    }
    if all(gaps.values()):
        axes = ("row of the table of decisions", "%")
        yield "gap-to-the-bound", lines("Cost over the proven bound", axes, gaps)
    rows = [row for row in _rows(result, "karpenter") if not row["alone"]]
    who = {name: _solved(rows, key) for name, key in (("fleet", "ours"), ("Karpenter", "theirs"))}
    drawn = {name: found for name, found in who.items() if found}
    if len(drawn) == len(who):
        yield "karpenter", lines("400 machine types, time", ("requests", "s"), drawn)


def _solved(rows: list[Row], key: str) -> Points:
    return [(row["requests"], row[key]["seconds"]) for row in rows if "seconds" in row[key]]


def page(result: Result, drawn: list[str]) -> str:
    """Return the text of the page."""
    whole = result["size"] == "whole"
    absent = [f"`{name}` was not measured: {why}." for name, why in result["absent"].items()]
    return _PAGE.format(
        size="This run measured everything" if whole else "A trial run without points",
        began=result["began"].removesuffix("+00:00"),
        machine=result["machine"],
        load=result["load"],
        note="\n" + "\n".join([*absent, *filter(None, [result.get("note")])]) + "\n",
        versions=", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        points=_table(
            ("`python -m bench`", "work", "must", "measured", ""),
            [_point(*each) for each in points(result)],
        ),
        plots="\n\n".join(f"![{name.replace('-', ' ')}](benchmark/{name}.svg)" for name in drawn),
        decisions=_table(
            ("row", *_FOR_ALL, "limits", "cpu s", "MiB", "machines", "over bound",
             "over best known", "short", "lost", "may lack"),
            [(f"{nth}", *_decision(row)) for nth, row in enumerate(_rows(result, "reconcile"), 1)],
        ),
        karpenter=_table(
            ("pods", "each alone", "fleet s", "Karpenter s", "fleet per h", "Karpenter per h",
             "fleet MiB", "Karpenter MiB", "fleet machines", "Karpenter nodes"),
            [_pods(row) for row in _rows(result, "karpenter")],
        ),
        others="\n\n".join(
            _other(name, told) for name, told in result["reports"].items() if not told["rows"]
        ),
    )  # fmt: skip


def _decision(row: Row) -> tuple[str, ...]:
    sizes = (*(f"{row[name]:,}" for name in _FOR_ALL), "yes" if row["limited"] else "no")
    if "seconds" not in row:
        return (*sizes, f"> {row['limit_s']:.0f}", *["–"] * 7)
    return (
        *sizes,
        f"{row['worked_s']:.2f}",
        f"{row['peak_mib']:,.0f}" if "peak_mib" in row else "–",
        f"{row['machines']:,}",
        f"{row['over_bound']:.4f}" if "over_bound" in row else "–",
        f"{row['over_best']:.4f}" if "over_best" in row else "–",
        *(f"{row[name]:,}" if name in row else "–" for name in ("short", "lost", "may_lack")),
    )


def _pods(row: Row) -> tuple[str, ...]:
    both = (row["ours"], row["theirs"])
    cells = [
        f"{side[key]:,.{digits}f}" if key in side else "–"
        for key, digits in (("seconds", 2), ("hourly", 0), ("peak_mib", 0), ("machines", 0))
        for side in both
    ]
    return (f"{row['requests']:,}", "yes" if row["alone"] else "no", *cells)


def _other(name: str, told: Row) -> str:
    every = told["figures"] | told["ratios"]
    rows = [(f"`{key}`", f"{value:,.3f}") for key, value in every.items()]
    return f"### `python -m bench {name}`\n\n" + _table(("figure", "value"), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    every = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "/").replace("\n", " ") for c in row) + " |"
        for row in every
    )


_PAGE = Path(__file__).with_name("public_page.txt").read_text(encoding="utf-8")
