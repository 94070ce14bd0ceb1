"""Render the effect of a change of fleet.yaml: the same rows as text and as Markdown."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import groupby
from typing import NamedTuple

from fleet.explain.changes import (
    ActionsChange,
    Changes,
    Comparison,
    Difference,
    GuardChange,
    ImageChange,
    OutdatedChange,
    PoolChange,
    RequestsChange,
    Verdict,
)
from fleet.explain.config_changes import ConfigChange
from fleet.model.facts import Unknown
from fleet.report import words
from fleet.report.builds import builds_blocks, builds_lines, describe_moved
from fleet.report.markdown import code, sentence, table
from fleet.report.sensitive import rule_facts, sensitive_edit
from fleet.report.terminal import Line, Span, Style, line, title
from fleet.schema.findings import some_of, yaml_key
from fleet.schema.units import write_duration

_MOST_ROWS = 40
_NAMES = {"max": "max", "type": "machine type"}
_GUARDS = {"refused": "refuses", "throttled": "throttles"}


class _Row(NamedTuple):
    """One effect of the change: place, kind and reason."""

    where: str
    name: str
    mark: str
    what: str
    why: str
    id: str = ""


def comparison_sections(
    change: Comparison, included: Mapping[str, str]
) -> Iterator[Iterator[Line]]:
    """Yield sections of lines about the effect of a change."""
    yield _verdict(change)
    if isinstance(change, Changes):
        yield _sensitive(change)
        yield _causes(change, included)
        yield _allow_list(change)
        yield builds_lines(change.builds, change.currency)


def _verdict(change: Comparison) -> Iterator[Line]:
    yield title(_headline(change))
    if isinstance(change, Unknown):
        yield line("  ", Span("? ", Style.YELLOW), change.unknown)
    else:
        yield from (line("  ", text) for text in _summary(change, "->"))


def _sensitive(change: Changes) -> Iterator[Line]:
    yield title(_sensitive_heading(change))
    for edit in map(sensitive_edit, change.sensitive[:_MOST_ROWS]):
        yield line("  ", Span(f"! {edit.what}", Style.YELLOW))
        yield line(f"      {edit.place}: {_value(edit.before)} -> {_value(edit.after)}")
        if edit.about:
            yield line("      ", edit.about)


def _causes(change: Changes, included: Mapping[str, str]) -> Iterator[Line]:
    rows, hidden = _effect_rows(change, included)
    if rows or change.unknown:
        yield title(_CAUSES)
    for (where, name), group in groupby(rows, key=lambda row: (row.where, row.name)):
        yield line("  ", Span(f"{where} {name}".strip(), Style.BOLD))
        for row in group:
            yield from _lines(row)
    if hidden:
        yield line(f"  … and {hidden} more, all in the JSON")
    for reading in change.unknown:
        yield line("  ", Span("? ", Style.YELLOW), reading)


def _allow_list(change: Changes) -> Iterator[Line]:
    if change.allow_list:
        yield title(_ALLOWS)
    for rule in change.allow_list[:_MOST_ROWS]:
        only = f" of task {rule.task}" if rule.task else ""
        asks = f"{only} asks for {some_of(rule.ask)}"
        yield line("  ", Span(rule.match, Style.BOLD), asks)
        yield from (line("      ", text) for text in rule_facts(rule, change.currency))


def comparison_blocks(
    change: Comparison, included: Mapping[str, str], *, fleet: str, age: str
) -> Iterator[str]:
    """Yield the blocks of Markdown about the effect of a change."""
    if isinstance(change, Unknown):
        yield f"#### {_headline(change)}"
        yield f"- {sentence(change.unknown)}"
        return
    yield f"### {code(fleet)}: {sentence(_headline(change, arrow='→'))}"
    yield from (f"**{sentence(text)}**" for text in _summary(change, "→"))
    yield sentence(age)
    yield f"#### {_sensitive_heading(change)}"
    edits = [
        (row.what, sentence(row.place), code(row.before), code(row.after), sentence(row.about))
        for row in map(sensitive_edit, change.sensitive[:_MOST_ROWS])
    ]
    if edits:
        yield table(("Edit", "In fleet.yaml", "Before", "After", "What it is about"), edits)
    rows, hidden = _effect_rows(change, included)
    cells = [
        (
            f"{row.where} {code(row.name)}".strip(),
            sentence(row.what),
            sentence(row.why) + (f" ({code(row.id)})" if row.id else ""),
        )
        for row in rows
    ]
    if hidden:
        cells.append((f"… and {hidden} more, all in the JSON", "", ""))
    if cells:
        yield f"#### {_CAUSES}"
        yield table(("Where", "What this change does", "Why"), cells)
    if change.unknown:
        yield "\n".join(f"- {sentence(reading)}" for reading in change.unknown)
    if change.allow_list:
        yield f"#### {_ALLOWS}"
        rules = [
            (
                code(rule.match) + (f" of task {code(rule.task)}" if rule.task else ""),
                ", ".join(map(code, rule.ask)),
                *map(sentence, rule_facts(rule, change.currency)),
            )
            for rule in change.allow_list[:_MOST_ROWS]
        ]
        yield table(("Rule", "Asks for", "Recorded builds", "Whose", "Cost"), rules)
    yield from builds_blocks(change.builds, change.currency)


_NOT_ALL = "not everything is known"
_CAUSES = "What this change causes"
_ALLOWS = "Rules of the allow-list that this change adds or changes"


def _sensitive_heading(change: Changes) -> str:
    count = len(change.sensitive)
    return f"Sensitive edits: {count}" if count else "No sensitive edits"


def _summary(change: Changes, arrow: str) -> Iterator[str]:
    """Yield the figures of a change, and its cost in the steady state."""
    verdict = change.verdict
    if verdict is not None and not change.same_config:
        parts = [_machines(verdict)]
        if change.is_quiet or _moves_builds(change):
            parts.append(_money(change, arrow))
        yield "; ".join((*parts, _workers(verdict), _waits(verdict, arrow)))
    if not change.same_config:
        yield _steady_difference(change)


def _machines(verdict: Verdict) -> str:
    counts = (("create", verdict.create), ("drain", verdict.drain), ("delete", verdict.delete))
    said = [f"{abs(n):,} {'more' if n > 0 else 'fewer'} to {verb}" for verb, n in counts if n]
    if verdict.withheld > 0:
        said.append(f"guards withhold {words.many(verdict.withheld, 'action')} of this change")
    if verdict.machines_known:
        return ", ".join(said) or "no machine more or fewer"
    return f"{', '.join(said)} ({_NOT_ALL})" if said else f"machines {words.UNKNOWN}"


def _workers(verdict: Verdict) -> str:
    said = [
        f"{words.many(count, 'request')} {verb}{'s' if count == 1 else ''} a worker"
        for count, verb in ((verdict.gained, "gain"), (verdict.lost, "lose"))
        if count
    ]
    if verdict.requests_known:
        return ", ".join(said) or "no request gains or loses a worker"
    return f"{', '.join(said)} ({_NOT_ALL})" if said else f"requests {words.UNKNOWN}"


def _waits(verdict: Verdict, arrow: str) -> str:
    before, after = verdict.waits_before, verdict.waits_after
    if not before.of and not after.of:
        return "no request waits" if verdict.requests_known else f"expected wait {words.UNKNOWN}"
    figures = [
        f"{name} {old}" + (f" {arrow} {new}" if new != old else "")
        for name, old, new in (
            ("p50", _wait(before.half), _wait(after.half)),
            ("p95", _wait(before.most), _wait(after.most)),
        )
    ]
    known = "" if after.known == after.of else f" (start of {after.known} of {after.of} known)"
    return f"expected wait {', '.join(figures)}{known}"


def _wait(seconds: int | None) -> str:
    return words.UNKNOWN if seconds is None else write_duration(seconds)


def _headline(change: Comparison, *, arrow: str = "->") -> str:
    if isinstance(change, Unknown):
        return "Effect of this change: unknown"
    if change.same_config:
        return "No effect: only comments or order differ"
    count = len(change.sensitive)
    edits = [words.many(count, "sensitive edit")] if count else []
    said = "; ".join((*_refusals(change), *edits, _effect(change, arrow)))
    return said[0].upper() + said[1:]


def _refusals(change: Changes) -> Iterator[str]:
    """Yield the guards that refuse because of the change and thus block all actions."""
    refused = [
        f"{each.guard} of pool {each.pool}" if each.pool else each.guard
        for each in change.guards
        if each.after == "refused"
    ]
    if refused:
        yield f"REFUSED by {words.named('guard', refused)}"


def _effect(change: Changes, arrow: str) -> str:
    if change.is_quiet and change.verdict and not change.verdict.machines_known:
        return f"effect on machines {words.UNKNOWN}{_builds_cost(change)}"
    if change.is_quiet:
        unsure = " (some facts are unknown)" if change.unknown else ""
        due = f"; {words.many(len(change.images), 'image')} to build" if change.images else ""
        lasting = _builds_cost(change) or _steady_cost(change)
        return f"no effect on machines now{unsure}{due}{lasting}"
    return _builds_cost(change).removeprefix("; ") or _money(change, arrow)


def _builds_cost(change: Changes) -> str:
    """Return the cost of the moved builds only; empty if no build moves."""
    if not _moves_builds(change) or change.verdict is None:
        return ""
    moved = describe_moved(change.verdict.builds, change.currency)
    if change.rest_before is None or change.rest_after is None:
        return f"; {moved}; when nothing waits: {words.UNKNOWN}"
    return f"; {moved}{_steady_cost(change) or '; no difference when nothing waits'}"


def _moves_builds(change: Changes) -> bool:
    """Return whether builds move whose costs can be compared."""
    moved = change.verdict.builds.count if change.verdict else 0
    return bool(moved) and change.currency == change.currency_before


def _steady_cost(change: Changes) -> str:
    """Return the monthly cost of a change in the steady state; empty if zero or unknown."""
    before, after = change.rest_before, change.rest_after
    if before is None or after is None or change.currency != change.currency_before:
        return ""
    month = after.month - before.month
    return f"; later {month:+,.0f} {change.currency} per month" if round(month) else ""


def _steady_difference(change: Changes) -> str:
    """Return the cost of the change in the steady state."""
    before, after = change.rest_before, change.rest_after
    if before is None or after is None or change.currency != change.currency_before:
        return "when nothing waits: unknown (a price is unknown, or the currency changes)"
    hour, month = after.hour - before.hour, after.month - before.month
    if not hour and not month:
        return f"when nothing waits: no difference ({words.rate(after.hour)} {change.currency}/h)"
    return (
        f"when nothing waits: {words.rate(hour, sign=True)} {change.currency}/h, "
        f"about {month:+,.0f} {change.currency} per month "
        f"({before.month:,.0f} without it, {after.month:,.0f} with it)"
    )


def _money(change: Changes, arrow: str) -> str:
    """Return the cost of an hour after this run."""
    if change.verdict and not change.verdict.cost_known:
        return f"cost per hour {words.UNKNOWN}"
    before, after, amount, *_ = words.rates(_amounts(change))
    if change.currency != change.currency_before:
        return f"{before} {change.currency_before}/h {arrow} {after} {change.currency}/h"
    if change.cost_before == change.cost_after:
        return f"{after} {change.currency}/h with and without it"
    sign = "" if amount.startswith("-") else "+"
    figures = f"{before} without, {after} with"
    replacing = any(each.outdated for each in change.outdated)
    while_replacing = " while replacing" if replacing else ""
    return f"{sign}{amount} {change.currency}/h ({figures}){while_replacing}"


def _amounts(change: Changes) -> list[Decimal]:
    """Return every amount shown for a change; all get the same number of places."""
    difference = change.cost_after - change.cost_before
    return [change.cost_before, change.cost_after, difference, *(a.cost for a in change.actions)]


def _effect_rows(change: Changes, included: Mapping[str, str]) -> tuple[list[_Row], int]:
    rates = words.rates(_amounts(change), sign=True)[3:]
    costs = [f"{rate} {change.currency}/h" for rate in rates]
    shown = {each.path for each in change.sensitive}
    config = [_config(each) for each in change.config if each.path not in shown]
    rows = [
        *sorted(
            [
                *map(_pool, change.pools),
                *(row for row in config if row.where == "pool"),
                *map(_outdated, change.outdated),
                *map(_actions, change.actions, costs),
            ],
            key=lambda row: row.name,  # edits precede their effects
        ),
        *map(_image, change.images),
        *(_requests(each, included) for each in _merge_by_cause(change.requests)),
        *(_guard(each, included) for each in change.guards),
        *(row for row in config if row.where != "pool"),
        *(_Row("action required", "", "!", text, "") for text in change.attention),
    ]
    return rows[:_MOST_ROWS], len(rows[_MOST_ROWS:])


def _pool(change: PoolChange) -> _Row:
    if change.change != "changed":
        return _Row("pool", change.pool, "*", f"is {change.change}", "")
    what = "; ".join(map(_difference, change.differences))
    return _Row("pool", change.pool, "*", what, "")


def _difference(each: Difference) -> str:
    return f"{_NAMES.get(each.key, each.key)} {_value(each.before)} -> {_value(each.after)}"


def _outdated(change: OutdatedChange) -> _Row:
    many, them = words.many(len(change.workers), "machine"), some_of(change.workers)
    if change.outdated:
        return _Row("pool", change.pool, "~", f"{many} outdated, replaced in turn: {them}", "")
    return _Row("pool", change.pool, "*", f"{many} no longer outdated: {them}", "")


def _actions(change: ActionsChange, cost: str) -> _Row:
    more = change.after > change.before
    mark = {"create": "+", "drain": "~", "delete": "-"}[change.action] if more else "*"
    count = abs(change.after - change.before)
    parts = [f"{count:,} {'more' if more else 'fewer'} to {change.action}"]
    if change.before and change.after:
        parts.append(f"{change.after:,} instead of {change.before:,}")
    if change.withheld:
        parts.append("withheld by a guard")
    if change.type:
        parts.append(change.type)
    if change.workers:
        parts.append(some_of(change.workers))
    if change.cost:
        parts.append(cost)
    return _Row(
        *("pool", change.pool, mark, ", ".join(parts)),
        why=change.because if more else "",  # the reason does not apply to fewer actions
        id=change.reason.value if more else "",
    )


def _image(change: ImageChange) -> _Row:
    due = {"added": "new image", "recipe changed": "recipe changed"}[change.change]
    machines = words.replaced(change.replaces) or "no machine"
    why = f"{change.build}; once promoted ({change.promotion}) it replaces {machines}"
    return _Row("image", change.image, "*", f"needs a build: {due}", why)


def _merge_by_cause(changes: Iterable[RequestsChange]) -> Iterator[RequestsChange]:
    """Merge requests of equal outcome and cause, independent of their tags."""
    found: defaultdict[object, list[RequestsChange]] = defaultdict(list)
    for each in changes:
        found[each.served, each.queue, each.because, each.path].append(each)
    for first, *others in found.values():
        requests = (*first.requests, *(key for each in others for key in each.requests))
        yield first.altered(requests=requests)


def _requests(change: RequestsChange, included: Mapping[str, str]) -> _Row:
    many = words.many(len(change.requests), "request")
    fate = "served" if change.served else "no longer served"
    place = f"; see {words.cited([change.path], included)}" if change.path else ""
    return _Row(
        *("queue", change.queue, "+" if change.served else "!"),
        what=f"{many} {fate}: {some_of(change.requests)}",
        why=change.because + place,
    )


def _guard(change: GuardChange, included: Mapping[str, str]) -> _Row:
    if change.after == "passed":
        what = f"no longer {_GUARDS[change.before]}"
    else:
        what = f"newly {_GUARDS[change.after]}"
    place = f"; limit: {words.cited([change.path], included)}" if change.path else ""
    why = change.because + place + (f"; to proceed: {change.way_out}" if change.way_out else "")
    where = "guard of pool" if change.pool else "guard of"
    return _Row(where, change.pool or "the whole fleet", "!", what, why, change.guard)


def _config(change: ConfigChange) -> _Row:
    section, *inner = change.path
    if section == "pools":
        pool, *key = inner
        return _Row("pool", str(pool), "*", f"{yaml_key(key)} {_edit(change)}", "")
    return _Row("fleet.yaml", "", "*", f"{yaml_key(change.path)}: {_edit(change)}", "")


def _edit(change: ConfigChange) -> str:
    if not change.before:
        return f"{_value(change.after)} added"
    if not change.after:
        return f"{_value(change.before)} removed"
    return f"{_value(change.before)} -> {_value(change.after)}"


def _value(text: str) -> str:
    """Return a value so that Markdown renders a list or a map as one piece of code."""
    return f"`{text}`" if re.search(r"[\[{\"]", text) and "`" not in text else text


def _lines(row: _Row) -> Iterator[Line]:
    style = {"+": Style.GREEN, "~": Style.YELLOW, "-": Style.RED, "!": Style.YELLOW}
    yield line("    ", Span(f"{row.mark} {row.what}", style.get(row.mark, Style.PLAIN)))
    if row.why:
        note = Span(f" [{row.id}]", Style.CYAN) if row.id else Span("")
        yield line("        ", row.why, note)
