"""The page of a pool: its machines, limits, budgets, history, failures and requests."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TypeVar

from fleet.model.facts import Unknown
from fleet.model.plan import Action
from fleet.report.document import (
    Block,
    Items,
    Line,
    Section,
    Style,
    StyledText,
    TableOf,
    Title,
    bold,
    facts,
    line,
)
from fleet.report.plan import changes_section
from fleet.report.status import PoolStatus, pool_table, worker_table
from fleet.schema.findings import listed, yaml_key
from fleet.site.history import history_section
from fleet.site.money import project_budgets
from fleet.site.pages import IMAGES, MOST_LISTED, WORKERS, Page, Shown, alarm, more
from fleet.site.versions import ImageStory
from fleet.site.waiting import group_table
from fleet.words import figures as words

_MAX_GROUPS = 20
_ALL_WORKERS = StyledText("all workers", target=f"{WORKERS}/index.html")
_UNREAD = "Workers: unknown, could not be read."


def pools(shown: Shown) -> Iterator[Page]:
    """Yield a page for each pool."""
    workers = _group_by_pool(shown.status.workers, lambda worker: (worker.pool,))
    actions = _group_by_pool(shown.plan.actions, lambda action: (action.pool,))
    waiting = _group_by_pool(shown.waits.groups, lambda group: group.signature.pools)
    fitting = _group_by_pool(shown.status.waiting, lambda entry: entry.pools)
    history, images = shown.history, () if isinstance(shown.images, Unknown) else shown.images
    for pool in shown.status.pools:
        name = pool.pool
        own, groups = workers.get(name, []), waiting.get(name, [])
        held = [*_binding(shown, name, {entry.signature for entry in fitting.get(name, ())})]
        budgets = [each for each in shown.plan.budgets if each.path[:2] == ("pools", name)]
        trend = history if isinstance(history, Unknown) else history.pools[name]
        blocks: list[Block] = [
            Title(line(name)),
            line(pool.because),
            *pool_figures(shown, pool),
            Section(
                "Limits of its growth",
                [Items(held) if held else line("No request that fits waits without a machine.")],
                "binding",
            ),
            project_budgets(shown, budgets),
            history_section(trend, shown.plan.currency, pool.max),
            *(_image(shown, each) for each in images if each.image == pool.image),
            Section("Failures", _failures(shown, name), "failures"),
            Section(
                "Workers",
                [
                    worker_table(shown.status, own[:MOST_LISTED], shown.addresses),
                    more(own, MOST_LISTED, ": ", _ALL_WORKERS),
                ]
                if own
                else [alarm(_UNREAD) if pool.machines is None else line("No workers.")],
                "workers",
            ),
            _changes(shown, name, actions.get(name, [])),
            Section(
                "Waiting requests that fit",
                [group_table(shown, groups[:_MAX_GROUPS]), more(groups, _MAX_GROUPS)]
                if groups
                else [],
                "waiting",
            ),
        ]
        yield Page(shown.addresses.pools[name], blocks)


def _changes(shown: Shown, pool: str, actions: Sequence[Action]) -> Section:
    """Return the changes of a pool in this plan, as the text of a plan has them."""
    own = shown.plan.altered(
        actions=tuple(actions[:MOST_LISTED]),
        releases=tuple(each for each in shown.plan.releases if each.pool == pool),
        resumes=tuple(each for each in shown.plan.resumes if each.pool == pool),
        bases=(),
        promotions=(),
    )
    rest = [more(actions, MOST_LISTED)] if actions else []
    return Section("Changes in this plan", [*changes_section(own).blocks, *rest], "changes")


_T = TypeVar("_T")


def _group_by_pool(
    things: Iterable[_T], pools_of: Callable[[_T], Iterable[str]]
) -> dict[str, list[_T]]:
    found: dict[str, list[_T]] = {}
    for thing in things:
        for pool in pools_of(thing):
            found.setdefault(pool, []).append(thing)
    return found


def pool_figures(shown: Shown, pool: PoolStatus) -> list[Block]:
    """Return the machines and the cost of a pool, and the tags that it provides."""
    currency = shown.status.currency
    return [
        pool_table([pool], currency, shown.addresses),
        facts(
            ("Provider", pool.provider or "-"),
            ("Machine type", pool.type or "-"),
            ("Image", pool.image or "-"),
            ("Price of one", price(pool.price, f"{currency}/h")),
            ("Provides", listed([f"`{tag}`" for tag in pool.provides]) or "-"),
        ),
    ]


def price(amount: Decimal | None, unit: str) -> str:
    """Return an amount with its unit."""
    return words.UNKNOWN if amount is None else f"{words.rate(amount)} {unit}"


def _binding(shown: Shown, pool: str, fitting: Collection[str]) -> Iterator[Line]:
    """Yield each limit on the growth of a pool: waiting requests, reason, key of fleet.yaml.

    Constraints on requests come first, then guards. `fitting` has the signatures of the requests
    that the pool can serve.
    """
    held: dict[tuple[str, str], int] = {}
    for unserved in shown.plan.unserved:
        own = [(each.because, each.path) for each in unserved.blocked if each.pool == pool]
        if not own and unserved.signature in fitting:
            own = [(unserved.because, unserved.path)]
        for because, path in own:
            key = (because, yaml_key(path) if path != ("pools", pool) else "")
            held[key] = held.get(key, 0) + unserved.count
    for (because, where), count in sorted(held.items(), key=lambda each: -each[1]):
        waiting = f"{words.many(count, 'request')}: "
        yield (*bold(waiting), *line(f"{because} ", StyledText(where, Style.CODE)))
    for guard in shown.plan.guards:
        if guard.pool == pool and guard.result != "passed":
            where = yaml_key(guard.path) if guard.path else ""
            yield line(f"{guard.because} ", StyledText(where, Style.CODE))


def _image(shown: Shown, image: ImageStory) -> Section:
    """Return the version of an image that new machines boot."""
    version = image.current
    if version is None:
        is_baked = image.declared == "existing"
        known = "Baked elsewhere; its age is unknown."
        known = known if is_baked else "No tested version of this image yet."
    else:
        pinned = ", pinned" if version.is_pinned else ""
        built = version.record
        age = f", built {words.since(built.built_at, shown.status.time)} ago" if built else ""
        known = f"New machines boot {version.fact.version}: {version.fact.state}{pinned}{age}."
    everything = line(StyledText("All images", target=IMAGES))
    return Section(f"Image {image.image}", [line(known), everything], "image")


_FAILED = frozenset({"failed", "gone", "out-of-stock", "quota", "name-taken", "error"})
_MOST_FAILURES = 20


def _failures(shown: Shown, pool: str) -> list[Block]:
    """Return the numbers of the latest creations and of failed ones, and a table of these."""
    tries = [each for each in shown.attempts if each.pool == pool]
    failed = [each for each in tries if each.result in _FAILED]
    latest = sorted(failed, key=lambda each: each.at, reverse=True)[:_MOST_FAILURES]
    table = (
        TableOf(latest)
        .text("When", lambda each: words.time(each.at))
        .text("Result", lambda each: each.result)
        .text("Worker", lambda each: each.worker)
        .text(
            "Type",
            lambda each: each.type + f" ({each.market})" * (each.market != "on-demand"),
        )
        .prose("Detail", lambda each: each.detail or "-")
    )
    said = f"of the latest {words.many(len(tries), 'attempt')} to make a machine failed."
    count = f"{len(failed):,}" if failed else "None"
    return [
        table,
        line(f"{count} {said}" if tries else "No attempt to make a machine is remembered."),
    ]
