"""This module renders a plan for people: what would change, why, at what cost, and what not.

Long lists are shortened with their count; the JSON form holds everything.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from fleet.plan import Plan, PoolVerdict, Unserved
from fleet.plan.guard_results import GuardResult
from fleet.render import words
from fleet.render.budgets_shown import budgets_section
from fleet.render.changes_text import changes_section
from fleet.render.limits_shown import limits_section
from fleet.render.rules_text import rules_section
from fleet.render.status import pool_status
from fleet.render.tags_text import tags_section
from fleet.render.terminal import BLANK, Line, Span, Style, line, lines_to_text, table, title

if TYPE_CHECKING:
    from fleet.changes import Comparison

_MOST_QUIET_POOLS = 12
_MOST_UNSERVED = 10
_MOST_WARNINGS = 10


def plan_to_text(plan: Plan, *, colour: bool, change: "Comparison | None" = None) -> str:
    """Return the plan as text for a terminal or a log, above it what a change does."""
    sections = (
        _headline(plan),
        _compared(change, plan.included),
        _unknown(plan),
        _estimates(plan),
        _attention(plan),
        _pools(plan),
        budgets_section(plan.budgets),
        limits_section(plan.limits),
        changes_section(plan),
        _waiting_versions(plan),
        _unserved(plan),
        tags_section(plan),
        rules_section(plan.rules),
        _guards(plan),
        _approvals(plan),
        _warnings(plan),
        _digests(plan),
    )
    return lines_to_text(_separated(sections), colour=colour)


def _compared(change: "Comparison | None", included: Mapping[str, str]) -> Iterable[Line]:
    if change is None:
        return ()
    # Few plans are compared, and what explains a difference takes a while to load.
    from fleet.render.comparison import comparison_section

    return comparison_section(change, included)


def _separated(sections: Iterable[Iterable[Line]]) -> Iterator[Line]:
    lines = [list(section) for section in sections]
    for position, section in enumerate(section for section in lines if section):
        if position:
            yield BLANK
        yield from section


def _headline(plan: Plan) -> Iterator[Line]:
    yield line(Span(f"Fleet {plan.fleet}", Style.BOLD), f" at {words.time(plan.time)}")
    yield line(Span(f"Plan: {words.changes(plan)}; {words.plan_cost(plan)}", Style.BOLD))
    for said in (words.waiting(plan), words.proof(plan)):
        if said:
            yield line(said)
    kept_back = words.withheld(plan)
    if kept_back:
        yield line(Span(f"Guards keep back: {kept_back}", Style.YELLOW))


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
        more = f", as far as is known ({unread:,} could not be read)" if unread else ""
        yield line(f"  … and {words.many(hidden, 'pool')} without machines or changes{more}")


def _is_quiet(pool: PoolVerdict) -> bool:
    machines = pool.busy + pool.idle + pool.starting + pool.other
    changed = pool.create + pool.drain + pool.delete
    return not machines and not changed and pool.mode == "apply"


def _pool_table(verdicts: Iterable[PoolVerdict], currency: str) -> Iterator[Line]:
    pools = [pool_status(verdict) for verdict in verdicts]
    money = words.rates([rate for pool in pools for rate in (pool.cost_before, pool.cost_after)])
    with_other = any(pool.other for pool in pools)
    headings = ["Pools", "busy", "idle", "starting", *(["other"] if with_other else []), "max"]
    rows = [
        [
            Span(text, Style.BOLD if text == "Pools" else Style.DIM)
            for text in (*headings, f"{currency}/h", "after")
        ]
    ]
    for pool, before, after in zip(pools, money[::2], money[1::2], strict=True):
        mode = "" if pool.mode == "apply" else f" ({pool.mode})"
        counts = [pool.busy, pool.idle, pool.starting, *([pool.other] if with_other else [])]
        rows.append(
            [
                Span(f"  {pool.pool}{mode}"),
                *map(_count, counts),
                Span(str(pool.max)),
                Span(before),
                Span(after),
            ]
        )
    heading, *lines = table(rows, right=range(1, len(rows[0])))
    yield heading
    for pool, row in zip(pools, lines, strict=True):
        yield row
        yield line("      ", Span(pool.because, Style.DIM))


def _count(count: int | None) -> Span:
    style = Style.YELLOW if count is None else Style.PLAIN if count else Style.DIM
    return Span(words.figure(count), style)


def _unserved(plan: Plan) -> Iterator[Line]:
    if not plan.unserved:
        return
    total = sum(unserved.count for unserved in plan.unserved)
    yield title(f"Not served in this run: {words.many(total, 'request')}")
    signatures = {signature.id: signature for signature in plan.signatures}
    for unserved in plan.unserved[:_MOST_UNSERVED]:
        signature = signatures.get(unserved.signature)
        yield line("  ", Span("! ", Style.YELLOW), _requests(unserved))
        yield line("      ", unserved.because)
        if signature and signature.required:
            yield line(
                Span(f"      queue {signature.queue}, asks for ", Style.DIM),
                Span(", ".join(signature.required), Style.DIM),
            )
        if unserved.paths:
            places = words.cited(unserved.paths, plan.included)
            yield line(Span(f"      see {places}", Style.DIM))
    hidden = plan.unserved[_MOST_UNSERVED:]
    if hidden:
        waiting = sum(unserved.count for unserved in hidden)
        kinds = words.many(len(hidden), "other kind")
        yield line(f"  … and {words.many(waiting, 'request')} of {kinds}")


def _requests(unserved: Unserved) -> str:
    names = words.some_of(unserved.requests, total=unserved.count)
    return f"{words.many(unserved.count, 'request')}: {names}"


def _guards(plan: Plan) -> Iterator[Line]:
    speaking = [guard for guard in plan.guards if guard.is_worth_saying]
    if speaking:
        yield title("Guards")
    for guard in speaking:
        yield from _guard(guard, plan.included)


_RESULTS = {"refused": Style.RED, "throttled": Style.YELLOW, "passed": Style.GREEN}


def _guard(guard: GuardResult, included: Mapping[str, str]) -> Iterator[Line]:
    style = _RESULTS[guard.result]
    where = f"pool {guard.pool}" if guard.pool else "whole fleet"
    name = Span(f"[{guard.guard}]", Style.CYAN)
    yield line("  ", Span(guard.result, style), f", {where}: {guard.because} ", name)
    if guard.path:
        place = words.cited([guard.path], included)
        yield line(Span(f"      limit: {place}", Style.DIM))
    if guard.way_out:
        yield line("      way out: ", guard.way_out)


def _approvals(plan: Plan) -> Iterator[Line]:
    if plan.approvals:
        yield title("Approvals")
    for each in plan.approvals:
        yield line(f"  {each.guard}, pool {each.pool}: {words.used(each)}, until {each.expires}")
        if each.inert:
            yield line("      ", Span(f"lets nothing pass: {each.inert}", Style.YELLOW))
        yield line(Span(f"      because: {each.reason}", Style.DIM))


def _unknown(plan: Plan) -> Iterator[Line]:
    if plan.unknown:
        yield title("Not known, and unknown is not zero")
    for reading in plan.unknown:
        yield line("  ", Span("? ", Style.YELLOW), reading)


def _estimates(plan: Plan) -> Iterator[Line]:
    if plan.estimates:
        yield title("Only sampled: more waits, and nothing is let go for want of work")
    for estimate in plan.estimates:
        yield line("  ", Span("~ ", Style.YELLOW), words.estimated(estimate))


def _attention(plan: Plan) -> Iterator[Line]:
    if plan.attention:
        yield title("Needs a person")
    for sentence in plan.attention[:_MOST_WARNINGS]:
        yield line("  ", Span("! ", Style.RED), sentence)
    hidden = len(plan.attention) - _MOST_WARNINGS
    if hidden > 0:
        yield line(f"  … and {hidden} more")


def _waiting_versions(plan: Plan) -> Iterator[Line]:
    if plan.waiting_versions:
        yield title("Image versions that wait")
    for each in plan.waiting_versions:
        yield line("  ", Span(f"image {each.image}", Style.BOLD), f": {each.said}")
        yield line(Span(f"      now: {each.command}", Style.DIM))


def _warnings(plan: Plan) -> Iterator[Line]:
    if plan.warnings:
        yield title("Warnings")
    for warning in plan.warnings[:_MOST_WARNINGS]:
        where = f"{warning.place}: " if warning.place else ""
        yield line(
            "  ", where, Span(f"warning[{warning.rule}]", Style.YELLOW), f" {warning.message}"
        )
    hidden = len(plan.warnings) - _MOST_WARNINGS
    if hidden > 0:
        yield line(f"  … and {words.many(hidden, 'more warning')}")


def _digests(plan: Plan) -> Iterator[Line]:
    digests = (
        ("plan", plan.digests.plan),
        ("config", plan.digests.config),
        ("world", plan.digests.world),
    )
    known = ", ".join(f"{name} {words.short(digest)}" for name, digest in digests if digest)
    for source in plan.prices:
        yield line(Span(words.price_source(source), Style.DIM))
    yield line(Span(f"Digests: {known}", Style.DIM))
