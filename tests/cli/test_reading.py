"""Commands that only read run none of the operator's livechecks, and count none of them."""

import re
from pathlib import Path

import pytest

from tests.rigs.hook_machines import write_hooks
from tests.rigs.repeats import slow_but
from tests.rigs.trial import Trial

FLEET = """\
fleet: trial
queues:
  tickets: {kind: tickets}
images:
  box: {existing: {boxes: box-1}, architecture: amd64}
pools:
  boxes:
    provider: hooks
    machine: {type: box, cores: 2, memory: 4GiB, disk: 20GiB, price: 0 EUR/h}
    image: box
    workers: {max: 1, min: 1}
    hooks:
      new: [sh, new.sh]
      delete: [sh, delete.sh]
      list: [sh, list.sh]
      livecheck: [sh, livecheck.sh]
      livecheck_every: 1s
"""


READING = ("plan", "status", "doctor", "observe", "explain pool boxes")


@pytest.mark.parametrize("command", slow_but(READING[:2], READING))
def test_read_only_commands_run_no_livechecks(project: Path, command: str) -> None:
    trial = Trial(project)
    trial.write(FLEET)
    write_hooks(project, livecheck="echo look >>looks; exit 1")
    trial.init()
    for _ in range(2):
        trial.apply()
    noted = project / ".fleet/hooks-boxes/livechecks.json"
    # So long ago that whoever may look does.
    old = re.sub(r'(?<="at": ")[^"]+', "2026-01-01T00:00:00Z", noted.read_text(encoding="utf-8"))
    noted.write_text(old, encoding="utf-8")
    looks = (project / "looks").read_bytes()

    trial.do(*command.split())

    assert noted.read_text(encoding="utf-8") == old
    assert (project / "looks").read_bytes() == looks
