"""This module renders the actions of a plan: grouped by pool, like ones shortened to a count."""

from collections.abc import Iterator
from decimal import Decimal
from itertools import groupby
from typing import Literal, NamedTuple, assert_never

from fleet.plan import Action, Create, Delete, Drain, Plan, Reason
from fleet.render import words
from fleet.render.terminal import Line, Span, Style, line, table, title

_MOST_ALIKE = 5
_SHOWN_ALIKE = 3

_MARKS = {
    "create": ("+", Style.GREEN),
    "drain": ("~", Style.YELLOW),
    "delete": ("-", Style.RED),
}
_ORDER = tuple(_MARKS)


class _Alike(NamedTuple):
    """Actions of one pool that do the same for the same reason, and those of them shown."""

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


def changes_section(plan: Plan) -> Iterator[Line]:
    """Yield the lines that say what would be done, none where nothing would."""
    if plan.is_quiet:
        return
    yield title("Changes")
    types = {verdict.worker: verdict.type for verdict in plan.workers}
    by_pool = {pool: _alike(plan.actions, pool) for pool in _pools_in_order(plan.actions)}
    shown = [action for groups in by_pool.values() for group in groups for action in group.shown]
    rows = dict(zip(map(id, shown), _rows(shown, types, plan.currency), strict=True))
    for pool, groups in by_pool.items():
        yield line("  ", Span(pool, Style.BOLD))
        for group in groups:
            yield from _group(group, rows, plan.currency)
    yield from _releases(plan)
    for base in plan.bases:
        yield line("  ", Span(f"what machines of {base.provider} share", Style.BOLD))
        yield from (line(f"    {step}") for step in (*base.said, base.outdating) if step)
    for each in plan.promotions:
        yield line("  ", Span(f"image {each.image}", Style.BOLD))
        yield line("    ", Span(f"^ {each.verb}", Style.GREEN), f" {each.version}")
        yield line("        ", each.because, " ", Span(f"[{each.reason.value}]", Style.CYAN))
        yield line("        ", words.replacement(each, plan.currency))


def _releases(plan: Plan) -> Iterator[Line]:
    shown = plan.releases if len(plan.releases) <= _MOST_ALIKE else plan.releases[:_SHOWN_ALIKE]
    if shown:
        yield line("  ", Span("workers without a machine", Style.BOLD))
    for each in shown:
        yield line("    ", Span("! release", Style.YELLOW), f" {each.worker}")
        yield line("        ", each.because, " ", Span("[machine-gone]", Style.CYAN))
    if len(shown) < len(plan.releases):
        yield line(f"    … and {len(plan.releases) - len(shown):,} more to release alike")


def _pools_in_order(actions: tuple[Action, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(action.pool for action in actions))


def _alike(actions: tuple[Action, ...], pool: str) -> list[_Alike]:
    groups: dict[tuple[str, Reason], list[Action]] = {}
    for action in actions:
        if action.pool == pool:
            groups.setdefault((action.action, action.reason), []).append(action)
    return [
        _Alike(action=alike[0].action, reason=reason, actions=tuple(alike))
        for (_, reason), alike in sorted(groups.items(), key=lambda item: _ORDER.index(item[0][0]))
    ]


def _rows(shown: list[Action], types: dict[str, str | None], currency: str) -> list[Line]:
    money = words.rates([_difference(action) for action in shown], sign=True)
    return table(
        [
            [
                _mark(action.action, action.action),
                Span(action.worker),
                Span(_type(action, types)),
                Span(f"{difference} {currency}/h" if _difference(action) else ""),
                Span(_served(action), Style.DIM),
            ]
            for action, difference in zip(shown, money, strict=True)
        ],
        right=(3,),
    )


def _group(group: _Alike, rows: dict[int, Line], currency: str) -> Iterator[Line]:
    reason = Span(f"[{group.reason.value}]", Style.CYAN)
    sentences = {action.because for action in group.actions}
    for because, actions in groupby(group.shown, key=lambda action: action.because):
        yield from (line("    ", *rows[id(action)]) for action in actions)
        if len(sentences) == 1 and group.hidden:
            yield line("    ", *_hidden(group, currency))
        yield line("        ", because, " ", reason)
    if len(sentences) > 1 and group.hidden:
        yield line("    ", *_hidden(group, currency), " ", reason)


def _hidden(group: _Alike, currency: str) -> Line:
    money = sum((_difference(action) for action in group.hidden), Decimal(0))
    figures = f", {words.rate(money, sign=True)} {currency}/h" if money else ""
    text = f" {len(group.hidden):,} more to {group.action} alike{figures}"
    return line(_mark(group.action, "… and"), text)


def _mark(action: str, text: str) -> Span:
    mark, style = _MARKS[action]
    return Span(f"{mark} {text}", style)


def _type(action: Action, types: dict[str, str | None]) -> str:
    if isinstance(action, Create):
        return action.inputs.type + words.market(action.inputs)
    return types.get(action.worker) or ""


def _difference(action: Action) -> Decimal:
    match action:
        case Create():
            return action.cost
        case Delete():
            return -action.saves
        case Drain():
            return Decimal(0)
        case _ as never:
            assert_never(never)


def _served(action: Action) -> str:
    if not isinstance(action, Create) or all(name in action.because for name in action.serves):
        return ""  # it serves none, or its reason names them
    return f"for {words.some_of(action.serves, shown=2)}"
