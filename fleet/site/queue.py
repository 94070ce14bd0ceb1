"""Pages of waiting requests: by outcome, one for each explained request, and a list by id."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from fleet.explain.values import Explanation
from fleet.explain.waiting import WaitingGroup, WaitingRequest
from fleet.report.answers import place_of, where_to_write
from fleet.schema.findings import yaml_key
from fleet.site.pages import MOST_LISTED, QUEUE, REQUESTS, Page, Shown, in_sheets
from fleet.words import figures as words
from fleet.words.waiting import (
    NEVER,
    NO_PACKAGE,
    NO_USER,
    REPAIR_FIRST,
    describe_end,
    describe_running,
)

_MOST_GROUPS = 300
_MOST_LONG = 50
_MOST_ON_SHEET = 1_500
_MOST_LETTERS = 120
_MANY_BUILDS = 5
"""Number of builds from which a package has its own heading."""


def queue(shown: Shown) -> Iterator[Page]:
    """Yield the page of waiting requests, grouped by outcome."""
    groups = shown.waits.groups
    late = sorted(late_requests(shown), key=lambda each: (each[0].since, each[0].key))
    values = {
        "groups": groups[:_MOST_GROUPS],
        "more": groups[_MOST_GROUPS:],
        "late": late[:_MOST_LONG],
        "later": len(late[_MOST_LONG:]),
        "explained": shown.waits.explained,
        "format_rule": _format_rule,
    }
    yield Page(f"{QUEUE}/index.html", "queue.html", values)


def late_requests(shown: Shown) -> Iterator[tuple[WaitingRequest, WaitingGroup]]:
    """Yield the requests that wait unusually long, each with its group."""
    for group in shown.waits.groups:
        for request in group.requests:
            if group.is_long(request, shown.plan.time):
                yield request, group


def _format_rule(answer: Explanation) -> str:
    """Return the key of fleet.yaml that decides, and its position; empty without a key."""
    key, place = yaml_key(answer.path), answer.place
    return place if place.startswith(key) else ", ".join(filter(None, (key, place)))


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


class _BuildList(NamedTuple):
    """A list of all builds in one order: its folder, order, and the heading of each build."""

    folder: str
    label: str
    order: Callable[[BuildRow], tuple[object, ...]]
    heading: Callable[[BuildRow, Counter[str]], str]


def _format_package(row: BuildRow, counts: Counter[str]) -> str:
    """Return the package if it has many builds, or else its first letter."""
    name = row.package
    return name if counts[name] >= _MANY_BUILDS and name else name[:1].upper() or NO_PACKAGE


def _format_user(row: BuildRow, _: Counter[str]) -> str:
    return row.user or NO_USER


_LISTS = (
    _BuildList(
        REQUESTS,
        "by package",
        lambda row: (not row.package, row.package.lower(), _number_key(row.key)),
        _format_package,
    ),
    _BuildList(
        f"{REQUESTS}/~user",
        "by user",
        lambda row: (not row.user, row.user, row.package.lower(), _number_key(row.key)),
        _format_user,
    ),
    _BuildList(f"{REQUESTS}/~id", "by id", lambda row: (_number_key(row.key),), lambda *_: ""),
)
"""The lists of all builds. No request has such a folder: see path_part."""


def requests(shown: Shown) -> Iterator[Page]:
    """Yield the lists of waiting and running builds, and the page of each waiting request."""
    rows = [*_rows(shown), *_running(shown)]
    counts = Counter(row.package for row in rows)
    orders = [(each.label, f"{each.folder}/index.html") for each in _LISTS]
    for each in _LISTS:
        ordered = sorted(rows, key=each.order)
        sheets, parts = in_sheets(ordered, _MOST_ON_SHEET, each.folder, _name_row)
        for number, (sheet, part) in enumerate(zip(sheets, parts, strict=True), 1):
            headings = ((each.heading(row, counts), row) for row in part)
            parted = [
                (name, [row for _, row in alike])
                for name, alike in groupby(headings, itemgetter(0))
            ]
            values = {
                "groups": parted,
                "sheets": sheets,
                "number": number,
                "orders": orders,
                "order": each.label,
            }
            yield Page(sheet.path, "requests.html", values)
    found = {each.key: (group, each) for group in shown.waits.groups for each in group.requests}
    for key, answer in shown.waits.explained.items():
        group, request = found[key]
        if REPAIR_FIRST in answer.plain:
            # Each row would repeat why no machine is created.
            places = [each.altered(closed="") for each in answer.places]
            answer = answer.altered(places=tuple(places))  # noqa: PLW2901 - the same, shorter
        # Only the page of the first request lists the others, so that pages stay small.
        listed = () if answer.like else group.requests[1 : MOST_LISTED + 1]
        alike = [each.key for each in listed if answer.reasons]
        values = {
            "answer": answer,
            "queue_page": shown.queue_pages.get(key, ""),
            "group": group,
            "request": request,
            "is_long": group.is_long(request, shown.plan.time),
            "alike": alike,
            "others": len(group.requests) - 1,
            "rule": _format_rule(answer),
            "has_notes": any(
                p.is_chosen or p.closed or p.asks or p.is_late for p in answer.places
            ),
            "place_of": place_of,
            "where_to_write": where_to_write,
        }
        yield Page(shown.addresses.requests[key], "request.html", values)


def _name_row(row: BuildRow) -> str:
    return f"{row.package} {row.key}".strip()


def _rows(shown: Shown) -> Iterator[BuildRow]:
    """Yield the waiting requests."""
    now, pages = shown.plan.time, shown.addresses.requests
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
                pages.get(each.key, ""),
                NEVER if each.never else start,
                words.since(each.since, now),
                _cut(each.brief or group.verdict),
            )


def _running(shown: Shown) -> Iterator[BuildRow]:
    """Yield the running builds."""
    now, pages = shown.plan.time, shown.addresses.by_worker
    for each in shown.waits.running:
        end = words.brief_time(each.end, now)
        runs = describe_running(each.worker, words.since(each.since, now))
        start = describe_end(end)
        page = pages.get(each.worker, "")
        yield BuildRow(each.key, each.package, each.user, page, start, "-", runs)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def _number_key(key: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]{1,18})", key)
    return [(int(part), "") if n % 2 else (-1, part) for n, part in enumerate(parts)]
