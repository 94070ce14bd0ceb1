"""Fleet.user_data to its sentences."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fleet.model.user_data import read_user_data, write_user_data

URL = "https://debusine.example.org"
TOKEN = "5ec4e7" * 10 + "abcd"
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)


def document(*, delay: int = 0) -> dict[str, list[object]]:
    text = write_user_data(URL, TOKEN, delay=delay)
    assert text.startswith("#cloud-config\n")
    loaded: dict[str, list[object]] = yaml.safe_load(text)
    return loaded


def test_user_data_has_token_and_server_in_worker_files() -> None:
    assert document()["write_files"] == [
        {
            "path": "/etc/debusine/worker/config.ini",
            "permissions": "0644",
            "owner": "debusine-worker:debusine-worker",
            "content": "[General]\napi-url = https://debusine.example.org/api\n",
        },
        {
            "path": "/etc/debusine/worker/activation-token",
            "permissions": "0600",
            "owner": "debusine-worker:debusine-worker",
            "content": TOKEN,
        },
    ]


def test_worker_starts_after_its_files_are_written() -> None:
    written = document()

    assert list(written) == ["bootcmd", "write_files", "runcmd"]
    assert written["bootcmd"] == [
        [
            "cloud-init-per",
            "instance",
            "hold-worker",
            "systemctl",
            "mask",
            "--runtime",
            "debusine-worker.service",
        ]
    ]
    assert written["runcmd"] == [
        ["systemctl", "unmask", "--runtime", "debusine-worker.service"],
        ["systemctl", "restart", "debusine-worker.service"],
    ]


def test_worker_with_delay_waits_before_start() -> None:
    assert document(delay=4)["runcmd"][0] == ["sleep", "4"]
    assert write_user_data(URL, TOKEN, delay=0) == write_user_data(URL, TOKEN)


def test_swap_file_has_requested_size() -> None:
    gib = 1024**3

    swapping = yaml.safe_load(write_user_data(URL, TOKEN, swap=2048))["swap"]

    assert swapping == {"filename": "/swap.img", "size": 2 * gib, "maxsize": 2 * gib}
    assert "swap" not in document(delay=0)


def test_commands_of_user_data_get_no_token() -> None:
    written = document(delay=9)

    assert TOKEN not in f"{written['bootcmd']} {written['runcmd']}"


def test_trailing_slash_of_url_is_not_doubled() -> None:
    assert write_user_data(URL + "/", TOKEN) == write_user_data(URL, TOKEN)


@given(token=TEXTS, delay=st.integers(0, 3600), swap=st.integers(0, 1 << 20))
def test_user_data_round_trips(token: str, delay: int, swap: int) -> None:
    data = read_user_data(write_user_data(URL, token, delay=delay, swap=swap))

    assert (data.delay, data.swap) == (delay, swap)
    assert [each.path.rpartition("/")[2] for each in data.files] == [
        "config.ini",
        "activation-token",
    ]
    assert data.files[1].content == token


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#!/bin/sh\n",
        "#cloud-config\n",
        "#cloud-config\n[",
        "#cloud-config\nruncmd: []\n",
        write_user_data(URL, TOKEN).replace("restart", "stop"),
        write_user_data(URL, TOKEN, delay=3).replace("sleep", "shutdown"),
        write_user_data(URL, TOKEN, delay=3).replace("'3'", "soon"),
        write_user_data(URL, TOKEN) + "users: []\n",
    ],
)
def test_invalid_user_data_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"^fleet .*user data$") as refusal:
        read_user_data(text)

    assert refusal.value.__context__ is None


def test_repr_of_user_data_hides_token() -> None:
    assert TOKEN not in repr(read_user_data(write_user_data(URL, TOKEN)))
