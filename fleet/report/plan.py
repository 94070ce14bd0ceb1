"""Render a plan: changes, costs, waiting requests and reasons. Only the JSON has all data."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import assert_never

from fleet.explain.changes import Comparison
from fleet.explain.troubles import find_troubles
from fleet.model.facts import Unknown
from fleet.model.plan import (
    Action,
    Create,
    Delete,
    Drain,
    GuardResult,
    Plan,
    Reason,
    RulesVerdict,
    Signature,
    Unserved,
)
from fleet.report.comparison import comparison_blocks, comparison_figures, comparison_headline
from fleet.report.document import (
    BLANK,
    Block,
    Column,
    ColumnKind,
    Fold,
    Form,
    Items,
    Line,
    Lines,
    Row,
    Section,
    Style,
    StyledText,
    Table,
    TableOf,
    Title,
    bold,
    dim,
    line,
    red,
    row,
    yellow,
)
from fleet.report.markdown import document_to_markdown
from fleet.report.status import (
    CHANGE_MARKS,
    Status,
    budgets_section,
    change_of,
    find_shown_budgets,
    limits_section,
    pool_status,
    pool_table,
    status_of,
    worker_table,
)
from fleet.schema.findings import MAX_LISTED, Path, listed, some_of, yaml_key
from fleet.tagrules.export import describe_rules
from fleet.words import figures as words
from fleet.words.answers import explain_dropped, explain_tag_rule
from fleet.words.images import describe_waiting
from fleet.words.lives import describe_served, reason_beside_served

_MOST_ALIKE = 5
_SHOWN_ALIKE = 3
_MOST_CHANGED = 5
_MOST_TAGS = 10
_MOST_RULES = 5
_MOST_UNSERVED = 5
_MAX_NAMED = 4
"""Maximum requests to name in one row."""
_MOST_WARNINGS = 10
_MOST_OPEN_WARNINGS = 15
_RESULTS = {"refused": Style.RED, "throttled": Style.YELLOW, "passed": Style.GREEN}
_WARNING = yellow("! ")
_LISTED = StyledText("- ")
_DONE = StyledText("^ ", Style.GREEN)


def plan_to_markdown(plan: Plan, change: Comparison | None = None, age: str = "") -> str:
    """Return the plan as Markdown for a merge request, with the effect of a change before it."""
    return document_to_markdown(plan_blocks(plan, change, age))


def plan_blocks(
    plan: Plan, change: Comparison | None = None, age: str = "", *, digests: bool = False
) -> Iterator[Block]:
    """Yield the effect of a change, if any, then the plan. `age` is the age of a recording."""
    notes: list[Block] = [Items(words.clock(plan), red("! "))]
    notes += [line(age)] if age else []
    headline, *totals = _totals(plan)
    notices = [*notice_sections(plan, words.notices(plan))]
    pools = [*map(pool_status, plan.pools)]
    whole = (
        Section(words.ORDERS_HEADING, [Items(orders_of(plan), _WARNING)]),
        changes_section(plan),
        _draw_unserved(plan),
        Section("Pools", [pool_table(pools, plan.currency, why=Form.ALL)]),
        budgets_section(find_shown_budgets(plan)),
        limits_section(plan.limits),
        Section("Image versions that wait", [Items([*version_lines(plan)])]),
        *tag_sections(plan),
        _rules(plan.rules),
        _guards(plan, [each for each in plan.guards if each.result != "passed" or each.approved]),
        _approvals(plan),
    )
    sources = Section("", [*_sources(plan, digests=digests)])
    compared = () if change is None else comparison_blocks(change, plan.included)
    if change is None or isinstance(change, Unknown):
        yield Title(_head(plan), plan.fleet, notes, headline)
        yield from (*totals, *compared, *notices, *whole, *_warnings(plan))
        yield sources
    else:
        yield Title(_head(plan), plan.fleet, [*notes, BLANK], bold(comparison_headline(change)))
        yield from (
            comparison_figures(change),
            *notices,
            *compared,
            *_warnings(plan),
        )
        yield Fold(words.WHOLE, [headline, *totals, *whole, sources])


def _totals(plan: Plan) -> Iterator[Line]:
    yield bold(f"Plan: {words.changes(plan)}; {words.plan_cost(plan)}")
    if changed := [f"{pool.pool} {change_of(pool)}" for pool in plan.pools if change_of(pool)]:
        yield line(f"  {some_of(changed, shown=_MOST_CHANGED)}")
    if withheld := words.withheld(plan):
        yield line(yellow(f"Withheld by guards: {withheld}"))
    yield from map(line, words.new_machines(plan))
    if waiting := words.waiting(plan):
        yield line(waiting)


def orders_of(plan: Plan) -> tuple[str, ...]:
    """Return active freezes and holds, each with its command, and machines that this run holds."""
    orders = [each for each in find_troubles(plan) if each.by_order]
    active = (f"{each.about} {each.said}; `{each.fix}`" for each in orders)
    return (*active, *map(words.holding, plan.holds))


def _head(plan: Plan) -> Line:
    return line(*bold(f"Fleet {plan.fleet}"), f" at {words.time(plan.time)}")


def notice_sections(plan: Plan, notices: Sequence[str]) -> Iterator[Section]:
    """Yield a section per kind of notice: unknown, partly read, attention, notices, remarks."""
    everything = len(plan.unknown) + len(plan.estimates)
    for heading, sign, style, texts, most in (
        (words.UNKNOWN_HEADING, "? ", Style.YELLOW, plan.unknown, everything),
        (
            words.PARTLY_READ_HEADING,
            "~ ",
            Style.YELLOW,
            [*map(words.estimated, plan.estimates)],
            everything,
        ),
        (words.ATTENTION_HEADING, "! ", Style.RED, plan.attention, _MOST_WARNINGS),
        (words.NOTICES_HEADING, "! ", Style.YELLOW, notices, _MOST_WARNINGS),
        (words.REMARKS_HEADING, "~ ", Style.YELLOW, plan.remarks, _MOST_WARNINGS),
    ):
        yield Section(heading, [Items(texts, StyledText(sign, style), most)])


def _draw_unserved(plan: Plan) -> Section:
    """Return the unserved requests by cause."""
    signatures = {signature.id: signature for signature in plan.signatures}
    causes: defaultdict[tuple[str, str], list[Unserved]] = defaultdict(list)
    for unserved in plan.unserved:
        causes[unserved.because, words.cited(unserved.paths, plan.included)].append(unserved)
    table = (
        TableOf(causes.items(), is_list=True, mark=_WARNING)
        .text("Requests", lambda cause: _name_requests(cause[1]))
        .prose("Why not", lambda cause: cause[0][0])
        .prose("Ask for", lambda cause: _describe_kinds(signatures, cause[1]), Style.DIM)
        .prose("In fleet.yaml", lambda cause: cause[0][1], Style.DIM, "see ")
        .keep(
            _MOST_UNSERVED,
            lambda rest: (
                f"{_count_requests(each for _, alike in rest for each in alike)} for "
                f"{words.many(len(rest), 'other reason')}"
            ),
        )
    )
    counts = [sum(each.count for each in alike) for alike in causes.values()]
    if len(causes) > _MOST_UNSERVED or max(counts, default=0) > _MAX_NAMED:
        table.brief("all of them: `fleet explain request --all`")
    return Section(f"Not served in this run: {_count_requests(plan.unserved)}", [table])


def _count_requests(unserved: Iterable[Unserved]) -> str:
    return words.many(sum(each.count for each in unserved), "request")


def _name_requests(unserved: Sequence[Unserved]) -> str:
    names = [name for each in unserved for name in each.requests]
    total = sum(each.count for each in unserved)
    return f"{_count_requests(unserved)}: {some_of(names, total=total)}"


def _describe_kinds(signatures: Mapping[str, Signature], alike: Iterable[Unserved]) -> Lines:
    """Return the queue and the first tags of each kind of request."""
    found = [each for unserved in alike if (each := signatures.get(unserved.signature))]
    asked = [f"queue {e.queue}, asks for {listed(e.required)}" for e in found if e.required]
    kinds = [*dict.fromkeys(asked)]
    others = f"and {words.many(len(kinds) - MAX_LISTED, 'other kind')} of request"
    return Lines([*kinds[:MAX_LISTED], *([others] if kinds[MAX_LISTED:] else [])])


def changes_section(plan: Plan) -> Section:
    """Return the actions by pool, then changes of workers, shared resources and images."""
    actions = (
        Column("Pool", ColumnKind.GROUP),
        Column("Change"),
        Column("Worker", ColumnKind.NAME),
        Column("Type", fold=2),
        Column("Cost", ColumnKind.FIGURE, fold=1),
        Column("For", style=Style.DIM),
        Column("Why", ColumnKind.PROSE),
        Column("Reason", ColumnKind.ID),
    )
    others = (
        Column("Where", ColumnKind.GROUP),
        Column("Change"),
        Column("Pool", ColumnKind.NAME, form=Form.FULL),
        Column("Why", ColumnKind.PROSE),
        Column("Reason", ColumnKind.ID),
        Column("Effect", ColumnKind.PROSE),
    )
    tables = [
        Table(actions, [*_action_rows(plan)], is_list=True),
        Table(others, [*_other_changes(plan)], is_list=True),
    ]
    return Section("Changes", tables)


def _action_rows(plan: Plan) -> Iterator[Row]:
    """Yield a row per action, by pool. A terminal draws few of the actions with equal reasons."""
    types = {verdict.worker: verdict.type for verdict in plan.workers}
    order = [*CHANGE_MARKS]
    groups: dict[str, dict[tuple[int, Reason], list[Action]]] = {}
    for action in plan.actions:
        kind = (order.index(action.action), action.reason)
        groups.setdefault(action.pool, {}).setdefault(kind, []).append(action)
    for pool, by_kind in groups.items():
        for _, alike in sorted(by_kind.items(), key=lambda item: item[0][0]):
            first = alike[0]
            sign, style = CHANGE_MARKS[first.action]
            mark = StyledText(f"{sign} ", style)
            shown = len(alike) if len(alike) <= _MOST_ALIKE else _SHOWN_ALIKE
            for nth, action in enumerate(alike):
                money = _difference_of(action)
                cells = (
                    pool,
                    line(StyledText(action.action, style)),
                    action.worker,
                    action.inputs.type + words.market(action.inputs)
                    if isinstance(action, Create)
                    else types.get(action.worker) or "",
                    f"{words.hourly(money, sign=True)} {plan.currency}/h" if money else "",
                    describe_served(action),
                    reason_beside_served(action),
                    action.reason.value,
                )
                yield Row(cells, mark, Form.ALL if nth < shown else Form.FULL)
            if hidden := alike[shown:]:
                money = sum(map(_difference_of, hidden), Decimal(0))
                figures = f", {words.hourly(money, sign=True)} {plan.currency}/h" if money else ""
                text = f" {len(hidden):,} more to {first.action}{figures}"
                reasons = {*map(reason_beside_served, alike)}
                why = "" if len(reasons) > 1 else reasons.pop()
                said = line(StyledText("… and", style), text)
                cells = (pool, said, "", "", "", "", why, first.reason.value)
                yield Row(cells, mark, Form.BRIEF)


def _difference_of(action: Action) -> Decimal:
    """Return the change of the cost per hour that an action causes."""
    match action:
        case Create():
            return action.cost
        case Delete():
            return -action.saves
        case Drain():
            return Decimal(0)
        case _ as never:
            assert_never(never)


def _other_changes(plan: Plan) -> Iterator[Row]:
    """Yield the changes of workers without a machine, of shared resources and of images."""
    few = len(plan.releases) if len(plan.releases) <= _MOST_ALIKE else _SHOWN_ALIKE
    gone = "workers without a machine"
    for nth, release in enumerate(plan.releases):
        said = line(yellow("release"), f" {release.worker}")
        cells = (gone, said, release.pool, release.because, "machine-gone")
        yield Row(cells, _WARNING, Form.ALL if nth < few else Form.FULL)
    if hidden := len(plan.releases) - few:
        yield row(gone, f"… and {hidden:,} more to release", form=Form.BRIEF)
    for resume in plan.resumes:
        said = line(StyledText("give back", Style.GREEN), f" {resume.worker}")
        yield row("workers whose hold is over", said, resume.pool, resume.because, mark=_DONE)
    for base in plan.bases:
        for step in filter(None, (*base.steps, base.outdating)):
            yield row(f"shared resources of {base.provider}", step)
    for each in plan.promotions:
        said = line(StyledText(each.verb, Style.GREEN), f" {each.version}")
        effect = words.replacement(each, plan.currency)
        yield row(
            *(f"image {each.image}", said, "", each.because, each.reason.value, effect),
            mark=_DONE,
        )


def version_lines(plan: Plan) -> Iterator[Line]:
    """Yield the versions of images that wait, each with the command that promotes it."""
    for each in plan.waiting_versions:
        yield line(*bold(f"image {each.image}"), f": {describe_waiting(each)}; `{each.command}`")


_Tag = tuple[str, str, Path]
"""A tag that a rule added, denied or dropped, the reason, and the rule in fleet.yaml."""
_TAGS: tuple[tuple[str, StyledText, Callable[[Signature], Iterable[_Tag]]], ...] = (
    (
        "Tags added to tickets by rules",
        _LISTED,
        lambda each: (
            (e.tag, explain_tag_rule(e.tag, yaml_key(e.path)), e.path) for e in each.ruled
        ),
    ),
    (
        "Tags denied: no permission to ask for them",
        _WARNING,
        lambda each: ((e.tag, e.because, e.path) for e in each.refused if not e.is_unknown),
    ),
    (
        "Tags unknown: a value of the request gives none",
        _WARNING,
        lambda each: ((e.tag, e.because, e.path) for e in each.refused if e.is_unknown),
    ),
    (
        "Tags dropped after waiting (`otherwise`)",
        _WARNING,
        lambda each: ((tag, explain_dropped(tag), ()) for tag in each.dropped),
    ),
    (
        "Rules that the queue has not applied to waiting requests",
        _WARNING,
        lambda each: ((e.tag, e.because, e.path) for e in each.differences),
    ),
)


def tag_sections(plan: Plan) -> Iterator[Section]:
    """Yield the tags that rules added, denied or dropped, with the affected requests."""
    for heading, mark, tags_of in _TAGS:
        requests: defaultdict[_Tag, list[str]] = defaultdict(list)
        for signature in plan.signatures:
            for tag in tags_of(signature):
                requests[tag] += signature.requests
        table = (
            TableOf(requests.items(), is_list=True, mark=mark)
            .text("Requests", lambda e: f"{words.many(len(e[1]), 'request')}: {some_of(e[1])}")
            .add(Column("Tag", ColumnKind.NAME, form=Form.FULL), lambda each: each[0][0])
            .prose("Why", lambda each: each[0][1])
            .prose("In fleet.yaml", lambda each: _cite(plan, each[0][2]), Style.DIM, "see ")
            .keep(_MOST_TAGS, lambda e: words.many(len(e), "more kind"))
        )
        yield Section(heading, [table])


def _cite(plan: Plan, path: Path) -> str:
    return words.cited([path], plan.included) if path else ""


def _rules(verdicts: Iterable[RulesVerdict]) -> Section:
    """Return a row per workspace, or per file of rules: state, missing rules, extra rules."""
    in_force = StyledText("+ ", Style.GREEN)
    table = (
        TableOf(
            verdicts,
            is_list=True,
            mark=lambda each: in_force if each.state == "in-force" else _WARNING,
        )
        .text("Place", lambda each: f"{each.queue}, {each.place}: {describe_rules(each)}")
        .prose("Differences", lambda each: Lines([*_rules_details(each)]))
    )
    return Section("Rules in the queues", [table])


def _rules_details(verdict: RulesVerdict) -> Iterator[str]:
    """Yield the first missing and extra rules, then the number of other rules."""
    missing = [f"missing: {yaml_key(each.path)}: {each.entry}" for each in verdict.missing]
    parts = missing, [f"extra: {entry}" for entry in verdict.extra]
    yield from (text for part in parts for text in part[:_MOST_RULES])
    if hidden := sum(len(part[_MOST_RULES:]) for part in parts):
        yield f"… and {words.many(hidden, 'more rule')}"


def _guards(plan: Plan, guards: Iterable[GuardResult]) -> Section:
    at_once = "immediately, if the store is reachable:"
    table = (
        TableOf(guards, is_list=True)
        .text(
            "Result",
            lambda guard: line(
                StyledText(guard.result, _RESULTS[guard.result]), ": ", guard.because
            ),
        )
        .add(Column("Guard", ColumnKind.ID), lambda guard: guard.guard)
        .add(Column("Where", form=Form.FULL), lambda guard: guard.pool or "whole fleet")
        .prose("In fleet.yaml", lambda guard: _cite(plan, guard.path), Style.DIM, "limit: ")
        .prose("To proceed", _describe_steps, lead="to proceed: ")
        .add(
            Column("Add", ColumnKind.COMMAND, style=Style.CYAN), lambda guard: Lines(guard.approve)
        )
        .add(
            Column("Or", ColumnKind.COMMAND, lead=at_once, style=Style.CYAN),
            lambda guard: Lines(guard.commands),
        )
        .prose(
            "Page",
            lambda e: words.page_of_guard(e.guard) if e.result == "refused" else "",
            Style.DIM,
            "page: ",
        )
    )
    return Section("Guards", [table])


def _describe_steps(guard: GuardResult) -> str:
    steps = guard.way_out.partition(guard.approve[0])[0] if guard.approve else guard.way_out
    return steps.rstrip()


def _approvals(plan: Plan) -> Section:
    table = (
        TableOf(plan.approvals, is_list=True)
        .text(
            "Approval",
            lambda each: (
                f"{each.guard}, pool {each.pool}: {words.used(each)}, "
                f"{each.by or f'until {each.expires}'}"
            ),
        )
        .prose("Problem", lambda each: each.inert, Style.YELLOW, "no effect: ")
        .prose("Reason", lambda each: each.reason, Style.DIM, "reason: ")
    )
    return Section("Approvals", [table])


def _warnings(plan: Plan) -> Iterator[Section]:
    """Yield the warnings. If fleet.yaml has many warnings, these get a separate section."""
    warnings = words.warnings(plan)
    own = [each for each in warnings if not each.place]
    folds = len(own) <= _MOST_OPEN_WARNINGS < len(warnings)
    for heading, part in (
        ("Warnings", own if folds else warnings),
        ("Warnings of fleet.yaml", [each for each in warnings if each.place] if folds else ()),
    ):
        texts = [
            line(
                f"{each.place}: " if each.place else "",
                yellow(f"warning[{each.rule}]"),
                " ",
                each.message,
            )
            for each in part
        ]
        yield Section(heading, [Items(texts, most=_MOST_WARNINGS, noun="warning")])


def _sources(plan: Plan, *, digests: bool) -> Iterator[Line]:
    """Yield the origin of each price list, and the digests of the plan and its inputs."""
    yield from (line(dim(words.price_source(source))) for source in plan.prices)
    if digests:
        named = ", ".join(f"{name} {digest}" for name, digest in words.digests(plan))
        yield line(dim(f"Digests: {named}"))


def status_blocks(plan: Plan) -> Iterator[Block]:
    """Yield the status at the time of a plan: cost, notices, pools, budgets and workers."""
    status = status_of(plan)
    waiting = sum(entry.count for entry in status.waiting)
    served = sum(entry.served for entry in status.waiting)
    demand = words.demand(waiting, served, unsure=status.unread or status.estimates)
    troubles = [each for each in status.troubles if not (each.by_order or each.reported)]
    late = [f"late: {status.cadence}"] if status.cadence else []
    yield Title(_head(plan), notes=[Items(status.clock, red("! "))])
    yield line(_cost(status), "; ", demand, "; `fleet explain request --all`" * (served < waiting))
    yield Items([*(f"{each.about}: {each.said}; `{each.fix}`" for each in troubles), *late])
    yield Section(words.ORDERS_HEADING, [Items(orders_of(plan), _WARNING)])
    yield from notice_sections(plan, [each.said for each in plan.notices])
    yield Section("Images", [Items([*image_lines(plan)])])
    yield _guards(plan, (each for each in plan.guards if each.result == "refused"))
    yield _approvals(plan)
    pools = Section("Pools", [pool_table(status.pools, status.currency)])
    yield pools if status.pools else line("No pools.")
    yield budgets_section(find_shown_budgets(plan))
    yield Section("", [*_workers(status)])


def _cost(status: Status) -> str:
    least, known = status.cost_per_hour_at_least, status.cost_per_hour
    if known is None and not least:
        return f"cost {words.UNKNOWN}"
    return f"{'at least ' * (known is None)}{words.rate(least)} {status.currency}/h"


def image_lines(plan: Plan) -> Iterator[Line]:
    """Yield the versions of images that the next run promotes, and those that wait."""
    for each in plan.promotions:
        yield line(f"image {each.image}: next `fleet apply`: {each.verb} {each.version}")
    yield from version_lines(plan)


def _workers(status: Status) -> Iterator[Block]:
    if status.workers:
        yield worker_table(status, status.workers)
    elif not status.unlisted:
        more = "No workers known; what could not be read may hold some."
        yield line(more if status.unknown else "No workers.")
    if status.unlisted:
        which = words.named("pool", status.unlisted)
        yield line(yellow(f"Workers of {which}: {words.UNKNOWN}"))
    if status.hidden:
        hidden = words.many(status.hidden, "inactive worker")
        yield line(dim(f"{hidden} not shown (machine gone or token disabled)"))
