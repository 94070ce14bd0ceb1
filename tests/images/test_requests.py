"""Builds at a Debusine server: what is posted, how it is followed, what is taken or refused."""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import BuildFailed
from fleet.images.folder import list_builds, verify
from fleet.images.requests import RequestBuilder
from fleet.manifest import BuildOrder, BuildStep, Manifest
from fleet.schema.model import ImageRecipe
from tests.loopback import Answer, Loopback, Received

DISK = b"QFI\xfb" + b"a disk" * 1000
NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
MIRROR = "http://deb.example.org/debian"


@dataclass
class Debusine:
    """What a server does with the one request it gets."""

    statuses: list[str] = field(default_factory=lambda: ["pending", "running", "completed"])
    result: str = "success"
    disk: bytes = DISK
    sha256: str = hashlib.sha256(DISK).hexdigest()
    host: str = ""
    category: str = "debian:system-image"
    posted: dict[str, object] = field(default_factory=dict)
    aborted: int = 0
    url: str = ""

    def __call__(self, received: Received) -> Answer:
        answers: dict[str, Callable[[Received], Answer]] = {
            "/api/1.0/work-request/": self._post,
            "/api/1.0/work-request/7/": self._look,
            "/api/1.0/work-request/7/abort/": self._abort,
            "/api/1.0/artifact/3/": lambda _: _json({"category": "logs", "data": {}}),
            "/api/1.0/artifact/4/": lambda _: _json(self._artifact()),
            "/debian/builds/artifact/4/download/image.qcow2": lambda _: Answer(200, self.disk),
        }
        return answers[received.path](received)

    def _post(self, received: Received) -> Answer:
        self.posted = json.loads(received.body)
        return _json({"id": 7, "status": "pending", "result": "", "artifacts": []})

    def _look(self, _: Received) -> Answer:
        over = len(self.statuses) == 1
        status = self.statuses[0] if over else self.statuses.pop(0)
        done = {"result": self.result, "artifacts": [3, 4]} if over else {}
        return _json({"id": 7, "status": status, **done})

    def _abort(self, _: Received) -> Answer:
        self.aborted += 1
        return _json({})

    def _artifact(self) -> dict[str, object]:
        where = f"{self.host or self.url}/debian/builds/artifact/4/download/image.qcow2"
        checksums = {"sha256": self.sha256}
        return {
            "category": self.category,
            "data": {"pkglist": {"sbuild": "0.89.3", "apt": "3.0.3"}},
            "files": {
                "image.qcow2": {"size": len(DISK), "url": where, "checksums": checksums},
            },
        }


def _json(value: object) -> Answer:
    return Answer(200, json.dumps(value).encode())


@dataclass
class Site:
    """A server, a folder for builds, and what was told of them."""

    server: Loopback
    debusine: Debusine
    images: Path
    steps: list[BuildStep] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def build(
        self,
        *,
        mirror: str | None = MIRROR,
        wait: Callable[[float], None] | None = None,
        **keys: object,
    ) -> Manifest:
        """Build the image of a recipe."""
        recipe = {"suite": "trixie", "architecture": "amd64", **keys}
        order = BuildOrder(
            image="trixie",
            version="20261121T080000Z",
            recipe=ImageRecipe.model_validate(recipe),
            built_at=NOW,
            built_by="a test",
        )
        builder = RequestBuilder(
            images=self.images,
            url=f"{self.server.url}/",
            scope="debian",
            token="secret",
            workspace="builds",
            mirror=mirror,
            wait=wait or self.waits.append,
        )
        return builder.build(order, self.steps.append)

    def left(self) -> list[str]:
        """Return what lies where the versions of the image lie."""
        return [path.name for path in (self.images / "trixie").iterdir()]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    debusine = Debusine()
    with Loopback(debusine) as server:
        debusine.url = server.url
        yield Site(server, debusine, tmp_path)


def test_the_disk_that_a_server_made_is_taken_into_a_folder_with_its_manifest(site: Site) -> None:
    manifest = site.build()

    (build,) = list_builds(site.images, "trixie")
    verify(build.folder, manifest)
    assert build.manifest == manifest
    assert (build.folder / "disk.qcow2").read_bytes() == DISK
    assert [(each.name, each.version) for each in manifest.packages] == [
        ("apt", "3.0.3"),
        ("sbuild", "0.89.3"),
    ]
    assert manifest.way == "debusine"


def test_the_token_goes_to_the_server_and_into_no_file(site: Site) -> None:
    site.build()

    assert {each.headers["token"] for each in site.server.received} == {"secret"}
    written = [path.read_bytes() for path in site.images.rglob("*") if path.is_file()]
    assert [content for content in written if b"secret" in content] == []


def test_each_status_is_told_once_and_noted(site: Site) -> None:
    site.build()

    phases = [step.phase for step in site.steps]
    log = (site.images / "trixie/20261121T080000Z/build.log").read_text(encoding="utf-8")
    assert phases == ["submit", "submit", "pending", "running", "completed", "take"]
    assert [line.split()[2].rstrip(":") for line in log.splitlines()] == phases
    assert site.waits == [10, 10]


def test_a_server_that_fails_for_a_moment_is_asked_again(site: Site) -> None:
    site.server.faults.drop = {2, 3, 5}

    site.build()

    assert len(list_builds(site.images, "trixie")) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"result": "failure"}, "work request 7 at .* is completed with failure"),
        ({"statuses": ["aborted"], "result": ""}, "work request 7 at .* is aborted: its page"),
        ({"category": "debian:system-tarball"}, "has 0 system images of one file"),
        ({"host": "http://elsewhere.example.org"}, "names another host for image.qcow2"),
        ({"disk": DISK[:-1] + b"!"}, "the server has 6004 of"),
        ({"disk": DISK[:-1]}, "came with 6003 bytes"),
    ],
)
def test_what_did_not_become_that_image_leaves_nothing(
    site: Site, wrong: dict[str, object], said: str
) -> None:
    for name, value in wrong.items():
        setattr(site.debusine, name, value)

    with pytest.raises(BuildFailed, match=said):
        site.build()

    assert site.left() == [".lock"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(403, b""), "has to be a contributor of the workspace"),
        (
            Answer(400, b'{"title": "no such task"}', {"Content-Type": "application/json"}),
            "status 400: .*no such task",
        ),
        (Answer(200, b"[]"), "answers with something else than was expected"),
    ],
)
def test_a_request_that_a_server_refuses_is_told_in_its_words(
    site: Site, answer: Answer, said: str
) -> None:
    site.server.faults.instead["/api/1.0/work-request/"] = answer

    with pytest.raises(BuildFailed, match=said):
        site.build()


def test_a_download_that_breaks_off_is_told_as_such(site: Site) -> None:
    site.server.faults.truncate = {7}

    with pytest.raises(BuildFailed, match="broke off"):
        site.build()

    assert site.left() == [".lock"]


def interrupted(_: float) -> None:
    raise KeyboardInterrupt


def test_a_build_that_is_interrupted_is_aborted_at_the_server(site: Site) -> None:
    with pytest.raises(KeyboardInterrupt):
        site.build(wait=interrupted)

    assert site.debusine.aborted == 1
    assert site.left() == [".lock"]


def test_a_server_that_stays_silent_is_given_up(site: Site) -> None:
    site.server.faults.drop = range(2, 100)

    with pytest.raises(BuildFailed, match="tells nothing any more"):
        site.build()

    assert len(site.waits) == 9


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"mirror": None}, "has to be told the archive"),
        ({"snapshot": True}, "no archive whose lists have expired"),
    ],
)
def test_a_recipe_that_the_task_cannot_follow_is_refused_unasked(
    site: Site, keys: dict[str, Any], said: str
) -> None:
    with pytest.raises(BuildFailed, match=said):
        site.build(**keys)

    assert site.server.received == []


def posted_data(debusine: Debusine) -> Callable[[str], object]:
    data = debusine.posted["task_data"]
    assert isinstance(data, dict)
    return lambda key: data[key]


def test_the_task_is_given_suite_packages_and_a_script_that_holds_the_role(site: Site) -> None:
    site.build(suite="sid", swap="1GiB")

    said = posted_data(site.debusine)
    assert said("bootstrap_repositories") == [
        {"mirror": MIRROR, "suite": "sid", "components": ["main"]}
    ]
    assert '"debusine_worker_swap_mebibytes": 1024' in str(said("customization_script"))
    assert site.debusine.posted["task_name"] == "simplesystemimagebuild"
    assert site.debusine.posted["workspace"] == "builds"
