"""The program of the wheel with the real engine: an extra brings all that it needs."""

from pathlib import Path
from typing import Any

import pytest

from tests.faults.cloud_trial import BUSY, THREE, TWO, Beginning
from tests.faults.clouds import Aws, Hetzner
from tests.packaging.conftest import wheel
from tests.rigs.installed import install

__all__ = ["wheel"]

pytestmark = pytest.mark.engine


def applies(extra: str, wheel: Path, folder: Path, begun: Beginning[Any]) -> None:
    """Apply with the program of the wheel, with this extra alone; what is there is busy."""
    installed = install(wheel, folder, (extra, "postgres"))
    with begun.trial(folder / "trial") as trial:
        process = trial.begin("apply", by=(str(installed.program),))
        said, noted = process.communicate(timeout=300)

        assert process.returncode == 0, said + noted
        assert trial.machines() == [BUSY, TWO, THREE]
        assert trial.wrongs() == []


def test_apply_at_hetzner_needs_only_its_extra(
    wheel: Path, tmp_path: Path, at_hetzner: Beginning[Hetzner]
) -> None:
    applies("hcloud", wheel, tmp_path, at_hetzner)


def test_apply_at_aws_needs_only_its_extra(
    wheel: Path, tmp_path: Path, at_aws: Beginning[Aws]
) -> None:
    applies("aws", wheel, tmp_path, at_aws)
