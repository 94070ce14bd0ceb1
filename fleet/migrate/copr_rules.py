"""This module reads the allow-list that a Copr's frontend has, from its file or an address."""

from urllib.parse import urlsplit, urlunsplit

from pydantic_core import PydanticSerializationError

from fleet.errors import FileUnreadable, SourceUnreachable
from fleet.migrate.from_copr import read_list
from fleet.model.facts import HeldRules, QueueRule, Unknown
from fleet.schema.model import CoprRulesFile, CoprRulesUrl
from fleet.schema.source import Files

_LIMIT_BYTES = 10 * 1000 * 1000
_OK = 200


class CoprAllowList:
    """EXTRA_BUILDCHROOT_TAGS, as fleet.yaml says where it is; `name` is the file's path here."""

    def __init__(self, rules: CoprRulesFile | CoprRulesUrl, name: str, files: Files) -> None:
        self._rules = rules
        self._name = name
        self._files = files

    def read(self) -> dict[str, HeldRules | Unknown]:
        """Return the rules of the one place."""
        place = self._rules.file if isinstance(self._rules, CoprRulesFile) else self._rules.url
        try:
            rules = read_list(place, self._content())
        except (FileUnreadable, SourceUnreachable) as error:
            return {place: Unknown(unknown=str(error))}
        held = {QueueRule(pattern=rule.pattern, requires=rule.tags) for rule in rules}
        try:
            return {place: HeldRules(written=tuple(sorted(held, key=QueueRule.model_dump_json)))}
        except PydanticSerializationError:
            return {place: Unknown(unknown=f"{place}: a pattern of it is no text")}

    def _content(self) -> bytes:
        if isinstance(self._rules, CoprRulesFile):
            return self._files.read(self._name, _LIMIT_BYTES)
        # httpx is slow to load, and most commands read nothing.
        from fleet.queues.http import Limits, Reader

        url = urlsplit(self._rules.url)
        path = urlunsplit(("", "", url.path, url.query, ""))
        server = f"{url.scheme}://{url.netloc}"
        with Reader(server, limits=Limits(body_bytes=_LIMIT_BYTES)) as reader:
            reply = reader.get(path, {}, {})
        if reply.status != _OK:
            raise SourceUnreachable(f"{reply.place} answered with status {reply.status}")
        return reply.body
