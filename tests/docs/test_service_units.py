"""The unit files that how-to pages show are ones that systemd reads without a complaint."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.rigs.process import ROOT

PAGE = ROOT / "docs/how-to/run-as-a-service.md"
UNITS = re.findall(r"```ini\n(.*?)```\n", PAGE.read_text(encoding="utf-8"), re.DOTALL)
NAMES = ("fleet.service", "fleet-sweep.service", "fleet-sweep.timer")
ANALYZE = shutil.which("systemd-analyze")


def test_page_shows_each_unit_that_it_names() -> None:
    assert len(UNITS) == len(NAMES)
    assert all(name.removesuffix(".timer") in PAGE.read_text(encoding="utf-8") for name in NAMES)


@pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    assert ANALYZE is not None
    # The program stands elsewhere on this computer than on the page.
    for name, text in zip(NAMES, UNITS, strict=True):
        (tmp_path / name).write_text(text.replace("/opt/fleet/bin/fleet", "/bin/true"))

    said = subprocess.run(
        [ANALYZE, "verify", *[str(tmp_path / name) for name in NAMES]],
        capture_output=True,
        text=True,
        check=False,
    )

    ours = [line for line in said.stderr.splitlines() if str(tmp_path) in line or "fleet" in line]
    assert (said.returncode, ours) == (0, [])
