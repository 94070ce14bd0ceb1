"""The container image: built by tools/container.sh, run as a user without rights.

FLEET_CONTAINER names an archive that a release has built; else one is built now.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.utils import canonicalize_name

from fleet.engines.pulumi_cli import VERSION
from simulators.hetzner.server import SimulatedHetzner
from tests.live.chroot import locked, place
from tests.packaging.test_minimal import HETZNER
from tests.rigs.container import USER, Builder, Image
from tools.image_sbom import sbom

pytestmark = pytest.mark.container

LISTED = "import importlib.metadata as m; print(*{each.name for each in m.distributions()})"
MOST_BYTES = 300_000_000
"""Of the archive, which is packed."""


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    made = Builder(place().with_name("container"))
    with locked(made.storage):
        made.clears()
        yield made
        made.clears()


@pytest.fixture(scope="module")
def archive(builder: Builder, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if named := os.environ.get("FLEET_CONTAINER"):
        return Path(named)
    into = tmp_path_factory.mktemp("image") / "fleet.oci.tar"
    built = builder.builds(builder.base(), wheel, into)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    return into


@pytest.fixture(scope="module")
def image(builder: Builder, archive: Path) -> Iterator[Image]:
    container = builder.asks("from", f"oci-archive:{archive}")
    told = json.loads(builder.asks("inspect", container))
    yield Image(Path(builder.asks("mount", container)), told["OCIv1"]["config"])
    builder.asks("rm", container)
    builder.asks("rmi", "--force", told["FromImageID"])


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    made = tmp_path / "volume"
    made.mkdir()
    os.chown(made, USER, USER)
    return made


@pytest.mark.skipif("FLEET_CONTAINER" in os.environ, reason="nothing is built here")
def test_base_without_a_digest_is_refused(builder: Builder, wheel: Path, tmp_path: Path) -> None:
    base = builder.base().partition("@")[0]

    built = builder.builds(base, wheel, tmp_path / "fleet.oci.tar")

    assert built.returncode != 0
    assert f"BASE={base} has no digest" in built.stdout + built.stderr
    assert not (tmp_path / "fleet.oci.tar").exists()


def test_image_runs_the_wheel_without_rights(
    image: Image, archive: Path, wheel: Path, volume: Path
) -> None:
    asked = image.runs(volume, "fleet", "--version")
    who = image.runs(volume, "sh", "-c", "id -u; touch /opt/fleet/new /etc/new /usr/new")

    assert (asked.returncode, asked.stderr) == (0, "")
    assert asked.stdout == f"fleet {wheel.name.split('-')[1]}\n"
    assert (who.returncode, who.stdout) == (1, f"{USER}\n")
    assert who.stderr.count("Read-only file system") == 3
    assert archive.stat().st_size < MOST_BYTES


def test_image_plans_and_applies_the_example(image: Image, volume: Path) -> None:
    begun = image.runs(volume, "fleet", "init")
    planned = image.runs(volume, "fleet", "plan", "--json")
    applied = image.runs(volume, "fleet", "apply")
    again = image.runs(volume, "fleet", "plan", "--exit-code")

    for done in (begun, planned, applied, again):
        assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads(planned.stdout)
    assert [each["action"] for each in plan["actions"]] == ["create"] * 3
    # Where the solver is missing nothing is proven.
    assert plan["optimum"]["gap"] == 0


def test_image_creates_servers_with_included_engine_and_plugin(image: Image, volume: Path) -> None:
    text = HETZNER.replace("kind: world, path: world.json", "kind: tickets")
    text = text.replace('"1"', "debian-13")
    (volume / "fleet.yaml").write_text(text, encoding="utf-8")
    with SimulatedHetzner() as api:
        given = {"HCLOUD_ENDPOINT": api.endpoint, "HCLOUD_TOKEN": api.token}
        given |= {"FLEET_PASSPHRASE": "made-up"}
        done = [
            image.runs(volume, "fleet", *words, **given)
            for words in (
                ("state", "init"),
                ("ticket", "open", "--tag", "worker:build-arch:amd64"),
                ("apply",),
            )
        ]

        assert [each.returncode for each in done] == [0, 0, 0], done[-1].stdout + done[-1].stderr
        assert len(api.state.servers) == 1


def test_sbom_lists_all_packages_of_the_image(image: Image, archive: Path, volume: Path) -> None:
    format_ = "${binary:Package} ${Version}\\n"
    debian = image.runs(volume, "dpkg-query", "--show", "--showformat", format_).stdout
    python = image.runs(volume, "python", "-c", LISTED).stdout

    made = sbom(archive)

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(made)) is None
    named: dict[str, set[str]] = {"deb": set(), "pypi": set(), "golang": set()}
    for each in made["components"]:
        named[each["purl"].removeprefix("pkg:").partition("/")[0]].add(each["name"])
    assert named["deb"] == {re.split("[: ]", line)[0] for line in debian.splitlines()}
    assert named["pypi"] == {canonicalize_name(name) for name in python.split()}
    assert "fleet-reconciler" in named["pypi"]
    purls = {each["purl"] for each in made["components"]}
    assert f"pkg:golang/github.com/pulumi/pulumi/pkg/v3@v{VERSION}" in purls
