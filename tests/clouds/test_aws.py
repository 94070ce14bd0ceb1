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


@pytest.fixture
def amazon() -> Iterator[Amazon]:
    with Amazon() as account:
        yield account


def _read(**wiring: Callable[[], float]) -> Listing | Unknown:
    return AwsMachines(PROVIDER, now=lambda: NOW, **wiring).list("demo")


def _machines() -> tuple[Machine, ...]:
    listing = _read()
    assert isinstance(listing, Listing), listing
    return listing.machines


def _why_unknown(*answers: Answer, **wiring: Callable[[], float]) -> str:
    with LyingAmazon(*answers):
        unknown = _read(**wiring)
    assert isinstance(unknown, Unknown), unknown
    return unknown.unknown


def test_instance_has_all_fields_of_a_decision(amazon: Amazon) -> None:
    more = {"fleet:digest": "abc123", "fleet:expires": LATER.isoformat()}
    made = amazon.launch("demo-builders-0001", more)

    (machine,) = _machines()

    known = amazon.ask("describe_instances")["Reservations"][0]["Instances"][0]
    assert machine == Machine(
        name="demo-builders-0001",
        id=made,
        pool="builders",
        type="c7a.2xlarge",
        state=MachineState.RUNNING,
        created_at=known["LaunchTime"],
        image="ami-12345678",
        digest="abc123",
        expires=LATER,
        address=known["PublicIpAddress"],
    )


def test_terminated_instance_is_not_listed(amazon: Amazon) -> None:
    amazon.ask("terminate_instances", InstanceIds=[amazon.launch("demo-builders-0001")])

    assert _machines() == ()


def test_older_of_two_instances_of_a_worker_is_named_by_id(amazon: Amazon) -> None:
    ids = sorted(amazon.launch("demo-builders-0001") for _ in range(2))

    machines = _machines()

    assert sorted(machine.id for machine in machines) == ids
    assert [machine.name for machine in machines if machine.name != machine.id] == [
        "demo-builders-0001"
    ]


@pytest.mark.parametrize("missing", ["fleet:pool", "fleet:worker"])
def test_listing_is_unknown_when_own_instance_lacks_a_tag(amazon: Amazon, missing: str) -> None:
    made = amazon.launch("demo-builders-0001")
    amazon.ask("delete_tags", Resources=[made], Tags=[{"Key": missing}])

    unknown = _read()

    assert isinstance(unknown, Unknown)
    assert tells(unknown.unknown, made, "tag fleet")


@pytest.mark.parametrize("moment", ["tomorrow", "2026-11-22T09:00:00"])
def test_expiry_is_none_when_tag_is_not_a_time(amazon: Amazon, moment: str) -> None:
    amazon.launch("demo-builders-0001", {"fleet:expires": moment})

    assert [machine.expires for machine in _machines()] == [None]


def test_instances_of_another_region_are_not_listed(amazon: Amazon) -> None:
    amazon.launch("demo-builders-0001")
    elsewhere = AwsProvider.model_validate({"kind": "aws", "region": "eu-north-1"})

    listing = AwsMachines(elsewhere).list("demo")

    assert isinstance(listing, Listing)
    assert listing.machines == ()


def test_extend_tags_more_machines_than_one_call_permits(amazon: Amazon) -> None:
    ids = [amazon.launch(f"demo-{number}") for number in range(3)]
    unknown_ids = [f"i-{number:017x}" for number in range(300)]

    AwsMachines(PROVIDER).extend([*ids, *unknown_ids], LATER)

    assert {machine.expires for machine in _machines()} == {LATER}


def test_extend_keeps_other_tags(amazon: Amazon) -> None:
    made = amazon.launch("demo-builders-0001", {"own": "kept"})

    AwsMachines(PROVIDER).extend([made], LATER)

    tags = amazon.ask("describe_instances")["Reservations"][0]["Instances"][0]["Tags"]
    assert {"Key": "own", "Value": "kept"} in tags
    assert all(mark in tags for mark in tag_list({"fleet": "demo", "fleet:pool": "builders"}))


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("pending", MachineState.STARTING),
        ("running", MachineState.RUNNING),
        ("shutting-down", MachineState.STOPPING),
        ("stopping", MachineState.STOPPING),
        ("stopped", MachineState.STOPPED),
    ],
)
def test_every_instance_state_has_a_machine_state(status: str, state: MachineState) -> None:
    with LyingAmazon(page("i-1", state=status)):
        assert [machine.state for machine in _machines()] == [state]


def test_listing_is_unknown_when_a_state_is_unknown() -> None:
    assert tells(_why_unknown(page("i-1", state="dreaming")), "i-1", "dreaming")


def test_all_pages_are_read() -> None:
    with LyingAmazon(page("i-1", "i-2", following="two"), page("i-3")) as api:
        ids = [machine.id for machine in _machines()]

    assert ids == ["i-1", "i-2", "i-3"]
    assert "NextToken=two" in api.received[1].body


def test_foreign_instances_are_ignored() -> None:
    with LyingAmazon(page("i-1")):
        listing = AwsMachines(PROVIDER).list("demo-two")

    assert isinstance(listing, Listing)
    assert listing.machines == ()


def test_listing_is_unknown_when_pages_never_end() -> None:
    assert tells(_why_unknown(page("i-1", following="again")), "pages", "never")


def test_incomplete_listing_is_unknown() -> None:
    answers = (page("i-1", following="two"), refusal("InternalError", 500))

    assert tells(_why_unknown(*answers), "EC2", "(InternalError)")


def test_listing_is_unknown_after_timeout() -> None:
    seconds = iter(range(0, 10_000, 200))

    why = _why_unknown(
        page("i-1", following="two"), page("i-2"), clock=lambda: float(next(seconds))
    )

    assert tells(why, "300 s")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("AuthFailure", "region"),
        ("InvalidClientTokenId", "credentials"),
        ("SignatureDoesNotMatch", "clock"),
        ("RequestExpired", "clock"),
        ("ExpiredToken", "session token"),
        ("UnauthorizedOperation", "policy"),
        ("RequestLimitExceeded", "requests"),
        ("OptInRequired", "account"),
        ("Unheard", ""),
    ],
)
def test_listing_is_unknown_with_advice_when_aws_refuses(code: str, advice: str) -> None:
    why = _why_unknown(refusal(code, said="canary"))

    assert tells(why, "EC2", "eu-central-1", "DescribeInstances", code, advice)
    assert "canary" not in why


@pytest.mark.parametrize(
    "garbage",
    [html(), Answer(200, b"<a/>"), Answer(200, b"no XML"), Answer(200, b""), page("")],
    ids=["page", "other XML", "no XML", "nothing", "no id"],
)
def test_listing_is_unknown_when_response_is_invalid(garbage: Answer) -> None:
    assert tells(_why_unknown(garbage), "EC2", "answer")


def test_listing_is_unknown_when_response_is_truncated() -> None:
    with LyingAmazon(page("i-1")) as api:
        api.faults.truncate = since(1)

        unknown = _read()

    assert isinstance(unknown, Unknown)
    assert "incomplete" in unknown.unknown


def test_listing_is_unknown_when_address_has_no_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    with LyingAmazon(page()) as api:
        monkeypatch.setenv("AWS_ENDPOINT_URL", api.url.rpartition(":")[0] + ":1")

        unknown = _read()

    assert isinstance(unknown, Unknown)
    assert tells(unknown.unknown, "EC2", "no connection", "AWS")


def test_listing_is_unknown_without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with LyingAmazon(page()):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

        unknown = _read()

    assert isinstance(unknown, Unknown)
    assert tells(unknown.unknown, "AWS_PROFILE")


def test_listing_is_unknown_with_incomplete_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    with LyingAmazon(page()):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")

        unknown = _read()

    assert isinstance(unknown, Unknown)
    assert SECRET not in unknown.unknown


def test_listing_is_unknown_with_missing_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    with LyingAmazon(page()):
        monkeypatch.setenv("AWS_PROFILE", "nobody")

        unknown = _read()

    assert isinstance(unknown, Unknown)
    assert tells(unknown.unknown, "ProfileNotFound")


@pytest.mark.parametrize("region", ["the moon", "eu_central"])
def test_listing_is_unknown_with_invalid_region(region: str) -> None:
    provider = AwsProvider.model_validate({"kind": "aws", "region": region})

    with LyingAmazon(page()):
        unknown = AwsMachines(provider).list("demo")

    assert isinstance(unknown, Unknown)
    assert tells(unknown.unknown, f"EC2 in {region}", "not", "region")


def test_extend_error_has_reason_of_aws() -> None:
    with (
        LyingAmazon(page("i-1"), refusal("UnauthorizedOperation", 403)),
        pytest.raises(SourceUnreachable, match=r"CreateTags.*refused"),
    ):
        AwsMachines(PROVIDER).extend(["i-1"], LATER)


def test_extend_continues_when_one_batch_is_refused() -> None:
    refused = refusal("InternalError")
    amazon = LyingAmazon(page("i-1"), refused, page("i-9"), refused)
    with amazon, pytest.raises(SourceUnreachable, match=r"was refused.*\(and 1 more failed\)"):
        AwsMachines(PROVIDER).extend([f"i-{number}" for number in range(201)], LATER)

    tagged = [each.body for each in amazon.received if "Action=CreateTags" in each.body]
    assert ["i-1" in tagged[0], "i-9" in tagged[1]] == [True, True]


def test_extend_continues_when_one_instance_has_maximum_tags(amazon: Amazon) -> None:
    names = [f"demo-{number}" for number in range(5)]
    ids = [amazon.launch(name) for name in names]
    amazon.ask(
        "create_tags", Resources=[ids[2]], Tags=tag_list({f"own-{n}": "x" for n in range(47)})
    )

    with pytest.raises(SourceUnreachable, match="TagLimitExceeded"):
        AwsMachines(PROVIDER).extend(ids, LATER)

    noted = {machine.name for machine in _machines() if machine.expires == LATER}
    assert noted == {*names} - {names[2]}


def test_delete_error_has_reason_of_aws() -> None:
    with (
        LyingAmazon(refusal("OperationNotPermitted")),
        pytest.raises(SourceUnreachable, match=r"TerminateInstances.*refused"),
    ):
        AwsMachines(PROVIDER).delete("i-1")
