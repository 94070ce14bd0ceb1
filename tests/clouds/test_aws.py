"""How AWS's listing is read: whole, or Unknown."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from fleet.clouds.aws.machines import AwsMachines
from fleet.errors import SourceUnreachable
from fleet.model.facts import Listing, Machine, MachineState, Unknown
from fleet.schema.model import AwsProvider
from tests.builders.sentences import tells
from tests.fakes.aws import PROVIDER, SECRET, Amazon, LyingAmazon, page, refusal, tag_list
from tests.rigs.loopback import Answer, html, since

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
NAME = "demo-builders-0001"


@pytest.fixture
def amazon() -> Iterator[Amazon]:
    with Amazon() as account:
        yield account


def at(region: str) -> AwsMachines:
    return AwsMachines(AwsProvider.model_validate({"kind": "aws", "region": region}))


def machines_of(cloud: AwsMachines | None = None, fleet: str = "demo") -> tuple[Machine, ...]:
    listing = (cloud or AwsMachines(PROVIDER, now=lambda: NOW)).list(fleet)
    assert isinstance(listing, Listing), listing
    return listing.machines


def why_unknown(cloud: AwsMachines | None = None) -> str:
    unknown = (cloud or AwsMachines(PROVIDER, now=lambda: NOW)).list("demo")
    assert isinstance(unknown, Unknown), unknown
    return unknown.unknown


def test_instance_has_all_fields_of_a_decision(amazon: Amazon) -> None:
    more = {"fleet:digest": "abc123", "fleet:expires": LATER.isoformat()}
    made = amazon.launch(NAME, more)

    known = amazon.ask("describe_instances")["Reservations"][0]["Instances"][0]
    assert machines_of() == (
        Machine(
            name=NAME,
            id=made,
            pool="builders",
            type="c7a.2xlarge",
            state=MachineState.RUNNING,
            created_at=known["LaunchTime"],
            image="ami-12345678",
            digest="abc123",
            expires=LATER,
            address=known["PublicIpAddress"],
        ),
    )
    assert machines_of(at("eu-north-1")) == ()
    amazon.ask("terminate_instances", InstanceIds=[made])
    assert machines_of() == ()


@pytest.mark.parametrize("missing", ["fleet:pool", "fleet:worker"])
def test_listing_is_unknown_when_own_instance_lacks_a_tag(amazon: Amazon, missing: str) -> None:
    ids = sorted(
        amazon.launch(NAME, {"fleet:expires": moment})
        for moment in ("tomorrow", "2026-11-22T09:00:00")
    )

    machines = machines_of()
    amazon.ask("delete_tags", Resources=ids[:1], Tags=[{"Key": missing}])

    # The older of two instances of a worker is named by its id; no tag of theirs is a time.
    assert sorted(machine.id for machine in machines) == ids
    assert [machine.name for machine in machines if machine.name != machine.id] == [NAME]
    assert [machine.expires for machine in machines] == [None] * 2
    assert tells(why_unknown(), ids[0], "tag fleet")


def test_extend_tags_more_machines_than_one_call_permits(amazon: Amazon) -> None:
    ids = [amazon.launch(f"demo-{number}", {"own": "kept"}) for number in range(3)]
    unknown_ids = [f"i-{number:017x}" for number in range(300)]

    AwsMachines(PROVIDER).extend([*ids, *unknown_ids], LATER)

    assert {machine.expires for machine in machines_of()} == {LATER}
    tags = amazon.ask("describe_instances")["Reservations"][0]["Instances"][0]["Tags"]
    others = {"own": "kept", "fleet": "demo", "fleet:pool": "builders"}
    assert all(mark in tags for mark in tag_list(others))


def test_extend_continues_when_one_instance_has_maximum_tags(amazon: Amazon) -> None:
    ids = [amazon.launch(f"demo-{number}") for number in range(5)]
    many = tag_list({f"own-{n}": "x" for n in range(47)})
    amazon.ask("create_tags", Resources=[ids[2]], Tags=many)

    with pytest.raises(SourceUnreachable, match="TagLimitExceeded"):
        AwsMachines(PROVIDER).extend(ids, LATER)

    noted = {machine.id for machine in machines_of() if machine.expires == LATER}
    assert noted == {*ids} - {ids[2]}


# what lies in its place


STATES = {
    "pending": MachineState.STARTING,
    "running": MachineState.RUNNING,
    "shutting-down": MachineState.STOPPING,
    "stopping": MachineState.STOPPING,
    "stopped": MachineState.STOPPED,
}


def test_all_pages_and_states_are_read_or_unknown() -> None:
    pages = [page(f"i-{state}", state=state, following=f"after-{state}") for state in STATES]
    with LyingAmazon(*pages, page("i-a", "i-b")) as api:
        found = {machine.id: machine.state for machine in machines_of()}
        sent = api.received[1].body
    with LyingAmazon(page("i-1")) as api:
        assert machines_of(fleet="demo-two") == ()
        api.faults.truncate = since(1)
        truncated = why_unknown()

    states = {f"i-{state}": found for state, found in STATES.items()}
    assert found == states | dict.fromkeys(("i-a", "i-b"), MachineState.RUNNING)
    assert "NextToken=after-pending" in sent
    assert "incomplete" in truncated


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ((page("i-1", state="dreaming"),), ("i-1", "dreaming")),
        ((page("i-1", following="again"),), ("pages", "never")),
        ((page("i-1", following="two"), refusal("InternalError", 500)), ("(InternalError)",)),
        *(
            ((garbage,), ("EC2", "answer"))
            for garbage in (
                *(html(), page("")),
                *(Answer(200, body) for body in (b"<a/>", b"no XML", b"")),
            )
        ),
        *(
            ((refusal(code, said="canary"),), ("eu-central-1", "DescribeInstances", code, advice))
            for code, advice in {
                "AuthFailure": "region",
                "InvalidClientTokenId": "credentials",
                "SignatureDoesNotMatch": "clock",
                "RequestExpired": "clock",
                "ExpiredToken": "session token",
                "UnauthorizedOperation": "policy",
                "RequestLimitExceeded": "requests",
                "OptInRequired": "account",
                "Unheard": "",
            }.items()
        ),
    ],
)
def test_listing_is_unknown_with_advice_when_aws_refuses(
    answers: tuple[Answer, ...], words: tuple[str, ...]
) -> None:
    with LyingAmazon(*answers):
        why = why_unknown()

    assert tells(why, *words)
    assert "canary" not in why


def test_listing_is_unknown_after_timeout_or_in_no_region() -> None:
    seconds = iter(range(0, 10_000, 200))

    with LyingAmazon(page("i-1", following="two"), page("i-2")):
        cloud = AwsMachines(PROVIDER, clock=lambda: float(next(seconds)))
        assert tells(why_unknown(cloud), "300 s")
        for region in ("the moon", "eu_central"):
            assert tells(why_unknown(at(region)), f"EC2 in {region}", "not", "region")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, ("EC2", "no connection", "AWS")),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, ("AWS_PROFILE",)),
        ({"AWS_ACCESS_KEY_ID": ""}, ()),
        ({"AWS_PROFILE": "nobody"}, ("ProfileNotFound",)),
    ],
)
def test_listing_is_unknown_when_the_environment_is_wrong(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], words: tuple[str, ...]
) -> None:
    with LyingAmazon(page()):
        for name, value in changes.items():
            monkeypatch.setenv(name, value)
            if not value:
                monkeypatch.delenv(name)

        why = why_unknown()

    assert tells(why, *words)
    assert SECRET not in why


@pytest.mark.parametrize(
    ("act", "answers", "words"),
    [
        (
            lambda cloud: cloud.extend(["i-1"], LATER),
            (page("i-1"), refusal("UnauthorizedOperation", 403)),
            r"CreateTags.*refused",
        ),
        (
            lambda cloud: cloud.extend([f"i-{number}" for number in range(201)], LATER),
            (page("i-1"), refusal("InternalError"), page("i-9"), refusal("InternalError")),
            r"was refused.*\(and 1 more failed\)",
        ),
        (
            lambda cloud: cloud.delete("i-1"),
            (refusal("OperationNotPermitted"),),
            r"TerminateInstances.*refused",
        ),
    ],
)
def test_errors_of_changes_have_the_reason_of_aws(
    act: Callable[[AwsMachines], None], answers: tuple[Answer, ...], words: str
) -> None:
    with LyingAmazon(*answers) as amazon, pytest.raises(SourceUnreachable, match=words):
        act(AwsMachines(PROVIDER))

    # Each batch of 200 is tagged, whatever became of the first.
    tagged = [each.body for each in amazon.received if "Action=CreateTags" in each.body]
    assert all(f"i-{number}" in body for number, body in zip((1, 9), tagged, strict=False))
    assert len(amazon.received) == len(answers)
