"""Render a plan as text for a terminal or a log.

Long lists are cut to a count; the JSON form holds everything.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import Literal, NamedTuple, assert_never

from fleet.explain.changes import Comparison
from fleet.model.facts import Unknown
from fleet.model.orders import sentences
from fleet.model.plan import (
    Action,
    Create,
    Delete,
    Drain,
    GuardResult,
    Plan,
    PoolVerdict,
    Reason,
    RefusedTag,
    RuledTag,
    RulesVerdict,
    TagDifference,
    Unserved,
)
from fleet.report import words
from fleet.report.comparison import comparison_sections
from fleet.report.status import (
    PoolStatus,
    budgets_section,
    count_cell,
    limits_section,
    pool_status,
)
from fleet.report.terminal import (
    BLANK,
    Line,
    Span,
    Style,
    line,
    lines_to_text,
    table,
    title,
    wrapped,
)
from fleet.schema.findings import some_of, yaml_key
from fleet.tagrules.export import describe_rules

_MOST_ALIKE = 5
_MOST_CHANGED = 5
_SHOWN_ALIKE = 3
_MARKS = {
    "create": ("+", Style.GREEN),
    "drain": ("~", Style.YELLOW),
    "delete": ("-", Style.RED),
}
_ORDER = tuple(_MARKS)
_MOST_TAGS = 10
_MOST_RULES = 5
_MOST_QUIET_POOLS = 12
_MOST_UNSERVED = 5
_MOST_KINDS = 2
_MOST_WARNINGS = 10
_RESULTS = {"refused": Style.RED, "throttled": Style.YELLOW, "passed": Style.GREEN}


def plan_to_text(
    plan: Plan, *, colour: bool, change: Comparison | None = None, age: str = ""
) -> str:
    """Return the plan as text for a terminal or a log, below the effect of a change.

    `age` is the age of a recorded world.
    """
    first, totals = list(_moment(plan, age)), list(_totals(plan))
    whole = (
        _orders(plan),
        _unserved(plan),
        _pools(plan),
        changes_section(plan),
        budgets_section(plan.budgets),
        limits_section(plan.limits),
        _waiting_versions(plan),
        _tags(plan),
        _rules(plan.rules),
        _guards(plan),
        _approvals(plan),
    )
    compared, notices, warnings = (
        _comparison_sections(change, plan),
        _notices(plan),
        _warnings(plan),
    )
    sections: tuple[Iterable[Line], ...]
    if change is None or isinstance(change, Unknown):
        sections = ([*first, *totals], *compared, *notices, *whole, warnings)
    else:
        sections = (first, *compared, *notices, warnings, [title(words.WHOLE), *totals], *whole)
    lines = wrapped(_separate((*sections, _digests(plan))))
    return lines_to_text(lines, colour=colour)


def _comparison_sections(change: Comparison | None, plan: Plan) -> Iterable[Iterable[Line]]:
    if change is None:
        return ()
    return comparison_sections(change, plan.included)


def _separate(sections: Iterable[Iterable[Line]]) -> Iterator[Line]:
    lines = [list(section) for section in sections]
    for position, section in enumerate(section for section in lines if section):
        if position:
            yield BLANK
        yield from section


def _moment(plan: Plan, age: str) -> Iterator[Line]:
    yield line(Span(f"Fleet {plan.fleet}", Style.BOLD), f" at {words.time(plan.time)}")
    yield from (line(Span("! ", Style.RED), said) for said in words.clock(plan))
    if age:
        yield line(age)


def _totals(plan: Plan) -> Iterator[Line]:
    yield line(Span(f"Plan: {words.changes(plan)}; {words.plan_cost(plan)}", Style.BOLD))
    if changed := [f"{pool.pool} {_change(pool)}" for pool in plan.pools if _change(pool)]:
        yield line(f"  {some_of(changed, shown=_MOST_CHANGED)}")
    withheld = words.withheld(plan)
    if withheld:
        yield line(Span(f"Withheld by guards: {withheld}", Style.YELLOW))
    yield from (line(text) for text in words.new_machines(plan))
    waiting = words.waiting(plan)
    if waiting:
        yield line(waiting)


def _notices(plan: Plan) -> Iterator[Iterator[Line]]:
    """Yield a section for each kind of urgent notice."""
    unknown, estimates = plan.unknown, tuple(map(words.estimated, plan.estimates))
    yield _list_section(words.UNKNOWN_HEADING, Span("? ", Style.YELLOW), unknown, len(unknown))
    yield _list_section(
        words.PARTLY_READ_HEADING, Span("~ ", Style.YELLOW), estimates, len(estimates)
    )
    yield _list_section(
        words.ATTENTION_HEADING, Span("! ", Style.RED), plan.attention, _MOST_WARNINGS
    )
    yield _list_section(
        words.NOTICES_HEADING, Span("! ", Style.YELLOW), words.notices(plan), _MOST_WARNINGS
    )


def _list_section(heading: str, mark: Span, texts: Sequence[str], most: int) -> Iterator[Line]:
    if texts:
        yield title(heading)
    for text in texts[:most]:
        yield line("  ", mark, text)
    if texts[most:]:
        yield line(f"  … and {len(texts[most:])} more")


def _unserved(plan: Plan) -> Iterator[Line]:
    """Yield the unserved requests, by cause."""
    if not plan.unserved:
        return
    total = sum(unserved.count for unserved in plan.unserved)
    yield title(f"Not served in this run: {words.many(total, 'request')}")
    signatures = {signature.id: signature for signature in plan.signatures}
    causes: defaultdict[tuple[str, str], list[Unserved]] = defaultdict(list)
    for unserved in plan.unserved:
        causes[unserved.because, words.cited(unserved.paths, plan.included)].append(unserved)
    for (because, places), alike in tuple(causes.items())[:_MOST_UNSERVED]:
        names = [name for unserved in alike for name in unserved.requests]
        count = sum(unserved.count for unserved in alike)
        requests = f"{words.many(count, 'request')}: {some_of(names, total=count)}"
        yield line("  ", Span("! ", Style.YELLOW), requests)
        yield line("      ", because)
        asked = [
            *dict.fromkeys(
                f"queue {each.queue}, asks for {some_of(each.required, shown=2)}"
                for each in (signatures.get(unserved.signature) for unserved in alike)
                if each and each.required
            )
        ]
        for kind in asked[:_MOST_KINDS]:
            yield line(Span(f"      {kind}", Style.DIM))
        if others := len(asked[_MOST_KINDS:]):
            yield line(Span(f"      and {words.many(others, 'other kind')} of request", Style.DIM))
        if places:
            yield line(Span(f"      see {places}", Style.DIM))
    hidden = tuple(causes.values())[_MOST_UNSERVED:]
    if hidden:
        waiting = sum(unserved.count for alike in hidden for unserved in alike)
        kinds = words.many(len(hidden), "other reason")
        yield line(f"  … and {words.many(waiting, 'request')} for {kinds}")


def _pools(plan: Plan) -> Iterator[Line]:
    moving = [pool for pool in plan.pools if not _is_quiet(pool)]
    quiet = [pool for pool in plan.pools if _is_quiet(pool)]
    shown = plan.pools if len(quiet) <= _MOST_QUIET_POOLS else tuple(moving)
    if not plan.pools:
        return
    yield from _pool_table(shown, plan.currency)
    hidden = len(plan.pools) - len(shown)
    if hidden:
        unread = sum(bool(pool.not_known) for pool in quiet)
        more = f" ({unread:,} could not be read)" if unread else ""
        yield line(f"  … and {words.many(hidden, 'pool')} without machines or changes{more}")


def _is_quiet(pool: PoolVerdict) -> bool:
    changed = pool.create + pool.drain + pool.delete
    return not pool.machines and not changed and pool.mode == "apply"


def _pool_table(verdicts: Iterable[PoolVerdict], currency: str) -> Iterator[Line]:
    pools = [pool_status(verdict) for verdict in verdicts]
    money = words.rates([rate for pool in pools for rate in (pool.cost_before, pool.cost_after)])
    with_other = any(pool.other for pool in pools)
    headings = ["Pools", "busy", "idle", "starting", *(["other"] if with_other else [])]
    rows = [
        [
            Span(text, Style.BOLD if text == "Pools" else Style.DIM)
            for text in (*headings, "max", "change", f"{currency}/h", "after")
        ]
    ]
    for pool, before, after in zip(pools, money[::2], money[1::2], strict=True):
        mode = "" if pool.mode == "apply" else f" ({pool.mode})"
        counts = [pool.busy, pool.idle, pool.starting, *([pool.other] if with_other else [])]
        rows.append(
            [
                Span(f"  {pool.pool}{mode}"),
                *map(count_cell, counts),
                Span(str(pool.max)),
                Span(_change(pool)),
                Span(before),
                Span(after),
            ]
        )
    heading, *lines = table(rows, right=range(1, len(rows[0])))
    yield heading
    for pool, row in zip(pools, lines, strict=True):
        yield row
        yield line("      ", Span(pool.because, Style.DIM))
        if pool.failures:
            yield line("      ", Span(pool.failures, Style.YELLOW))


def _change(pool: PoolStatus | PoolVerdict) -> str:
    """Return the numbers of created, drained and deleted machines: +2 ~1 -1."""
    counts = {"create": pool.create, "drain": pool.drain, "delete": pool.delete}
    return " ".join(f"{_MARKS[kind][0]}{count}" for kind, count in counts.items() if count)


def changes_section(plan: Plan) -> Iterator[Line]:
    """Yield the actions by pool, then changes of shared resources and images."""
    if plan.is_quiet:
        return
    yield title("Changes")
    types = {verdict.worker: verdict.type for verdict in plan.workers}
    actions: dict[str, list[Action]] = {}
    for action in plan.actions:
        actions.setdefault(action.pool, []).append(action)
    by_pool = {pool: _group_actions(own) for pool, own in actions.items()}
    shown = [action for groups in by_pool.values() for group in groups for action in group.shown]
    rows = dict(zip(map(id, shown), _rows(shown, types, plan.currency), strict=True))
    for pool, groups in by_pool.items():
        yield line("  ", Span(pool, Style.BOLD))
        for group in groups:
            yield from _group(group, rows, plan.currency)
    yield from _releases(plan)
    if plan.resumes:
        yield line("  ", Span("workers whose hold is over", Style.BOLD))
    for resumed in plan.resumes:
        yield line("    ", Span("^ give back", Style.GREEN), f" {resumed.worker}")
        yield line("        ", resumed.because)
    for base in plan.bases:
        yield line("  ", Span(f"shared resources of {base.provider}", Style.BOLD))
        yield from (line(f"    {step}") for step in (*base.steps, base.outdating) if step)
    for each in plan.promotions:
        yield line("  ", Span(f"image {each.image}", Style.BOLD))
        yield line("    ", Span(f"^ {each.verb}", Style.GREEN), f" {each.version}")
        yield line("        ", each.because, " ", Span(f"[{each.reason.value}]", Style.CYAN))
        yield line("        ", words.replacement(each, plan.currency))


class _ActionGroup(NamedTuple):
    """Equal actions of one pool with equal reasons, and those of them that are shown."""

    action: Literal["create", "drain", "delete"]
    reason: Reason
    actions: tuple[Action, ...]

    @property
    def shown(self) -> tuple[Action, ...]:
        few = len(self.actions) <= _MOST_ALIKE
        return self.actions if few else self.actions[:_SHOWN_ALIKE]

    @property
    def hidden(self) -> tuple[Action, ...]:
        return self.actions[len(self.shown) :]


def _group_actions(actions: Iterable[Action]) -> list[_ActionGroup]:
    groups: dict[tuple[str, Reason], list[Action]] = {}
    for action in actions:
        groups.setdefault((action.action, action.reason), []).append(action)
    return [
        _ActionGroup(action=alike[0].action, reason=reason, actions=tuple(alike))
        for (_, reason), alike in sorted(groups.items(), key=lambda item: _ORDER.index(item[0][0]))
    ]


def _rows(shown: list[Action], types: dict[str, str | None], currency: str) -> list[Line]:
    money = words.rates([difference_of(action) for action in shown], sign=True)
    return table(
        [
            [
                _mark(action.action, action.action),
                Span(action.worker),
                Span(_type(action, types)),
                Span(f"{difference} {currency}/h" if difference_of(action) else ""),
                Span(_format_served(action), Style.DIM),
            ]
            for action, difference in zip(shown, money, strict=True)
        ],
        right=(3,),
    )


def _group(group: _ActionGroup, rows: dict[int, Line], currency: str) -> Iterator[Line]:
    reason = Span(f"[{group.reason.value}]", Style.CYAN)
    sentences = {action.because for action in group.actions}
    for because, actions in groupby(group.shown, key=lambda action: action.because):
        yield from (line("    ", *rows[id(action)]) for action in actions)
        if len(sentences) == 1 and group.hidden:
            yield line("    ", *_hidden(group, currency))
        yield line("        ", because, " ", reason)
    if len(sentences) > 1 and group.hidden:
        yield line("    ", *_hidden(group, currency), " ", reason)


def _hidden(group: _ActionGroup, currency: str) -> Line:
    money = sum((difference_of(action) for action in group.hidden), Decimal(0))
    figures = f", {words.rate(money, sign=True)} {currency}/h" if money else ""
    text = f" {len(group.hidden):,} more to {group.action}{figures}"
    return line(_mark(group.action, "… and"), text)


def _mark(action: str, text: str) -> Span:
    mark, style = _MARKS[action]
    return Span(f"{mark} {text}", style)


def _type(action: Action, types: dict[str, str | None]) -> str:
    if isinstance(action, Create):
        return action.inputs.type + words.market(action.inputs)
    return types.get(action.worker) or ""


def difference_of(action: Action) -> Decimal:
    """Return the change of the cost per hour by an action."""
    match action:
        case Create():
            return action.cost
        case Delete():
            return -action.saves
        case Drain():
            return Decimal(0)
        case _ as never:
            assert_never(never)


def _format_served(action: Action) -> str:
    if not isinstance(action, Create) or all(name in action.because for name in action.serves):
        return ""  # it serves no request, or its reason names them
    return f"for {some_of(action.serves, shown=2)}"


def _releases(plan: Plan) -> Iterator[Line]:
    shown = plan.releases if len(plan.releases) <= _MOST_ALIKE else plan.releases[:_SHOWN_ALIKE]
    if shown:
        yield line("  ", Span("workers without a machine", Style.BOLD))
    for each in shown:
        yield line("    ", Span("! release", Style.YELLOW), f" {each.worker}")
        yield line("        ", each.because, " ", Span("[machine-gone]", Style.CYAN))
    if len(shown) < len(plan.releases):
        yield line(f"    … and {len(plan.releases) - len(shown):,} more to release")


def _waiting_versions(plan: Plan) -> Iterator[Line]:
    if plan.waiting_versions:
        yield title("Image versions that wait")
    for each in plan.waiting_versions:
        yield line("  ", Span(f"image {each.image}", Style.BOLD), f": {each.said}")
        yield line(Span(f"      now: {each.command}", Style.DIM))


@dataclass(frozen=True)
class TagNote:
    """Why a tag was added, denied or dropped, and for which requests."""

    tag: str
    because: str
    path: tuple[str | int, ...]
    count: int
    requests: tuple[str, ...]
    is_wrong: bool = True
    """Whether the request loses a requested tag."""
    is_unknown: bool = False
    """Whether a value of the request, for example its environment, gives no tag."""


def tag_notes(plan: Plan) -> Iterator[tuple[str, tuple[TagNote, ...]]]:
    """Yield headings, each with its notes."""
    dropped = tuple(
        TagNote(
            tag,
            f"waited longer than `otherwise.after` of tag {tag}, so it may run without it",
            (),
            len(signature.requests),
            signature.requests,
        )
        for signature in plan.signatures
        for tag in signature.dropped
    )
    refused = _group_notes(plan, "refused")
    for heading, notes in (
        ("Tags added to tickets by rules", _group_notes(plan, "ruled")),
        (
            "Tags denied: no permission to ask for them",
            tuple(note for note in refused if not note.is_unknown),
        ),
        (
            "Tags unknown: a value of the request gives none",
            tuple(note for note in refused if note.is_unknown),
        ),
        ("Tags dropped after waiting (`otherwise`)", dropped),
        (
            "Rules that the queue has not applied to waiting requests",
            _group_notes(plan, "differences"),
        ),
    ):
        if notes:
            yield heading, notes


def _group_notes(plan: Plan, kind: str) -> tuple[TagNote, ...]:
    found: defaultdict[RuledTag | RefusedTag | TagDifference, list[str]] = defaultdict(list)
    for signature in plan.signatures:
        for each in getattr(signature, kind):
            found[each].extend(signature.requests)
    return tuple(
        TagNote(
            each.tag,
            f"{each.tag} by {yaml_key(each.path)}" if isinstance(each, RuledTag) else each.because,
            each.path,
            len(requests),
            tuple(requests),
            is_wrong=not isinstance(each, RuledTag),
            is_unknown=isinstance(each, RefusedTag) and each.is_unknown,
        )
        for each, requests in found.items()
    )


def _tags(plan: Plan) -> Iterator[Line]:
    """Yield the notes as text for a terminal."""
    for heading, notes in tag_notes(plan):
        yield title(heading)
        for note in notes[:_MOST_TAGS]:
            names = some_of(note.requests, total=note.count)
            sign = Span("! ", Style.YELLOW) if note.is_wrong else Span("- ")
            yield line("  ", sign, f"{words.many(note.count, 'request')}: {names}")
            yield line("      ", note.because)
            if note.path:
                place = words.cited([note.path], plan.included)
                yield line(Span(f"      see {place}", Style.DIM))
        hidden = len(notes) - _MOST_TAGS
        if hidden > 0:
            yield line(f"  … and {words.many(hidden, 'more kind')}")


def _rules(verdicts: tuple[RulesVerdict, ...]) -> Iterator[Line]:
    """Yield a line for each place, with the differences there."""
    if verdicts:
        yield title("Rules in the queues")
    for verdict in verdicts:
        style = Style.GREEN if verdict.state == "in-force" else Style.YELLOW
        sign = "+" if verdict.state == "in-force" else "!"
        yield line(
            "  ",
            Span(f"{sign} ", style),
            f"{verdict.queue}, {verdict.place}: {describe_rules(verdict)}",
        )
        for detail in rules_details(verdict):
            yield line("      ", detail)


def rules_details(verdict: RulesVerdict) -> Iterator[str]:
    """Yield the first differing entries."""
    for each in verdict.missing[:_MOST_RULES]:
        yield f"missing: {yaml_key(each.path)}: {each.entry}"
    for entry in verdict.extra[:_MOST_RULES]:
        yield f"extra: {entry}"
    hidden = max(0, len(verdict.missing) - _MOST_RULES) + max(0, len(verdict.extra) - _MOST_RULES)
    if hidden:
        yield f"… and {words.many(hidden, 'more rule')}"


def _guards(plan: Plan) -> Iterator[Line]:
    speaking = [guard for guard in plan.guards if guard.is_worth_saying]
    if speaking:
        yield title("Guards")
    for guard in speaking:
        yield from _guard(guard, plan.included)


def _guard(guard: GuardResult, included: Mapping[str, str]) -> Iterator[Line]:
    name = Span(f"[{guard.guard}]", Style.CYAN)
    yield line("  ", Span(guard.result, _RESULTS[guard.result]), f": {guard.because} ", name)
    if guard.path:
        place = words.cited([guard.path], included)
        yield line(Span(f"      limit: {place}", Style.DIM))
    if guard.way_out:
        steps = guard.way_out.partition(guard.approve[0])[0] if guard.approve else guard.way_out
        yield line("      to proceed: ", steps.rstrip())
    yield from (line("        ", Span(entry, Style.CYAN)) for entry in guard.approve)
    if guard.commands:
        yield line("      at once, where the store can be reached:")
    yield from (line("        ", Span(entry, Style.CYAN)) for entry in guard.commands)
    if guard.result == "refused":
        yield line(Span(f"      page: {words.page_of_guard(guard.guard)}", Style.DIM))


def _approvals(plan: Plan) -> Iterator[Line]:
    if plan.approvals:
        yield title("Approvals")
    for each in plan.approvals:
        until = each.by or f"until {each.expires}"
        yield line(f"  {each.guard}, pool {each.pool}: {words.used(each)}, {until}")
        if each.inert:
            yield line("      ", Span(f"no effect: {each.inert}", Style.YELLOW))
        yield line(Span(f"      reason: {each.reason}", Style.DIM))


def _orders(plan: Plan) -> Iterator[Line]:
    """Yield the active freezes and holds, and the holds of this run."""
    said = [*sentences(plan.orders), *map(words.holding, plan.holds)]
    if said:
        yield title(words.ORDERS_HEADING)
    yield from (line("  ", Span("! ", Style.YELLOW), each) for each in said)


def _warnings(plan: Plan) -> Iterator[Line]:
    warnings = words.warnings(plan)
    if warnings:
        yield title("Warnings")
    for warning in warnings[:_MOST_WARNINGS]:
        where = f"{warning.place}: " if warning.place else ""
        yield line(
            "  ", where, Span(f"warning[{warning.rule}]", Style.YELLOW), f" {warning.message}"
        )
    hidden = len(warnings) - _MOST_WARNINGS
    if hidden > 0:
        yield line(f"  … and {words.many(hidden, 'more warning')}")


def _digests(plan: Plan) -> Iterator[Line]:
    for source in plan.prices:
        yield line(Span(words.price_source(source), Style.DIM))
    digests = ", ".join(f"{name} {digest}" for name, digest in words.digests(plan))
    yield line(Span(f"Digests: {digests}", Style.DIM))
