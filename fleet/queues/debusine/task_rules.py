"""Read and replace the task configuration of a workspace over REST (0.16.2).

A post replaces all entries; entries that are sent back as stored do not change. So entries of
other owners are read as stored (`…/item/`), and each post is tried with `dry_run` first. The
entries of fleet have a separate path, like a file of a checkout.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fleet.errors import SourceUnreachable
from fleet.model.facts import HeldRules, QueueRule, Unknown
from fleet.model.values import Count, Id, Line
from fleet.queues.debusine.rows import Link
from fleet.queues.http import Body, QueueReply, Reader, ReadLimits
from fleet.schema.model import DebusineQueue, DebusineRules
from fleet.tagrules.export import rule_of_entry

_CATEGORY = "debusine:task-configuration"
_MOST_PAGES = 200

Entry = dict[str, Any]


class _Collection(QueueReply):
    id: Id
    name: Line
    data: dict[str, Any]


class _Contents(QueueReply):
    collection: _Collection
    items: list[Entry]


class _Item(QueueReply):
    data: Entry


class _Items(QueueReply):
    count: Count | None = None
    """Number of entries on all pages by the server's count; None if not counted."""
    next: Link | None
    results: list[_Item]


class Counts(QueueReply):
    """Numbers of entries that a post adds, updates, removes and keeps, by the server's count."""

    added: Count
    updated: Count
    removed: Count
    unchanged: Count


class TaskRules:
    """The task configuration of the workspaces of one queue."""

    def __init__(
        self,
        queue: DebusineQueue,
        rules: DebusineRules,
        token: str | None,
        *,
        path: str,
        seconds: float = 300,
    ) -> None:
        """`path` is the path attribute that marks the entries of fleet."""
        self._url = queue.url
        self._rules = rules
        self._token = token
        self._path = path
        self._limits = ReadLimits(total=seconds)

    def read(self) -> dict[str, HeldRules | Unknown]:
        """Map each workspace to its rules; Unknown if they are unreadable."""
        return {place: self._read_held_rules(place) for place in self._rules.workspaces}

    def stored(self, place: str) -> list[Entry]:
        """Return the entries of a workspace as they are stored; raises SourceUnreachable."""
        return list(self._read_entries(place))

    def post(self, place: str, entries: Sequence[Entry], *, dry_run: bool) -> Counts:
        """Replace all entries of a workspace. Return the counts of changes, even in a dry run."""
        with Reader(self._url, limits=self._limits) as reader:
            contents = self._contents(reader, place)
            body: Body = {
                "collection": contents.collection.model_dump(),
                "items": list(entries),
                "dry_run": dry_run,
            }
            reply = reader.change("POST", self._build_path(place), self._headers(place), body)
            return reply.accepted(self._advice(place)).parse(Counts)

    def _read_held_rules(self, place: str) -> HeldRules | Unknown:
        try:
            with Reader(self._url, limits=self._limits) as reader:
                entries = self._contents(reader, place).items
        except SourceUnreachable as error:
            return Unknown.of(error)
        ours = [rule_of_entry(each) for each in entries if each.get("path") == self._path]
        others = [rule_of_entry(each) for each in entries if each.get("path") != self._path]
        return HeldRules(
            written=_sort_rules(ours),
            others=_sort_rules(others),
            uncompared=(*ours, *others).count(None),
        )

    def _contents(self, reader: Reader, place: str) -> _Contents:
        reply = reader.get(self._build_path(place), {}, self._headers(place))
        return reply.accepted(self._advice(place)).parse(_Contents)

    def _read_entries(self, place: str) -> Iterator[Entry]:
        workspace, name = quote(place.partition("/")[2]), quote(self._rules.collection)
        path = f"/api/1.0/collection/{workspace}/{_CATEGORY}/{name}/item/"
        listed = 0
        with Reader(self._url, limits=self._limits) as reader:
            for page in range(1, _MOST_PAGES + 1):
                reply = reader.get(path, {"page": str(page)}, self._headers(place))
                items = reply.accepted(self._advice(place)).parse(_Items)
                listed += len(items.results)
                if items.count is not None and listed > items.count:
                    raise SourceUnreachable(
                        f"{self._url}{path} lists {listed} entries, but counts {items.count}"
                    )
                yield from (item.data for item in items.results)
                if items.next is None:
                    return
        raise SourceUnreachable(f"{self._url}{path}: the list of entries does not end")

    def _build_path(self, place: str) -> str:
        workspace, name = place.partition("/")[2], self._rules.collection
        return f"/api/1.0/task-configuration/{quote(workspace)}/{quote(name)}/"

    def _headers(self, place: str) -> Mapping[str, str]:
        scope = {"X-Debusine-Scope": place.partition("/")[0]}
        return scope if self._token is None else {**scope, "Token": self._token}

    def _advice(self, place: str) -> Mapping[int, str]:
        workspace = place.partition("/")[2]
        create = (
            f"debusine collection create --workspace {workspace} "
            f"{self._rules.collection}@{_CATEGORY}"
        )
        return {
            401: "give the queue a `token`",
            403: "its token lacks the role: reading needs viewer in the workspace, writing owner",
            404: f"no such workspace or collection; an owner creates it: `{create}`",
            400: "the server rejects the entries; is its version supported (0.16)?",
        }


def _sort_rules(rules: Sequence[QueueRule | None]) -> tuple[QueueRule, ...]:
    return tuple(
        sorted({rule for rule in rules if rule is not None}, key=QueueRule.model_dump_json)
    )
