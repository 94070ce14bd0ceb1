"""The helper that an apply starts before it understands its fleet.yaml."""

import os
from pathlib import Path

import pytest

from fleet.apply.parallel import early_helpers, early_process
from fleet.schema.model import Fleet


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "fleet.yaml"


@pytest.mark.parametrize(
    "provider", ["{kind: hcloud, location: fsn1}", "{kind: aws}", "{kind: sim, engine: pulumi}"]
)
def test_a_file_that_seems_to_name_the_real_engine_has_one_get_ready(
    config: Path, provider: str
) -> None:
    config.write_text(f"fleet: demo\nproviders: {{desk: {provider}}}\n", encoding="utf-8")

    with early_process(str(config)) as process:
        assert process is not None
        assert process.is_alive
    assert not process.is_alive


def test_a_file_with_embedded_engines_only_has_none(config: Path) -> None:
    config.write_text("fleet: demo\nproviders: {desk: {kind: sim}}\n", encoding="utf-8")

    with early_process(str(config)) as process:
        assert process is None


def test_one_that_was_started_in_vain_is_ended_at_once(config: Path) -> None:
    config.write_text("fleet: demo  # later at aws\n", encoding="utf-8")
    fleet = Fleet(fleet="demo")

    with early_process(str(config)) as process:
        assert process is not None
        with early_helpers(fleet, str(config), process) as helpers:
            assert helpers is None
            assert not process.is_alive


def test_what_can_be_read_only_once_is_left_to_who_understands_it(config: Path) -> None:
    os.mkfifo(config)

    with early_process(str(config)) as process:
        assert process is None


def test_a_file_that_is_not_there_is_told_by_who_understands_it(config: Path) -> None:
    with early_process(str(config)) as process:
        assert process is None


def test_of_a_file_that_is_too_large_for_a_fleet_only_the_beginning_is_looked_at(
    config: Path,
) -> None:
    with config.open("wb") as stream:
        stream.truncate(6_000_000)
        stream.seek(0, os.SEEK_END)
        stream.write(b"\nproviders: {desk: {kind: aws}}\n")

    with early_process(str(config)) as process:
        assert process is None
