"""Render a plan as Markdown for a merge request.

No value can leave its cell, mention a person, or point at an issue: see `fleet.report.markdown`.
"""

from collections.abc import Callable, Iterator, Sequence

from fleet.explain.changes import Comparison
from fleet.model.facts import Unknown
from fleet.model.orders import sentences
from fleet.model.plan import Action, Create, Plan
from fleet.report import words
from fleet.report.comparison import comparison_blocks
from fleet.report.markdown import code, details, sentence, table
from fleet.report.plan_text import difference_of, rules_details, tag_notes
from fleet.report.status import (
    BUDGET_HEADINGS,
    LIMIT_HEADINGS,
    pool_status,
    shown_budgets,
    shown_limits,
)
from fleet.schema.findings import listed, some_of, yaml_key
from fleet.tagrules.export import describe_rules

_MOST_OPEN_ROWS = 15
_MOST_ROWS = 200


def plan_to_markdown(plan: Plan, change: Comparison | None = None, age: str = "") -> str:
    """Return the plan as Markdown: headline, effect of a change, tables; long ones are folded.

    `age` is the age of a recorded world.
    """
    headline, clock = list(_headline(plan)), map(sentence, words.clock(plan))
    compared = []
    if change is not None:
        compared = [*comparison_blocks(change, plan.included, fleet=plan.fleet, age=age)]
    whole = [
        *_unserved(plan),
        *_actions(plan),
        *_releases(plan),
        *_resumes(plan),
        *_bases(plan),
        *_promotions(plan),
        *_pools(plan),
        *_budgets(plan),
        *_limits(plan),
        *_tags(plan),
        *_rules(plan),
        *_guards(plan),
        *_approvals(plan),
    ]
    digests = ", ".join(f"{name} {code(digest)}" for name, digest in words.digests(plan))
    if change is None or isinstance(change, Unknown):
        whole = [*_unsure(plan), *whole, *_notes(plan), digests]
        blocks = [*clock, *headline, sentence(age), *compared, *whole]
    else:
        body = "\n\n".join(filter(None, [*headline, *whole, digests]))
        blocks = [*clock, *compared, *_unsure(plan), *_notes(plan), details(words.WHOLE, body)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _headline(plan: Plan) -> Iterator[str]:
    money = words.plan_cost(plan, arrow="→")
    yield f"### Plan of {code(plan.fleet)}: {words.changes(plan)}"
    yield f"**{money}**, as of {words.time(plan.time)}"
    withheld = words.withheld(plan)
    if withheld:
        yield f"**Withheld by guards: {withheld}**"
    yield from map(sentence, (*words.new_machines(plan), words.waiting(plan)))


def _actions(plan: Plan) -> Iterator[str]:
    cost = f"{plan.currency}/h >"
    cells: dict[str, Callable[[Action], str]] = {
        "Worker": lambda action: code(action.worker),
        "Pool": lambda action: code(action.pool),
        "Type": lambda action: (
            code(action.inputs.type) + words.market(action.inputs)
            if isinstance(action, Create)
            else ""
        ),
        cost: lambda action: words.rate(difference_of(action), sign=True),
        "Why": _why,
    }
    for verb, hidden in (("create", ()), ("drain", ("Type", cost)), ("delete", ("Type",))):
        actions = [action for action in plan.actions if action.action == verb]
        headings = [each for each in cells if each not in hidden]
        rows = [[cells[each](action) for each in headings] for action in actions]
        yield from _section(f"{len(actions):,} to {verb}", headings, rows)


def _releases(plan: Plan) -> Iterator[str]:
    rows = [(code(each.worker), code(each.pool), sentence(each.because)) for each in plan.releases]
    yield from _section(f"{len(rows):,} to release", ("Worker", "Pool", "Why"), rows)


def _resumes(plan: Plan) -> Iterator[str]:
    rows = [(code(each.worker), code(each.pool), sentence(each.because)) for each in plan.resumes]
    yield from _section(f"{len(rows):,} to give back", ("Worker", "Pool", "Why"), rows)


def _bases(plan: Plan) -> Iterator[str]:
    count = sum(len(base.steps) for base in plan.bases)
    rows = [
        (code(base.provider), sentence(step))
        for base in plan.bases
        for step in (*base.steps, base.outdating)
        if step
    ]
    yield from _section(
        f"{words.many(count, 'change')} to shared resources", ("Provider", "Change"), rows
    )


def _promotions(plan: Plan) -> Iterator[str]:
    rows = [
        (
            code(each.image),
            code(each.version),
            sentence(each.verb),
            sentence(f"{each.because}; {words.replacement(each, plan.currency)}"),
        )
        for each in plan.promotions
    ]
    yield from _section(
        f"{words.many(len(rows), 'image version')} to move",
        ("Image", "Version", "Change", "Why"),
        rows,
    )
    waits = [
        (code(each.image), sentence(each.said), code(each.command))
        for each in plan.waiting_versions
    ]
    yield from _section(
        f"{words.many(len(waits), 'image version')} that wait", ("Image", "Why", "Command"), waits
    )


def _pools(plan: Plan) -> Iterator[str]:
    rows = [
        (
            code(pool.pool) if pool.mode == "apply" else f"{code(pool.pool)} ({code(pool.mode)})",
            words.figure(pool.busy),
            words.figure(pool.idle),
            words.figure(pool.starting),
            str(pool.max),
            words.before_after(pool.cost_before, pool.cost_after, plan.currency, arrow="→"),
            sentence(pool.because),
        )
        for pool in map(pool_status, plan.pools)
    ]
    headings = ("Pool", "Busy >", "Idle >", "Starting >", "Max >", "Cost >", "Why this many")
    if rows:
        shown = _with_rest(rows[:_MOST_ROWS], len(rows))
        yield details(words.many(len(rows), "pool"), table(headings, shown))


def _budgets(plan: Plan) -> Iterator[str]:
    shown, hidden = shown_budgets(plan.budgets, most=_MOST_ROWS)
    rows: list[Sequence[str]] = [
        (code(row.budget), *row[1:-1], sentence(row.note)) for row in shown
    ]
    if hidden:
        rows.append((f"… and {words.many(hidden, 'budget')} with more left",))
    first, when, *figures = BUDGET_HEADINGS
    headings = (first, when, *(f"{each} >" for each in figures), "Note")
    yield from _section("Budgets", headings, rows)


def _limits(plan: Plan) -> Iterator[str]:
    shown, hidden = shown_limits(plan.limits, most=_MOST_ROWS)
    rows: list[Sequence[str]] = [
        (code(limit), sentence(whose), *figures) for limit, whose, *figures in shown
    ]
    if hidden:
        rows.append((f"… and {words.many(hidden, 'limit')} with more left",))
    first, whose, *figures = LIMIT_HEADINGS
    headings = (first, whose, *(f"{each} >" for each in figures))
    yield from _section("Limits", headings, rows)


def _unserved(plan: Plan) -> Iterator[str]:
    total = sum(unserved.count for unserved in plan.unserved)
    required = {signature.id: signature.required for signature in plan.signatures}
    rows = [
        (
            words.many(unserved.count, "request"),
            listed([code(tag) for tag in required.get(unserved.signature, ())]),
            sentence(unserved.because),
            some_of([_key(plan, path) for path in unserved.paths]),
        )
        for unserved in plan.unserved
    ]
    headings = ("Requests", "Ask for", "Why not", "In fleet.yaml")
    yield from _section(f"{words.many(total, 'request')} not served in this run", headings, rows)


def _key(plan: Plan, path: Sequence[str | int]) -> str:
    """Return a key of fleet.yaml, and the included file that has it."""
    file = plan.included.get(yaml_key(path[:2]))
    return code(yaml_key(path)) + (f" ({code(file)})" if file else "")


def _tags(plan: Plan) -> Iterator[str]:
    for heading, notes in tag_notes(plan):
        rows = [
            (
                words.many(note.count, "request"),
                code(note.tag),
                sentence(note.because),
                _key(plan, note.path) if note.path else "",
            )
            for note in notes
        ]
        yield from _section(heading, ("Requests", "Tag", "Why", "In fleet.yaml"), rows)


def _rules(plan: Plan) -> Iterator[str]:
    rows = [
        (
            code(verdict.queue),
            code(verdict.place),
            sentence("; ".join((describe_rules(verdict), *rules_details(verdict)))),
        )
        for verdict in plan.rules
    ]
    yield from _section("Rules in the queues", ("Queue", "Place", "State"), rows)


def _guards(plan: Plan) -> Iterator[str]:
    rows = [
        (
            f"**{guard.result}**",
            code(guard.guard),
            code(guard.pool) if guard.pool else "whole fleet",
            sentence(guard.because),
            _key(plan, guard.path) if guard.path else "",
            sentence(guard.way_out),
        )
        for guard in plan.guards
        if guard.is_worth_saying
    ]
    headings = ("Result", "Guard", "Where", "Why", "In fleet.yaml", "To proceed")
    yield from _section("Guards", headings, rows)


def _approvals(plan: Plan) -> Iterator[str]:
    rows = [
        (
            code(each.guard),
            code(each.pool),
            words.used(each) + (f"; no effect: {sentence(each.inert)}" if each.inert else ""),
            sentence(each.by) or str(each.expires),
            sentence(each.reason),
        )
        for each in plan.approvals
    ]
    yield from _section("Approvals", ("Guard", "Pool", "Used", "Until", "Reason"), rows)


def _unsure(plan: Plan) -> Iterator[str]:
    for heading, said in (
        (words.ORDERS_HEADING, (*sentences(plan.orders), *map(words.holding, plan.holds))),
        (words.UNKNOWN_HEADING, plan.unknown),
        (words.PARTLY_READ_HEADING, tuple(map(words.estimated, plan.estimates))),
        (words.ATTENTION_HEADING, plan.attention),
        (words.NOTICES_HEADING, words.notices(plan)),
    ):
        if said:
            yield f"#### {heading}"
            yield "\n".join(f"- {sentence(each)}" for each in said)


def _notes(plan: Plan) -> Iterator[str]:
    headings, warnings = ("Rule", "Place", "Message"), words.warnings(plan)
    rows = [
        (code(warning.rule), code(warning.place), sentence(warning.message))
        for warning in warnings
    ]
    # Warnings of this run stay open if the many of fleet.yaml fold.
    own = next((n for n, each in enumerate(warnings) if each.place), len(rows))
    if own <= _MOST_OPEN_ROWS < len(rows):
        yield from _section("Warnings", headings, rows[:own])
        yield from _section("Warnings of fleet.yaml", headings, rows[own:], is_folded=True)
    else:
        yield from _section("Warnings", headings, rows)
    if plan.prices:
        yield "\n".join(f"- {sentence(words.price_source(each))}" for each in plan.prices)


def _section(
    heading: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    is_folded: bool = False,
) -> Iterator[str]:
    """Yield a heading with its table; a long table folds, an empty one is left out."""
    if not rows:
        return
    text = table(headings, _with_rest(rows[:_MOST_ROWS], len(rows)))
    if len(rows) <= _MOST_OPEN_ROWS and not is_folded:
        yield f"#### {heading}"
        yield text
    else:
        yield details(heading, text)


def _with_rest(rows: Sequence[Sequence[str]], total: int) -> list[Sequence[str]]:
    rest = total - len(rows)
    return [*rows, (f"… and {rest:,} more, all in the JSON",)] if rest else list(rows)


def _why(action: Action) -> str:
    return f"{sentence(action.because)} ({code(action.reason.value)})"
