"""What the machine of a new worker is given, and for how long; no token is told anywhere else."""

from datetime import timedelta

import pytest

from tests.builders import NOW
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


def test_workers_of_one_run_start_in_order(bench: Bench) -> None:
    bench.play([ALL])

    assert [bench.given(name).delay for name in ("#1", "#2", "#3")] == [0, 2, 4]


def test_token_expires_after_boot_deadline_of_its_machine(bench: Bench) -> None:
    bench.play([ALL])

    deadline = timedelta(minutes=10)  # boot.deadline
    making = timedelta(minutes=10)
    expected = [NOW + deadline + making + timedelta(seconds=late) for late in (0, 2, 4)]
    assert [each.expires for each in bench.registry.enrolled] == expected


def test_user_data_contains_swap_of_pool(bench: Bench) -> None:
    bench.play(["pool {machine: {type: ccx33, swap: 2GiB}}", ALL])

    assert bench.given("#1").swap == 2048


def test_worker_is_enrolled_with_its_fleet_pool_and_tags(bench: Bench) -> None:
    bench.play(["pool {provides: ['worker:class:big'], requires: ['task:scope:debian']}", ALL])

    enrolment, *_ = bench.registry.enrolled
    assert (enrolment.fleet, enrolment.pool) == ("debian-ci", "builders")
    assert enrolment.worker == "debian-ci-builders-0001"
    assert "worker:class:big" in enrolment.provides
    assert enrolment.requires == ("task:scope:debian",)


def test_tokens_are_absent_from_output_outcome_and_store(bench: Bench) -> None:
    bench.play(["engine fails #2", ALL, "> 5 builders failed +#1 +#3"])

    dump = bench.sources.store.dump()
    told = f"{bench.said} {bench.ended} {bench.error} {bench.engine.stacks!r} {dump!r}"
    assert bench.registry.enrolled
    assert "token-of-" not in told
