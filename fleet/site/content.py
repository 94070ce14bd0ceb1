"""Content of the status pages in addition to the plan: waiting requests, history, money, images.

The store has all this content. Without a store (for a recorded world), it is unknown.
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path as FilePath
from threading import Lock
from urllib.parse import unquote, urlsplit

from fleet.apply.config import Config, PlanResult, place_of, with_places
from fleet.apply.satellites import connected
from fleet.errors import FileUnreadable, FleetError, StoreFailed, StoreMissing
from fleet.explain.case import Case
from fleet.explain.costs import powerful_builds
from fleet.explain.history import DAYS, HOLDS, history_of
from fleet.explain.objects import facts_of_workers
from fleet.explain.request import waits_of
from fleet.explain.values import Explanation
from fleet.model.facts import Unknown
from fleet.model.images import DueReport, Version
from fleet.planner.inventory import attempts_of
from fleet.planner.ledger import periods
from fleet.ports import Since, WebPage
from fleet.schema.findings import Path
from fleet.site.charges import WEEK, RecentCharges, money_of
from fleet.site.files import Shown, site
from fleet.site.history import RECORDED
from fleet.site.pages import queue_page
from fleet.site.versions import image_stories
from fleet.state.files import LocalFiles
from fleet.state.store import Store


def shown_of(decision: PlanResult, store: Store | None) -> Shown:
    """Return the input of the pages; `store` is None for a recorded world."""
    config, world, plan = decision.config, decision.world, decision.plan
    fleet = config.fleet
    case = Case(fleet, world, plan)
    waits = waits_of(case)
    explained = _find_places(config, waits.explained)
    facts = facts_of_workers(fleet, world)
    shown = Shown(
        plan,
        facts,
        responsible=case.responsible,
        powerful=powerful_builds(fleet, world, plan, facts),
        waits=waits._replace(explained=explained),
        queue_pages={
            key: page
            for key in explained
            if (found := case.find(key)) and (page := queue_page(fleet, key, found[0]))
        },
        history=RECORDED,
        log=RECORDED,
        money=money_of(fleet, world),
        images=image_stories(fleet, world, plan),
        attempts=attempts_of(fleet, world),
    )
    if store is None:
        return shown
    since = plan.time - timedelta(days=DAYS) - HOLDS * timedelta(seconds=fleet.cadence)
    try:
        samples = store.samples(since, plan.time)
        recent = _recent(decision, store)
        versions = store.image_versions()
        log = store.read_log(since)
    except (StoreMissing, StoreFailed) as error:
        unread = Unknown.of(error)
        return replace(shown, history=unread, log=unread)
    return replace(
        shown,
        log=log,
        history=history_of(fleet, plan, samples),
        money=money_of(fleet, world, recent),
        images=image_stories(fleet, world, plan, versions, _due(decision, versions)),
    )


def _find_places(config: Config, explained: Mapping[str, Explanation]) -> dict[str, Explanation]:
    """Return the explanations with positions in fleet.yaml; equal keys are found once."""
    known: dict[Path, str] = {}
    found = {}
    for key, answer in explained.items():
        if answer.reasons or answer.suggestions:
            found[key] = with_places(config, answer)
            continue
        if answer.path and answer.path not in known:
            known[answer.path] = place_of(config, answer.path)
        found[key] = answer.altered(place=known.get(answer.path, ""))
    return found


def _recent(decision: PlanResult, store: Store) -> RecentCharges | None:
    """Return the charges of the last seven days; None if unknown."""
    ledger = decision.world.ledger
    if isinstance(ledger, Unknown) or ledger.charged_until is None:
        return None
    first = store.charged_since() or ledger.charged_until
    fleet = decision.config.fleet
    hour = periods(fleet, ledger.charged_until)[0].start
    since = max(first, hour - WEEK)
    starts = Since(hour=hour, day=since, month=since)
    try:
        found = store.ledger(starts, fleet.money.currency)
    except StoreFailed:
        return None  # last month was charged in another currency
    return RecentCharges(since=since, until=ledger.charged_until, charges=found.charges)


def _due(decision: PlanResult, versions: tuple[Version, ...]) -> DueReport | None:
    """Return the due builds of images, without regard to newer packages; None if unknown."""
    folder = FilePath(decision.config.document.name).resolve().parent
    try:
        return connected().due_images(decision.config.fleet, versions, folder, decision.plan.time)
    except FleetError:
        return None


def write_site(decision: PlanResult, store: Store | None, folder: str) -> int:
    """Write the pages and return their number; remove pages of deleted workers and pools."""
    pages = site(shown_of(decision, store))
    _write(FilePath(folder), pages)
    return len(pages)


def _write(folder: FilePath, pages: Mapping[str, str]) -> None:
    for link in (folder / "-", folder / "-" / "status"):
        if link.is_symlink():
            raise FileUnreadable(f"{link}: is a symbolic link; not replaced")
    shutil.rmtree(folder / "-" / "status", ignore_errors=True)
    for path, text in pages.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        LocalFiles().write_text(str(target), text)


_KINDS = {"html": "text/html; charset=utf-8", "css": "text/css", "json": "application/json"}


class LivePages:
    """The status pages of the last run, rendered on request; safe to use in threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._last: PlanResult | None = None
        self._made_of: PlanResult | None = None
        self._pages: Mapping[str, WebPage] = {}

    def show(self, decision: PlanResult) -> None:
        """Show the pages of this run from now on; before the first run, no page exists."""
        self._last = decision

    def read(self, path: str) -> WebPage | None:
        """Return the page at a URL path; None if the page does not exist."""
        name = unquote(urlsplit(path).path).removeprefix("/")
        return self._render_pages().get(
            f"{name}index.html" if name.endswith("/") or not name else name
        )

    def _render_pages(self) -> Mapping[str, WebPage]:
        with self._lock:
            last = self._last
            if last is not None and last is not self._made_of:
                files = site(shown_of(last, self._store))
                self._pages = {name: _page(name, text) for name, text in files.items()}
                self._made_of = last
            return self._pages


def _page(name: str, text: str) -> WebPage:
    content = text.encode()
    return WebPage(content, _KINDS[name.rpartition(".")[2]], sha256(content).hexdigest())
