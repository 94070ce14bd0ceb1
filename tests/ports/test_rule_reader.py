"""The contract of RuleReader: the rules of each place, and silence is not taken for none.

Debusine's stand-in is held to the suite that a real server keeps (tests/live/test_rules.py).
"""

from collections.abc import Iterator

import pytest

from fleet.errors import PlanRefused
from fleet.migrate.export import Delivery, deliver
from fleet.migrate.from_copr import CoprAllowList
from fleet.model.facts import HeldRules, QueueRule, Unknown
from fleet.ports import RuleReader
from fleet.schema.model import CoprRulesFile, CoprRulesUrl
from tests.builders.sentences import tells
from tests.fakes.files import FakeFiles
from tests.ports.task_rules_suite import PATH, Server, TaskRulesSuite, a_rule, an_entry
from tests.rigs.loopback import Answer, Loopback
from tests.rigs.task_configuration import OWNER, VIEWER, TaskConfiguration

PLACE = "debian/builds"


@pytest.fixture
def configuration() -> TaskConfiguration:
    return TaskConfiguration()


@pytest.fixture
def api(configuration: TaskConfiguration) -> Iterator[Server]:
    with configuration.serve() as loopback:
        yield Server(loopback.url, PLACE, OWNER, VIEWER)


class TestStandIn(TaskRulesSuite):
    """The suite."""


COPR = """
EXTRA_BUILDCHROOT_TAGS = [
    {"pattern": r"praiskup/ping/.*/chromium\\Z", "tags": ["extra_powerful"]},
]
"""
HELD = HeldRules(
    written=(QueueRule(pattern=r"praiskup/ping/.*/chromium\Z", requires=("extra_powerful",)),)
)


def copr_from_file(name: str, content: bytes) -> CoprAllowList:
    return CoprAllowList(
        CoprRulesFile(file="copr.conf"), "/there/copr.conf", FakeFiles({name: content})
    )


def test_rule_readers_return_rules_of_named_places(
    configuration: TaskConfiguration, api: Server
) -> None:
    configuration.entries[PLACE] = [an_entry("llvm", path=PATH, position=0)]
    with Loopback(lambda _: Answer(200, COPR.encode())) as web:
        url = f"{web.url}/plain/copr.conf/?h=main&id=a%20b#top"
        readers: dict[str, tuple[RuleReader, HeldRules]] = {
            PLACE: (api.rules(), HeldRules(written=(a_rule("llvm"),))),
            "copr.conf": (copr_from_file("/there/copr.conf", COPR.encode()), HELD),
            url: (CoprAllowList(CoprRulesUrl(url=url), "", FakeFiles({})), HELD),
        }
        for place, (reader, held) in readers.items():
            assert reader.read() == {place: held}

    (asked,) = web.received
    assert (asked.path, asked.query) == ("/plain/copr.conf/", {"h": "main", "id": "a b"})
    # Those of all pages.
    configuration.entries[PLACE] = [an_entry("x", path="a.yaml", position=n) for n in range(120)]
    assert len(api.rules().stored(PLACE)) == 120


def test_rule_readers_return_unknown_when_unreadable(api: Server) -> None:
    with Loopback(lambda _: Answer(503, b"")) as web:
        readers: list[RuleReader] = [
            api.rules("0" * 64),
            copr_from_file("/elsewhere", b""),
            copr_from_file("/there/copr.conf", b"OTHER = 1\n"),
            copr_from_file("/there/copr.conf", b"EXTRA_BUILDCHROOT_TAGS = load()\n"),
            CoprAllowList(CoprRulesUrl(url=web.url), "", FakeFiles({})),
        ]
        for reader in readers:
            (read,) = reader.read().values()
            assert isinstance(read, Unknown), read
            assert read.unknown


@pytest.mark.parametrize("posts", [0, 1], ids=["before the tries", "between try and change"])
def test_delivery_is_refused_when_rules_changed_meanwhile(
    configuration: TaskConfiguration, api: Server, posts: int
) -> None:
    owner = api.rules(api.owner)
    delivery = Delivery(PLACE, PATH, owner.stored(PLACE), [an_entry("llvm")])
    theirs = an_entry("gcc", path="theirs.yaml", position=0)
    configuration.meanwhile, configuration.posts_before = [theirs], posts

    with pytest.raises(PlanRefused, match=r"debian/builds.* 1 .* 0"):
        deliver([(owner, delivery)])

    assert configuration.entries[PLACE] == [theirs]


def test_delivery_reports_rules_lost_to_a_concurrent_push(
    configuration: TaskConfiguration, api: Server
) -> None:
    owner = api.rules(api.owner)
    delivery = Delivery(PLACE, PATH, owner.stored(PLACE), [an_entry("llvm")])
    configuration.meanwhile = [an_entry("gcc", path="theirs.yaml", position=0)]
    configuration.posts_before = 2

    delivered = deliver([(owner, delivery)])

    assert delivered.exit_code == 5
    assert delivered.done == (f"{PLACE}: 1 added, 0 deleted",)
    assert tells(delivered.failed, "1 entries", "0")


@pytest.mark.parametrize("lost", [False, True], ids=["it changed", "it fails"])
def test_delivery_is_partly_done_when_second_place_changed_or_fails(
    configuration: TaskConfiguration, api: Server, *, lost: bool
) -> None:
    second = "debian/second"
    configuration.entries[second] = []
    owner = api.rules(api.owner)
    theirs = [an_entry("gcc", path="theirs.yaml", position=0)]
    if lost:
        configuration.lost_at_change = second
    else:
        configuration.meanwhile, configuration.posts_before = [*theirs], 4

    delivered = deliver(
        [(owner, Delivery(at, PATH, [], [an_entry("llvm")])) for at in (PLACE, second)]
    )

    assert delivered.exit_code == 5
    assert delivered.done == (f"{PLACE}: 1 added, 0 deleted",)
    assert not lost or tells(delivered.failed, "500")
    assert configuration.entries[second] == ([] if lost else theirs)
