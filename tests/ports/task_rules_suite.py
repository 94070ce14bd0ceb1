"""What any server of task configuration has to do with what fleet delivers.

tests.ports.test_rule_reader.py runs it against the stand-in, tests/live/test_rules.py against a
real Debusine.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from fleet.errors import SourceUnreachable
from fleet.migrate.export import Delivery, deliver
from fleet.model.facts import HeldRules, QueueRule, Unknown
from fleet.queues.debusine.task_rules import TaskRules
from fleet.schema.model import DebusineQueue
from tests.builders.sentences import tells

PATH = "fleet/debian-ci.yaml"
POWERFUL = "worker:class:powerful"


@dataclass(frozen=True)
class Server:
    """A server with an empty collection `default` in one workspace."""

    url: str
    place: str
    owner: str
    viewer: str

    def rules(self, token: str = "", *, collection: str = "default") -> TaskRules:
        """Return what fleet reads and writes with; without a token, as a viewer."""
        said = {"workspaces": [self.place], "collection": collection}
        queue = DebusineQueue.model_validate(
            {"kind": "debusine", "url": self.url, "scopes": ["debian"], "rules": said}
        )
        assert queue.rules is not None
        return TaskRules(queue, queue.rules, token or self.viewer, path=PATH)


def an_entry(package: str, **more: object) -> dict[str, Any]:
    """Return an entry as it is exported."""
    return {
        "task_type": "Worker",
        "task_name": "noop",
        "tags_provided": [f"task:source-package:{package}"],
        "require_tags": [POWERFUL],
        "comment": f"fleet debian-ci, {package}",
        **more,
    }


def a_rule(package: str) -> QueueRule:
    """Return such an entry as a rule."""
    provided = (f"task:source-package:{package}",)
    return QueueRule(task="noop", when_provided=provided, requires=(POWERFUL,))


PEOPLES: dict[str, Any] = {
    "task_type": "Worker",
    "task_name": "noop",
    "default_values": {"result": True},
    "comment": "a person wrote this",
}
"""It has few keys, as an entry that did not come from Debusine's own client."""


class TaskRulesSuite:
    """What a server does, whichever it is; the fixture `api` gives one."""

    def test_task_rules_are_empty_at_first_and_readable_by_viewer(self, api: Server) -> None:
        assert api.rules().read() == {api.place: HeldRules()}

    def test_delivery_adds_rules_and_keeps_those_of_others(self, api: Server) -> None:
        owner = api.rules(api.owner)
        owner.post(api.place, [PEOPLES], dry_run=False)

        done = self.deliver(api, "chromium", "llvm").done

        assert done == (f"{api.place}: 2 added, 0 deleted",)
        held = HeldRules(written=(a_rule("chromium"), a_rule("llvm")), uncompared=1)
        assert api.rules().read() == {api.place: held}
        assert PEOPLES in owner.stored(api.place)

    def test_repeated_delivery_posts_no_rules(self, api: Server) -> None:
        self.deliver(api, "chromium")
        owner = api.rules(api.owner)

        again = owner.post(api.place, owner.stored(api.place), dry_run=True)

        assert self.deliver(api, "chromium").done == ()
        assert (again.added, again.updated, again.removed, again.unchanged) == (0, 0, 0, 1)

    def test_delivery_deletes_only_removed_rule(self, api: Server) -> None:
        api.rules(api.owner).post(api.place, [PEOPLES], dry_run=False)
        self.deliver(api, "chromium", "llvm", "webkit2gtk")

        done = self.deliver(api, "chromium", "webkit2gtk").done

        assert done == (f"{api.place}: 0 added, 1 deleted",)
        held = HeldRules(written=(a_rule("chromium"), a_rule("webkit2gtk")), uncompared=1)
        assert api.rules().read() == {api.place: held}

    def test_viewer_cannot_write_task_rules(self, api: Server) -> None:
        with pytest.raises(SourceUnreachable, match="writing owner"):
            api.rules().post(api.place, [PEOPLES], dry_run=True)

        assert api.rules().read() == {api.place: HeldRules()}

    def test_wrong_token_or_missing_collection_is_an_error(self, api: Server) -> None:
        wrong = api.rules("0" * 64).read()[api.place]
        missing = api.rules(collection="other").read()[api.place]

        assert isinstance(wrong, Unknown)
        assert tells(wrong.unknown, "403", "token")
        assert isinstance(missing, Unknown)
        assert tells(missing.unknown, "404", "workspace")

    def test_delivery_refuses_entry_unknown_to_server(self, api: Server) -> None:
        owner = api.rules(api.owner)

        with pytest.raises(SourceUnreachable, match="status 400"):
            owner.post(api.place, [an_entry("llvm", require_tag=["x"])], dry_run=False)

        assert owner.stored(api.place) == []

    def deliver(self, api: Server, *packages: str) -> Any:  # noqa: ANN401 - what deliver returns
        """Deliver rules for these packages."""
        owner = api.rules(api.owner)
        entries = [an_entry(package) for package in packages]
        held = owner.stored(api.place)
        return deliver([(owner, Delivery(api.place, PATH, held, entries))])
