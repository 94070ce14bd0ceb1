"""Render a plan: changes, costs, waiting requests and reasons. Only the JSON has all data."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    PoolVerdict,
    Reason,
    RefusedTag,
    RuledTag,
    RulesVerdict,
    Signature,
    TagDifference,
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
    Title,
    bold,
    line,
    row,
    shorten,
)
from fleet.report.markdown import document_to_markdown
from fleet.report.status import (
    POOL_FIGURES,
    budgets_section,
    limits_section,
    pool_figures,
    pool_status,
)
from fleet.schema.findings import MAX_LISTED, listed, some_of, yaml_key
from fleet.tagrules.export import describe_rules
from fleet.words import figures as words
from fleet.words.answers import explain_dropped, explain_tag_rule
from fleet.words.images import describe_waiting
from fleet.words.lives import describe_served, describe_unnamed, reason_beside_served

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
_MAX_NAMED = 4
"""Maximum requests to name in one row."""
_LISTS_ALL = "fleet explain request --all"
_MOST_KINDS = 2
_MOST_KIND_TAGS = 2
_MOST_WARNINGS = 10
_MOST_OPEN_WARNINGS = 15
_RESULTS = {"refused": Style.RED, "throttled": Style.YELLOW, "passed": Style.GREEN}
_IN_FLEET_YAML = Column("In fleet.yaml", ColumnKind.PROSE, lead="see ", style=Style.DIM)
_POOL = Column("Pool", ColumnKind.NAME, form=Form.FULL)
_WARNING = StyledText("! ", Style.YELLOW)


def plan_to_markdown(plan: Plan, change: Comparison | None = None, age: str = "") -> str:
    """Return the plan as Markdown for a merge request, with the effect of a change before it."""
    return document_to_markdown(plan_blocks(plan, change, age))


def plan_blocks(
    plan: Plan, change: Comparison | None = None, age: str = "", *, digests: bool = False
) -> Iterator[Block]:
    """Yield the effect of a change, if any, then the plan. `age` is the age of a recording."""
    head = line(StyledText(f"Fleet {plan.fleet}", Style.BOLD), f" at {words.time(plan.time)}")
    notes: list[Block] = [Items(words.clock(plan), StyledText("! ", Style.RED))]
    notes += [line(age)] if age else []
    headline, *totals = _totals(plan)
    whole = (
        Section(words.ORDERS_HEADING, [Items(orders_of(plan), _WARNING)]),
        changes_section(plan),
        _draw_unserved(plan),
        _pools(plan),
        budgets_section(plan.budgets),
        limits_section(plan.limits),
        _waiting_versions(plan),
        *_tags(plan),
        _rules(plan.rules),
        _guards(plan),
        _approvals(plan),
    )
    sources = Section("", [*_sources(plan, digests=digests)])
    compared = () if change is None else comparison_blocks(change, plan.included)
    if change is None or isinstance(change, Unknown):
        yield Title(head, plan.fleet, notes, headline)
        yield from (*totals, *compared, *notice_sections(plan), *whole, *_warnings(plan))
        yield sources
    else:
        yield Title(head, plan.fleet, [*notes, BLANK], bold(comparison_headline(change)))
        yield from (
            comparison_figures(change),
            *notice_sections(plan),
            *compared,
            *_warnings(plan),
        )
        yield Fold(words.WHOLE, [headline, *totals, *whole, sources])


def _totals(plan: Plan) -> Iterator[Line]:
    yield bold(f"Plan: {words.changes(plan)}; {words.plan_cost(plan)}")
    if changed := [f"{pool.pool} {_change(pool)}" for pool in plan.pools if _change(pool)]:
        yield line(f"  {some_of(changed, shown=_MOST_CHANGED)}")
    if withheld := words.withheld(plan):
        yield line(StyledText(f"Withheld by guards: {withheld}", Style.YELLOW))
    yield from map(line, words.new_machines(plan))
    if waiting := words.waiting(plan):
        yield line(waiting)


def orders_of(plan: Plan) -> tuple[str, ...]:
    """Return active freezes and holds, each with its command, and machines that this run holds."""
    orders = [each for each in find_troubles(plan) if each.by_order]
    active = (f"{each.about} {each.said}; `{each.fix}`" for each in orders)
    return (*active, *map(words.holding, plan.holds))


def notice_sections(plan: Plan) -> Iterator[Section]:
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
        (words.NOTICES_HEADING, "! ", Style.YELLOW, words.notices(plan), _MOST_WARNINGS),
        (words.REMARKS_HEADING, "~ ", Style.YELLOW, plan.remarks, _MOST_WARNINGS),
    ):
        yield Section(heading, [Items(texts, StyledText(sign, style), most)])


def _draw_unserved(plan: Plan) -> Section:
    """Return the unserved requests by cause. The first row has the tags that all require."""
    total = sum(unserved.count for unserved in plan.unserved)
    signatures = {signature.id: signature for signature in plan.signatures}
    causes: defaultdict[tuple[str, str], list[Unserved]] = defaultdict(list)
    for unserved in plan.unserved:
        causes[unserved.because, words.cited(unserved.paths, plan.included)].append(unserved)
    known = [signatures[each.signature] for each in plan.unserved if each.signature in signatures]
    shared = _shared_tags(known) if len(causes) > 1 and len(known) == len(plan.unserved) else []
    many_queues = len({each.queue for each in known}) > 1
    rows = []
    for (because, places), alike in causes.items():
        names = [name for unserved in alike for name in unserved.requests]
        count = sum(unserved.count for unserved in alike)
        found = (signatures.get(unserved.signature) for unserved in alike)
        asked = [each for each in found if each and each.required]
        queue = f"queue {asked[0].queue}" if many_queues and asked else ""
        brief = _describe_asked(asked, shared, queue)
        full = _describe_kinds(asked)
        requests = _named_requests(names, count)
        rows.append(row(requests, because, brief, full, places, mark=_WARNING))
    hidden = [*causes.values()][_MOST_UNSERVED:]
    waiting = sum(unserved.count for alike in hidden for unserved in alike)
    rest = f"{words.many(waiting, 'request')} for {words.many(len(hidden), 'other reason')}"
    columns = (
        Column("Requests"),
        Column("Why not", ColumnKind.PROSE),
        Column("Ask for", ColumnKind.PROSE, style=Style.DIM, form=Form.BRIEF),
        Column("Ask for", ColumnKind.PROSE, form=Form.FULL),
        _IN_FLEET_YAML,
    )
    rows = shorten(rows, _MOST_UNSERVED, rest)
    if hidden or any(sum(each.count for each in of) > _MAX_NAMED for of in causes.values()):
        rows.append(row(f"all of them: `{_LISTS_ALL}`", form=Form.BRIEF))
    if shared:
        rows.insert(0, row(f"all ask for {listed(shared)}", form=Form.BRIEF))
    table = Table(columns, rows, is_list=True)
    return Section(f"Not served in this run: {words.many(total, 'request')}", [table])


def _shared_tags(signatures: Sequence[Signature]) -> list[str]:
    """Return the tags that every one of these kinds of requests requires."""
    first, *others = (each.required for each in signatures)
    return [tag for tag in first if all(tag in each for each in others)]


def _describe_asked(signatures: Sequence[Signature], shared: Sequence[str], queue: str) -> str:
    """Return the tags that these requests require as text, without the tags in `shared`."""
    common = [tag for tag in _shared_tags(signatures) if tag not in shared] if signatures else []
    kinds = dict.fromkeys(
        some_of([tag for tag in each.required if tag not in {*common, *shared}], shown=1)
        for each in signatures
    )
    others = [*filter(None, kinds)]
    either = " or ".join(others[:_MOST_KINDS]) + (" or others" if others[_MOST_KINDS:] else "")
    tags = ", also ".join(filter(None, (some_of(common, shown=_MOST_KIND_TAGS), either)))
    return ", ".join(filter(None, (queue, f"ask for {tags}" if tags else "")))


def _describe_kinds(signatures: Iterable[Signature]) -> Lines:
    """Return the queue and the first tags of each kind of request."""
    asked = dict.fromkeys(
        f"queue {each.queue}, asks for {listed(each.required)}" for each in signatures
    )
    kinds = [*asked][:MAX_LISTED]
    if others := len(asked) - len(kinds):
        kinds.append(f"and {words.many(others, 'other kind')} of request")
    return Lines(kinds)


def _named_requests(names: Sequence[str], count: int) -> str:
    return f"{words.many(count, 'request')}: {some_of(names, total=count)}"


def _pools(plan: Plan) -> Section:
    quiet = [pool for pool in plan.pools if _is_quiet(pool)]
    hides = len(quiet) > _MOST_QUIET_POOLS
    pools = [pool_status(verdict) for verdict in plan.pools]
    hidden = () if any(pool.other for pool in pools) else ("other",)
    figures = [name for name in POOL_FIGURES if name not in hidden]
    rows = [
        row(
            pool.pool if pool.mode == "apply" else f"{pool.pool} ({pool.mode})",
            *(pool_figures(pool)[name] for name in figures),
            str(pool.max),
            _change(verdict),
            words.hourly(pool.cost_before),
            words.hourly(pool.cost_after),
            pool.because,
            pool.failures,
            form=Form.FULL if hides and _is_quiet(verdict) else Form.ALL,
        )
        for verdict, pool in zip(plan.pools, pools, strict=True)
    ]
    if hides:
        unread = sum("machines" in pool.not_known for pool in quiet)
        more = f" ({unread:,} could not be read)" if unread else ""
        text = f"… and {words.many(len(quiet), 'pool')} without machines or changes{more}"
        rows.append(row(text, form=Form.BRIEF))
    columns = (
        Column("", ColumnKind.NAME),
        *(Column(name, ColumnKind.FIGURE, POOL_FIGURES[name]) for name in figures),
        Column("max", ColumnKind.FIGURE, fold=2),
        Column("change", ColumnKind.FIGURE),
        Column(f"{plan.currency}/h", ColumnKind.FIGURE, fold=1),
        Column("after", ColumnKind.FIGURE),
        Column("why this many", ColumnKind.PROSE, style=Style.DIM),
        Column("failures", ColumnKind.PROSE, style=Style.YELLOW),
    )
    return Section("Pools", [Table(columns, rows)])


def _is_quiet(pool: PoolVerdict) -> bool:
    changed = pool.create + pool.drain + pool.delete
    return not pool.machines and not changed and pool.mode == "apply"


def _change(pool: PoolVerdict) -> str:
    """Return the numbers of created, drained and deleted machines of a pool, such as +2 ~1 -1."""
    counts = {"create": pool.create, "drain": pool.drain, "delete": pool.delete}
    return " ".join(f"{_MARKS[kind][0]}{count}" for kind, count in counts.items() if count)


def changes_section(plan: Plan) -> Section:
    """Return the actions by pool, then changes of workers, shared resources and images."""
    why, reason = Column("Why", ColumnKind.PROSE), Column("Reason", ColumnKind.ID)
    where, change = Column("Where", ColumnKind.GROUP), Column("Change")
    releases = [
        row(
            "workers without a machine",
            line(StyledText("release", Style.YELLOW), f" {each.worker}"),
            each.pool,
            each.because,
            "machine-gone",
            mark=_WARNING,
        )
        for each in plan.releases
    ]
    few = len(releases) if len(releases) <= _MOST_ALIKE else _SHOWN_ALIKE
    resumes = [
        row(
            "workers whose hold is over",
            line(StyledText("give back", Style.GREEN), f" {each.worker}"),
            each.pool,
            each.because,
            mark=StyledText("^ ", Style.GREEN),
        )
        for each in plan.resumes
    ]
    bases = [
        row(f"shared resources of {base.provider}", step)
        for base in plan.bases
        for step in (*base.steps, base.outdating)
        if step
    ]
    promotions = [
        row(
            f"image {each.image}",
            line(StyledText(each.verb, Style.GREEN), f" {each.version}"),
            each.because,
            each.reason.value,
            words.replacement(each, plan.currency),
            mark=StyledText("^ ", Style.GREEN),
        )
        for each in plan.promotions
    ]
    blocks = [
        Table(
            (
                Column("Pool", ColumnKind.GROUP),
                change,
                Column("Worker", ColumnKind.NAME),
                Column("Type", fold=2),
                Column("Cost", ColumnKind.FIGURE, fold=1),
                Column("For", style=Style.DIM, form=Form.FULL),
                replace(why, form=Form.FULL),
                Column("For", style=Style.DIM, form=Form.BRIEF),
                replace(why, form=Form.BRIEF),
                reason,
            ),
            [*_action_rows(plan)],
            is_list=True,
        ),
        Table(
            (where, change, _POOL, why, reason),
            shorten(releases, few, "{} more to release", at=1),
            is_list=True,
        ),
        Table((where, change, _POOL, why), resumes, is_list=True),
        Table((where, change), bases, is_list=True),
        Table(
            (where, change, why, reason, Column("Effect", ColumnKind.PROSE)),
            promotions,
            is_list=True,
        ),
    ]
    return Section("Changes", blocks)


def _action_rows(plan: Plan) -> Iterator[Row]:
    """Yield a row per action, by pool. A terminal draws few of the actions with equal reasons."""
    types = {verdict.worker: verdict.type for verdict in plan.workers}
    groups: dict[str, dict[tuple[int, Reason], list[Action]]] = {}
    for action in plan.actions:
        kind = (_ORDER.index(action.action), action.reason)
        groups.setdefault(action.pool, {}).setdefault(kind, []).append(action)
    for pool, by_kind in groups.items():
        for _, alike in sorted(by_kind.items(), key=lambda item: item[0][0]):
            shown = len(alike) if len(alike) <= _MOST_ALIKE else _SHOWN_ALIKE
            for nth, action in enumerate(alike):
                mark, style = _MARKS[action.action]
                money = _difference_of(action)
                cells = (
                    pool,
                    line(StyledText(action.action, style)),
                    action.worker,
                    _type(action, types),
                    f"{words.hourly(money, sign=True)} {plan.currency}/h" if money else "",
                    describe_unnamed(action),
                    action.because,
                    describe_served(action),
                    reason_beside_served(action),
                    action.reason.value,
                )
                form = Form.ALL if nth < shown else Form.FULL
                yield Row(cells, StyledText(f"{mark} ", style), form)
            if hidden := alike[shown:]:
                yield _draw_hidden(alike, hidden, plan.currency)


def _draw_hidden(alike: Sequence[Action], hidden: Sequence[Action], currency: str) -> Row:
    """Return a row that counts the actions that a terminal does not draw."""
    first = alike[0]
    mark, style = _MARKS[first.action]
    money = sum((_difference_of(action) for action in hidden), Decimal(0))
    figures = f", {words.hourly(money, sign=True)} {currency}/h" if money else ""
    text = f" {len(hidden):,} more to {first.action}{figures}"
    why = reason_beside_served(first)
    if why and len({*map(reason_beside_served, alike)}) == 1:
        spans = line(StyledText("… and", style), text)
        cells = (first.pool, spans, *[""] * 6, why, first.reason.value)
        return Row(cells, StyledText(f"{mark} ", style), Form.BRIEF)
    reason = StyledText(f"[{first.reason.value}]", Style.CYAN)
    spans = line(StyledText("… and", style), text, " ", reason)
    return row(first.pool, spans, mark=StyledText(f"{mark} ", style), form=Form.BRIEF)


def _type(action: Action, types: Mapping[str, str | None]) -> str:
    if isinstance(action, Create):
        return action.inputs.type + words.market(action.inputs)
    return types.get(action.worker) or ""


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


def _waiting_versions(plan: Plan) -> Section:
    rows = [
        row(
            line(StyledText(f"image {each.image}", Style.BOLD), ": ", describe_waiting(each)),
            each.command,
        )
        for each in plan.waiting_versions
    ]
    columns = (
        Column("Version"),
        Column("Command", ColumnKind.COMMAND, lead="now: ", style=Style.DIM),
    )
    return Section("Image versions that wait", [Table(columns, rows, is_list=True)])


@dataclass(frozen=True)
class TagNote:
    """The reason why a rule added, denied or dropped a tag, and the affected requests."""

    tag: str
    because: str
    path: tuple[str | int, ...]
    count: int
    requests: tuple[str, ...]
    is_wrong: bool = True
    """Whether the requests lose a tag that they asked for."""
    is_unknown: bool = False
    """Whether the tag is unknown because the request has an unusable value."""


def tag_notes(plan: Plan) -> Iterator[tuple[str, tuple[TagNote, ...]]]:
    """Yield each heading that has notes about tags, with its notes."""
    dropped = tuple(
        TagNote(
            tag,
            explain_dropped(tag),
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
            explain_tag_rule(each.tag, yaml_key(each.path))
            if isinstance(each, RuledTag)
            else each.because,
            each.path,
            len(requests),
            tuple(requests),
            is_wrong=not isinstance(each, RuledTag),
            is_unknown=isinstance(each, RefusedTag) and each.is_unknown,
        )
        for each, requests in found.items()
    )


def _tags(plan: Plan) -> Iterator[Section]:
    tag = Column("Tag", ColumnKind.NAME, form=Form.FULL)
    columns = (Column("Requests"), tag, Column("Why", ColumnKind.PROSE), _IN_FLEET_YAML)
    for heading, notes in tag_notes(plan):
        rows = [
            row(
                _named_requests(note.requests, note.count),
                note.tag,
                note.because,
                words.cited([note.path], plan.included) if note.path else "",
                mark=_WARNING if note.is_wrong else StyledText("- "),
            )
            for note in notes
        ]
        rest = words.many(len(notes) - _MOST_TAGS, "more kind")
        yield Section(heading, [Table(columns, shorten(rows, _MOST_TAGS, rest), is_list=True)])


def _rules(verdicts: Iterable[RulesVerdict]) -> Section:
    """Return a row per workspace, or per file of rules: state, missing rules, extra rules."""
    rows = [
        row(
            f"{verdict.queue}, {verdict.place}: {describe_rules(verdict)}",
            Lines([*_rules_details(verdict)]),
            mark=StyledText("+ ", Style.GREEN) if verdict.state == "in-force" else _WARNING,
        )
        for verdict in verdicts
    ]
    columns = (Column("Place"), Column("Differences", ColumnKind.PROSE))
    return Section("Rules in the queues", [Table(columns, rows, is_list=True)])


def _rules_details(verdict: RulesVerdict) -> Iterator[str]:
    """Yield the first missing and extra rules, then the number of other rules."""
    for each in verdict.missing[:_MOST_RULES]:
        yield f"missing: {yaml_key(each.path)}: {each.entry}"
    for entry in verdict.extra[:_MOST_RULES]:
        yield f"extra: {entry}"
    hidden = max(0, len(verdict.missing) - _MOST_RULES) + max(0, len(verdict.extra) - _MOST_RULES)
    if hidden:
        yield f"… and {words.many(hidden, 'more rule')}"


def _guards(plan: Plan) -> Section:
    columns = (
        Column("Result"),
        Column("Guard", ColumnKind.ID),
        Column("Where", form=Form.FULL),
        Column("In fleet.yaml", ColumnKind.PROSE, lead="limit: ", style=Style.DIM),
        Column("To proceed", ColumnKind.PROSE, lead="to proceed: "),
        Column("Add", ColumnKind.COMMAND, style=Style.CYAN),
        Column(
            "Or",
            ColumnKind.COMMAND,
            lead="immediately, if the store is reachable:",
            style=Style.CYAN,
        ),
        Column("Page", ColumnKind.PROSE, lead="page: ", style=Style.DIM),
    )
    rows = [_guard(guard, plan.included) for guard in plan.guards if guard.is_worth_saying]
    return Section("Guards", [Table(columns, rows, is_list=True)])


def _guard(guard: GuardResult, included: Mapping[str, str]) -> Row:
    steps = guard.way_out.partition(guard.approve[0])[0] if guard.approve else guard.way_out
    return row(
        line(StyledText(guard.result, _RESULTS[guard.result]), ": ", guard.because),
        guard.guard,
        guard.pool or "whole fleet",
        words.cited([guard.path], included) if guard.path else "",
        steps.rstrip(),
        Lines(guard.approve),
        Lines(guard.commands),
        words.page_of_guard(guard.guard) if guard.result == "refused" else "",
    )


def _approvals(plan: Plan) -> Section:
    rows = [
        row(
            f"{each.guard}, pool {each.pool}: {words.used(each)}, "
            f"{each.by or f'until {each.expires}'}",
            each.inert,
            each.reason,
        )
        for each in plan.approvals
    ]
    columns = (
        Column("Approval"),
        Column("Problem", ColumnKind.PROSE, lead="no effect: ", style=Style.YELLOW),
        Column("Reason", ColumnKind.PROSE, lead="reason: ", style=Style.DIM),
    )
    return Section("Approvals", [Table(columns, rows, is_list=True)])


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
                StyledText(f"warning[{each.rule}]", Style.YELLOW),
                " ",
                each.message,
            )
            for each in part
        ]
        yield Section(heading, [Items(texts, most=_MOST_WARNINGS, noun="warning")])


def _sources(plan: Plan, *, digests: bool) -> Iterator[Line]:
    """Yield the origin of each price list, and the digests of the plan and its inputs."""
    for source in plan.prices:
        yield line(StyledText(words.price_source(source), Style.DIM))
    if digests:
        named = ", ".join(f"{name} {digest}" for name, digest in words.digests(plan))
        yield line(StyledText(f"Digests: {named}", Style.DIM))
