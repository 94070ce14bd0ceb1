"""What the machine of a new worker is given, and for how long; no token is told anywhere else."""

import pytest

from tests.rigs.bench import Bench

ALL = "apply create #1 at debian, create #2 at debian, create #3 at debian"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_new_machine_gets_token_and_server_of_its_worker(bench: Bench) -> None:
    bench.play([ALL])

    for name, token in bench.registry.tokens.items():
        config, file = bench.given(f"#{name[-1]}").files
        assert file.content == token
        assert "https://debusine.example.org/api" in config.content
    assert len(bench.registry.tokens) == 3
    assert bench.registry.confirmed == 1


def test_user_data_contains_swap_of_pool(bench: Bench) -> None:
    bench.play(["pool {machine: {type: ccx33, swap: 2GiB}}", ALL])

    assert bench.given("#1").swap == 2048
