"""Make docs/benchmark.md and its plots of a result of `bench.public`, and of nothing else."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.plots import Points, lines

Result = dict[str, Any]
"""What `bench.public.Run` saves."""
Row = Mapping[str, Any]
LEAST_PAIRS = 1_500
_ENDED = "did not end within {:.0f} s"
_FOR_ALL = "requests", "signatures", "pools", "workers", "seed"


class Point(NamedTuple):
    """A figure that must hold."""

    name: str
    work: str
    must: str
    measured: str
    holds: bool | None
    """None: it was not measured, or not at this size."""


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


def points(result: Result) -> list[Point]:
    """Return what must hold, and whether it does."""
    found = [*_beside(result), *_commands(result), _growth(result), *_bounds(result)]
    if result["size"] == "whole":
        return found
    # A tenth of the work holds nothing, whatever it takes.
    return [
        point._replace(holds=None) if point.name not in {"bound-small", "ranks"} else point
        for point in found
    ]


def _beside(result: Result) -> Iterator[Point]:
    rows = [row for row in result["karpenter"] if not row["alone"]]
    row = max(rows, key=lambda row: int(row["requests"]), default=None)
    measured, holds = _absent(result, "karpenter"), None
    if row is not None:
        measured, holds = _times(row["ours"], row["theirs"], 10)
        for each in (row, *(row for row in result["karpenter"] if row["alone"])):
            ours, theirs = (each[side].get("hourly") for side in ("ours", "theirs"))
            is_known = ours is not None and theirs is not None
            if is_known:
                measured += "; each pod alone" if each["alone"] else "; packed"
                measured += f" {ours:,.0f} against {theirs:,.0f} per h"
            if each["alone"]:
                holds = holds and is_known and ours <= theirs * (1 + 1e-9)
    work = "decide 20,000 requests × 400 machine types"
    must = "10 × faster than Karpenter's generic case; no higher cost per hour, each pod alone"
    yield Point("karpenter", work, must, measured, holds)
    for name, other, work, must, least in (
        (
            "create_new_workers",
            "debusine",
            "decide 100,000 requests × 100 pools, read from a real Debusine database",
            "20 × faster than `create_new_workers`",
            20,
        ),
        (
            "resalloc_pass",
            "tickets",
            "one pass over 5,000 tickets × 400 machines",
            "100 × faster than Resalloc (here: the stand-in for it)",
            100,
        ),
    ):
        told = result["others"].get(other)
        times = told and told[f"vs_{name}"]
        measured = f"{times:,.1f} ×" if told else _absent(result, other)
        yield Point(name, work, must, measured, times >= least if told else None)


def _commands(result: Result) -> Iterator[Point]:
    for kind, work, must, seconds, mib in (
        ("unlimited", "`fleet plan` from files, {}, whole command", "5 s, 700 MiB", 5, 700),
        ("limited", "the same with a budget and a limit on each pool", "30 s", 30, None),
    ):
        told = result["command"].get(kind, {})
        measured, holds = "not measured", None
        if "whole_s" in told:
            peak = told.get("peak_mib", 0)
            measured = f"{told['whole_s']:.1f} s, {f'{peak:,.0f}' if peak else '–'} MiB"
            measured += f" ({told['worked_s']:.1f} s of processor)"
            holds = told["whole_s"] <= seconds and (mib is None or 0 < peak <= mib)
        elif told:
            measured, holds = _ENDED.format(told["limit_s"]), False
        size = "100,000 requests in 8,000 signatures × 400 pools"
        yield Point(f"plan-{kind}", work.format(size), must, measured, holds)


def _growth(result: Result) -> Point:
    rows = [row for row in _series(result, "requests") if "seconds" in row]
    measured, holds = "not measured", None
    if len(rows) > 1 and rows[-1]["requests"] == 10 * rows[0]["requests"]:
        times = rows[-1]["worked_s"] / rows[0]["worked_s"]
        measured, holds = f"{times:.2f} ×", times <= 1.5  # noqa: PLR2004 - the point
    work = "growth from 10,000 to 100,000 requests of the same signatures"
    return Point("growth", work, "1.5 ×", measured, holds)


def _bounds(result: Result) -> Iterator[Point]:
    rows = result["decisions"]
    small = [row for row in rows if row["signatures"] * row["pools"] <= LEAST_PAIRS]
    over = [row["over_bound"] for row in small if "over_bound" in row]
    late = [row for row in small if "limit_s" in row]
    measured = f"at most {max(over):.4f}" if over else "not measured"
    measured += f"; {len(late)} of {len(small)} did not end" if late else ""
    # Above this size the bound is often out of reach of integer machines: it is printed only.
    work = f"cost over the proven bound, at most {LEAST_PAIRS:,} pairs"
    holds = round(max(over), 3) <= 1 and not late if over else None
    yield Point("bound-small", work, "1.000", measured, holds)
    ended = [row for row in rows if "lost" in row]
    unended = len(rows) - len(ended)
    lost = sum(row["lost"] for row in ended)
    measured = f"{lost:,} in {len(ended)} worlds" + (f"; {unended} did not end" if unended else "")
    work = "no request waits that would fit if only later ranks gave way, at any size"
    yield Point(
        "ranks", work, "0 requests", measured, lost == 0 and not unended if ended else None
    )


def _times(ours: Row, theirs: Row, least: float) -> tuple[str, bool | None]:
    """Return how many times faster ours are, and whether that is enough."""
    if "seconds" not in ours:
        return "ours " + (_ENDED.format(ours["limit_s"]) if ours else "not measured"), bool(
            ours
        ) and False
    if "seconds" not in theirs:
        times = theirs["limit_s"] / ours["seconds"]
        return (
            f"more than {times:,.1f} × (theirs {_ENDED.format(theirs['limit_s'])})",
            times >= least,
        )
    times = theirs["seconds"] / ours["seconds"]
    return f"{times:,.1f} × ({ours['seconds']:.2f} s, {theirs['seconds']:.2f} s)", times >= least


def _absent(result: Result, name: str) -> str:
    reason = result["absent"].get(name)
    return f"not measured on this machine: {reason}" if reason else "not measured"


def _series(result: Result, of: str) -> list[Row]:
    """Return the decisions that differ from the greatest in one size only, ascending in it."""
    rows = [row for row in result["decisions"] if not row["limited"]]
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
    rows = [row for row in result["karpenter"] if not row["alone"]]
    who = {name: _solved(rows, key) for name, key in (("fleet", "ours"), ("Karpenter", "theirs"))}
    drawn = {name: found for name, found in who.items() if found}
    if len(drawn) == len(who):
        yield "karpenter", lines("400 machine types, time", ("requests", "s"), drawn)


def _solved(rows: list[Row], key: str) -> Points:
    return [(row["requests"], row[key]["seconds"]) for row in rows if "seconds" in row[key]]


def page(result: Result, drawn: list[str]) -> str:
    """Return the text of the page."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    whole = result["size"] == "whole"
    return _PAGE.format(
        size="The whole run" if whole else "A quick run, at a tenth of the sizes: no verdicts",
        began=result["began"],
        machine=result["machine"],
        load=result["load"],
        at_once=" Two measurements ran at a time." if result.get("at_once") else "",
        note="\n" + result["note"] + "\n" if "note" in result else "",
        versions=versions,
        points=_table(
            ("work", "must", "measured", ""),
            [(p.work, p.must, p.measured, verdict(p)) for p in points(result)],
        ),
        plots="\n\n".join(f"![{name.replace('-', ' ')}](benchmark/{name}.svg)" for name in drawn),
        decisions=_table(
            (*_FOR_ALL, "limits", "s", "cpu s", "MiB", "machines", "over bound", "lost",
             "may lack"),
            [_decision(row) for row in result["decisions"]],
        ),
        karpenter=_table(
            ("pods", "each alone", "fleet s", "Karpenter s", "fleet per h", "Karpenter per h",
             "fleet MiB", "Karpenter MiB", "fleet machines", "Karpenter nodes"),
            [_pods(row) for row in result["karpenter"]],
        ) if result["karpenter"] else _absent(result, "karpenter").capitalize() + ".",
        others="\n\n".join(_other(result, name) for name in ("debusine", "tickets")),
    )  # fmt: skip


def verdict(point: Point) -> str:
    """Return the word for whether a point holds."""
    return {True: "holds", False: "**missed**", None: "no verdict"}[point.holds]


def _decision(row: Row) -> tuple[str, ...]:
    sizes = (*(f"{row[name]:,}" for name in _FOR_ALL), "yes" if row["limited"] else "no")
    if "seconds" not in row:
        return (*sizes, f"> {row['limit_s']:.0f}", *["–"] * 6)
    over = f"{row['over_bound']:.4f}" if "over_bound" in row else "–"
    figures = (
        f"{row['seconds']:.2f}",
        f"{row['worked_s']:.2f}",
        f"{row['peak_mib']:,.0f}" if "peak_mib" in row else "–",
        f"{row['machines']:,}",
    )
    return (*sizes, *figures, over, f"{row['lost']:,}", f"{row['may_lack']:,}")


def _pods(row: Row) -> tuple[str, ...]:
    both = (row["ours"], row["theirs"])
    cells = [
        f"{side[key]:,.{digits}f}" if key in side else "–"
        for key, digits in (("seconds", 2), ("hourly", 0), ("peak_mib", 0), ("machines", 0))
        for side in both
    ]
    return (f"{row['requests']:,}", "yes" if row["alone"] else "no", *cells)


def _other(result: Result, name: str) -> str:
    heading = f"### `python -m bench {name}`\n\n"
    if name not in result["others"]:
        return heading + _absent(result, name).capitalize() + "."
    rows = [(f"`{key}`", f"{value:,.3f}") for key, value in result["others"][name].items()]
    return heading + _table(("figure", "value"), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    every = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "/").replace("\n", " ") for c in row) + " |"
        for row in every
    )


_PAGE = Path(__file__).with_name("public_page.txt").read_text(encoding="utf-8")
