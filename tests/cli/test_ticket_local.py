"""`fleet ticket` where machines are processes on this computer."""

from pathlib import Path

from tests.builders.sentences import tells
from tests.rigs.local_machines import end_machines
from tests.rigs.trial import Trial

LOCAL = """\
fleet: trial
providers:
  here: {kind: local, run: [sleep, infinity]}
queues:
  work: {kind: tickets}
images:
  builder: {existing: {here: x}}
pools:
  powerful: {provider: here, machine: {cores: 4, memory: 8GiB}, image: builder,
    provides: [extra_powerful], workers: {max: 3}}
tags:
  extra_powerful: {on_demand: true}
"""


def test_local_process_is_assigned_to_ticket_and_stopped(project: Path) -> None:
    trial = Trial(project)
    trial.write(LOCAL)
    trial.init()
    try:
        number = trial.do("ticket", "open", "--tag", "extra_powerful", "--user", "ada")[1].split()[
            0
        ]
        trial.apply()

        assert tells(trial.apply(), "trial-powerful-0001", "assigned", f"ticket {number}")

        trial.do("ticket", "close", number, "--user", "ada")
        assert "delete trial-powerful-0001" in trial.apply()
    finally:
        end_machines(project / ".fleet/local-here")
