"""What servers of a Hetzner Cloud project share is listed whole, however much there is."""

from fleet.clouds.hcloud.machines import HcloudShared
from simulators.hetzner.server import SimulatedHetzner

PARTS = 120


def test_parts_on_later_pages_are_listed() -> None:
    with SimulatedHetzner() as api:
        api.state.resources["ssh_keys"] = {
            number: {"id": number, "name": f"key-{number}", "labels": {"fleet": "debian"}}
            for number in range(1, PARTS + 1)
        }

        listed = HcloudShared(api.token, base_url=api.endpoint).list("debian")

    assert listed == {f"ssh_key/key-{number}": str(number) for number in range(1, PARTS + 1)}
