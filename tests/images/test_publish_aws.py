"""Publishing to AWS: what is asked of it, and what the policy allows."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse

from fleet.clouds.aws.images import BLOCK, AwsPublisher
from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.images.publish import Pipeline
from tests.builders import NOW
from tests.fakes.aws import Amazon
from tests.fakes.ebs import REGION, Registrar, StrictAccount
from tests.rigs.process import ROOT
from tests.rigs.publishing import VERSION, Watcher, a_build, amazon_blocks, some_disk
from tests.rigs.repeats import slow_but

PAGE = ROOT / "docs/how-to/publish-an-image.md"
WITH_IT = {"ec2:RegisterImage": {"ec2:CreateTags"}, "ebs:StartSnapshot": {"ec2:CreateTags"}}


@pytest.fixture
def there() -> Iterator[Registrar]:
    with Amazon():
        yield Registrar()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "images" / "trixie" / VERSION


def publisher(there: Registrar, calls: set[str] | None = None) -> Pipeline:
    account = StrictAccount(REGION, there, NOW)
    seen = set() if calls is None else calls

    def note(model: Any, **_: object) -> None:  # noqa: ANN401 - botocore has no types
        seen.add(f"{model.service_model.service_name}:{model.name}")

    account.session.events.register("before-call", note)
    return Pipeline(AwsPublisher("debian-ci", REGION, account=account, pause=lambda _: None))


def statements() -> list[dict[str, Any]]:
    text = PAGE.read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- policy -->\n```json\n(.*?)```", text, flags=re.DOTALL)
    found: list[dict[str, Any]] = json.loads(block)["Statement"]
    return found


def allowed() -> set[str]:
    actions = [each["Action"] for each in statements()]
    return {each for some in actions for each in ([some] if isinstance(some, str) else some)}


def test_aws_image_is_registered_for_machines(there: Registrar, folder: Path) -> None:
    published = publisher(there).publish(a_build(folder), str(folder), Watcher())

    asked = there.images[published.id]
    tags = {each["Key"]: each["Value"] for each in asked["TagSpecifications"][0]["Tags"]}
    assert (asked["Name"], asked["Architecture"]) == (f"debian-ci-trixie-{VERSION}", "x86_64")
    assert (asked["BootMode"], asked["EnaSupport"]) == ("uefi-preferred", True)
    assert (asked["ImdsSupport"], asked["VirtualizationType"]) == ("v2.0", "hvm")
    assert tags["fleet"] == "debian-ci"
    assert (tags["fleet:image"], tags["fleet:version"]) == ("trixie", VERSION)


def test_arm_image_is_registered_with_uefi_only(there: Registrar, folder: Path) -> None:
    manifest = a_build(folder, architecture="arm64")

    published = publisher(there).publish(manifest, str(folder), Watcher())

    asked = there.images[published.id]
    assert (asked["Architecture"], asked["BootMode"]) == ("arm64", "uefi")


def test_publish_aws_refuses_unsupported_architecture_early(
    there: Registrar, folder: Path
) -> None:
    manifest = a_build(folder, architecture="riscv64")

    with pytest.raises(PublicationRefused, match=r"amd64.*arm64"):
        publisher(there).publish(manifest, str(folder), Watcher())

    assert there.blocks == {}


def test_blocks_of_zeros_are_not_sent(there: Registrar, folder: Path) -> None:
    disk = bytes(8 * BLOCK) + b"end"

    publisher(there).publish(a_build(folder, disk=disk), str(folder), Watcher())

    (blocks,) = there.blocks.values()
    assert blocks == {8: b"end".ljust(BLOCK, b"\0")}


@pytest.mark.slow
def test_resumed_upload_sends_only_missing_blocks(there: Registrar, folder: Path) -> None:
    manifest, again = a_build(folder, disk=some_disk(size=64 * BLOCK)), Watcher()
    with pytest.raises(SourceUnreachable):
        publisher(there).publish(manifest, str(folder), Watcher(breaks_at=0.5))

    publisher(there).publish(manifest, str(folder), again)

    uploads = [each for each in again.heard if each.phase == "upload"]
    assert uploads[0].done >= 0.5 * uploads[0].total
    assert len(there.blocks) == 1
    assert list(folder.parent.glob(".publish-snap*")) == []


@pytest.mark.parametrize("status", slow_but([429], [429, 500, 503]))
def test_throttled_api_call_is_repeated(there: Registrar, folder: Path, status: int) -> None:
    account, refused = StrictAccount(REGION, there, NOW), []

    def refuse(request: Any, **_: object) -> AWSResponse | None:  # noqa: ANN401 - same
        refused.append(request.url)
        return AWSResponse(request.url, status, {}, Empty()) if len(refused) == 1 else None

    account.session.events.register("before-send.ebs.PutSnapshotBlock", refuse)
    publisher = Pipeline(AwsPublisher("debian-ci", REGION, account=account, pause=lambda _: None))

    published = publisher.publish(a_build(folder), str(folder), Watcher())

    assert published.verified
    assert len(refused) == len(set(refused)) + 1


def test_failed_ami_is_an_error_without_waiting(there: Registrar, folder: Path) -> None:
    account, paused = StrictAccount(REGION, there, NOW), list[float]()

    def fail(parsed: Any, **_: object) -> None:  # noqa: ANN401 - same
        for image in parsed["Images"]:
            image["State"] = "failed"

    account.session.events.register("after-call.ec2.DescribeImages", fail)
    publisher = Pipeline(AwsPublisher("debian-ci", REGION, account=account, pause=paused.append))

    with pytest.raises(SourceUnreachable, match=r"ami-.* failed"):
        publisher.publish(a_build(folder), str(folder), Watcher())

    assert paused == []


class Empty:
    """The body of an answer that says nothing."""

    def stream(self, **_: object) -> Iterator[bytes]:
        return iter(())


def test_snapshot_with_other_content_is_deleted(there: Registrar, folder: Path) -> None:
    class Spoiling(Watcher):
        def __call__(self, transfer: Any) -> None:  # noqa: ANN401 - as the port says it
            if transfer.phase == "read back":
                return
            for blocks in amazon_blocks():
                for block in blocks.values():
                    block.block_data = b"rotten".ljust(BLOCK, b"\0")

    with pytest.raises(SourceUnreachable, match=r"differ.*deleted"):
        publisher(there).publish(a_build(folder), str(folder), Spoiling())

    assert publisher(there).uploads() == ()
    assert there.images == {}


def test_aws_policy_allows_exactly_the_calls_of_a_publication(
    there: Registrar, folder: Path
) -> None:
    seen: set[str] = set()
    amazon = publisher(there, seen)
    published = amazon.publish(a_build(folder), str(folder), Watcher())
    amazon.clean(NOW)
    amazon.delete(published.id)

    # The double marks an image by a call of its own, which AWS does by itself.
    needed = seen | {right for call in seen for right in WITH_IT.get(call, ())}
    assert needed == allowed()


def test_aws_policy_changes_only_labelled_objects() -> None:
    changing = [each for each in statements() if each["Sid"] != "Look"]

    unbound = [each["Sid"] for each in changing if "Condition" not in each]
    assert unbound == []
