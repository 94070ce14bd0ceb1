"""A `new` that hangs: its attempts count as failed, another pool serves, and its ticket tells."""

import json
from pathlib import Path

import pytest

from tests.rigs.racks import a_rack, made

pytestmark = pytest.mark.usefixtures("impatient")
HANGS = "cat > /dev/null; echo register >&2; exec sleep 300"
QUICK = ", timeouts: {new: 1s}"
FIRST, SECOND = "rack-first-0001", "rack-first-0002"


@pytest.mark.slow
def test_machine_is_kept_when_it_appears_after_its_pool_closed(project: Path) -> None:
    trial = a_rack(project, HANGS, more=QUICK)
    for _ in range(5):
        trial.do("apply")
    machine = json.loads((project / "machines/rack-works-0001").read_text())
    late = {**machine, "name": FIRST, "labels": {**machine["labels"], "pool": "first"}}
    (project / "machines" / FIRST).write_text(json.dumps(late), encoding="utf-8")

    trial.do("apply")

    assert made(trial) == [FIRST, "rack-works-0001"]
    assert FIRST in [each["worker"] for each in trial.plan()["workers"]]
