"""What a ticket's client is told of its machine is written as fleet.yaml says."""

import pytest

from fleet.apply.assign import fill

TOLD = {"name": "m-1", "host": "192.0.2.1", "pool": "powerful", "data": "user: ci"}


@pytest.mark.parametrize(
    ("template", "answer"),
    [
        ("{host}", "192.0.2.1"),
        ("ssh -p {port} root@{host}", "ssh -p 22 root@192.0.2.1"),
        ("host: {host}\nname: {name}\n", "host: 192.0.2.1\nname: m-1"),
        ("{pool}: {data}", "powerful: user: ci"),
    ],
)
def test_an_answer_is_filled_in(template: str, answer: str) -> None:
    assert fill(template, TOLD) == answer


def test_a_port_that_is_told_is_said() -> None:
    assert fill("{host}:{port}", TOLD | {"port": "2222"}) == "192.0.2.1:2222"


def test_what_is_told_is_not_filled_in_again() -> None:
    assert fill("{data}", TOLD | {"data": "{name}"}) == "{name}"


def test_what_nothing_is_told_of_is_empty() -> None:
    assert fill("[{data}]", {"name": "m-1"}) == "[]"
