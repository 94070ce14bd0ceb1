"""Pages of waiting requests: by outcome, one for each explained request, and a list by id."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from fleet.explain.waiting import WaitingGroup, WaitingRequest
from fleet.report.answers import place_of, where_to_write
from fleet.schema.findings import yaml_key
from fleet.site.links import QUEUE, REQUESTS
from fleet.site.pages import MOST_LISTED, Page, Shown, in_sheets
from fleet.words import figures as words

_MOST_GROUPS = 300
_MOST_LONG = 50
_MOST_ON_SHEET = 2_000
_MOST_LETTERS = 120


def queue(shown: Shown) -> Iterator[Page]:
    """Yield the page of waiting requests, grouped by outcome."""
    groups = shown.waits.groups
    late = sorted(late_requests(shown), key=lambda each: (each[0].since, each[0].key))
    values = {
        "groups": groups[:_MOST_GROUPS],
        "more": groups[_MOST_GROUPS:],
        "late": late[:_MOST_LONG],
        "later": len(late[_MOST_LONG:]),
        "places": {group.path: _place(shown, group) for group in groups[:_MOST_GROUPS]},
    }
    yield Page(f"{QUEUE}/index.html", "queue.html", values)


def late_requests(shown: Shown) -> Iterator[tuple[WaitingRequest, WaitingGroup]]:
    """Yield the requests that wait unusually long, each with its group."""
    for group in shown.waits.groups:
        for request in group.requests:
            if group.is_long(request, shown.plan.time):
                yield request, group


def _place(shown: Shown, group: WaitingGroup) -> str:
    """Return the key of fleet.yaml that decided about a group, and its position."""
    key, place = yaml_key(group.path), shown.places.get(group.path, "")
    if not place:
        return key
    return place if place.startswith(key) else f"{key}, {place}"


class RequestRow(NamedTuple):
    """One request in the list of all requests."""

    key: str
    like: str
    """Id of the request whose page explains this request; empty if no page does."""
    waits: str
    start: str
    why: str
    package: str = ""


def requests(shown: Shown) -> Iterator[Page]:
    """Yield the list of requests by id, on several pages if needed, and the explained requests."""
    rows = sorted(_rows(shown), key=lambda row: _number_key(row.key))
    sheets, parts = in_sheets(rows, _MOST_ON_SHEET, REQUESTS, lambda row: row.key)
    for number, (sheet, part) in enumerate(zip(sheets, parts, strict=True), 1):
        packages = any(row.package for row in part)
        values = {"rows": part, "sheets": sheets, "number": number, "packages": packages}
        yield Page(sheet.path, "requests.html", values)
    found = {each.key: (group, each) for group in shown.waits.groups for each in group.requests}
    for key, answer in shown.waits.explained.items():
        group, request = found[key]
        alike = [each.key for each in group.requests[: MOST_LISTED + 1] if each.key != key]
        values = {
            "answer": answer,
            "first": shown.waits.explained.get(answer.like),
            "queue_page": shown.queue_pages.get(key, ""),
            "group": group,
            "request": request,
            "is_long": group.is_long(request, shown.plan.time),
            "alike": alike[:MOST_LISTED],
            "others": len(group.requests) - 1,
            "place_of": place_of,
            "where_to_write": where_to_write,
        }
        yield Page(shown.addresses.requests[key], "request.html", values)


def _rows(shown: Shown) -> Iterator[RequestRow]:
    now, explained = shown.plan.time, shown.waits.explained
    if not shown.waits.groups:
        for entry in shown.status.waiting:
            because = _cut("; ".join(entry.because))
            yield from (RequestRow(key, "", "-", words.UNKNOWN, because) for key in entry.requests)
    for group in shown.waits.groups:
        first, why = group.requests[0].key, _cut(group.verdict)
        like = first if first in explained else ""
        for each in group.requests:
            start = words.starts([each.start], [each.assumed])
            own = each.key if each.key in explained else like
            yield RequestRow(each.key, own, words.since(each.since, now), start, why, each.package)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"


def _number_key(key: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]{1,18})", key)
    return [(int(part), "") if n % 2 else (-1, part) for n, part in enumerate(parts)]
