"""Pages of waiting requests: by reason, one page per request, and lists of all builds."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from fleet.explain.request import WaitingGroup, WaitingRequest
from fleet.explain.values import Explanation
from fleet.model.facts import PlaceFacts
from fleet.report.answers import explanation_blocks
from fleet.report.document import (
    BLANK,
    MAX_ROWS,
    Block,
    Fold,
    Items,
    Line,
    Lines,
    Section,
    Style,
    StyledText,
    Table,
    TableOf,
    Title,
    dim,
    facts,
    line,
    link,
    red,
    yellow,
)
from fleet.report.status import Status
from fleet.schema.findings import MAX_LISTED, listed, yaml_key
from fleet.schema.units import write_duration
from fleet.site.pages import (
    QUEUE,
    REQUESTS,
    Page,
    Shown,
    alarm,
    contact_link,
    in_sheets,
    join_links,
    more,
    quiet,
    quoted,
)
from fleet.words import figures as words
from fleet.words import waiting as sentences
from fleet.words.waiting import NEVER, REPAIR_FIRST

_MOST_GROUPS = 300
_MOST_LONG = 50
_MOST_LETTERS = 120
_MOST_LETTERS_OF_REASON = 240
FIND = StyledText("find it by id or package", target=f"{REQUESTS}/index.html")


def waiting(shown: Shown) -> Iterator[Page]:
    """Yield the waiting requests by reason, the lists of all builds, and a page per request."""
    yield Page(f"{QUEUE}/index.html", _list_reasons(shown))
    yield from _lists(shown)
    for group in shown.waits.groups:
        for request in group.requests:
            if answer := shown.waits.explained.get(request.key):
                path = shown.addresses.requests[request.key]
                yield Page(path, _request(shown, group, request, answer))


def _list_reasons(shown: Shown) -> list[Block]:
    groups = shown.waits.groups
    hidden = groups[_MOST_GROUPS:]
    count = words.many(sum(len(each.requests) for each in hidden), "request")
    rest = f"and {count} in {words.many(len(hidden), 'more row')}: "
    everything = StyledText("all requests by id", target=f"{REQUESTS}/~id/index.html")
    late = sorted(late_requests(shown), key=lambda each: (each[0].since, each[0].key))
    table = (
        TableOf(late[:_MOST_LONG])
        .name("Request", lambda each: line(_name(shown, each[0])))
        .text("Waits", lambda each: words.since(each[0].since, shown.plan.time), fold=1)
        .text("Expected start", lambda each: _describe_starts([each[0]]))
        .prose("Why", lambda each: _cut(each[0].brief or each[1].verdict, _MOST_LETTERS_OF_REASON))
    )
    about = (
        "Requests with the same tags and the same cause are one row; those without a machine come "
        "first. Your request: "
    )
    about_late = (
        "Longer than `target_wait` of a pool that fits, or an hour if no such pool has one; the "
        "oldest first."
    )
    return [
        Title(line("Waiting requests")),
        *unread_lines(shown.status),
        *map(alarm, shown.unknown),
        line(about, FIND, ".") if groups else BLANK,
        group_table(shown, groups[:_MOST_GROUPS]),
        line(rest, everything) if hidden else BLANK,
        Section(
            "Waiting too long",
            [line(about_late), table, more(late, _MOST_LONG, ": ", everything)] if late else [],
            "late",
        ),
    ]


def group_table(shown: Shown, groups: Sequence[WaitingGroup], *, is_brief: bool = False) -> Table:
    """Return waiting requests as a table with a row per group; `is_brief`: only why and when."""

    def count(group: WaitingGroup) -> Lines:
        asked, tags = group.signature, listed([f"`{tag}`" for tag in group.signature.required])
        about = quiet(f"{asked.queue}, priority {asked.priority}"), quiet(tags or "no tags")
        return Lines([words.many(len(group.requests), "request"), *(() if is_brief else about)])

    def oldest(group: WaitingGroup) -> Line:
        first = min(group.requests, key=lambda each: each.since or shown.plan.time)
        return line(words.since(first.since, shown.plan.time), _mark_long(shown, group, first))

    table = (
        TableOf(groups)
        .name("Requests", count)
        .prose("Why they wait", lambda each: Lines([*_reasons(shown, each, is_brief=is_brief)]))
    )
    if not is_brief:
        table.text("Oldest waits", oldest, fold=1)
    return table.text("Expected start", lambda each: _describe_starts(each.requests))


def _reasons(shown: Shown, group: WaitingGroup, *, is_brief: bool) -> Iterator[Line]:
    """Yield the reason of a group, the key that decides, denied tags, and the first request."""
    first, refused = group.requests[0], group.signature.refused
    answer = shown.waits.explained.get(first.key)
    mark = "" if is_brief or group.is_served else "no machine: "
    yield line(yellow(mark), _cut(group.why, _MOST_LETTERS_OF_REASON))
    if answer and answer.path and not is_brief:
        yield line("decided by ", StyledText(_format_rule(answer), Style.CODE))
    yield from (alarm(f"denied: {each.because}") for each in refused[:MAX_LISTED])
    yield more(refused, MAX_LISTED)
    yield line(_name(shown, first))


def _name(shown: Shown, request: WaitingRequest) -> StyledText:
    """Return the package, id and user of a request, with a link to its page."""
    name = sentences.name_build(request.package, request.key, request.user)
    return StyledText(name, target=shown.addresses.of_request(request.key))


def _mark_long(shown: Shown, group: WaitingGroup, request: WaitingRequest) -> StyledText:
    """Return a mark if the request has waited long, else an empty text."""
    return red(" long" if group.is_long(request, shown.plan.time) else "")


def _describe_starts(requests: Sequence[WaitingRequest]) -> str:
    if requests[0].never:
        return sentences.UNLESS
    return words.starts([each.start for each in requests], [each.assumed for each in requests])


def unread_lines(status: Status) -> Iterator[Line]:
    """Yield whether requests wait that could not be read, or that none waits."""
    if status.unread:
        queues = words.named("queue", status.unread)
        yield alarm(f"Waiting requests of {queues}: unknown, could not be read.")
    elif status.estimates:
        queues = words.named("queue", [each.queue for each in status.estimates])
        yield alarm(f"More requests wait in {queues}: only the newest were listed.")
    elif not status.waiting:
        yield line("No requests wait.")


def late_requests(shown: Shown) -> Iterator[tuple[WaitingRequest, WaitingGroup]]:
    """Yield the requests that wait unusually long, each with its group."""
    for group in shown.waits.groups:
        for request in group.requests:
            if group.is_long(request, shown.plan.time):
                yield request, group


def _format_rule(answer: Explanation) -> str:
    """Return the key of fleet.yaml that decides, and its position; empty without a key."""
    key, place = yaml_key(answer.path), answer.place
    return place if place.startswith(key) else words.join(", ", key, place)


class BuildRow(NamedTuple):
    """A waiting or running build in the lists of all builds."""

    key: str
    package: str = ""
    user: str = ""
    target: str = ""
    """The path of its page, or of the page of its worker; empty without a page."""
    start: str = words.UNKNOWN
    waits: str = "-"
    why: str = ""

    @property
    def name(self) -> str:
        """Return its package, if known, and its id."""
        return f"{self.package} {self.key}".strip()


_LISTS: Sequence[tuple[str, str, Callable[[BuildRow], tuple[object, ...]]]] = (
    ("package", REQUESTS, lambda row: (not row.package, row.package.lower())),
    (
        "user",
        f"{REQUESTS}/~user",
        lambda row: (not row.user, row.user, row.package.lower()),
    ),
    ("id", f"{REQUESTS}/~id", lambda _: ()),
)
"""The lists of all builds: name, folder, and order before the id. No request has such a folder."""


def _lists(shown: Shown) -> Iterator[Page]:
    """Yield the lists of waiting and running builds."""
    rows = sorted((*_rows(shown), *_running(shown)), key=lambda row: _number_key(row.key))
    targets = {f"by {by}": f"{folder}/index.html" for by, folder, _ in _LISTS}
    targets["by reason"] = f"{QUEUE}/index.html"
    for by, folder, order in _LISTS:
        title, ordered = f"Find a build by {by}", sorted(rows, key=order)
        links = join_links(
            StyledText(label, Style.BOLD if label == f"by {by}" else Style.PLAIN, target)
            for label, target in targets.items()
        )
        for sheet in in_sheets(ordered, MAX_ROWS, folder, title, lambda row: row.name):
            table = (
                TableOf(sheet.entries)
                .name("Build", lambda each: link(each.name, each.target))
                .text("User", lambda each: each.user or "-", fold=1)
                .text("Starts (UTC)", lambda each: each.start, fold=1)
                .text("Waits", lambda each: each.waits, fold=1)
                .prose("Why", lambda each: each.why)
            )
            content = (line("Ctrl+F finds a package, user or id."), links, sheet.links, table)
            unread = unread_lines(shown.status)
            blocks = [Title(line(sheet.title)), *unread, *(content if rows else ())]
            yield Page(sheet.path, blocks)


def _request(
    shown: Shown, group: WaitingGroup, request: WaitingRequest, answer: Explanation
) -> list[Block]:
    """Return the answer for the user of a request, then details for operators."""
    addresses = shown.addresses
    contacts = [
        line(StyledText(each.name, target=contact_link(each.name)), f": {each.about}")
        for each in answer.contacts
    ]
    nobody = line(sentences.describe_no_contact(shown.status.fleet))
    about = quiet("Estimate: the price of the machine until it is deleted, idle time included.")
    # Only the page of the first request lists the others, so that pages stay small.
    others = group.requests[1:] if answer.reasons and not answer.like else ()
    links = [
        StyledText(each.key, target=addresses.of_request(each.key)) for each in others[:MAX_ROWS]
    ]
    id_, rule = dim(f" {answer.name}"), _format_rule(answer)
    tags = listed([f"`{tag}`" for tag in group.signature.required]) or "none"
    everything = [line(f"Tags: {tags}"), *explanation_blocks(answer)]
    return [
        Title(line(request.package, id_) if request.package else line(answer.name)),
        addresses.in_text(" ".join(answer.plain) or answer.headline),
        Section(
            "What helps",
            _changes(shown, group, answer),
            "change",
        ),
        Section("Contact", [Items(contacts or [nobody])], "contact"),
        _facts(shown, group, request, answer),
        Section(
            "Time and money",
            [about, _place_table(shown, group, answer)] if answer.places else [],
            "places",
        ),
        Fold(
            "For operators: each pool, tags, and facts",
            [
                line(f"In a terminal: `fleet explain request {answer.name}`"),
                line("Rule: ", StyledText(rule, Style.CODE)) if rule else BLANK,
                *(everything if answer.reasons or answer.suggestions else []),
            ],
        ),
        Section(
            f"{words.many(len(others), 'other request')} with the same reason",
            [join_links(links), more(others, MAX_ROWS)] if others else [],
            "alike",
        ),
    ]


def _changes(shown: Shown, group: WaitingGroup, answer: Explanation) -> list[Block]:
    """Return the choices of the user of a request, then those of the keepers of fleet.yaml."""
    has_start, in_text = bool(answer.expected or answer.assumed), shown.addresses.in_text
    choices = [
        each.sentence
        for each in answer.suggestions
        if not each.changes and (each.asks or not has_start)
    ]
    own = [in_text(sentences.describe_choice(answer.behind))] if has_start else []
    changing = [each for each in answer.suggestions if each.changes]
    minor = [each.brief for each in changing if each.is_minor]
    major = [in_text(each.brief or each.sentence) for each in changing if not each.is_minor]
    keepers: list[Block] = [
        Items(major),
        Fold(words.many(len(minor), "other change"), [Items(minor)]),
        Items([] if group.is_served else answer.next_steps),
    ]
    return [
        Section("You", [Items([*own, *choices] or [sentences.NOTHING])]),
        Section("Those who keep this fleet", keepers),
    ]


def _facts(
    shown: Shown, group: WaitingGroup, request: WaitingRequest, answer: Explanation
) -> Table:
    now, since = shown.plan.time, request.since
    start = words.starts([answer.expected], [answer.assumed])
    end = words.time(answer.finish) if answer.finish else words.UNKNOWN
    assumed = "" if answer.expected or not answer.finish else words.ASSUMED
    wait = f"{words.since(since, now)}, since {words.time(since)}" if since else ""
    page = shown.queue_pages.get(answer.name)
    rules = [f"allow-list{f': {each.reason}' if each.reason else ''}" for each in answer.rules]
    return facts(
        ("Expected start", sentences.UNLESS if answer.never else start),
        ("Expected end", "\N{EN DASH}" if answer.never else f"{end}{assumed}"),
        ("Waits", line(wait or "since an unknown moment", _mark_long(shown, group, request))),
        *([("At its queue", link(answer.name, page))] if page else []),
        ("Needs", Lines([answer.needs or "nothing special", *rules])),
        ("Pools that fit", shown.addresses.of_pools(group.signature.pools) or "none"),
    )


def _place_table(shown: Shown, group: WaitingGroup, answer: Explanation) -> Table:
    """Return the time and cost of a build on a new machine of each pool."""

    def describe_time(place: PlaceFacts) -> Lines:
        takes = words.UNKNOWN if place.seconds is None else write_duration(place.seconds)
        return Lines([takes, place.source and quiet(place.source)])

    def note(place: PlaceFacts) -> str:
        # Each row would repeat why no machine is created.
        known = place.altered(closed="") if REPAIR_FIRST in answer.plain else place
        return "created in this run" * place.is_chosen + words.place_note(known)

    table = (
        TableOf(answer.places)
        .name("Pool", lambda each: link(each.pool, shown.addresses.of_pool(each.pool)))
        .text(
            "Machine type",
            lambda each: each.type + f" ({each.market})" * (each.market != "on-demand"),
        )
    )
    if group.is_served:
        table.text("Start", lambda each: words.time(each.start))
        table.text("End", lambda each: words.time(each.end) if each.end else words.UNKNOWN)
    return (
        table.text("Takes", describe_time)
        .figure(
            "Cost",
            lambda each: words.bill(each.cost) + f" {answer.currency}" * (each.cost is not None),
        )
        .text("Note", note)
    )


def _rows(shown: Shown) -> Iterator[BuildRow]:
    """Yield the waiting requests."""
    now = shown.plan.time
    if not shown.waits.groups:
        for entry in shown.status.waiting:
            because = _cut("; ".join(entry.because))
            yield from (BuildRow(key, why=because) for key in entry.requests)
    for group in shown.waits.groups:
        for each in group.requests:
            start = words.brief_time(each.start or each.assumed, now)
            start += words.ASSUMED if each.assumed and not each.start else ""
            yield BuildRow(
                each.key,
                each.package,
                each.user,
                shown.addresses.of_request(each.key),
                NEVER if each.never else start,
                words.since(each.since, now),
                _cut(each.brief or group.verdict),
            )


def _running(shown: Shown) -> Iterator[BuildRow]:
    """Yield the running builds."""
    now, pages = shown.plan.time, shown.addresses.by_worker
    for each in shown.waits.running:
        length = f" for {words.since(each.since, now)}" if each.since else ""
        runs = sentences.describe_running(each.worker, length)
        start = sentences.describe_end(words.brief_time(each.end, now))
        page = quoted(pages.get(each.worker, ""))
        yield BuildRow(each.key, each.package, each.user, page, start, "-", runs)


def _cut(text: str, most: int = _MOST_LETTERS) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _number_key(key: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]{1,18})", key)
    return [(int(part), "") if n % 2 else (-1, part) for n, part in enumerate(parts)]
