"""What exists at the simulated Hetzner may outlive it in a file, but for user data."""

from pathlib import Path

import httpx
import pytest

from fleet.errors import StoreFailed
from simulators.hetzner.server import SimulatedHetzner

SERVER = {"name": "one", "server_type": "ccx13", "image": "debian-13", "user_data": "canary"}


def make_server(api: SimulatedHetzner) -> None:
    headers = {"Authorization": f"Bearer {api.token}"}
    httpx.post(f"{api.endpoint}/servers", json=SERVER, headers=headers).raise_for_status()


def test_servers_stock_and_ids_are_persistent(tmp_path: Path) -> None:
    with SimulatedHetzner(state_file=tmp_path / "cloud.json") as api:
        api.state.stock["ccx13"] = 5
        make_server(api)
        last = api.state.new_id() - 1

    with SimulatedHetzner(state_file=tmp_path / "cloud.json") as again:
        assert [each["name"] for each in again.state.servers.values()] == ["one"]
        assert again.state.stock == {"ccx13": 4}
        assert again.state.new_id() > last


def test_user_data_is_in_no_file(tmp_path: Path) -> None:
    with SimulatedHetzner(state_file=tmp_path / "cloud.json") as api:
        make_server(api)

    assert "canary" not in (tmp_path / "cloud.json").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["cloud.json"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"resources": 1}'])
def test_error_names_invalid_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "cloud.json").write_text(text)

    with pytest.raises(StoreFailed, match=r"cloud.json is no state of the simulated Hetzner"):
        SimulatedHetzner(state_file=tmp_path / "cloud.json")
